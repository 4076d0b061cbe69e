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
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from taskplace.explanation.removal import Copy, Held, Removal, removable
from taskplace.lag import LagIndex
from taskplace.lag.ranking import Seen
from taskplace.model.plan import Roles
from taskplace.model.problem import Instance, Task
from taskplace.rebalance import RebalanceLoop
from taskplace.record.events import InstanceView
from taskplace.spark.checkpoint.history import records_to_read
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.cluster import Executor
from taskplace.spark.messages import EMPTY, History, Position
from topology import TaskId

LEAST_RECORDS_MEASURED = 1_000
"""A visit that applied fewer records is too short to measure a restore rate."""

_NO_ROLES = Roles()
_NO_HISTORY = History()


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
