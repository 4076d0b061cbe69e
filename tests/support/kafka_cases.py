"""The expectations of the tests of Kafka Streams' own assignors, as cases for this engine.

Each test method is a `Case`, in the suite's order: a cluster, and conditions on the answer. HighAvailability runs each
case with three rack strategies. If the engine differs on purpose, `differs` has the reason and `ours` the conditions
that hold here. The test then checks that Kafka's expectation does *not* hold, so that a later change of behaviour is
noticed. The table in docs/placement.md has the counts.

Source: apache/kafka, streams/src/test/java/org/apache/kafka/streams/processor/internals/assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Roles, Task, TaskId

STRATEGIES = ("none", "min_traffic", "balance_subtopology")
END = 10_000

# The racks of each task's input partition, and of processes 1 to 7.
RACKS = {0: "01 12 12 02 13 34 02", 1: "02 13 01 12", 2: "34 13 34 01", 3: "02 13 34"}
PROCESS_RACK = "0123401"


def ids(text: str) -> list[TaskId]:
    """Return task ids: "0_1", or "0:4" for the first four of a subtopology."""
    out = []
    for word in text.split():
        s, colon, n = word.partition(":")
        out += [TaskId(int(s), p) for p in range(int(n))] if colon else [TaskId.parse(word)]
    return out


@dataclass(frozen=True)
class Client:
    """One process. `lags`: task -> lag in records; a task without an entry has no copy here."""

    active: str = ""
    standby: str = ""
    slots: int = 1
    lags: dict[str, int] = field(default_factory=dict)

    def instance(self, number: int, stateful: set[TaskId]) -> Instance:
        lags = {t: lag for text, lag in self.lags.items() for t in ids(text) if t in stateful}
        tags = {"rack": PROCESS_RACK[number]}
        return Instance(
            f"p{number + 1}", self.slots, tags, active=ids(self.active), standby=ids(self.standby), lags=lags
        )


@dataclass(frozen=True)
class Answer:
    """A plan, with the values that the suites check. Warm-ups count as standbys, as in Kafka's tests."""

    problem: Problem
    plan: Plan
    strategy: str

    @property
    def roles(self) -> list[Roles]:
        return [self.plan.assignment[i.id] for i in self.problem.instances]

    def active(self, k: int) -> set[TaskId]:
        return set(self.roles[k - 1].active)

    def standby(self, k: int) -> set[TaskId]:
        return {*self.roles[k - 1].standby, *self.roles[k - 1].warmup}

    def counts(self) -> list[int]:
        return [len(r.active) for r in self.roles]

    def assigned(self) -> list[int]:
        return [sum(map(len, r)) for r in self.roles]

    def skew(self) -> int:
        """Return the largest difference between two processes in the actives of one subtopology."""
        per = [Counter(t.subtopology for t in r.active) for r in self.roles]
        subs = {t.id.subtopology for t in self.problem.tasks}
        return max((max(n) - min(n) for s in subs for n in [[c[s] for c in per]]), default=0)


Expect = Callable[[Answer], bool]


def valid(standbys: int, warmups: int = 0) -> Expect:
    """Every task has as many copies as possible; up to `warmups` tasks have one more."""

    def check(a: Answer) -> bool:
        copies = Counter(t for r in a.roles for role in r for t in role)
        more = 0
        for t in a.problem.tasks:
            wanted = min(len(a.roles), 1 + standbys) if t.stateful else 1
            if copies[t.id] not in (wanted, wanted + 1):
                return False
            more += copies[t.id] - wanted
        return more <= warmups and set(copies) == {t.id for t in a.problem.tasks}

    return check


def spread(per_slot: Sequence[float]) -> bool:
    return max(per_slot) - min(per_slot) <= 1


def level(a: Answer) -> bool:
    """The actives per slot differ by at most one."""
    return spread([n / i.capacity for n, i in zip(a.counts(), a.problem.instances, strict=True)])


def stateful_level(a: Answer) -> bool:
    """All copies of stateful tasks per slot differ by at most one."""
    stateful = {t.id for t in a.problem.tasks if t.stateful}
    held = [sum(t in stateful for role in r for t in role) for r in a.roles]
    return spread([n / i.capacity for n, i in zip(held, a.problem.instances, strict=True)])


def alike(a: Answer) -> bool:
    """No subtopology has a skew above 1, or above 4 with balance_subtopology."""
    return a.skew() <= (4 if a.strategy == "balance_subtopology" else 1)


def alike_unless_min_traffic(a: Answer) -> bool:
    return a.strategy == "min_traffic" or alike(a)


def skewed(a: Answer) -> bool:
    return a.skew() > 1


def pending(a: Answer) -> bool:
    return a.plan.followup


def done(a: Answer) -> bool:
    return not a.plan.followup


def sizes(*counts: int) -> Expect:
    return lambda a: a.counts() == list(counts)


def copies(*counts: int) -> Expect:
    return lambda a: a.assigned() == list(counts)


def runs(**tasks: str) -> Expect:
    """These processes run exactly these tasks."""
    return lambda a: all(a.active(int(p[1:])) == set(ids(t)) for p, t in tasks.items())


def holds(**tasks: str) -> Expect:
    """These processes run at least these tasks."""
    return lambda a: all(a.active(int(p[1:])) >= set(ids(t)) for p, t in tasks.items())


def lacks(**tasks: str) -> Expect:
    return lambda a: all(not a.active(int(p[1:])) & set(ids(t)) for p, t in tasks.items())


def follows(**tasks: str) -> Expect:
    return lambda a: all(a.standby(int(p[1:])) == set(ids(t)) for p, t in tasks.items())


def following(*least: int) -> Expect:
    return lambda a: all(len(a.standby(k + 1)) >= n for k, n in enumerate(least))


def no_two_alike(n: int) -> Expect:
    return lambda a: len({frozenset(a.active(k) | a.standby(k)) for k in range(1, n + 1)}) == n


@dataclass(frozen=True)
class Case:
    """One test method: the cluster with its tasks (`stateful`, `stateless`), and the conditions."""

    name: str
    clients: tuple[Client, ...]
    expect: tuple[Expect, ...]
    stateful: str = ""
    stateless: str = ""
    standbys: int = 0
    warmups: int = 1
    acceptable: int = 0
    differs: str = ""
    ours: tuple[Expect, ...] = ()
    racked: tuple[Client, ...] = ()  # the clients with a rack strategy, if the suite has other ones there
    first_half: bool = True  # False for the second part of a method that starts again

    def answer(self, strategy: str, **more: Any) -> Answer:
        config = PlacementConfig(
            num_standby_replicas=self.standbys,
            max_warmup_replicas=self.warmups,
            acceptable_recovery_lag=self.acceptable,
            rack_aware_assignment_strategy=strategy,
            **more,
        )
        stateful = ids(self.stateful)
        tasks = [
            Task(t, t in stateful, END, racks=(tuple(RACKS[t.subtopology].split()[t.partition]),))
            if t.partition < len(RACKS[t.subtopology].split())
            else Task(t, t in stateful, END)
            for t in (*stateful, *ids(self.stateless))
        ]
        clients = self.racked if self.racked and strategy != "none" else self.clients
        problem = Problem(tasks, [c.instance(k, set(stateful)) for k, c in enumerate(clients)], config)
        return Answer(problem, taskplace.check(problem, taskplace.plan(problem)), strategy)

    def verdict(self, strategy: str, **more: Any) -> None:
        answer = self.answer(strategy, **more)
        agrees = all(holds_(answer) for holds_ in self.expect)
        assert agrees == (not self.differs), (answer.plan.assignment, answer.plan.followup)
        assert all(holds_(answer) for holds_ in self.ours)


def everywhere(tasks: str, n: int, lag: int, *slots: int) -> tuple[Client, ...]:
    """Processes without roles, all with the same lags."""
    return tuple(Client(slots=s, lags={tasks: lag}) for s in (slots or (1,) * n))


def one_has(tasks: str, n: int, slots: int = 1) -> tuple[Client, ...]:
    """The first process runs all tasks, caught up; the others have no tasks and no copies."""
    return (Client(active=tasks, slots=slots, lags={tasks: 0}), *(Client(slots=slots) for _ in range(n - 1)))


NINE, FOUR, SEVEN = "0:3 1:3 2:3", "0:2 1:2", "0:4 1:3"
EVEN = (done, valid(0), level, stateful_level)


def cases(suite: Sequence[Case]) -> Any:
    return pytest.mark.parametrize("case", suite, ids=[c.name for c in suite])
