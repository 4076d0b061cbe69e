"""The executors that take part: which there are, what copies they have, how far those are behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from taskplace.lag import LagIndex
from taskplace.model.problem import Instance
from taskplace.spark.bridge import Executor
from taskplace.spark.driver.journal import Journal
from taskplace.spark.state.history import Position
from topology import TaskId


@dataclass
class Member:
    """One executor that has answered a visit: `copies` is what it has, by task; `pid` its JVM."""

    executor: Executor
    pid: int = 0
    copies: dict[str, Position] = field(default_factory=dict)


class Members:
    """The members by instance name, and the lag of each copy against the journal.

    An executor becomes a member with its first visit, when it is known what copies it brought along.

    A follower's lag is measured against the changelog's end one commit ago: what the last batch wrote is on
    its way to every follower by construction, and is replayed when one is promoted.
    """

    def __init__(
        self, journal: Journal, acceptable_recovery_lag: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.journal = journal
        self.by_instance: dict[str, Member] = {}
        self.draining: set[str] = set()
        self.tags: Mapping[str, Mapping[str, str]] = {}
        self.lags = LagIndex(acceptable_recovery_lag)
        self._idle_since: dict[tuple[str, str], float] = {}
        self._clock = clock

    def join(self, executor: Executor, copies: Mapping[str, Position], pid: int) -> None:
        """Take in an executor, or what its latest visit said."""
        member = self.by_instance.setdefault(executor.instance, Member(executor))
        for task in set(member.copies) - set(copies):
            self.lags.drop(executor.instance, TaskId.parse(task))
        member.copies, member.pid = dict(copies), pid
        for task in copies:
            self._report(executor.instance, task)

    def keep(self, alive: Iterable[str]) -> list[Member]:
        """Forget the members whose executor id is not in `alive`; return those that are gone."""
        alive = set(alive)
        gone = [member for member in self.by_instance.values() if member.executor.id not in alive]
        for member in gone:
            del self.by_instance[member.executor.instance]
            self.lags.forget(member.executor.instance)
            self.draining.discard(member.executor.instance)
        return gone

    def moved(self, instance: str, task: str, position: Position) -> None:
        """Take note of where a copy is now."""
        if instance in self.by_instance:
            self.by_instance[instance].copies[task] = position
            self._report(instance, task)

    def committed(self, tasks: Iterable[str]) -> None:
        """Take note that the changelogs of `tasks` have grown, or settled."""
        for task in tasks:
            for name, member in self.by_instance.items():
                if task in member.copies:
                    self._report(name, task)

    def needed(self, instance: str) -> list[str]:
        """Return the tasks of which no other member has a copy that is as good: caught up, or the most caught up."""
        tasks = map(TaskId.parse, self.by_instance[instance].copies)
        return [
            str(task)
            for task in tasks
            if not self.lags.universal(task) and set(self.lags.most_caught_up(task)) == {instance}
        ]

    def lag(self, instance: str, task: str) -> int | None:
        """Return how many records a copy is behind; None when there is no copy."""
        return self.lags.lag(instance, TaskId.parse(task))

    def _report(self, instance: str, task: str) -> None:
        self.lags.end_offset(TaskId.parse(task), self.journal.end_offset(task))
        behind = self.journal.settled_offset(task) - self.by_instance[instance].copies[task].offset
        self.lags.report(instance, TaskId.parse(task), max(0, behind))

    def instances(self) -> list[Instance]:
        """Return the members as the engine sees them, without roles."""
        found = []
        for name, member in sorted(self.by_instance.items()):
            lags = self.lags.lags(name)
            executor = member.executor
            # Executors of one host fail together: with the tag "host", standbys can be kept on other hosts.
            tags = {"host": executor.host, **self.tags.get(executor.host, {})}
            draining = name in self.draining
            found.append(Instance(name, executor.cores, tags, draining, lags=lags))
        return found

    def left_over(
        self, roles: Mapping[str, Iterable[str]], older_than_seconds: float
    ) -> dict[str, list[str]]:
        """Return by instance the copies that have had no role for so long."""
        now = self._clock()
        idle = {
            (name, task)
            for name, member in self.by_instance.items()
            for task in member.copies
            if task not in set(roles.get(name, ()))
        }
        self._idle_since = {key: self._idle_since.get(key, now) for key in idle}
        found: dict[str, list[str]] = {}
        for (name, task), since in sorted(self._idle_since.items()):
            if now - since > older_than_seconds:
                found.setdefault(name, []).append(task)
        return found
