"""Silence: when no source brings rows for long, event time goes on by the clock, if that is asked for.

Idea: a batch without rows is committed with the clock's time as the newest event time of every source. The next batch's
watermark comes from that manifest, as always: replays, attempts and copies agree, and it never goes back.

Properties:
- Off by default. When a window closes then depends on when the batches ran: it is no function of the rows any more.
- The watermark gets no further than the clock less a source's `delay`.
- It stops when all that is kept must have expired: silence does not run batches for ever. Rows of a future that is
  further than a day do not count for that.
- Rows that come after a silence are late if their event time is before the watermark, as any other rows.

Non-goal: one silent source among others that are not; the slowest source still holds the watermark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

from taskplace.durations import Duration, milliseconds

DAY = 86_400_000_000  # microseconds


class Silence:
    """Watches for a driver how long no rows have come.

    - `after`: how long no source has to have brought rows ("10 minutes"); None: never act
    - `topics`: the sources with an event time; `longest`: how long an entry may be kept, microseconds

    Lifetime: `_since` is the time of the last rows, or of what was last done about their absence; `_newest` is the
    newest event time of rows. Both begin with the driver.
    """

    def __init__(self, after: Duration | None, topics: Collection[str], longest: int) -> None:
        self._after = None if after is None else milliseconds(after, "idle_closing") / 1000
        self._topics, self._longest = tuple(topics), longest
        self._since = time.monotonic()
        self._newest: int | None = None
        self._timer: threading.Timer | None = None

    def newest(
        self, found: Mapping[str, int], known: Mapping[str, int], rows: int, watermark: int | None
    ) -> Mapping[str, int]:
        """Return the newest event times to commit a batch with.

        `found` are those of the batch's rows, `known` those of the batches before, `watermark` is the batch's own.
        """
        if rows:
            self._since, self._newest = time.monotonic(), None
            return found
        if not self._acts(known, watermark) or time.monotonic() - self._since < (self._after or 0.0):
            return found
        self._since = time.monotonic()
        return dict.fromkeys(self._topics, time.time_ns() // 1000)

    def watch(self, known: Mapping[str, int], watermark: int | None, run: Callable[[], None]) -> None:
        """Call `run`, which has a batch run, when the silence has lasted long enough; an earlier call is taken back."""
        self.stop()
        if not self._acts(known, watermark):
            return
        left = self._since + (self._after or 0.0) - time.monotonic()
        self._timer = threading.Timer(max(0.0, left), run)
        self._timer.name, self._timer.daemon = "taskplace-silence", True
        self._timer.start()

    def stop(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _acts(self, known: Mapping[str, int], watermark: int | None) -> bool:
        """Return whether there may be anything that the clock can close."""
        if self._after is None or not known:
            return False
        if self._newest is None:
            self._newest = min(max(known.values()), time.time_ns() // 1000 + DAY)
        return watermark is None or watermark < self._newest + self._longest
