"""The executors that take part: which there are, what copies they have, how far those are behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from taskplace.group.executors import ExecutorGroup, LagReport
from taskplace.lag import LagIndex
from taskplace.model.problem import Instance
from taskplace.spark.bridge import Executor
from taskplace.spark.driver.journal import Journal
from taskplace.spark.messages import EMPTY, Position
from topology import TaskId

RECORDS_TO_TELL = 1_000


@dataclass
class Member:
    """One executor that has answered a visit: `copies` is what it has, by task; `pid` its JVM."""

    executor: Executor
    pid: int = 0
    copies: dict[TaskId, Position] = field(default_factory=dict)


class Members:
    """The members by instance name, and the lag of each copy against the journal.

    An executor becomes a member with its first visit, when it is known what copies it brought along. It joins the
    `group` then: what a visit says is its join metadata, and the driver is coordinator and leader.

    A follower's lag is measured against the changelog's end one commit ago: what the last batch wrote is on
    its way to every follower by construction, and is replayed when one is promoted.
    """

    def __init__(
        self,
        journal: Journal,
        acceptable_recovery_lag: int,
        group: ExecutorGroup,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.journal = journal
        self.group = group
        self.by_instance: dict[str, Member] = {}
        self.draining: set[str] = set()
        self.gone: set[str] = set()
        self.tags: Mapping[str, Mapping[str, str]] = {}
        self.lags = LagIndex(acceptable_recovery_lag)
        self._rates: dict[str, float] = {}
        self._idle_since: dict[tuple[str, TaskId], float] = {}
        self._clock = clock

    def join(self, executor: Executor, copies: Mapping[TaskId, Position], pid: int) -> None:
        """Take in an executor, or what its latest visit said."""
        member = self.by_instance.setdefault(executor.instance, Member(executor))
        self.gone.discard(executor.instance)
        for task in set(member.copies) - set(copies):
            self.lags.drop(executor.instance, task)
        member.copies, member.pid = dict(copies), pid
        for task in copies:
            self._report(executor.instance, task)
        self._say(executor.instance)

    def _say(self, instance: str) -> None:
        """Bring a member's report to the group: the copies it has, its tags, its slots."""
        member = self.by_instance[instance]
        there = {task: (at.version, at.offset) for task, at in member.copies.items() if at != EMPTY}
        said = LagReport(there, self._tags(member.executor), member.executor.cores)
        self.group.report(instance, said.encode(), self._clock())

    def followed(self, instance: str, records: int, seconds: float) -> None:
        """Take note of how fast copies catch up there: of visits that had enough to do to tell."""
        if records >= RECORDS_TO_TELL and seconds > 0:
            rate = records / seconds
            self._rates[instance] = (self._rates.get(instance, rate) + rate) / 2

    def keep(self, alive: Iterable[str]) -> list[Member]:
        """Forget the members whose executor id is not in `alive`; return those that are gone."""
        alive = set(alive)
        gone = [member for member in self.by_instance.values() if member.executor.id not in alive]
        for member in gone:
            del self.by_instance[member.executor.instance]
            self.lags.forget(member.executor.instance)
            self.draining.discard(member.executor.instance)
            self.gone.add(member.executor.instance)
            self._rates.pop(member.executor.instance, None)
        self.group.keep(self.by_instance, self._clock())
        return gone

    def moved(self, instance: str, task: TaskId, position: Position) -> None:
        """Take note of where a copy is now."""
        if instance in self.by_instance:
            self.by_instance[instance].copies[task] = position
            self._report(instance, task)

    def committed(self, tasks: Iterable[TaskId]) -> None:
        """Take note that the changelogs of `tasks` have grown, or settled."""
        for task in tasks:
            for name, member in self.by_instance.items():
                if task in member.copies:
                    self._report(name, task)

    def lag(self, instance: str, task: TaskId) -> int | None:
        """Return how many records a copy is behind; None when there is no copy."""
        return self.lags.lag(instance, task)

    def _report(self, instance: str, task: TaskId) -> None:
        self.lags.end_offset(task, self.journal.end_offset(task))
        behind = self.journal.settled_offset(task) - self.by_instance[instance].copies[task].offset
        self.lags.report(instance, task, max(0, behind))

    def instances(self) -> list[Instance]:
        """Return the members as the engine sees them, without roles: what their reports to the group say."""
        for name in self.by_instance:  # a batch has moved active copies on since the last visit
            self._say(name)
        return [
            Instance(
                name,
                said.capacity,
                said.tags,
                name in self.draining,
                lags={
                    task: max(0, self.journal.settled_offset(task) - offset)
                    for task, (_, offset) in said.copies.items()
                },
                restore_rate=self._rates.get(name),
            )
            for name, said in self.group.reports.items()
        ]

    def _tags(self, executor: Executor) -> dict[str, str]:
        # Executors of one host fail together: with the tag "host", standbys can be kept on other hosts.
        return {"host": executor.host, **self.tags.get(executor.host, {})}

    def left_over(
        self, roles: Mapping[str, Iterable[TaskId]], older_than_seconds: float
    ) -> dict[str, list[TaskId]]:
        """Return by instance the copies that have had no role for so long."""
        now = self._clock()
        idle = {
            (name, task)
            for name, member in self.by_instance.items()
            for task in member.copies
            if task not in set(roles.get(name, ()))
        }
        self._idle_since = {key: self._idle_since.get(key, now) for key in idle}
        found: dict[str, list[TaskId]] = {}
        for (name, task), since in sorted(self._idle_since.items()):
            if now - since > older_than_seconds:
                found.setdefault(name, []).append(task)
        return found
