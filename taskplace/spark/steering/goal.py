"""The goal of a query: where its tasks belong, and the reasons to plan a new goal.

The engine (`taskplace.planner`) places the tasks of all steered queries together. Where weights differ,
`load_leveling` lets counts give way to load. Spark's operators have only the active copy, so the engine gets tasks
with one copy, where they ran. The engine's target is the goal; its step is not used, because there are no warm-ups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from taskplace.model.plan import Plan
from taskplace.model.problem import Problem
from taskplace.planner import plan
from taskplace.rebalance.triggers import Situation, Trigger, drain, membership, start, tasks
from taskplace.spark.steering.measurements import TaskWeights
from taskplace.spark.steering.observation import ENGINE, NeighbourTask, Observation, joint_problem
from taskplace.spark.steering.target import level_load
from topology.tasks import TaskId

RULES = (start, membership, drain, tasks)
MOST_NAMED = 5
"""A reason names at most this many heavy tasks."""


@dataclass(frozen=True)
class Goal:
    """Where tasks belong, and the input that this was planned from.

    `places`: of this query's tasks. `neighbour_places`: of the other queries' tasks, by their joint number.
    `by_load`: tasks that counts alone would place elsewhere. `problem`, `plan`: the engine's input and output; without
    a plan, the next round plans a new goal. `neighbours`: the other queries' tasks at the time of planning.
    """

    places: Mapping[TaskId, str] = field(default_factory=dict)
    neighbour_places: Mapping[TaskId, str] = field(default_factory=dict)
    by_load: frozenset[TaskId] = frozenset()
    problem: Problem = field(default_factory=lambda: Problem((), (), ENGINE))
    plan: Plan | None = None
    neighbours: Sequence[NeighbourTask] = ()


def plan_goal(seen: Observation, weights: TaskWeights, *, tolerance: float) -> Goal:
    """Plan the goal for an observation. `tolerance`: see `load.tolerance`. Deterministic."""
    problem = joint_problem(seen, weights.unusual)
    planned = plan(problem)
    counted = {task: name for name, roles in planned.target.items() for task in roles.active}
    others = seen.relevant_neighbours
    level = level_load(
        weights={task.id: task.weight for task in problem.tasks},
        places={
            **{other.task.id: other.place for other in others},
            **{seen.joint(task): name for task, name in seen.places.items()},
        },
        target=counted,
        slots=seen.cluster.usable,
        tolerance=tolerance,
        fixed={other.task.id for other in others if other.fixed},
    )
    places = {task: level[seen.joint(task)] for task in sorted(seen.places)}
    return Goal(
        places=places,
        neighbour_places={other.task.id: level[other.task.id] for other in others},
        by_load=frozenset(task for task, name in places.items() if counted[seen.joint(task)] != name),
        problem=problem,
        plan=planned,
        neighbours=tuple(seen.neighbours.tasks),
    )


def reasons_to_replan(
    goal: Goal, seen: Observation, weights: TaskWeights, *, weights_changed: bool
) -> tuple[Trigger, ...]:
    """Compare the goal's input with the observation; return the reasons to plan a new goal."""
    problem = joint_problem(seen, weights.unusual)
    situation = Situation(
        config=ENGINE,
        plan=goal.plan,
        planned_instances=tuple(goal.problem.instances),
        planned_tasks=frozenset(task.id for task in goal.problem.tasks),
        instances=tuple(problem.instances),
        tasks=tuple(problem.tasks),
        probing_due=False,
    )
    reasons = [trigger for rule in RULES for trigger in rule(situation)]
    heavier = _load_reasons(seen, weights) if weights_changed and goal.plan is not None else ()
    return (*_with_decommissions(goal, seen, reasons), *heavier)


def _with_decommissions(goal: Goal, seen: Observation, reasons: Sequence[Trigger]) -> list[Trigger]:
    """Return the reasons; a decommissioned executor counts as decommissioned, not as having left."""
    gone = {instance.id for instance in goal.problem.instances} - seen.cluster.slots.keys()
    if not gone or not gone <= seen.cluster.ending:
        return list(reasons)
    names = ", ".join(sorted(gone))
    return [
        Trigger("decommissioned", names),
        *(reason for reason in reasons if reason.detail != f"{names} left"),
    ]


def _load_reasons(seen: Observation, weights: TaskWeights) -> Iterator[Trigger]:
    heavy = [task for task in sorted(seen.places) if weights.of(task) > 1][:MOST_NAMED]
    named = ", ".join(f"{task} weighs {weights.of(task):.1f}" for task in heavy)
    yield Trigger("load", named or "all tasks weigh the same again")
