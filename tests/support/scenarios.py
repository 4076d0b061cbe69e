"""Random scenarios from a seed: clusters and their events. Tests use them to check the engine's promises."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from taskplace.model.config import PlacementConfig
from taskplace.model.problem import Instance, Problem, Task
from taskplace.simulation.cluster import Event
from topology.tasks import TaskId

KINDS = (
    "fresh-start",
    "scale-out",
    "scale-in",
    "rolling-bounce",
    "all-on-one",
    "partition-growth",
    "random-lags",
    "drain",
    "several",
)


@dataclass(frozen=True)
class Scenario:
    """A cluster and the groups of events that happen to it, each group at once. `seed` makes it again."""

    kind: str
    seed: int
    problem: Problem
    events: tuple[tuple[Event, ...], ...]

    def __str__(self) -> str:
        c = self.problem.config
        figures = f"{len(self.problem.tasks)} tasks on {len(self.problem.instances)} instances"
        figures += f", {c.num_standby_replicas} standbys, {c.max_warmup_replicas} warm-ups"
        return f"{self.kind}-{self.seed}: {figures}"


def scenarios(count: int, seed: int = 0) -> Iterator[Scenario]:
    """Yield `count` scenarios, of all kinds in turn.

    1-30 instances of 1-8 slots, 1-8 subtopologies of 1-48 partitions, 0-2 standbys, 1-4 warm-ups.

    >>> [s.kind for s in scenarios(3)]
    ['fresh-start', 'scale-out', 'scale-in']
    >>> list(scenarios(3)) == list(scenarios(3))
    True
    """
    for k in range(count):
        yield scenario(KINDS[k % len(KINDS)], seed * 1_000_000 + k)


def scenario(kind: str, seed: int, largest: float = 1.0) -> Scenario:
    """Return one scenario; `largest` below 1 keeps it smaller."""
    rng = random.Random(f"{kind}-{seed}")

    def upto(n: int) -> int:
        return rng.randint(1, max(1, round(n * largest)))

    config = PlacementConfig(
        num_standby_replicas=rng.randint(0, 2),
        max_warmup_replicas=rng.randint(1, 4),
        acceptable_recovery_lag=rng.choice((0, 100, 10_000)),
    )
    tasks = _tasks(rng, upto(8), upto(48))
    even = rng.random() < 0.5
    slots = rng.randint(1, 8)
    instances = [Instance(f"i{k:02}", slots if even else rng.randint(1, 8)) for k in range(upto(30))]
    events: list[tuple[Event, ...]] = []
    if kind == "all-on-one":
        ids = [t.id for t in tasks]
        lags = {t.id: 0 for t in tasks if t.stateful}
        instances[0] = Instance(instances[0].id, instances[0].capacity, active=tuple(ids), lags=lags)
    elif kind == "random-lags":
        instances = _random_copies(rng, tasks, instances)
    state = _State(rng, [i.id for i in instances], tasks)
    makers: dict[str, Callable[[], list[Event]]] = {
        "scale-out": state.add,
        "scale-in": state.kill,
        "partition-growth": state.grow,
        "drain": state.drain,
    }
    if kind == "rolling-bounce":
        events = state.bounce()
    elif kind == "several":
        everything = [*makers.values(), state.produce]
        for _ in range(rng.randint(1, 3)):
            chosen = rng.choices(everything, k=rng.randint(2, 4))
            events.append(tuple(e for make in chosen for e in make()))
    elif kind in makers:
        events = [tuple(makers[kind]()) for _ in range(rng.randint(1, 3))]
    return Scenario(
        kind, seed, Problem(tuple(tasks), tuple(instances), config), tuple(e for e in events if e)
    )


def _tasks(rng: random.Random, subtopologies: int, partitions: int) -> list[Task]:
    out = []
    same = rng.random() < 0.5
    for s in range(subtopologies):
        stateful = rng.random() < 0.85
        for p in range(rng.randint(1, partitions)):
            end = 100_000 if same else rng.randint(0, 1_000_000)
            out.append(Task(TaskId(s, p), stateful, end, logged=rng.random() < 0.98))
    return out


def _random_copies(rng: random.Random, tasks: list[Task], instances: list[Instance]) -> list[Instance]:
    """Scatter copies, with lags of all sizes, and roles that may or may not fit them."""
    lags: dict[str, dict[TaskId, int]] = {i.id: {} for i in instances}
    roles: dict[str, dict[str, list[TaskId]]] = {
        i.id: {"active": [], "standby": [], "warmup": []} for i in instances
    }
    for t in tasks:
        holders = rng.sample(instances, min(len(instances), rng.randint(0, 3)))
        for k, i in enumerate(holders):
            if t.stateful:
                lags[i.id][t.id] = rng.choice((0, rng.randint(0, t.end_offset or 0), t.end_offset or 0))
            role = rng.choice(("active", "none")) if k == 0 else rng.choice(("standby", "warmup", "none"))
            if role != "none" and (t.stateful or role == "active"):
                roles[i.id][role].append(t.id)
    return [
        Instance(
            i.id,
            i.capacity,
            active=tuple(roles[i.id]["active"]),
            standby=tuple(roles[i.id]["standby"]),
            warmup=tuple(roles[i.id]["warmup"]),
            lags=lags[i.id],
        )
        for i in instances
    ]


class _State:
    """Makes events that fit what has happened before."""

    def __init__(self, rng: random.Random, names: list[str], tasks: list[Task]) -> None:
        self.rng = rng
        self.names = names
        self.tasks = [t.id for t in tasks]
        self.stateful = [t.id for t in tasks if t.stateful]
        self.highest = {s: max(p for u, p in self.tasks if u == s) for s, _ in self.tasks}
        self.draining: set[str] = set()
        self.made = len(names)

    def add(self) -> list[Event]:
        out = []
        for _ in range(self.rng.randint(1, max(1, len(self.names) // 4))):
            name = f"i{self.made:02}"
            self.made += 1
            self.names.append(name)
            out.append(Event("add", name, {"capacity": self.rng.randint(1, 8)}))
        return out

    def kill(self) -> list[Event]:
        out: list[Event] = []
        for _ in range(self.rng.randint(1, max(1, len(self.names) // 4))):
            if len(self.names) > 1:
                name = self.names.pop(self.rng.randrange(len(self.names)))
                self.draining.discard(name)
                out.append(Event("kill", name))
        return out

    def bounce(self) -> list[tuple[Event, ...]]:
        out: list[tuple[Event, ...]] = []
        if len(self.names) == 1:
            return out
        for name in self.names[:5]:
            lost = [Event("stop", name)]
            if self.rng.random() < 0.5:
                lost.append(Event("produce", "", {"records": self.rng.randint(1, 50_000)}))
            out.append(tuple(lost))
            out.append((Event("start", name),))
        return out

    def grow(self) -> list[Event]:
        s = self.rng.choice(sorted(self.highest))
        new = range(self.highest[s] + 1, self.highest[s] + 1 + self.rng.randint(1, 12))
        self.highest[s] = new[-1]
        tasks = [{"id": str(TaskId(s, p)), "end_offset": self.rng.randint(0, 100)} for p in new]
        return [Event("grow", "", {"tasks": tasks})]

    def drain(self) -> list[Event]:
        name = self.rng.choice(self.names)
        self.draining.add(name)
        return [Event("drain", name)]

    def produce(self) -> list[Event]:
        return [Event("produce", "", {"records": self.rng.randint(1, 20_000)})]
