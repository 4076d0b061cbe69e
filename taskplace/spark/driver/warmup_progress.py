"""Follows the warm-ups of a stream: their lags over time, and when each has caught up.

**Idea.** The status, the metrics and the explanations ask here, so they say the same time. A warm-up's lag shrinks
while it follows, and grows with each batch. What counts is both together, so the pace is how fast the lag has shrunk.
The part of a snapshot that a copy has loaded does not count as lag here. Before there is a pace, the measured restore
rate of the executor is used. While batches run, visits have only a share of the executor's time.

Source of the estimate: `taskplace.lag.ranking`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from taskplace.lag.ranking import seconds_left, to_go
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.driver.cluster_state import ClusterState, Member, SnapshotLoads
from taskplace.spark.messages import EMPTY
from topology import TaskId

Copy = tuple[str, TaskId]

#: The seconds of the past that an estimate is made of.
WINDOW_SECONDS = 120.0
#: The least seconds between two samples that are kept, however often somebody looks.
SAMPLE_SECONDS = 2.0


@dataclass(frozen=True)
class Warmup:
    """A warm-up at one time.

    - `lag`: in records; `caught_up`: whether it is small enough to take the task over
    - `seconds`: how long it has been a warm-up, as far as this driver has seen
    - `idle`: the seconds since it last read a record; those since it began if it has read none
    - `remaining`: the seconds until it has caught up; None: not known
    """

    lag: int
    caught_up: bool
    seconds: float
    idle: float
    remaining: float | None


class WarmupProgress:
    """The lags of copies over time. Times are monotonic, in seconds.

    >>> copy = "executor-2", TaskId(0, 3)
    >>> progress = WarmupProgress()
    >>> progress.observe(copy, 900, now=0.0), progress.pace(copy)
    (None, None)
    >>> progress.observe(copy, 300, now=10.0), progress.pace(copy), progress.seconds(copy)
    (None, 60.0, 10.0)
    """

    def __init__(self) -> None:
        self._samples: dict[Copy, deque[tuple[float, int]]] = {}
        self._began: dict[Copy, float] = {}
        self._read: dict[
            Copy, tuple[int, float]
        ] = {}  # the most records that it has applied, and when that was

    def keep(self, copies: Iterable[Copy]) -> None:
        """Forget all copies but these: the others are no warm-ups any more."""
        there = frozenset(copies)
        for copy in self._samples.keys() - there:
            del self._samples[copy], self._began[copy], self._read[copy]

    def observe(self, copy: Copy, lag: int, *, now: float, applied: int = -1) -> None:
        """Record a copy's lag, and how many records of its changelog it has applied."""
        samples = self._samples.setdefault(copy, deque())
        self._began.setdefault(copy, now)
        if copy not in self._read or applied > self._read[copy][0]:
            self._read[copy] = applied, now
        if len(samples) > 1 and now - samples[-2][0] < SAMPLE_SECONDS:
            samples.pop()
        samples.append((now, lag))
        while now - samples[0][0] > WINDOW_SECONDS:
            samples.popleft()

    def seconds(self, copy: Copy) -> float:
        """Return how long a copy has been observed."""
        return self._samples[copy][-1][0] - self._began[copy]

    def idle(self, copy: Copy) -> float:
        """Return the seconds since a copy last applied a record."""
        return self._samples[copy][-1][0] - self._read[copy][1]

    def pace(self, copy: Copy) -> float | None:
        """Return by how many records a second a copy's lag has shrunk lately; None if it has not."""
        (start, before), (end, lag) = self._samples[copy][0], self._samples[copy][-1]
        return (before - lag) / (end - start) if before > lag and end > start else None

    def remaining(
        self, copy: Copy, *, acceptable: int = 0, rate: float | None = None, ahead: int = 0
    ) -> float | None:
        """Return the seconds until a copy's lag is `acceptable`; None if that is not known.

        `rate`, `ahead`: of its executor, as in `seconds_left`. The rate does not count if the copy shows no progress
        for most of the window: it is that of better times.
        """
        (start, _), (end, lag) = self._samples[copy][0], self._samples[copy][-1]
        if end - start > WINDOW_SECONDS / 2:
            rate = None
        return seconds_left(to_go(lag, acceptable), pace=self.pace(copy), rate=rate, ahead=ahead)


class Warmups:
    """The warm-ups of one stream. Lifetime: one for each driver. Callers hold the lock of the `Rebalancer`.

    - `loads`: the snapshots that followers are loading
    - `follower_share`: the share of the slots that visits use while batches run; `busy`: whether they do
    """

    def __init__(
        self,
        state: ClusterState,
        journal: Journal,
        *,
        loads: SnapshotLoads | None = None,
        follower_share: float = 1.0,
        busy: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state, self._journal = state, journal
        self._loads = SnapshotLoads() if loads is None else loads
        self._share, self._busy, self._monotonic = follower_share, busy, monotonic
        self._progress = WarmupProgress()

    def look(self) -> Mapping[Copy, Warmup]:
        """Return the warm-ups now, by executor and task. About a microsecond per follower of their executors."""
        state, progress, now = self._state, self._progress, self._monotonic()
        warm = {name: tasks for name in state.members if (tasks := state.roles(name).warmup)}
        progress.keep((name, task) for name, tasks in warm.items() for task in tasks)
        found: dict[Copy, Warmup] = {}
        for name, tasks in warm.items():
            member, left = (
                state.members[name],
                {task: self.left(name, task) for task in state.following(name)},
            )
            queued, rate = sum(left.values()), self.rate(member)
            for task in tasks:
                copy, lag = (name, task), self.lag(name, task)
                applied = member.copies.get(task, EMPTY).offset + lag - left[task]
                progress.observe(copy, left[task], now=now, applied=applied)
                caught_up = state.lags.is_caught_up(name, task)
                found[copy] = Warmup(
                    lag=lag,
                    caught_up=caught_up,
                    seconds=progress.seconds(copy),
                    idle=progress.idle(copy),
                    remaining=0.0
                    if caught_up
                    else progress.remaining(
                        copy, acceptable=state.acceptable(name), rate=rate, ahead=queued - left[task]
                    ),
                )
        return found

    def remaining(self, name: str, task: TaskId) -> float | None:
        """Return the seconds until a standby or warm-up has caught up; None if that is not known, or for others."""
        if (name, task) in (warm := self.look()):
            return warm[name, task].remaining
        left = {one: self.left(name, one) for one in self._state.following(name)}
        if task not in left:
            return None
        member, records = self._state.members[name], to_go(left[task], self._state.acceptable(name))
        return seconds_left(records, rate=self.rate(member), ahead=sum(left.values()) - left[task])

    def rate(self, member: Member) -> float | None:
        """Return the records per second that the followers of an executor get now; None: not measured."""
        if member.restore_rate is None:
            return None
        share = min(1.0, self._share * member.executor.cores) if self._busy() else 1.0
        return member.restore_rate * share

    def lag(self, name: str, task: TaskId) -> int:
        """Return a copy's lag; without a copy, the length of the changelog."""
        lag = self._state.lags.lag(name, task)
        return self._journal.settled_offset(task) if lag is None else lag

    def left(self, name: str, task: TaskId) -> int:
        """Return a copy's lag without the part of a snapshot that it has loaded."""
        return self._loads.left((name, task), self.lag(name, task), self._journal.history)
