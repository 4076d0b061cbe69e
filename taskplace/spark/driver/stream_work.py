"""Reports the long work of a running stream: restores, followers that catch up, snapshots, and a batch that takes long.

**Idea.** A copy that is not caught up is work. Its lag when it was first seen is the amount, and what its lag has lost
since is done. All copies of one role are one piece of work, which ends when the last of them is caught up; so there
are few pieces, however many tasks there are. The lag of a follower that loads a snapshot counts without the part that
it has loaded (`Warmups.left`). An attempt does not say how far its restore is until it ends.

`look` takes about a microsecond per copy, under the lock of the `Rebalancer`. The thread of `operations` calls it; a
batch notes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from taskplace.model.work import Show, Work
from taskplace.spark.driver.followers import Followers
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.wording import count
from topology import TaskId

#: A batch is reported when it has run for so long.
LONG_BATCH_SECONDS = 5.0
#: By role of the plan, what its copies do until they are caught up.
NAMES = {
    "active": "restoring active tasks",
    "standby": "catching up standbys",
    "warmup": "catching up warm-ups",
}

Copy = tuple[str, TaskId]
Clock = Callable[[], float]


class StreamWork:
    """The long work of one stream. `look` shows it, `close` ends what is shown. Used by one thread at a time."""

    def __init__(
        self,
        rebalancer: Rebalancer,
        followers: Followers,
        show: Show,
        *,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        self._rebalancer, self._followers = rebalancer, followers
        self._show, self._clock, self._wall_clock = show, clock, wall_clock
        self._roles = {role: _CatchingUp(name, show, clock) for role, name in NAMES.items()}
        self._snapshots = _Snapshots(show, clock)
        self._batch: tuple[int, Work] | None = None

    def look(self) -> None:
        """Show what has changed since the last look."""
        with self._rebalancer.lock:
            left = {role: self._left(role) for role in NAMES}
            held = {role: self._held(role) for role in NAMES}
            rates = {name: member.restore_rate for name, member in self._rebalancer.state.members.items()}
            waiting, made = self._followers.snapshots_waiting(), self._followers.snapshots_made
        for role, work in self._roles.items():
            work.look(left[role], held[role], rates)
        self._snapshots.look(waiting, made)
        self._look_at_batch()

    def close(self) -> None:
        """End all work that is shown."""
        for role in self._roles.values():
            role.end()
        self._snapshots.end()
        self._end_batch()

    def _held(self, role: str) -> frozenset[Copy]:
        state = self._rebalancer.state
        return frozenset(
            (name, task)
            for name, roles in state.assignment.items()
            if name in state.members
            for task in getattr(roles, role)
        )

    def _left(self, role: str) -> dict[Copy, int]:
        """Return, by copy that is not caught up, the records that it lacks."""
        state, journal = self._rebalancer.state, self._rebalancer.journal
        left = {}
        for name, task in sorted(self._held(role)):
            if state.lags.is_caught_up(name, task):
                continue
            if role == "active":  # its attempt reads all of the changelog, the last batch's part as well
                left[name, task] = state.lags.lacking(name, task, journal.end_offset(task))
            else:
                left[name, task] = self._rebalancer.warmups.left(name, task)
        return left

    def _look_at_batch(self) -> None:
        running = self._rebalancer.events.running
        if self._batch is not None and (running is None or running.batch != self._batch[0]):
            self._end_batch()
        if running is None:
            return
        seconds = self._wall_clock() - running.since
        if seconds < LONG_BATCH_SECONDS:
            return
        if self._batch is None:
            work = Work(
                f"batch {running.batch}",
                show=self._show,
                since=self._clock() - seconds,
                clock=self._clock,
            )
            self._batch = running.batch, work
        self._batch[1].to(0)

    def _end_batch(self) -> None:
        if self._batch is not None:
            self._batch[1].end()
            self._batch = None


class _CatchingUp:
    """The copies of one role that are behind, as one piece of work.

    Lifetime of `_most`, by copy the most records that it lacked: until no copy is behind.
    """

    def __init__(self, name: str, show: Show, clock: Clock) -> None:
        self._name, self._show, self._clock = name, show, clock
        self._most: dict[Copy, int] = {}
        self._work: Work | None = None

    def look(
        self, left: Mapping[Copy, int], held: frozenset[Copy], rates: Mapping[str, float | None]
    ) -> None:
        """Show how many records were read: all of those that a held copy lacked, if it is not in `left`."""
        most = {copy: records for copy, records in self._most.items() if copy in held}
        self._most = most | {copy: max(records, most.get(copy, 0)) for copy, records in left.items()}
        total = sum(self._most.values())
        if not left:
            self.end(total)
            return
        if self._work is None:
            self._work = Work(self._name, "records", total, show=self._show, clock=self._clock)
        executors = sorted({name for name, _ in left})
        where = executors[0] if len(executors) == 1 else count(len(executors), "executor")
        self._work.to(
            total - sum(left.values()),
            total,
            detail=f"{count(len(left), 'copy', 'copies')} on {where}",
            eta=_estimate(left, rates),
        )

    def end(self, done: int | None = None) -> None:
        """End the work, if there is any."""
        if self._work is not None:
            if done is not None:
                self._work.done = done
            self._work.end()
        self._work, self._most = None, {}


def _estimate(left: Mapping[Copy, int], rates: Mapping[str, float | None]) -> float | None:
    """Return the seconds that the slowest executor needs, by its measured rate; None if one has no rate."""
    waiting: dict[str, int] = {}
    for (name, _), records in left.items():
        waiting[name] = waiting.get(name, 0) + records
    seconds = [records / rate if (rate := rates.get(name)) else None for name, records in waiting.items()]
    return None if None in seconds else max(filter(None, seconds), default=None)


class _Snapshots:
    """The snapshots that are due or being made, as one piece of work."""

    def __init__(self, show: Show, clock: Clock) -> None:
        self._show, self._clock = show, clock
        self._work: Work | None = None
        self._before = 0

    def look(self, waiting: int, made: int) -> None:
        """Show how many snapshots were made. `made`: since the driver began."""
        if not waiting:
            self.end(made)
            return
        if self._work is None:
            self._before = made
            self._work = Work("making snapshots", "snapshots", show=self._show, clock=self._clock)
        self._work.to(made - self._before, made - self._before + waiting)

    def end(self, made: int | None = None) -> None:
        """End the work, if there is any."""
        if self._work is not None:
            if made is not None:
                self._work.done = made - self._before
            self._work.end()
        self._work = None
