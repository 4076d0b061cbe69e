"""The driver's view of its cluster: members, their copies and lags, and the assignment in force.

**Idea.** Each fact has one place. `Member.copies` has the positions of copies: visits report them, and the driver
derives those of active copies from the reports of attempts. The lag of a copy is computed from its position and the
journal; a `LagIndex` keeps it from report to report. The rebalance loop has the assignment and its generation. All
questions of the driver are answered from this module. The index ranks copies with the engine's rules
(`taskplace.lag.ranking`), so driver and plan always agree on which copies are caught up.

A copy's lag is measured against the end of its changelog one commit ago. The changes of the last batch are still on
their way to the followers; a promoted copy replays them. A copy that is older than the history that is kept has to load
a snapshot, so the snapshot's records are its lag.

Not thread-safe: callers hold the lock of the `Rebalancer`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from taskplace.explanation.removal import Copy, Held, Removal, removable
from taskplace.lag import LagIndex
from taskplace.lag.ranking import Seen, seconds_left, to_go
from taskplace.model.plan import Roles
from taskplace.model.problem import Instance, Task
from taskplace.rebalance import RebalanceLoop
from taskplace.record.events import InstanceView
from taskplace.spark.checkpoint.history import records_to_read
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.cluster import Executor
from taskplace.spark.messages import EMPTY, FollowReport, History, Position
from topology import TaskId

LEAST_RECORDS_MEASURED = 1_000
"""A visit that applied fewer records is too short to measure a restore rate."""

_NO_ROLES = Roles()
_NO_HISTORY = History()

CopyKey = tuple[str, TaskId]
#: The seconds of the past that an estimate is made of.
WINDOW_SECONDS = 120.0
#: The least seconds between two samples that are kept, however often somebody looks.
SAMPLE_SECONDS = 2.0


@dataclass
class Member:
    """An executor that has answered a visit.

    - `copies`: by task, the position of its copy
    - `pid`: the process id of its JVM
    - `followed`: by task, see `FollowReport`
    """

    executor: Executor
    pid: int = 0
    copies: dict[TaskId, Position] = field(default_factory=dict)
    followed: Mapping[TaskId, str] = field(default_factory=dict)
    restore_rate: float | None = None
    """Records per second, measured while its copies caught up; None: not measured yet."""


class ClusterState:
    """Members, copies, lags, and the assignment in force.

    - `tasks`: the tasks to place
    - `tags`: by host, the tags of its executors
    - `unlogged`: the subtopologies with stores that are not logged

    An executor becomes a member with its first visit, which reports its copies. It is removed when Spark no longer
    lists it. Lifetime: one for each driver.
    """

    def __init__(
        self,
        journal: Journal,
        loop: RebalanceLoop,
        tasks: Iterable[Task] = (),
        *,
        tags: Mapping[str, Mapping[str, str]] | None = None,
        unlogged: Collection[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.members: dict[str, Member] = {}
        acceptable = loop.config.acceptable
        self.lags = LagIndex(acceptable.lag, acceptable.seconds)
        self.draining: set[str] = set()
        self.losing: set[str] = set()
        self.gone: set[str] = set()
        self._journal, self._loop, self._tags, self._clock = journal, loop, tags or {}, clock
        tasks = tuple(tasks)
        self._logged = {task.id: task.logged for task in tasks}
        self._stateful = frozenset(task.id for task in tasks if task.stateful)
        self._unlogged = frozenset(unlogged)
        self._idle_since: dict[tuple[str, TaskId], float] = {}

    # -- reports

    def join(
        self,
        executor: Executor,
        copies: Mapping[TaskId, Position],
        pid: int,
        followed: Mapping[TaskId, str] = MappingProxyType({}),
    ) -> None:
        """Add an executor, or update it from its latest visit."""
        name = executor.instance
        if not self.members:  # the takeover may have read the journal again
            self._measure_changelogs({*self._logged, *self._journal.history})
        member = self.members.setdefault(name, Member(executor))
        self.gone.discard(name)
        for task in member.copies.keys() - copies.keys():
            self.lags.drop(name, task)
        member.copies, member.pid, member.followed = dict(copies), pid, followed
        for task in copies:
            self._measure(name, task)

    def moved(self, instance: str, task: TaskId, position: Position) -> None:
        """Record the position of a copy."""
        if instance in self.members:
            self.members[instance].copies[task] = position
            self._measure(instance, task)

    def committed(self, tasks: Iterable[TaskId]) -> None:
        """Update the changelog ends of `tasks` after a commit, and the lags of their copies."""
        tasks = list(tasks)
        self._measure_changelogs(tasks)
        for task in tasks:
            for name, member in self.members.items():
                if task in member.copies:
                    self._measure(name, task)

    def caught_up_by(self, instance: str, records: int, seconds: float) -> None:
        """Record how many records a visit has applied, and in how many seconds."""
        if records >= LEAST_RECORDS_MEASURED and seconds > 0:
            member, rate = self.members[instance], records / seconds
            member.restore_rate = ((member.restore_rate or rate) + rate) / 2
            self.lags.restore_rate(instance, member.restore_rate)

    def keep(self, alive: Iterable[str]) -> list[Member]:
        """Remove the members whose executor id is not in `alive`. Return the removed members."""
        alive = set(alive)
        gone = [member for member in self.members.values() if member.executor.id not in alive]
        for name in (member.executor.instance for member in gone):
            del self.members[name]
            self.lags.forget(name)
            self.draining.discard(name)
            self.losing.discard(name)
            self.gone.add(name)
        return gone

    def _measure(self, instance: str, task: TaskId) -> None:
        position = self.members[instance].copies[task]
        if position == EMPTY:  # an empty directory is not a copy
            self.lags.drop(instance, task)
            return
        history, end = self._journal.history.get(task, _NO_HISTORY), self._journal.settled_offset(task)
        self.lags.report(instance, task, records_to_read(position, history, end))

    def _measure_changelogs(self, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            self.lags.end_offset(task, self._journal.end_offset(task), logged=self._logged.get(task, True))

    # -- questions

    @property
    def assignment(self) -> Mapping[str, Roles]:
        """The assignment in force; empty before the first plan."""
        return self._loop.plan.assignment if self._loop.plan else {}

    def roles(self, instance: str) -> Roles:
        """Return the roles of an instance; none for an instance that is not in the plan."""
        return self.assignment.get(instance, _NO_ROLES)

    def following(self, instance: str) -> list[TaskId]:
        """Return the tasks that an instance follows, as a standby or a warm-up."""
        roles = self.roles(instance)
        return [*roles.standby, *roles.warmup]

    def kept(self, member: Member) -> tuple[TaskId, ...]:
        """Return the tasks with entries of stores that are not logged, which only the copy on this member has.

        An attempt has left such a copy where it is, and the history has not gone on without it.
        """
        return tuple(
            task
            for task, at in sorted(member.copies.items())
            if task.subtopology in self._unlogged
            and at != EMPTY
            and at.attempt != member.followed.get(task)
            and at.version >= self._journal.history.get(task, _NO_HISTORY).end.version
        )

    def instances(self) -> list[Instance]:
        """Return the members as the engine sees them: slots, tags, lags; without roles.

        A drain waits while its member has entries that it may not lose: they may have come after it was asked for.
        """
        kept = {name: self.kept(member) for name, member in self.members.items()}
        return [
            Instance(
                name,
                member.executor.cores,
                self.tags(member),
                name in self.draining and (name in self.losing or not kept[name]),
                lags=self.lags.lags(name),
                keeps=kept[name],
                restore_rate=member.restore_rate,
            )
            for name, member in sorted(self.members.items())
        ]

    def tags(self, member: Member) -> dict[str, str]:
        """Return the tags of a member.

        Executors of one host fail together: with the tag "host", standbys can be kept on other hosts.
        """
        return {"host": member.executor.host, **self._tags.get(member.executor.host, {})}

    def acceptable(self, instance: str) -> int:
        """Return the lag up to which copies on a member count as caught up."""
        return self._loop.config.acceptable.at(self.members[instance].restore_rate)

    def owners(self) -> dict[TaskId, Executor | None]:
        """Return the executor of each task's active copy; None if the executor is lost."""
        owners: dict[TaskId, Executor | None] = {}
        for name, roles in self.assignment.items():
            member = self.members.get(name)
            owners.update(dict.fromkeys(roles.active, member.executor if member else None))
        return owners

    def hosts(self) -> dict[TaskId, tuple[str, ...]]:
        """Return the instances that have each task: its owner, then its standbys by name."""
        hosts: dict[TaskId, tuple[str, ...]] = {}
        for name, roles in self.assignment.items():
            hosts |= dict.fromkeys(roles.active, (name,))
        for name, roles in sorted(self.assignment.items()):
            for task in roles.standby:
                hosts[task] = (*hosts.get(task, ()), name)
        return hosts

    def behind(self) -> frozenset[TaskId]:
        """Return the tasks whose active copy is not known to be at the end of its changelog."""
        complete = {
            task
            for name, roles in self.assignment.items()
            for task in roles.active
            if name in self.members
            and task in self._journal.history
            and self.members[name].copies.get(task) == self._journal.history[task].end
        }
        return frozenset(self._journal.history.keys() - complete)

    def removal(
        self, instance: str, seen: Mapping[tuple[str, TaskId], Seen] = MappingProxyType({})
    ) -> Removal:
        """Return the copies that must catch up elsewhere before a member can be removed. O(roles).

        `seen`: what is known of copies that catch up; see `removable`.
        """
        roles = {
            (name, task): role
            for name in self.members
            for role, tasks in self.roles(name)._asdict().items()
            for task in tasks
        }
        mine = {task for name, task in roles if name == instance} | self.lags.lags(instance).keys()
        concerned = {task for task in mine & self._stateful if not self.lags.universal(task)}
        held = {(name, task) for task in concerned for name, _ in self.lags.by_lag(task)}
        held |= {copy for copy in roles if copy[1] in concerned}
        copies = [
            Copy(
                task,
                name,
                roles.get((name, task), "none"),
                self.lags.lag(name, task),
                self.lags.is_caught_up(name, task),
            )
            for name, task in held
        ]
        staying = {
            name
            for name, member in self.members.items()
            if member.executor.cores and name not in self.draining
        }
        tasks = Held(*map(len, self.roles(instance)))
        draining = instance in self.draining
        target = plan.target if (plan := self._loop.plan) is not None else None
        return removable(instance, copies, staying, held=tasks, draining=draining, seen=seen, target=target)

    def placement(self) -> tuple[InstanceView, ...]:
        """Return the tasks that each member runs and follows, and the lag of its followers, one commit back."""
        views = []
        for name in sorted(self.members):
            active, standby, warmup = self.roles(name)
            lag = sum(
                self.lags.lacking(name, task, self._journal.settled_offset(task))
                for task in (*standby, *warmup)
            )
            views.append(InstanceView(name, len(active), len(standby), len(warmup), lag))
        return tuple(views)

    def following_lags(self) -> tuple[dict[str, dict[str, int]], int]:
        """Return by member and task the lags above 0 of followers, and how many followers are not caught up."""
        found: dict[str, dict[str, int]] = {}
        behind = 0
        for name in sorted(self.members):
            for task in self.following(name):
                behind += not self.lags.is_caught_up(name, task)
                if lag := self.lags.lacking(name, task, self._journal.settled_offset(task)):
                    found.setdefault(name, {})[str(task)] = lag
        return found, behind

    def without_role(self, older_than_seconds: float) -> dict[str, list[TaskId]]:
        """Return by instance the copies that have had no role for longer than this time, and that no task needs.

        A task needs such a copy if it is most caught up, and no copy with a role is: its owner was just lost, or lags.
        """
        now = self._clock()
        idle = {
            (name, task)
            for name, member in self.members.items()
            for task in member.copies.keys() - {t for part in self.roles(name) for t in part}
        }
        self._idle_since = {copy: self._idle_since.get(copy, now) for copy in idle}
        copies: dict[str, list[TaskId]] = {}
        for (name, task), since in sorted(self._idle_since.items()):
            if now - since > older_than_seconds and not self._needs(task, name):
                copies.setdefault(name, []).append(task)
        return copies

    def _needs(self, task: TaskId, instance: str) -> bool:
        """Return whether a copy without a role is the best that a task has."""
        if task not in self._logged or self.lags.universal(task):
            return False
        owner = next((name for name, roles in self.assignment.items() if task in roles.active), None)
        best = self.lags.most_caught_up(task, owner)
        return instance in best and not any(task in part for name in best for part in self.roles(name))


class Load(NamedTuple):
    """The attempt of a snapshot, and the part of it that is loaded, from 0 to 1."""

    attempt: str
    part: float


class SnapshotLoads:
    """By copy, as (instance, task), the snapshot that it is loading, piece by piece, over several visits."""

    def __init__(self) -> None:
        self._loads: dict[CopyKey, Load] = {}

    def __contains__(self, copy: CopyKey) -> bool:
        return copy in self._loads

    def __iter__(self) -> Iterator[CopyKey]:
        return iter(self._loads)

    def absorb(self, visit: FollowReport) -> None:
        """Take in the report of a visit: a copy that has a position loads nothing any more."""
        for task in visit.copies:
            self._loads.pop((visit.instance, task), None)
        for task, attempt in visit.restoring.items():
            self._loads[visit.instance, task] = Load(attempt, visit.loaded.get(task, 0.0))

    def keep(self, wanted: Callable[[str, TaskId], bool]) -> None:
        """Forget the copies that are not wanted any more."""
        self._loads = {copy: load for copy, load in self._loads.items() if wanted(*copy)}

    def snapshots(self) -> frozenset[tuple[TaskId, str]]:
        """Return the snapshots that are being loaded, as (task, attempt)."""
        return frozenset((task, load.attempt) for (_, task), load in self._loads.items())

    def left(self, copy: CopyKey, lag: int, history: Mapping[TaskId, History]) -> int:
        """Return a copy's lag without the records that it has loaded: the lag counts them until all are loaded."""
        load, task = self._loads.get(copy), copy[1]
        if load is None or task not in history:
            return lag
        whole = {snapshot.attempt: snapshot.offset for snapshot in history[task].snapshots}
        return max(0, lag - int(load.part * whole.get(load.attempt, 0)))


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
        self._samples: dict[CopyKey, deque[tuple[float, int]]] = {}
        self._began: dict[CopyKey, float] = {}
        self._read: dict[
            CopyKey, tuple[int, float]
        ] = {}  # the most records that it has applied, and when that was

    def keep(self, copies: Iterable[CopyKey]) -> None:
        """Forget all copies but these: the others are no warm-ups any more."""
        there = frozenset(copies)
        for copy in self._samples.keys() - there:
            del self._samples[copy], self._began[copy], self._read[copy]

    def observe(self, copy: CopyKey, lag: int, *, now: float, applied: int = -1) -> None:
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

    def seconds(self, copy: CopyKey) -> float:
        """Return how long a copy has been observed."""
        return self._samples[copy][-1][0] - self._began[copy]

    def idle(self, copy: CopyKey) -> float:
        """Return the seconds since a copy last applied a record."""
        return self._samples[copy][-1][0] - self._read[copy][1]

    def pace(self, copy: CopyKey) -> float | None:
        """Return by how many records a second a copy's lag has shrunk lately; None if it has not."""
        (start, before), (end, lag) = self._samples[copy][0], self._samples[copy][-1]
        return (before - lag) / (end - start) if before > lag and end > start else None

    def remaining(
        self, copy: CopyKey, *, acceptable: int = 0, rate: float | None = None, ahead: int = 0
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
    """Follows the warm-ups of a stream: their lags over time, and when each has caught up.

    A warm-up's lag shrinks while it follows, and grows with each batch, so its pace is how fast the lag has shrunk. The
    part of a snapshot that it has loaded does not count. Before there is a pace, the measured restore rate of the
    executor is used; while batches run, visits have only a share of its time.
    Source of the estimate: `taskplace.lag`. Lifetime: one for each driver. Callers hold the lock of the `Rebalancer`.

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

    def look(self) -> Mapping[CopyKey, Warmup]:
        """Return the warm-ups now, by executor and task. About a microsecond per follower of their executors."""
        state, progress, now = self._state, self._progress, self._monotonic()
        warm = {name: tasks for name in state.members if (tasks := state.roles(name).warmup)}
        progress.keep((name, task) for name, tasks in warm.items() for task in tasks)
        found: dict[CopyKey, Warmup] = {}
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
