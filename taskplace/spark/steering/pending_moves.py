"""The moves that are left on the way to the goal, the choice of moves for this batch, and the reason of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from taskplace.model.plan import Move
from taskplace.spark.steering.measurements import TaskWeights
from taskplace.spark.steering.observation import Observation
from taskplace.spark.steering.target import Goal
from topology.tasks import TaskId


class MoveReason(StrEnum):
    """Why a task moves; besides these, "executor-1 is gone"."""

    NOT_RUN = "it ran nowhere"
    DRAIN = "drain"
    DECOMMISSIONED = "decommissioned"
    LOAD = "load"
    BALANCE = "balance"


@dataclass(frozen=True)
class PendingMoves:
    """The tasks that are not where they belong.

    `free`: tasks without a running executor. They load their state anyway, so they are sent at once. `draining`:
    tasks on draining executors. They move at any cost. `optional`: all others. They move if it is worth it.
    """

    free: tuple[TaskId, ...] = ()
    draining: tuple[TaskId, ...] = ()
    optional: tuple[TaskId, ...] = ()

    def due(self, *, worth: bool) -> tuple[TaskId, ...]:
        """Return the tasks that should leave a running executor."""
        return (*self.draining, *(self.optional if worth else ()))


def pending_moves(goal: Goal, seen: Observation) -> PendingMoves:
    """Return the tasks whose place differs from the goal."""
    free, draining, optional = list[TaskId](), list[TaskId](), list[TaskId]()
    for task, name in goal.places.items():
        at = seen.places[task]
        if at is None or at not in seen.cluster.slots:
            free.append(task)
        elif at != name:
            (draining if at in seen.cluster.draining else optional).append(task)
    return PendingMoves(tuple(free), tuple(draining), tuple(optional))


def choose_moves(
    due: Sequence[TaskId], *, goal: Goal, seen: Observation, weights: TaskWeights, limit: int
) -> list[TaskId]:
    """Return at most `limit` of the tasks that are due.

    Tasks on draining executors come first, then moves from the busiest executor to the least busy one. Loads are
    updated after each choice.
    """
    slots = {name: seen.cluster.capacity(name) for name in seen.cluster.slots}
    load = dict.fromkeys(slots, 0.0)
    for task, at in seen.places.items():
        if at in load:
            load[at] += weights.of(task) / slots[at]

    def order(task: TaskId) -> tuple[bool, float, float, TaskId]:
        at, to = str(seen.places[task]), goal.places[task]
        return (at not in seen.cluster.draining, load[to] - load[at], -weights.of(task), task)

    left, chosen = sorted(due), list[TaskId]()
    while left and len(chosen) < limit:
        task = min(left, key=order)
        left.remove(task)
        chosen.append(task)
        at, to = str(seen.places[task]), goal.places[task]
        load[at] -= weights.of(task) / slots[at]
        load[to] += weights.of(task) / slots[to]
    return chosen


def move_of(task: TaskId, *, goal: Goal, seen: Observation) -> Move:
    """Return the move of a task to its goal, with its reason."""
    return Move(task, "active", seen.places[task], goal.places[task], _reason(task, goal, seen))


def _reason(task: TaskId, goal: Goal, seen: Observation) -> str:
    at, cluster = seen.places[task], seen.cluster
    if at is None:
        return MoveReason.NOT_RUN.value
    if at not in cluster.slots:
        return MoveReason.DECOMMISSIONED.value if at in cluster.ending else f"{at} is gone"
    if at in cluster.draining:
        return MoveReason.DRAIN.value
    return MoveReason.LOAD.value if task in goal.by_load else MoveReason.BALANCE.value
