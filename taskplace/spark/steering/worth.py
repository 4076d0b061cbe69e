"""Is it worth it? What moves gain with every batch, against the reloads they cost once.

There are no standbys here, so a task that moves reloads its state from the checkpoint, within a batch. The gain is by
how much the seconds per slot of the busiest instance fall, in every batch from then on. A change is worth it if it
has paid itself back within `worth.batches` batches.

All moves of a change are judged together: the first of three moves off the busiest instance alone may gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topology.ids import TaskId


@dataclass(frozen=True)
class Prices:
    """What things cost, as measured: seconds that a usual task takes per batch, and seconds that a reload takes."""

    task: float = 0.0
    reload: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """What `moves` optional moves gain (seconds per batch) and cost (seconds, once), and whether that is worth it.

    >>> str(Verdict(2, gain=0.5, cost=0.2, worth=True))
    '2 moves gain 0.500 s a batch, cost 0.200 s of reloading: worth it'
    """

    moves: int = 0
    gain: float = 0.0
    cost: float = 0.0
    worth: bool = True

    def __str__(self) -> str:
        answer = "worth it" if self.worth else "not worth it"
        moves = "1 move gains" if self.moves == 1 else f"{self.moves} moves gain"
        costs = "costs" if self.moves == 1 else "cost"
        return f"{moves} {self.gain:.3f} s a batch, {costs} {self.cost:.3f} s of reloading: {answer}"


def busiest(seconds: Mapping[TaskId, float], places: Mapping[TaskId, str], slots: Mapping[str, int]) -> float:
    """Return the seconds per slot of the busiest instance.

    >>> a, b = TaskId(0, 0), TaskId(0, 1)
    >>> busiest({a: 1.0, b: 2.0}, {a: "x", b: "x"}, {"x": 2, "y": 2})
    1.5
    """
    loads = dict.fromkeys(slots, 0.0)
    for task, place in places.items():
        if place in loads:
            loads[place] += seconds[task]
    return max((load / max(1, slots[name]) for name, load in loads.items()), default=0.0)


def judge(
    seconds: Mapping[TaskId, float],
    places: Mapping[TaskId, str],
    goal: Mapping[TaskId, str],
    optional: Iterable[TaskId],
    slots: Mapping[str, int],
    prices: Prices,
    batches: float,
) -> Verdict:
    """Judge the `optional` moves of the way from `places` to `goal`; the others are made anyway.

    `seconds`: what each task takes per batch. `slots`: of each instance. `batches`: see `worth.batches`; 0 finds
    everything worth it.

    >>> tasks = [TaskId(0, p) for p in range(4)]
    >>> there, goal = dict.fromkeys(tasks, "x"), dict(zip(tasks, "xyxy"))
    >>> str(judge(dict.fromkeys(tasks, 1.0), there, goal, tasks[1::2], {"x": 1, "y": 1}, Prices(1.0, 5.0), 10))
    '2 moves gain 2.000 s a batch, cost 10.000 s of reloading: worth it'
    """
    chosen = set(optional)
    if not chosen:
        return Verdict()
    before = {task: places.get(task, goal[task]) if task in chosen else goal[task] for task in goal}
    gain = busiest(seconds, before, slots) - busiest(seconds, goal, slots)
    cost = prices.reload * len(chosen)
    known = prices.task > 0  # before the first batch nobody knows, and moves can wait for it
    return Verdict(len(chosen), gain, cost, not batches or (known and gain * batches >= cost))
