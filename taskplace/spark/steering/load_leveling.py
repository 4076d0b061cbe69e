"""Where tasks weigh differently, counts give way to load: a hot task costs its instance others.

The engine balances counts, and exchanges tasks within them: beside a task as heavy as all others together, as many
others stay as beside any. Here tasks are handed over one at a time, from the busiest instance that can be relieved to
one that ends up with less than that had. Of 12 tasks on 3 instances, one of which weighs 11, the hot one ends up alone.

The rule, for each subtopology whose tasks differ in weight; all loads are per slot, of the tasks of the subtopology:
1. Counts give way only if some task can be handed over such that the taker ends up by `tolerance` times a share below
   what the giver had. Then tasks are handed over until none helps any more.
2. What is there is levelled just so. It is preferred, since it costs fewer moves, unless the engine's target is or can
   be levelled to a peak lower by `tolerance` times a share, or it leaves a higher peak than the engine's.
3. Nobody who takes a task gets busier, over all tasks, than the busiest is.

Properties: subtopologies of equal weight are exactly as the engine has them. Neither the largest load of a subtopology
nor that of all tasks is above that of the engine's target. Deterministic; applied to its own result, at rest: each
handing over makes the sorted loads smaller, and each change from what is there lowers a peak.
Shapes: O(tasks + kinds * instances) for each task handed over; tasks of a kind weigh the same and are at one place.
Non-goals: the least peak there is, which is bin packing; weights of different subtopologies are not compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from topology.ids import TaskId

EXACT = 1e-9
"""Loads that differ by less are equal: sums of the same weights in another order."""


def by_load(
    weights: Mapping[TaskId, float],
    places: Mapping[TaskId, str | None],
    target: Mapping[TaskId, str],
    slots: Mapping[str, int],
    tolerance: float,
    fixed: Collection[TaskId] = (),
) -> dict[TaskId, str]:
    """Return `target`, the engine's, with counts giving way to load where that clearly pays.

    `places`: where tasks are now. `slots`: of the instances that may have tasks. `fixed`: tasks that stay where the
    target has them, all of their subtopologies.

    >>> tasks = [TaskId(0, p) for p in range(12)]
    >>> even = {t: "xyz"[t.partition % 3] for t in tasks}
    >>> hot = dict.fromkeys(tasks, 1.0) | {tasks[0]: 11.0}
    >>> found = by_load(hot, even, even, {"x": 1, "y": 1, "z": 1}, 0.2)
    >>> [[t.partition for t in tasks if found[t] == name] for name in "xyz"]
    [[0], [1, 3, 4, 7, 9, 10], [2, 5, 6, 8, 11]]
    """
    differing = _differing({task: weight for task, weight in weights.items() if task not in fixed})
    if not differing or not slots:
        return dict(target)
    handed = _Loads(weights, places, dict(target), slots)
    giving_way = [s for s in differing if handed.best(s, tolerance * handed.share(s)) is not None]
    if not giving_way:
        return dict(target)
    counted = _Loads(weights, places, dict(target), slots)
    stays = {t for t, name in places.items() if t.subtopology in giving_way and name in slots}
    kept = _Loads(
        weights, places, {t: str(places[t]) if t in stays else to for t, to in target.items()}, slots
    )
    for subtopology in giving_way:
        handed.level(subtopology)
        kept.level(subtopology)
    found = dict(target)
    for s in giving_way:
        clearly = handed.peak(s) <= kept.peak(s) - tolerance * kept.share(s) - EXACT
        better = handed if clearly or kept.peak(s) > counted.peak(s) + EXACT else kept
        found |= {t: to for t, to in better.at.items() if t.subtopology == s}
    together = _Loads(weights, places, found, slots)
    return found if together.peak(None) <= counted.peak(None) + EXACT else handed.at


def _differing(weights: Mapping[TaskId, float]) -> list[int]:
    """Return the subtopologies whose tasks differ in weight, sorted."""
    seen: dict[int, set[float]] = defaultdict(set)
    for task, weight in weights.items():
        seen[task.subtopology].add(weight)
    return sorted(s for s, different in seen.items() if len(different) > 1)


@dataclass
class _Loads:
    """A placement whose tasks are handed over one at a time, with the loads of all instances kept up to date.

    Lifetime: `at` and `loads` change together, in `_hand`. The key None of `loads` is for all subtopologies.
    """

    weights: Mapping[TaskId, float]
    places: Mapping[TaskId, str | None]
    at: dict[TaskId, str]
    slots: Mapping[str, int]
    loads: dict[int | None, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for task, name in self.at.items():
            for part in (task.subtopology, None):
                mine = self.loads.setdefault(part, dict.fromkeys(self.slots, 0.0))
                if name in mine:
                    mine[name] += self.weights[task] / self.slots[name]

    def peak(self, part: int | None) -> float:
        return max(self.loads[part].values())

    def share(self, part: int | None) -> float:
        """Return what each slot would have if all had the same."""
        loads = self.loads[part]
        return sum(load * self.slots[name] for name, load in loads.items()) / sum(self.slots.values())

    def level(self, subtopology: int) -> None:
        """Hand tasks over until no more of it helps. Each makes the sorted loads smaller, so it comes to an end."""
        while (found := self.best(subtopology, EXACT * self.share(subtopology))) is not None:
            self._hand(*found)

    def best(self, subtopology: int, least: float) -> tuple[TaskId, str] | None:
        """Return the task, and who takes it, that helps the busiest instance that can be helped; None if none can.

        "Helps": the taker ends up by at least `least` below what the giver had. The best leaves the least to the
        busier of the two; among equals, what costs fewest moves from where tasks are now; then the idlest, in order.
        """
        loads, all_loads = self.loads[subtopology], self.loads[None]
        highest = self.peak(None) + EXACT
        held = self._alike(subtopology)
        for giver in sorted(loads, key=lambda name: (-round(loads[name], 9), name)):
            had, choices = loads[giver], []
            for (weight, now), task in held[giver].items():
                left = had - weight / self.slots[giver]
                for taker, load in loads.items():
                    adds = weight / self.slots[taker]
                    if taker == giver or load + adds > had - least or all_loads[taker] + adds > highest:
                        continue
                    costs = (taker != now) - (giver != now)  # what moves anyway may as well go elsewhere
                    choices.append((round(max(left, load + adds), 9), costs, round(load, 9), task, taker))
            if choices:
                *_, task, taker = min(choices)
                return task, taker
        return None

    def _alike(self, subtopology: int) -> dict[str, dict[tuple[float, str | None], TaskId]]:
        """Return, of each instance's tasks that are alike, in weight and in where they are now, the first."""
        held: dict[str, dict[tuple[float, str | None], TaskId]] = {name: {} for name in self.slots}
        for task, name in self.at.items():
            if task.subtopology == subtopology and name in held:
                kind = (self.weights[task], self.places.get(task))
                held[name][kind] = min(task, held[name].get(kind, task))
        return held

    def _hand(self, task: TaskId, taker: str) -> None:
        giver, weight = self.at[task], self.weights[task]
        for part in (task.subtopology, None):
            self.loads[part][giver] -= weight / self.slots[giver]
            self.loads[part][taker] += weight / self.slots[taker]
        self.at[task] = taker
