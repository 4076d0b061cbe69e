"""The driver's view of its cluster: members, their copies and lags, and the assignment in force.

**Idea.** Each fact has one place. `Member.copies` has the positions of copies: follow jobs report them, and the driver
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
from collections.abc import Callable, Collection, Iterable, Mapping
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
from taskplace.spark.messages import EMPTY, History, Position
from taskplace.spark.operator_messages import WarmupStatus
from topology import TaskId

LEAST_RECORDS_MEASURED = 1_000
"""A follow job that applied fewer records is too short to measure a restore rate."""

_NO_ROLES = Roles()
_NO_HISTORY = History()
CopyKey = tuple[str, TaskId]
#: The seconds of the past that an estimate is made of.
WINDOW_SECONDS = 120.0
#: The least seconds between two samples that are kept, however often the status is asked for.
SAMPLE_SECONDS = 2.0


@dataclass
class Member:
    """An executor that has followed.

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


class Load(NamedTuple):
    """The attempt of a snapshot, and the part of it that is loaded, from 0 to 1."""

    attempt: str
    part: float


class ClusterState:
    """Members, copies, lags, and the assignment in force.

    - `tasks`: the tasks to place
    - `tags`: by host, the tags of its executors
    - `unlogged`: the subtopologies with stores that are not logged
    - `loads`: by copy, the snapshot that it loads piece by piece, over several follow jobs

    An executor becomes a member with its first follow job, which reports its copies. It is removed when Spark no longer
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
        self.loads: dict[CopyKey, Load] = {}
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
        """Add an executor, or update it from its latest follow job."""
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
        """Record how many records a follow job has applied, and in how many seconds."""
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

    def lag(self, instance: str, task: TaskId) -> int:
        """Return a copy's lag, one commit back; without a copy, the length of the changelog."""
        return self.lags.lacking(instance, task, self._journal.settled_offset(task))

    def left(self, instance: str, task: TaskId) -> int:
        """Return a copy's lag without the part of a snapshot that it has loaded: the lag counts it until all is."""
        lag, load = self.lag(instance, task), self.loads.get((instance, task))
        if load is None or task not in self._journal.history:
            return lag
        whole = {snapshot.attempt: snapshot.offset for snapshot in self._journal.history[task].snapshots}
        return max(0, lag - int(load.part * whole.get(load.attempt, 0)))

    def owners(self) -> dict[TaskId, Executor | None]:
        """Return the executor of each task's active copy; None if the executor is lost."""
        executors = {name: member.executor for name, member in self.members.items()}
        return {task: executors.get(name) for name, of in self.assignment.items() for task in of.active}

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
        self, instance: str, progress: Mapping[tuple[str, TaskId], Seen] = MappingProxyType({})
    ) -> Removal:
        """Return the copies that must catch up elsewhere before a member can be removed. O(roles).

        `progress`: what is known of copies that catch up, as `seen` of `removable`.
        """
        roles = {
            (name, task): role
            for name in self.members
            for role, tasks in self.roles(name)._asdict().items()
            for task in tasks
        }
        lags = self.lags
        mine = {task for name, task in roles if name == instance} | lags.lags(instance).keys()
        concerned = {task for task in mine & self._stateful if not lags.universal(task)}
        known = {(name, task) for task in concerned for name, _ in lags.by_lag(task)}
        known |= {copy for copy in roles if copy[1] in concerned}
        copies = [
            Copy(
                task,
                name,
                roles.get((name, task), "none"),
                lags.lag(name, task),
                lags.is_caught_up(name, task),
            )
            for name, task in known
        ]
        staying = {
            name
            for name, member in self.members.items()
            if member.executor.cores and name not in self.draining
        }
        tasks = Held(*map(len, self.roles(instance)))
        draining = instance in self.draining
        target = plan.target if (plan := self._loop.plan) is not None else None
        return removable(
            instance, copies, staying, held=tasks, draining=draining, seen=progress, target=target
        )

    def placement(self) -> tuple[InstanceView, ...]:
        """Return the tasks that each member runs and follows, and the lag of its followers, one commit back."""
        views = []
        for name in sorted(self.members):
            active, standby, warmup = self.roles(name)
            lag = sum(self.lag(name, task) for task in (*standby, *warmup))
            views.append(InstanceView(name, len(active), len(standby), len(warmup), lag))
        return tuple(views)

    def following_lags(self) -> tuple[dict[str, dict[str, int]], int]:
        """Return by member and task the lags above 0 of followers, and how many followers are not caught up."""
        found: dict[str, dict[str, int]] = {}
        behind = 0
        for name in sorted(self.members):
            for task in self.following(name):
                behind += not self.lags.is_caught_up(name, task)
                if lag := self.lag(name, task):
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


class WarmupProgress:
    """The lags of one copy over time. Times are monotonic, in seconds.

    >>> progress = WarmupProgress(now=0.0)
    >>> progress.observe(900, now=0.0), progress.pace()
    (None, None)
    >>> progress.observe(300, now=10.0), progress.pace(), progress.seconds
    (None, 60.0, 10.0)
    """

    def __init__(self, *, now: float) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._began = now
        self._applied, self._read = -1, now  # the most records that it has applied, and when that was

    def observe(self, lag: int, *, now: float, applied: int = -1) -> None:
        """Record the copy's lag, and how many records of its changelog it has applied."""
        samples = self._samples
        if applied > self._applied:
            self._applied, self._read = applied, now
        if len(samples) > 1 and now - samples[-2][0] < SAMPLE_SECONDS:
            samples.pop()
        samples.append((now, lag))
        while now - samples[0][0] > WINDOW_SECONDS:
            samples.popleft()

    @property
    def seconds(self) -> float:
        """How long the copy has been observed."""
        return self._samples[-1][0] - self._began

    @property
    def idle(self) -> float:
        """The seconds since the copy last applied a record."""
        return self._samples[-1][0] - self._read

    def pace(self) -> float | None:
        """Return by how many records a second the lag has shrunk lately; None if it has not."""
        (start, before), (end, lag) = self._samples[0], self._samples[-1]
        return (before - lag) / (end - start) if before > lag and end > start else None

    def remaining(self, *, acceptable: int = 0, rate: float | None = None, ahead: int = 0) -> float | None:
        """Return the seconds until the lag is `acceptable`; None if that is not known.

        `rate`, `ahead`: of its executor, as in `seconds_left`. The rate does not count if the copy shows no progress
        for most of the window: it is that of better times.
        """
        (start, _), (end, lag) = self._samples[0], self._samples[-1]
        if end - start > WINDOW_SECONDS / 2:
            rate = None
        return seconds_left(to_go(lag, acceptable), pace=self.pace(), rate=rate, ahead=ahead)


class Warmups:
    """Follows the warm-ups of a stream: their lags over time, and when each has caught up.

    A warm-up's lag shrinks while it follows, and grows with each batch, so its pace is how fast the lag has shrunk. The
    part of a snapshot that it has loaded does not count. Before there is a pace, the measured restore rate of the
    executor is used; while batches run, follow jobs have only a share of its time.
    Source of the estimate: `taskplace.lag`. Lifetime: one for each driver. Callers hold the lock of the `Rebalancer`.

    - `follower_share`: the share of the slots that follow jobs use while batches run; `busy`: whether they do
    """

    def __init__(
        self,
        state: ClusterState,
        *,
        follower_share: float = 1.0,
        busy: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state, self._share, self._busy, self._monotonic = state, follower_share, busy, monotonic
        self._progress: dict[CopyKey, WarmupProgress] = {}

    def status(self) -> Mapping[CopyKey, WarmupStatus]:
        """Return the warm-ups now, by executor and task. About a microsecond per follower of their executors."""
        state, now = self._state, self._monotonic()
        warm = {name: tasks for name in state.members if (tasks := state.roles(name).warmup)}
        found: dict[CopyKey, WarmupStatus] = {}
        before, self._progress = self._progress, {}
        for name, tasks in warm.items():
            member = state.members[name]
            left = {task: state.left(name, task) for task in state.following(name)}
            queued, rate, acceptable = sum(left.values()), self.rate(member), state.acceptable(name)
            for task in tasks:
                copy, lag = (name, task), state.lag(name, task)
                self._progress[copy] = progress = before.get(copy) or WarmupProgress(now=now)
                applied = member.copies.get(task, EMPTY).offset + lag - left[task]
                progress.observe(left[task], now=now, applied=applied)
                caught_up, ahead = state.lags.is_caught_up(name, task), queued - left[task]
                eta = progress.remaining(acceptable=acceptable, rate=rate, ahead=ahead)
                found[copy] = WarmupStatus(
                    lag=lag,
                    caught_up=caught_up,
                    restoring=copy in state.loads,
                    seconds=progress.seconds,
                    eta_seconds=0.0 if caught_up else eta,
                    idle_seconds=progress.idle,
                )
        return found

    def remaining(self, name: str, task: TaskId) -> float | None:
        """Return the seconds until a standby or warm-up has caught up; None if that is not known, or for others."""
        if (name, task) in (warm := self.status()):
            return warm[name, task].eta_seconds
        left = {one: self._state.left(name, one) for one in self._state.following(name)}
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
