"""Estimates when warm-ups have caught up, from the lags of the last minutes.

**Idea.** A warm-up's lag shrinks while it follows, and grows with each batch. What counts is both together, so the
estimate is the lag divided by how fast the lag has shrunk lately. A copy that loads a snapshot shows no progress until
the whole snapshot is loaded. Then the executor's measured restore rate is used, for the lags of all its followers
together, because its visits let them follow one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from topology import TaskId

Copy = tuple[str, TaskId]

#: The seconds of the past that an estimate is made of.
WINDOW_SECONDS = 120.0
_SAMPLES = 64


class WarmupProgress:
    """The lags of one stream's warm-ups over time. Times are monotonic, in seconds.

    >>> copy = "executor-2", TaskId(0, 3)
    >>> progress = WarmupProgress()
    >>> progress.observe(copy, 900, now=0.0), progress.eta(copy)
    (None, None)
    >>> progress.observe(copy, 300, now=10.0), progress.eta(copy), progress.seconds(copy)
    (None, 5.0, 10.0)
    """

    def __init__(self) -> None:
        self._samples: dict[Copy, deque[tuple[float, int]]] = {}
        self._began: dict[Copy, float] = {}

    def keep(self, copies: Iterable[Copy]) -> None:
        """Forget all copies but these: the others are no warm-ups any more."""
        there = frozenset(copies)
        for copy in self._samples.keys() - there:
            del self._samples[copy], self._began[copy]

    def observe(self, copy: Copy, lag: int, *, now: float) -> None:
        """Record a copy's lag."""
        samples = self._samples.setdefault(copy, deque())
        self._began.setdefault(copy, now)
        while samples and (now - samples[0][0] > WINDOW_SECONDS or len(samples) >= _SAMPLES):
            samples.popleft()
        samples.append((now, lag))

    def seconds(self, copy: Copy) -> float:
        """Return how long a copy has been observed."""
        return self._samples[copy][-1][0] - self._began[copy]

    def eta(self, copy: Copy, *, rate: float | None = None, waiting: int | None = None) -> float | None:
        """Return the seconds until a copy has caught up; None if nothing is known.

        - `rate`: the records per second that its executor restores; None: not measured
        - `waiting`: the lag of all followers of its executor; None: that of the copy
        """
        (start, before), (end, lag) = self._samples[copy][0], self._samples[copy][-1]
        if not lag:
            return 0.0
        if before > lag and end > start:
            return lag * (end - start) / (before - lag)
        # Without progress for the whole window, the rate is that of better times.
        if rate is None or end - start > WINDOW_SECONDS / 2:
            return None
        return (lag if waiting is None else waiting) / rate
