"""Balances load where task weights differ: an executor with a hot task gets fewer other tasks.

The engine balances counts and exchanges tasks within them. So even next to a task as heavy as all others together, the
engine leaves as many other tasks as anywhere else. This module hands tasks over one at a time, from the busiest
executor that can be relieved to an executor that ends up with less load than the giver had. Example: 12 tasks on 3
executors, one task weighs 11; the hot task ends up alone.

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

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from topology.tasks import TaskId

EXACT = 1e-9
"""Loads that differ by less are equal; sums of the same weights in another order may differ a little."""


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
    differing = _differing({task: weight for task, weight in weights.items() if task not in fixed})
    if not differing or not slots:
        return dict(target)
    counted, from_target = (_Loads(weights, places, dict(target), slots) for _ in range(2))
    giving_way = [s for s in differing if from_target.best(s, tolerance * from_target.share(s)) is not None]
    if not giving_way:
        return dict(target)
    from_here = _Loads(weights, places, _where_tasks_are(places, target, giving_way, slots), slots)
    level = dict(target)
    for s in giving_way:
        from_target.level(s)
        from_here.level(s)
        clearly = from_target.peak(s) <= from_here.peak(s) - tolerance * from_here.share(s) - EXACT
        better = from_target if clearly or from_here.peak(s) > counted.peak(s) + EXACT else from_here
        level |= {t: to for t, to in better.at.items() if t.subtopology == s}
    together = _Loads(weights, places, level, slots)
    return level if together.peak(None) <= counted.peak(None) + EXACT else from_target.at


def _where_tasks_are(
    places: Mapping[TaskId, str | None],
    target: Mapping[TaskId, str],
    subtopologies: Collection[int],
    slots: Collection[str],
) -> dict[TaskId, str]:
    """Return the target, with the running tasks of these subtopologies at their current places."""
    here = {t: at for t, at in places.items() if t.subtopology in subtopologies and at in slots}
    return {task: here.get(task) or to for task, to in target.items()}


def _differing(weights: Mapping[TaskId, float]) -> list[int]:
    """Return the subtopologies whose tasks differ in weight, sorted."""
    different: dict[int, set[float]] = defaultdict(set)
    for task, weight in weights.items():
        different[task.subtopology].add(weight)
    return sorted(s for s, own in different.items() if len(own) > 1)


@dataclass
class _Loads:
    """A placement whose tasks are handed over one at a time, with the loads of all executors kept up to date.

    Lifetime: `at` and `loads` change together, in `_hand_over`. The key None of `loads` is for all subtopologies.
    """

    weights: Mapping[TaskId, float]
    places: Mapping[TaskId, str | None]
    at: dict[TaskId, str]
    slots: Mapping[str, int]
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

    def share(self, part: int | None) -> float:
        """Return the load per slot if it were the same on all slots."""
        loads = self.loads[part]
        return sum(load * self.slots[name] for name, load in loads.items()) / sum(self.slots.values())

    def level(self, subtopology: int) -> None:
        """Hand tasks over until no hand-over helps. Each one makes the sorted loads smaller, so this ends."""
        while (best := self.best(subtopology, EXACT * self.share(subtopology))) is not None:
            self._hand_over(*best)

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
                    moves = (taker != now) - (
                        giver != now
                    )  # a task that moves anyway costs nothing more if it moves elsewhere
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

    def _hand_over(self, task: TaskId, taker: str) -> None:
        giver, weight = self.at[task], self.weights[task]
        for part in (task.subtopology, None):
            self.loads[part][giver] -= weight / self.slots[giver]
            self.loads[part][taker] += weight / self.slots[taker]
        self.at[task] = taker
