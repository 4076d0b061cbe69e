"""Steering rounds without Spark: artificial observations, and a Spark that follows every decision."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.decide import StandDown, SteeringState, decide
from taskplace.spark.steering.measurements import FEWEST, Costs
from taskplace.spark.steering.observation import ExecutorSlots, Observation
from taskplace.spark.steering.status import Decision
from topology.tasks import TaskId

CHEAP = Costs(task=1.0, reload=0.001)
CLUSTER = ("slots", "draining", "ending")


def grid(subtopologies: int, partitions: int) -> list[TaskId]:
    return [TaskId(s, p) for s in range(subtopologies) for p in range(partitions)]


def slots(count: int, cores: int = 2) -> dict[str, int]:
    return {f"executor-{i}": cores for i in range(count)}


def paid(moves) -> int:
    """Return how many of these moves leave a running executor and so count against the budget."""
    return sum(move.why in ("balance", "load", "drain") for move in moves)


def even(counts) -> bool:
    return max(counts) - min(counts) <= 1


def observed(batch: int, slots, places, **values) -> Observation:
    """Return an observation. Keywords may be its own fields or those of its cluster."""
    cluster = ExecutorSlots(slots, **{key: values.pop(key) for key in CLUSTER if key in values})
    return Observation(batch=batch, cluster=cluster, places=places, **values)


def changed(seen: Observation, **values) -> Observation:
    """Return the observation with changed fields, its own or those of its cluster."""
    cluster = replace(seen.cluster, **{key: values.pop(key) for key in CLUSTER if key in values})
    return replace(seen, cluster=cluster, **values)


class Decider:
    """Passes the state of each decision to the next."""

    def __init__(self, config: SteeringConfig | None = None) -> None:
        self.config, self.state = config or SteeringConfig(), SteeringState()

    def decide(self, seen: Observation) -> Decision:
        decision, self.state = decide(self.config, self.state, seen)
        return decision

    def stand_down(self) -> None:
        self.state = replace(self.state, stood_down=StandDown("a reason", "a remedy"))

    @property
    def target(self) -> dict[TaskId, str]:
        return dict(self.state.target.places)

    def weights(self, tasks) -> dict[TaskId, float]:
        return {task: self.state.weights.of(task) for task in tasks}


class Obedient(Decider):
    """A Spark that runs every task where it was sent."""

    def __init__(self, config: SteeringConfig, seen: Observation) -> None:
        super().__init__(config)
        self.seen, self.moves = seen, []

    def batch(self, **changes) -> Decision:
        self.seen = changed(self.seen, batch=self.seen.batch + 1, **changes)
        decision = self.decide(self.seen)
        self.moves.append(decision.moves)
        self.seen = changed(self.seen, places=dict(decision.intended), ran=True, load=None)
        return decision

    def settle(self, limit: int = 100) -> int:
        for batches in range(limit):
            if not self.batch().moves:
                return batches
        pytest.fail("still moving")

    def counts(self) -> dict[str, int]:
        found = Counter(self.seen.places.values())
        return {name: found[name] for name in self.seen.cluster.slots}

    def busiest(self, costs) -> float:
        """Return the load per slot of the busiest executor."""
        return max(
            sum(costs[t] for t, at in self.seen.places.items() if at == name) / cores
            for name, cores in self.seen.cluster.slots.items()
        )


def cluster(tasks, instances, places, per_batch=4, **config) -> Obedient:
    seen = observed(-1, instances, places, costs=CHEAP)
    return Obedient(SteeringConfig(max_moves_per_batch=per_batch, **config), seen)


def spread_with_a_hot_one(weight: float, partitions: int = 12, **config) -> Obedient:
    """Return three executors with equal numbers of tasks. Task 0_0 costs `weight` times as much as the others."""
    tasks = grid(1, partitions)
    run = cluster(tasks, slots(3, cores=1), {t: f"executor-{t.partition % 3}" for t in tasks}, **config)
    run.batch()
    for _ in range(FEWEST):
        run.batch(load={t: weight if t.partition == 0 else 1.0 for t in tasks})
    return run
