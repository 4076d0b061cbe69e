"""What the driver knows of its cluster: members, their copies, how far each lags, and the assignment in force.

**Idea.** There is one place for each fact. Visits and reports tell where copies are (`Member.copies`); from that and
the journal follows each copy's lag, kept in a `LagIndex` from report to report; the assignment and its generation are
those of the rebalance loop. All questions of the driver are answered from here. The index ranks copies as the engine
does (`taskplace.lag.ranking`), so the driver and a plan never differ on who is caught up.

A copy's lag is measured against its changelog's end one commit ago: what the last batch wrote is on its way to every
follower, and is replayed when one is promoted.

Not thread-safe: callers hold the lock of the `Rebalancer`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from taskplace.lag import LagIndex
from taskplace.model.events import InstanceView
from taskplace.model.plan import Roles
from taskplace.model.problem import Instance, Task
from taskplace.rebalance import RebalanceLoop
from taskplace.spark.cluster import Executor
from taskplace.spark.driver.journal import Journal
from taskplace.spark.messages import EMPTY, Position
from topology import TaskId

LEAST_RECORDS_MEASURED = 1_000
"""A visit that applied fewer records says nothing of how fast copies catch up."""

_NO_ROLES = Roles()


@dataclass
class Member:
    """One executor that has answered a visit: `copies` is what it has, by task; `pid` its JVM."""

    executor: Executor
    pid: int = 0
    copies: dict[TaskId, Position] = field(default_factory=dict)
    restore_rate: float | None = None
    """Records a second, as measured while its copies caught up; None: not measured yet."""


class ClusterState:
    """Members, copies, lags, and the assignment in force.

    `tasks`: what there is to place. `tags`: by host, those of its executors. Lifetime: one for each driver. An executor
    becomes a member with its first visit, which says what copies it has, and stops being one when Spark gives it up.
    """

    def __init__(
        self,
        journal: Journal,
        loop: RebalanceLoop,
        tasks: Iterable[Task] = (),
        *,
        tags: Mapping[str, Mapping[str, str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.members: dict[str, Member] = {}
        acceptable = loop.config.acceptable
        self.lags = LagIndex(acceptable.lag, acceptable.seconds)
        self.draining: set[str] = set()
        self.gone: set[str] = set()
        self._journal, self._loop, self._tags, self._clock = journal, loop, tags or {}, clock
        self._logged = {task.id: task.logged for task in tasks}
        self._idle_since: dict[tuple[str, TaskId], float] = {}

    # -- what is reported

    def join(self, executor: Executor, copies: Mapping[TaskId, Position], pid: int) -> None:
        """Take in an executor, or what its latest visit has found."""
        name = executor.instance
        if not self.members:  # the journal may have been read again since: the checkpoint was taken over
            self._measure_changelogs({*self._logged, *self._journal.history})
        member = self.members.setdefault(name, Member(executor))
        self.gone.discard(name)
        for task in member.copies.keys() - copies.keys():
            self.lags.drop(name, task)
        member.copies, member.pid = dict(copies), pid
        for task in copies:
            self._measure(name, task)

    def moved(self, instance: str, task: TaskId, position: Position) -> None:
        """Take in where a copy is now."""
        if instance in self.members:
            self.members[instance].copies[task] = position
            self._measure(instance, task)

    def committed(self, tasks: Iterable[TaskId]) -> None:
        """Take in that the changelogs of `tasks` have grown, or settled."""
        tasks = list(tasks)
        self._measure_changelogs(tasks)
        for task in tasks:
            for name, member in self.members.items():
                if task in member.copies:
                    self._measure(name, task)

    def caught_up_by(self, instance: str, records: int, seconds: float) -> None:
        """Take in how many records a visit has applied, and how long that took."""
        if records >= LEAST_RECORDS_MEASURED and seconds > 0:
            member, rate = self.members[instance], records / seconds
            member.restore_rate = ((member.restore_rate or rate) + rate) / 2
            self.lags.restore_rate(instance, member.restore_rate)

    def keep(self, alive: Iterable[str]) -> list[Member]:
        """Forget the members whose executor id is not in `alive`; return those that are gone."""
        alive = set(alive)
        gone = [member for member in self.members.values() if member.executor.id not in alive]
        for name in (member.executor.instance for member in gone):
            del self.members[name]
            self.lags.forget(name)
            self.draining.discard(name)
            self.gone.add(name)
        return gone

    def _measure(self, instance: str, task: TaskId) -> None:
        position = self.members[instance].copies[task]
        if position == EMPTY:  # a directory without anything in it is no copy
            self.lags.drop(instance, task)
            return
        behind = self._journal.settled_offset(task) - position.offset
        self.lags.report(instance, task, max(0, behind))

    def _measure_changelogs(self, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            self.lags.end_offset(task, self._journal.end_offset(task), logged=self._logged.get(task, True))

    # -- what is asked

    @property
    def generation(self) -> int:
        """The generation of the assignment in force."""
        return self._loop.generation

    @property
    def assignment(self) -> Mapping[str, Roles]:
        """The assignment in force; empty before the first plan."""
        return self._loop.plan.assignment if self._loop.plan else {}

    def roles(self, instance: str) -> Roles:
        """Return what an instance runs and follows; nothing for one that the plan does not know."""
        return self.assignment.get(instance, _NO_ROLES)

    def following(self, instance: str) -> list[TaskId]:
        """Return the tasks that an instance is a standby or a warm-up for."""
        roles = self.roles(instance)
        return [*roles.standby, *roles.warmup]

    def instances(self) -> list[Instance]:
        """Return the members as the engine sees them: slots, tags, lags; without roles."""
        return [
            Instance(
                name,
                member.executor.cores,
                # Executors of one host fail together: with the tag "host", standbys can be kept on other hosts.
                {"host": member.executor.host, **self._tags.get(member.executor.host, {})},
                name in self.draining,
                lags=self.lags.lags(name),
                restore_rate=member.restore_rate,
            )
            for name, member in sorted(self.members.items())
        ]

    def owners(self) -> dict[TaskId, Executor | None]:
        """Return the executor of each task's active copy; None for one that is gone."""
        found: dict[TaskId, Executor | None] = {}
        for name, roles in self.assignment.items():
            member = self.members.get(name)
            found.update(dict.fromkeys(roles.active, member.executor if member else None))
        return found

    def behind(self) -> frozenset[TaskId]:
        """Return the tasks whose active copy is not known to be where its changelog ends."""
        complete = {
            task
            for name, roles in self.assignment.items()
            for task in roles.active
            if name in self.members
            and task in self._journal.history
            and self.members[name].copies.get(task) == self._journal.history[task].end
        }
        return frozenset(self._journal.history.keys() - complete)

    def placement(self) -> tuple[InstanceView, ...]:
        """Return what each member runs and follows, and how many records its followers have still to apply."""
        views = []
        for name in sorted(self.members):
            active, standby, warmup = self.roles(name)
            lag = sum(
                self.lags.lacking(name, task, self._journal.settled_offset(task))
                for task in (*standby, *warmup)
            )
            views.append(InstanceView(name, len(active), len(standby), len(warmup), lag))
        return tuple(views)

    def without_role(self, older_than_seconds: float) -> dict[str, list[TaskId]]:
        """Return by instance the copies that have had no role for so long."""
        now = self._clock()
        idle = {
            (name, task)
            for name, member in self.members.items()
            for task in member.copies.keys() - {t for part in self.roles(name) for t in part}
        }
        self._idle_since = {copy: self._idle_since.get(copy, now) for copy in idle}
        found: dict[str, list[TaskId]] = {}
        for (name, task), since in sorted(self._idle_since.items()):
            if now - since > older_than_seconds:
                found.setdefault(name, []).append(task)
        return found
