"""The target of a query: where its tasks belong, and the reasons to plan a new one.

The engine (`taskplace.planner`) places the tasks of all steered queries together. Spark's operators have only the
active copy, so the engine gets tasks with one copy, where they ran. The engine's target is used; its step is not,
because there are no warm-ups.

Where weights differ, `level_load` lets counts give way to load. The engine balances counts and exchanges tasks within
them, so even next to a task as heavy as all others together, it leaves as many other tasks as anywhere else. Tasks are
handed over one at a time, from the busiest executor that can be relieved to an executor that ends up with less load
than the giver had. Example: 12 tasks on 3 executors, one task weighs 11; the hot task ends up alone.

The rule applies to each subtopology whose tasks differ in weight. Loads are per slot, of the subtopology's tasks:
1. Counts give way only if there is a task whose receiver ends up at least `tolerance` of a share below the giver's
   load. Then tasks are handed over until no hand-over helps.
2. Two placements are levelled: the engine's target, and the current places. The second costs fewer moves. It is
   chosen unless the first reaches a peak that is lower by `tolerance` of a share, or its own peak is above the
   engine's.
3. A receiver never ends up above the busiest executor, over all tasks.

Properties: subtopologies of equal weights are exactly as in the engine's target. Neither the peak of a subtopology nor
the peak of all tasks is above that of the engine's target. Deterministic. Repeated on its own result, it becomes
stable: each hand-over makes the sorted loads smaller, and each change from the current places
lowers a peak. Complexity: O(tasks + kinds * executors) per hand-over; tasks of a kind have the same weight and
place. Non-goals: the lowest possible peak, which is bin packing; comparing weights of different subtopologies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from taskplace.model.plan import Plan
from taskplace.model.problem import Problem
from taskplace.planner import plan
from taskplace.rebalance.triggers import Situation, Trigger, drain, membership, start, tasks
from taskplace.spark.steering.measurements import TaskWeights
from taskplace.spark.steering.observation import ENGINE, NeighbourTask, Observation, joint_problem
from topology.tasks import TaskId

RULES = (start, membership, drain, tasks)
MOST_NAMED = 5
"""A reason names at most this many heavy tasks."""
EXACT = 1e-9
"""Loads that differ by less are equal; sums of the same weights in another order may differ a little."""


@dataclass(frozen=True)
class Target:
    """Where tasks belong, and the input that this was planned from.

    `places`: of this query's tasks. `neighbour_places`: of the other queries' tasks, by their joint number.
    `by_load`: tasks that counts alone would place elsewhere. `problem`, `plan`: the engine's input and output; without
    a plan, the next round plans a new target. `neighbours`: the other queries' tasks at the time of planning.
    """

    places: Mapping[TaskId, str] = field(default_factory=dict)
    neighbour_places: Mapping[TaskId, str] = field(default_factory=dict)
    by_load: frozenset[TaskId] = frozenset()
    problem: Problem = field(default_factory=lambda: Problem((), (), ENGINE))
    plan: Plan | None = None
    neighbours: Sequence[NeighbourTask] = ()


def plan_target(observed: Observation, weights: TaskWeights, *, tolerance: float) -> Target:
    """Plan the target for an observation. `tolerance`: see `load.tolerance`. Deterministic."""
    problem = joint_problem(observed, weights.unusual)
    planned = plan(problem)
    counted = {task: name for name, roles in planned.target.items() for task in roles.active}
    others = observed.relevant_neighbours
    level = level_load(
        weights={task.id: task.weight for task in problem.tasks},
        places={
            **{other.task.id: other.place for other in others},
            **{observed.joint(task): name for task, name in observed.places.items()},
        },
        target=counted,
        slots=observed.cluster.usable,
        tolerance=tolerance,
        fixed={other.task.id for other in others if other.fixed},
    )
    places = {task: level[observed.joint(task)] for task in sorted(observed.places)}
    return Target(
        places=places,
        neighbour_places={other.task.id: level[other.task.id] for other in others},
        by_load=frozenset(task for task, name in places.items() if counted[observed.joint(task)] != name),
        problem=problem,
        plan=planned,
        neighbours=tuple(observed.neighbours.tasks),
    )


def reasons_to_replan(
    target: Target, observed: Observation, weights: TaskWeights, *, weights_changed: bool
) -> tuple[Trigger, ...]:
    """Compare the target's input with the observation; return the reasons to plan a new target."""
    problem = joint_problem(observed, weights.unusual)
    situation = Situation(
        config=ENGINE,
        plan=target.plan,
        planned_instances=tuple(target.problem.instances),
        planned_tasks=frozenset(task.id for task in target.problem.tasks),
        instances=tuple(problem.instances),
        tasks=tuple(problem.tasks),
        probing_due=False,
    )
    reasons = [trigger for rule in RULES for trigger in rule(situation)]
    gone = {instance.id for instance in target.problem.instances} - observed.cluster.slots.keys()
    if gone and gone <= observed.cluster.ending:  # decommissioned, which is not told as having left
        names = ", ".join(sorted(gone))
        left = [reason for reason in reasons if reason.detail != f"{names} left"]
        reasons = [Trigger("decommissioned", names), *left]
    if weights_changed and target.plan is not None:
        heavy = [task for task in sorted(observed.places) if weights.of(task) > 1][:MOST_NAMED]
        named = ", ".join(f"{task} weighs {weights.of(task):.1f}" for task in heavy)
        reasons.append(Trigger("load", named or "all tasks weigh the same again"))
    return tuple(reasons)


def level_load(
    *,
    weights: Mapping[TaskId, float],
    places: Mapping[TaskId, str | None],
    target: Mapping[TaskId, str],
    slots: Mapping[str, int],
    tolerance: float,
    fixed: Collection[TaskId] = (),
) -> dict[TaskId, str]:
    """Return the engine's `target`, changed where balancing load instead of counts helps clearly.

    `places`: where tasks are now. `slots`: of the executors that may run tasks. `fixed`: tasks that keep their place
    in the target; always whole subtopologies.

    >>> tasks = [TaskId(0, p) for p in range(12)]
    >>> even = {t: "xyz"[t.partition % 3] for t in tasks}
    >>> hot = dict.fromkeys(tasks, 1.0) | {tasks[0]: 11.0}
    >>> level = level_load(weights=hot, places=even, target=even, slots={"x": 1, "y": 1, "z": 1}, tolerance=0.2)
    >>> [[t.partition for t in tasks if level[t] == name] for name in "xyz"]
    [[0], [1, 3, 4, 7, 9, 10], [2, 5, 6, 8, 11]]
    """
    kinds = {(task.subtopology, weight) for task, weight in weights.items() if task not in fixed}
    differing = [s for s, weighs in sorted(Counter(s for s, _ in kinds).items()) if weighs > 1]
    if not differing or not slots:
        return dict(target)
    counted, from_target = (Loads(weights, dict(target), slots, places) for _ in range(2))
    giving_way = [s for s in differing if from_target.best(s, tolerance * from_target.share(s)) is not None]
    if not giving_way:
        return dict(target)
    here = {
        t: at for t, at in places.items() if at is not None and at in slots and t.subtopology in giving_way
    }
    from_here = Loads(weights, {**target, **here}, slots, places)
    level = dict(target)
    for s in giving_way:
        from_target.level(s)
        from_here.level(s)
        clearly = from_target.peak(s) <= from_here.peak(s) - tolerance * from_here.share(s) - EXACT
        better = from_target if clearly or from_here.peak(s) > counted.peak(s) + EXACT else from_here
        level |= {t: to for t, to in better.at.items() if t.subtopology == s}
    together = Loads(weights, level, slots)
    return level if together.peak(None) <= counted.peak(None) + EXACT else from_target.at


@dataclass
class Loads:
    """A placement whose tasks are handed over one at a time, with the loads of all executors kept up to date.

    - `at`: where each task is; `places`: where it is now, to which a hand-over back is no move
    - `loads`: by subtopology, and for all of them by None, the load of each executor per slot

    Lifetime: `at` and `loads` change together, in `hand_over`.
    """

    weights: Mapping[TaskId, float]
    at: dict[TaskId, str]
    slots: Mapping[str, int]
    places: Mapping[TaskId, str | None] = field(default_factory=dict)
    loads: dict[int | None, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for task, name in self.at.items():
            for part in (task.subtopology, None):
                own = self.loads.setdefault(part, dict.fromkeys(self.slots, 0.0))
                if name in own:
                    own[name] += self.weights[task] / self.slots[name]

    def peak(self, part: int | None) -> float:
        """Return the load of the busiest executor."""
        return max(self.loads[part].values())

    def by_slot(self, part: int | None) -> list[float]:
        """Return the load of each slot, busiest first. The slots of an executor share its work."""
        loads = (load for name, load in self.loads[part].items() for _ in range(self.slots[name]))
        return sorted(loads, reverse=True)

    def share(self, part: int | None) -> float:
        """Return the load per slot if it were the same on all slots."""
        loads = self.loads[part]
        return sum(load * self.slots[name] for name, load in loads.items()) / sum(self.slots.values())

    def level(self, subtopology: int) -> None:
        """Hand tasks over until no hand-over helps. Each one makes the sorted loads smaller, so this ends."""
        while (best := self.best(subtopology, EXACT * self.share(subtopology))) is not None:
            self.hand_over(*best)

    def best(self, subtopology: int, least: float) -> tuple[TaskId, str] | None:
        """Return the best task to hand over and its receiver, None if no hand-over helps.

        A hand-over helps if the receiver ends up at least `least` below the giver's load. The giver is the
        busiest executor that can be relieved. The best hand-over is the one after which the busier of the two has the
        least load. Ties: the fewest moves from the current places, then the least busy receiver, then the order of
        tasks and names.
        """
        loads, all_loads = self.loads[subtopology], self.loads[None]
        highest = self.peak(None) + EXACT
        held = self._kinds(subtopology)
        for giver in sorted(loads, key=lambda name: (-round(loads[name], 9), name)):
            had, choices = loads[giver], []
            for (weight, now), task in held[giver].items():
                left = had - weight / self.slots[giver]
                for taker, load in loads.items():
                    adds = weight / self.slots[taker]
                    if taker == giver or load + adds > had - least or all_loads[taker] + adds > highest:
                        continue
                    # A task that moves anyway costs nothing more if it moves elsewhere.
                    moves = (taker != now) - (giver != now)
                    choices.append((round(max(left, load + adds), 9), moves, round(load, 9), task, taker))
            if choices:
                *_, task, taker = min(choices)
                return task, taker
        return None

    def _kinds(self, subtopology: int) -> dict[str, dict[tuple[float, str | None], TaskId]]:
        """Return, for each executor, the first task of each kind; a kind is a weight and a current place."""
        held: dict[str, dict[tuple[float, str | None], TaskId]] = {name: {} for name in self.slots}
        for task, name in self.at.items():
            if task.subtopology == subtopology and name in held:
                kind = (self.weights[task], self.places.get(task))
                held[name][kind] = min(task, held[name].get(kind, task))
        return held

    def hand_over(self, task: TaskId, taker: str) -> None:
        """Move a task to another executor."""
        giver, weight = self.at[task], self.weights[task]
        for part in (task.subtopology, None):
            self.loads[part][giver] -= weight / self.slots[giver]
            self.loads[part][taker] += weight / self.slots[taker]
        self.at[task] = taker
