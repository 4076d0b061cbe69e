"""The observation of a steering round: the tasks of the query, the executors, and the tasks of other steered queries.

All steered queries are one placement problem, because they share the executors. In this joint problem, the first
subtopology of this query has the number `neighbours.base`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from taskplace.model.config import PlacementConfig
from taskplace.model.problem import Instance, Problem, Task
from taskplace.spark.steering.layout import SparkSettings
from taskplace.spark.steering.measurements import Costs
from topology.tasks import TaskId

ENGINE = PlacementConfig(acceptable_recovery_lag=0)


class NeighbourTask(NamedTuple):
    """A task of another steered query, under its number in the joint problem.

    `fixed`: its query has stood down and does not move it. `place` is then its place at the stand-down, even if Spark
    has run it elsewhere since.
    """

    task: Task
    place: str | None
    fixed: bool = False


class Neighbours(NamedTuple):
    """The tasks of the other steered queries. `base`: the number of this query's first subtopology beside them."""

    base: int = 0
    tasks: Sequence[NeighbourTask] = ()


@dataclass(frozen=True)
class ExecutorSlots:
    """The executors that may run tasks, with the slots of each.

    `draining`: executors that are being emptied; they are among `slots`. `ending`: executors that Spark is
    decommissioning; Spark gives them no tasks, so they are not among `slots`.

    >>> ExecutorSlots({"executor-0": 2, "executor-1": 2}, draining=frozenset({"executor-1"})).usable
    {'executor-0': 2}
    """

    slots: Mapping[str, int]
    draining: frozenset[str] = frozenset()
    ending: frozenset[str] = frozenset()

    @property
    def usable(self) -> dict[str, int]:
        """The executors that do not drain, with at least one slot each."""
        return {name: self.capacity(name) for name in sorted(self.slots) if name not in self.draining}

    def capacity(self, name: str) -> int:
        """Return the slots of an executor, at least one."""
        return max(1, self.slots[name])


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The observation of one round.

    `batch`: the last batch that has ended. `places`: the executor on which each task ran last, None if it has not
    run. `load`: the measured load of each task in this batch, None without a measurement. `ran`: a batch that began
    after the last moves were sent has ended.
    """

    batch: int
    cluster: ExecutorSlots
    places: Mapping[TaskId, str | None]
    load: Mapping[TaskId, float] | None = None
    costs: Costs = field(default_factory=Costs)
    settings: SparkSettings = field(default_factory=SparkSettings)
    ran: bool = False
    neighbours: Neighbours = field(default_factory=Neighbours)

    def joint(self, task: TaskId) -> TaskId:
        """Return the number of a task of this query in the joint problem."""
        return TaskId(task.subtopology + self.neighbours.base, task.partition)

    @property
    def relevant_neighbours(self) -> list[NeighbourTask]:
        """The neighbours that are part of the plan: all except fixed tasks on executors that take no tasks."""
        usable = self.cluster.usable
        return [other for other in self.neighbours.tasks if not other.fixed or other.place in usable]


def joint_problem(observed: Observation, weights: Mapping[TaskId, float]) -> Problem:
    """Return the placement problem of all steered queries. `weights`: of this query's tasks that do not weigh 1."""
    return Problem(_tasks(observed, weights), _instances(observed), ENGINE)


def _tasks(observed: Observation, weights: Mapping[TaskId, float]) -> tuple[Task, ...]:
    # A changelog of one record: the owner's copy is caught up, and no other executor has a copy.
    own = (Task(observed.joint(t), end_offset=1, weight=weights.get(t, 1.0)) for t in sorted(observed.places))
    return (*own, *(other.task for other in observed.relevant_neighbours))


def _instances(observed: Observation) -> tuple[Instance, ...]:
    """Return the executors with the tasks that they run, of all queries.

    A fixed task may run only on its own executor: on all others its copy is declared as parked.
    """
    held: dict[str, list[TaskId]] = {name: [] for name in observed.cluster.slots}
    others = observed.relevant_neighbours
    placed = [(observed.joint(task), name) for task, name in observed.places.items()]
    placed += [(other.task.id, other.place) for other in others]
    for task, name in placed:
        if name in held:
            held[name].append(task)
    return tuple(
        Instance(
            name,
            capacity=observed.cluster.capacity(name),
            draining=name in observed.cluster.draining,
            active=tuple(held[name]),
            lags=dict.fromkeys(held[name], 0),
            parked=tuple(other.task.id for other in others if other.fixed and other.place != name),
        )
        for name in sorted(observed.cluster.slots)
    )
