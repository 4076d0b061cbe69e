"""Is it worth it? What moves gain with every batch, against the reloads they cost once.

There are no standbys here, so a task that moves reloads its state from the checkpoint, within a batch. What it gains
is judged by what the goal is made for: the engine's balance of counts where tasks take equally long, and the sorted
loads of slots, busiest first (see `relief`), where they do not. A change is worth it if it has paid itself back within
`worth.batches` batches. Gain and cost are seconds of a slot.

The busiest instance alone would not do: with 12 tasks on 4 instances and an empty fifth, the largest number of tasks
is 3 before and after, and the fifth would stay empty for ever.

All moves of a change are judged together: the first of three moves off the busiest instance alone may gain nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from taskplace.spark.steering.load_leveling import EXACT
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


def gained(
    seconds: Mapping[TaskId, float],
    before: Mapping[TaskId, str],
    after: Mapping[TaskId, str],
    slots: Mapping[str, int],
) -> float:
    """Return the seconds per batch that are better placed `after` than `before`. O(tasks + slots * log slots).

    Where tasks take equally long: how much less is above the ceiling of an instance's share, by slots, or missing to
    its floor, whichever is more, if both together are less; that is nothing exactly where the engine's balance holds.
    Where they do not: with slots sorted by what each has to do, busiest first, the first that differs tells whether it
    is a gain or a loss, and that is the most that any number of the busiest are rid of, or have in addition.
    Half of it counts each subtopology by itself, since the stages of a query run one after another; the other half
    all tasks together, since queries run side by side. Of these, what is below the busiest slot is not held against
    what a subtopology of unequal tasks gains, nor for what it loses: `relief` does not mind it either.

    Properties: there and back again gains nothing. Whatever `relief` hands over is a gain, whatever the slots: the
    taker ends up below what the giver had, and nobody above the busiest of all tasks.

    >>> a, b, c = (TaskId(0, p) for p in range(3))
    >>> there, slots = {a: "x", b: "x", c: "y"}, {"x": 1, "y": 1, "z": 1}
    >>> gained({a: 1.0, b: 1.0, c: 1.0}, there, there | {b: "z"}, slots)
    1.0
    >>> gained({a: 9.0, b: 2.0, c: 1.0}, there, there | {b: "z"}, slots)
    2.0
    """
    parts: dict[int, list[TaskId]] = defaultdict(list)
    for task in after:
        parts[task.subtopology].append(task)
    equal, unequal = 0.0, 0.0
    for tasks in parts.values():
        if _alike(seconds, tasks):
            equal += _by_count(seconds, before, after, tasks, slots)
        else:
            unequal += _by_load(*(_sorted(seconds, places, tasks, slots) for places in (before, after)))
    tasks = list(after)
    had, have = (_sorted(seconds, places, tasks, slots) for places in (before, after))
    together = (
        _by_count(seconds, before, after, tasks, slots) if _alike(seconds, tasks) else _by_load(had, have)
    )
    peak = _by_load(had[:1], have[:1])
    if unequal * together < 0 and unequal * peak >= 0:
        together = 0.0
    return (equal + unequal + together) / 2


def _alike(seconds: Mapping[TaskId, float], tasks: Sequence[TaskId]) -> bool:
    return len({seconds[task] for task in tasks}) < 2


def _by_count(
    seconds: Mapping[TaskId, float],
    before: Mapping[TaskId, str],
    after: Mapping[TaskId, str],
    tasks: Sequence[TaskId],
    slots: Mapping[str, int],
) -> float:
    was, now = (_unbalanced(places, tasks, slots) for places in (before, after))
    less = [one - other for one, other in zip(was, now, strict=True)]
    each = seconds[tasks[0]] if tasks else 0.0
    return each * (max(less) if sum(less) > 0 else min(less) if sum(less) < 0 else 0)


def _by_load(had: Sequence[float], have: Sequence[float]) -> float:
    lost = [one - other for one, other in zip(had, have, strict=True)]
    first = next((seconds for seconds in lost if abs(seconds) > EXACT), 0.0)
    sums = list(accumulate(lost))
    return max(sums) if first > 0 else min(sums) if first < 0 else 0.0


def _unbalanced(
    places: Mapping[TaskId, str], tasks: Sequence[TaskId], slots: Mapping[str, int]
) -> tuple[int, int]:
    """Return how many of these tasks are above the ceilings of shares, and how many are missing to their floors."""
    total = max(1, sum(slots.values()))
    counts = Counter(places[task] for task in tasks)
    above = sum(max(0, counts[i] + len(tasks) * -slots[i] // total) for i in slots)  # less the ceiling
    below = sum(max(0, len(tasks) * slots[i] // total - counts[i]) for i in slots)
    return above, below


def _sorted(
    seconds: Mapping[TaskId, float],
    places: Mapping[TaskId, str],
    tasks: Sequence[TaskId],
    slots: Mapping[str, int],
) -> list[float]:
    """Return what each slot has to do of these tasks, the busiest first; those of an instance share its work."""
    loads = dict.fromkeys(slots, 0.0)
    for task in tasks:
        loads[places[task]] += seconds[task] / slots[places[task]]
    return sorted((load for name, load in loads.items() for _ in range(slots[name])), reverse=True)


def _filled(
    seconds: Mapping[TaskId, float], before: Mapping[TaskId, str], after: Mapping[TaskId, str]
) -> float:
    """Return the least that filling instances gains that had no task at all: of each, its lightest task.

    Half of that, as all that counts over all tasks together.
    """
    used, lightest = set(before.values()), dict[str, float]()
    for task, name in after.items():
        if name not in used:
            lightest[name] = min(seconds[task], lightest.get(name, seconds[task]))
    return sum(lightest.values()) / 2


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
    `worth.batches`; 0 finds everything worth it. An instance that has no task at all, and is to have some, gains at
    least half of the lightest, so that none stays empty for ever beside others whose tasks wait for each other.

    >>> tasks = [TaskId(0, p) for p in range(4)]
    >>> there, goal = dict.fromkeys(tasks, "x"), dict(zip(tasks, "xyxy"))
    >>> str(judge(dict.fromkeys(tasks, 1.0), there, goal, tasks[1::2], {"x": 1, "y": 1}, Prices(1.0, 5.0), 10))
    '2 moves gain 2.000 s a batch, cost 10.000 s of reloading: worth it'
    """
    goal = {task: name for task, name in goal.items() if name in slots}
    chosen = {task for task in optional if task in goal and places.get(task) in slots}
    if not chosen:
        return Verdict()
    before = {task: places[task] if task in chosen else name for task, name in goal.items()}
    gain = max(gained(seconds, before, goal, slots), _filled(seconds, before, goal))
    gain = round(gain, 9)  # no noise of additions
    cost = prices.reload * len(chosen)
    known = prices.task > 0  # before the first batch nobody knows, and moves can wait for it
    return Verdict(len(chosen), gain, cost, not batches or (known and gain * batches >= cost))
