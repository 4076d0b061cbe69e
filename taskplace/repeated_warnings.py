"""Logs a warning that repeats at growing intervals, with its count, and says when it is over.

**Idea.** Some causes are met again and again: each visit to an executor finds the same damaged file, and visits come
every second. A line for each hides all others. One line in all does not say whether it goes on. So the first one is
logged at once, and the next one after `FIRST_SECONDS`. Each interval is twice the one before, up to `MOST_SECONDS`. A
line says how often, and since when.

Properties: never raises, and may be called from any thread. It keeps one entry for each key and cause, until `over` or
a silence of `FORGOTTEN_SECONDS`, so causes that alternate are counted separately. A key has at most `MOST_KINDS`
entries, and one more that all further causes share. Imports nothing of the project but `taskplace.wording`, so every
module can use it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from taskplace.wording import count

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
        exc_info: bool = False,
        stacklevel: int = 2,
    ) -> None:
        """Log a warning, with its count, if it is to be logged now.

        `key`, `kind`: as of `again`; the others: as of `logging`.
        """
        if (times := self.again(key, kind=kind)) is not None:
            log.log(level, f"{message}%s", *args, times, exc_info=exc_info, stacklevel=stacklevel)

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
