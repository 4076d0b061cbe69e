"""Is it worth it? What moves gain with every batch, against the reloads they cost once.

There are no standbys here, so a task that moves reloads its state from the checkpoint, within a batch. The gain is by
how much the work falls that is not where instances' shares want it, in every batch from then on. A change is worth it
if it has paid itself back within `worth.batches` batches. Gain and cost are seconds of a slot.

The busiest instance alone would not do: with 12 tasks on 4 instances and an empty fifth, the largest number of tasks
is 3 before and after, and the fifth would stay empty for ever.

All moves of a change are judged together: the first of three moves off the busiest instance alone may gain nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
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


def excess(seconds: Mapping[TaskId, float], places: Mapping[TaskId, str], slots: Mapping[str, int]) -> float:
    """Return the seconds per batch that are not where instances' shares, by slots, want them. O(tasks + instances).

    Where tasks take equally long: what instances have above the ceiling of their share, or lack to its floor,
    whichever is more, so that it is 0 exactly where the engine's balance holds. Otherwise what they have beyond it,
    where one that has a task heavier than a share is to have that alone.
    Half of it counts each subtopology by itself, since the stages of a query run one after another; the other half
    all tasks together, since queries run side by side.

    >>> a, b, c = (TaskId(0, p) for p in range(3))
    >>> excess({a: 1.0, b: 1.0, c: 1.0}, {a: "x", b: "x", c: "y"}, {"x": 1, "y": 1, "z": 1})
    1.0
    """
    parts: dict[int | None, list[TaskId]] = defaultdict(list)
    for task, place in places.items():
        if place in slots:
            parts[task.subtopology].append(task)
            parts[None].append(task)
    return sum(_beyond(seconds, places, tasks, slots) for tasks in parts.values()) / 2


def _beyond(
    seconds: Mapping[TaskId, float],
    places: Mapping[TaskId, str],
    tasks: Sequence[TaskId],
    slots: Mapping[str, int],
) -> float:
    """Return what of these tasks is not where it should be; they are one subtopology, or all there are."""
    total = max(1, sum(slots.values()))
    each = seconds[tasks[0]]
    if all(seconds[task] == each for task in tasks):
        counts = Counter(places[task] for task in tasks)
        above = sum(max(0, counts[i] + len(tasks) * -slots[i] // total) for i in slots)  # less the ceiling
        below = sum(max(0, len(tasks) * slots[i] // total - counts[i]) for i in slots)
        return max(above, below) * each
    loads, heaviest = dict.fromkeys(slots, 0.0), dict.fromkeys(slots, 0.0)
    for task in tasks:
        name = places[task]
        loads[name] += seconds[task]
        heaviest[name] = max(heaviest[name], seconds[task])
    # An instance whose heaviest task is more than a share has it beyond help: the others share the rest.
    rest, sharing = (
        sum(loads.values()),
        sorted(slots, key=lambda name: (heaviest[name] / max(1, slots[name]), name)),
    )
    while len(sharing) > 1:
        each = rest / max(1, sum(slots[name] for name in sharing))
        if heaviest[sharing[-1]] <= each * slots[sharing[-1]]:
            break
        rest -= heaviest[sharing.pop()]
    each = rest / max(1, sum(slots[name] for name in sharing))
    shares = {name: heaviest[name] for name in slots} | {name: each * slots[name] for name in sharing}
    return sum(max(0.0, load - shares[name]) for name, load in loads.items())


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

    `seconds`: what each task takes per batch. `slots`: of each instance that may have tasks. `batches`: see
    `worth.batches`; 0 finds everything worth it.

    >>> tasks = [TaskId(0, p) for p in range(4)]
    >>> there, goal = dict.fromkeys(tasks, "x"), dict(zip(tasks, "xyxy"))
    >>> str(judge(dict.fromkeys(tasks, 1.0), there, goal, tasks[1::2], {"x": 1, "y": 1}, Prices(1.0, 5.0), 10))
    '2 moves gain 2.000 s a batch, cost 10.000 s of reloading: worth it'
    """
    chosen = set(optional)
    if not chosen:
        return Verdict()
    before = {task: places.get(task, goal[task]) if task in chosen else goal[task] for task in goal}
    gain = round(excess(seconds, before, slots) - excess(seconds, goal, slots), 9)  # no noise of additions
    cost = prices.reload * len(chosen)
    known = prices.task > 0  # before the first batch nobody knows, and moves can wait for it
    return Verdict(len(chosen), gain, cost, not batches or (known and gain * batches >= cost))
