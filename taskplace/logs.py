"""Formats log records: as lines of JSON, or as text, without secrets.

**Idea.** taskplace logs with the standard module `logging` and configures nothing. Its loggers:

- `taskplace`: one line for each rebalance, with its reason and counts (INFO)
- `taskplace.tasks`: one line for each task that moves (DEBUG)
- `taskplace.<module>`: warnings and errors of a module, such as `taskplace.spark.driver.stages`

Use `JsonFormatter` in a configuration of your own ({"()": "taskplace.logs.JsonFormatter"}), or set `report.log` for
`taskplace run`.

Properties: secrets are hidden as in errors (`taskplace.redaction`), also in tracebacks. Lines name executors, tasks,
files and counts, never rows or their keys. Of the error of a source, a sink or a processor, a warning has the type and
the place. Its text, which may have keys, is logged at DEBUG only.

**Warnings that repeat** (`RepeatedWarnings`) are logged at growing intervals, with their count. Some causes are met
again and again: each follow job on an executor finds the same damaged file, and they come every second. A line for each
hides all others. One line in all does not say whether it goes on. So the first one is logged at once, and the next
one after `FIRST_SECONDS`. Each interval is twice the one before, up to `MOST_SECONDS`. A line says how often, and
since when.

Properties: never raises, and may be called from any thread. It keeps one entry for each key and cause, until `over` or
a silence of `FORGOTTEN_SECONDS`, so causes that alternate are counted separately. A key has at most `MOST_KINDS`
entries, and one more that all further causes share.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TextIO

from taskplace.redaction import redacted, scrubbed
from taskplace.wording import count

#: The attribute of a record that has the fields of its line.
FIELDS = "taskplace"
FORMATS = ("text", "json")

#: From the first line to the second one.
FIRST_SECONDS = 5.0
#: The longest interval between two lines.
MOST_SECONDS = 300.0
#: After so long without the warning, the next one is a new one.
FORGOTTEN_SECONDS = 2 * MOST_SECONDS
#: How many causes of a key are told apart.
MOST_KINDS = 10
#: The cause that stands for all beyond `MOST_KINDS`.
_OTHERS = object()


def fields(event: str, **values: Any) -> dict[str, Any]:
    """Return the argument `extra` for a record whose line of JSON has these fields.

    >>> fields("rebalance", batch=3)
    {'taskplace': {'event': 'rebalance', 'batch': 3}}
    """
    return {FIELDS: {"event": event, **values}}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time (UTC), level, logger, message, and the fields of the event.

    >>> record = logging.makeLogRecord(
    ...     {"name": "taskplace", "levelname": "INFO", "msg": "password=%s", "args": ("x",), "created": 0.0}
    ... )
    >>> JsonFormatter().format(record)
    '{"time": "1970-01-01T00:00:00.000Z", "level": "INFO", "logger": "taskplace", "message": "password=(hidden)"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": scrubbed(record.getMessage()),
        }
        given = getattr(record, FIELDS, None)
        if isinstance(given, Mapping):
            line |= {name: value for name, value in redacted(given).items() if name not in line}
        if record.exc_info or record.exc_text:
            line["exception"] = scrubbed(record.exc_text or self.formatException(record.exc_info))  # type: ignore[arg-type]
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record as text: time (UTC), level, logger, message; with a traceback, if there is one."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def format(self, record: logging.LogRecord) -> str:
        """Return the text."""
        return scrubbed(super().format(record))


@contextmanager
def logging_to(stream: TextIO, form: str, *, tasks: bool) -> Iterator[None]:
    """Write the log of taskplace to a stream within this block: INFO and above.

    - `form`: one of `FORMATS`
    - `tasks`: also the lines for each task
    """
    log, of_tasks = logging.getLogger("taskplace"), logging.getLogger("taskplace.tasks")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    before = [(each, each.level) for each in (log, of_tasks)]
    log.setLevel(logging.INFO)
    of_tasks.setLevel(logging.DEBUG if tasks else logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        for each, level in before:
            each.setLevel(level)


@dataclass
class _Warned:
    """A warning that repeats. Monotonic: `due`, when its next line is, and `last`. `since`: seconds since 1970."""

    since: float
    last: float
    due: float
    interval: float = FIRST_SECONDS
    times: int = 1


class RepeatedWarnings:
    """The warnings of one part of the program. `clock`: monotonic; `wall_clock`: seconds since 1970.

    >>> now = 0.0
    >>> repeated = RepeatedWarnings(clock=lambda: now, wall_clock=lambda: now)
    >>> repeated.again("disk"), repeated.again("disk")
    ('', None)
    >>> now = 6.0
    >>> repeated.again("disk"), repeated.again("disk", kind="another cause")
    (' (3 times since 1970-01-01 00:00:00 UTC)', '')
    >>> repeated.over("disk"), repeated.over("disk")
    (' (after 4 failures since 1970-01-01 00:00:00 UTC)', None)
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._wall_clock = clock, wall_clock
        self._warned: dict[Hashable, dict[object, _Warned]] = {}
        self._lock = threading.Lock()

    def again(self, key: Hashable, *, kind: object = None) -> str | None:
        """Count a warning. Return what to add to its line: "" for the first one; None if it is not to be logged now.

        `kind`: the cause, hashable. Each has its own count and intervals. It should not contain what always differs,
        such as the bytes that are free.
        """
        with self._lock:
            now, kinds = self._clock(), self._warned.get(key, {})
            if kind not in kinds and len(kinds) >= MOST_KINDS:
                kind = _OTHERS
            known = kinds.get(kind)
            if known is None or now - known.last > FORGOTTEN_SECONDS:
                self._forget(now)
                new = _Warned(self._wall_clock(), now, now + FIRST_SECONDS)
                self._warned.setdefault(key, {})[kind] = new
                return ""
            known.times, known.last = known.times + 1, now
            if now < known.due:
                return None
            known.interval = min(2 * known.interval, MOST_SECONDS)
            known.due = now + known.interval
            return f" ({count(known.times, 'time')} since {_at(known.since)})"

    def over(self, key: Hashable) -> str | None:
        """Note that all causes of a warning are gone.

        Return what to add to the line that says so; None if there was no warning.
        """
        with self._lock:
            known = self._warned.pop(key, {}).values()
            if not known:
                return None
            times, since = sum(each.times for each in known), min(each.since for each in known)
            return f" (after {count(times, 'failure')} since {_at(since)})"

    def warn(
        self,
        log: logging.Logger,
        message: str,
        *args: object,
        key: Hashable = "",
        kind: object = None,
        level: int = logging.WARNING,
        **options: Any,
    ) -> None:
        """Log a warning, with its count, if it is to be logged now.

        `key`, `kind`: as of `again`; the others: as of `logging`.
        """
        if (times := self.again(key, kind=kind)) is not None:
            log.log(level, f"{message}%s", *args, times, **{"stacklevel": 2, **options})

    def settle(self, log: logging.Logger, message: str, *args: object, key: Hashable = "") -> None:
        """Note that the cause of a warning is gone, and log that, if there was one."""
        if (times := self.over(key)) is not None:
            log.warning(f"{message}%s", *args, times, stacklevel=2)

    def _forget(self, now: float) -> None:
        """Drop the warnings that are long over, so that the entries do not grow with the program's life."""
        for key, kinds in list(self._warned.items()):
            for kind in [kind for kind, known in kinds.items() if now - known.last > FORGOTTEN_SECONDS]:
                del kinds[kind]
            if not kinds:
                del self._warned[key]


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
