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
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from taskplace.redaction import redacted, scrubbed

#: The attribute of a record that has the fields of its line.
FIELDS = "taskplace"
FORMATS = ("text", "json")


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
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
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
