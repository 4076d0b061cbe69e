"""Lets event time follow the clock after all sources were idle for a while (the option `idle_closing`).

Idea: a batch without rows is committed with the clock's time as the newest event time of every source. The next batch's
watermark comes from that manifest, as always. So replays, attempts and copies agree, and the watermark never goes back.

Properties:
- Off by default. With it, the time at which a window closes depends on when batches ran, not only on the rows.
- The watermark goes at most to the clock's time less a source's `delay`.
- It stops when all entries must have expired, so silence does not run batches for ever. Event times more than a day
  in the future do not extend this.
- Rows that come after a silence are late if their event time is before the watermark, like any other rows.

Non-goal: a single silent source among active ones; the slowest source still holds the watermark back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

from taskplace.durations import Duration, milliseconds

DAY = 86_400_000_000  # microseconds


class IdleSources:
    """Measures how long all sources have been idle: without rows.

    - `after`: the silence after which event time follows the clock ("10 minutes"); None: never
    - `topics`: the sources with an event time; `longest`: the longest time that an entry may be kept, microseconds

    Lifetime: `_since` is the time of the last rows, or of the last batch that moved event time by the clock;
    `_newest` is the newest event time of rows. Both start with the driver.
    """

    def __init__(self, after: Duration | None, topics: Collection[str], longest: int) -> None:
        self._after = None if after is None else milliseconds(after, "idle_closing") / 1000
        self._topics, self._longest = tuple(topics), longest
        self._since = time.monotonic()
        self._newest: int | None = None
        self._timer: threading.Timer | None = None

    def newest(
        self, of_rows: Mapping[str, int], known: Mapping[str, int], rows: int, watermark: int | None
    ) -> Mapping[str, int]:
        """Return the newest event times to commit a batch with.

        `of_rows` are those of the batch's rows, `known` those of the batches before; `watermark` is that of the batch.
        """
        if rows:
            self._since, self._newest = time.monotonic(), None
            return of_rows
        if not self._acts(known, watermark) or time.monotonic() - self._since < (self._after or 0.0):
            return of_rows
        self._since = time.monotonic()
        return dict.fromkeys(self._topics, time.time_ns() // 1000)

    def watch(self, known: Mapping[str, int], watermark: int | None, run: Callable[[], None]) -> None:
        """Call `run`, which triggers a batch, when the silence has lasted long enough. Replaces an earlier timer."""
        self.stop()
        if not self._acts(known, watermark):
            return
        left = self._since + (self._after or 0.0) - time.monotonic()
        self._timer = threading.Timer(max(0.0, left), run)
        self._timer.name, self._timer.daemon = "taskplace-idle-sources", True
        self._timer.start()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _acts(self, known: Mapping[str, int], watermark: int | None) -> bool:
        """Return whether entries or windows may be left that the clock can close."""
        if self._after is None or not known:
            return False
        if self._newest is None:
            self._newest = min(max(known.values()), time.time_ns() // 1000 + DAY)
        return watermark is None or watermark < self._newest + self._longest
