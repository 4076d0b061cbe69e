"""The moves that are left on the way to the target, which of them are made now, and whether they are worth it.

Worth it: what moves gain in every batch, against the reloads that they cost once.
There are no standbys, so a task that moves reloads its state from the checkpoint, within a batch. If tasks take equally
long, the gain is measured by the balance of counts; otherwise by the sorted loads of the slots (see `level_load`).
Moves are worth it if they pay their reloads back within `worth.batches` batches. Gain and cost are seconds of a slot.

The load of the busiest executor alone is not a good measure. With 12 tasks on 4 executors and an empty fifth, the
largest number of tasks is 3 before and after, and the fifth executor would stay empty for ever.

All moves to a target are judged together: the first of three moves off the busiest executor alone may gain nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from taskplace.model.plan import Move
from taskplace.spark.steering.measurements import Costs, TaskWeights
from taskplace.spark.steering.observation import Observation
from taskplace.spark.steering.target import EXACT, Loads, Target
from topology.tasks import TaskId


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


def pending_moves(target: Target, observed: Observation) -> PendingMoves:
    """Return the tasks whose place differs from the target."""
    free, draining, optional = list[TaskId](), list[TaskId](), list[TaskId]()
    for task, name in target.places.items():
        at = observed.places[task]
        if at is None or at not in observed.cluster.slots:
            free.append(task)
        elif at != name:
            (draining if at in observed.cluster.draining else optional).append(task)
    return PendingMoves(tuple(free), tuple(draining), tuple(optional))


def choose_moves(
    due: Sequence[TaskId], *, target: Target, observed: Observation, weights: TaskWeights, limit: int
) -> list[TaskId]:
    """Return at most `limit` of the tasks that are due.

    Tasks on draining executors come first, then moves from the busiest executor to the least busy one. Loads are
    updated after each choice.
    """
    slots = {name: observed.cluster.capacity(name) for name in observed.cluster.slots}
    at = {task: name for task, name in observed.places.items() if name is not None and name in slots}
    placed = Loads({task: weights.of(task) for task in at}, at, slots)

    def order(task: TaskId) -> tuple[bool, float, float, TaskId]:
        load, name, to = placed.loads[None], at[task], target.places[task]
        return (name not in observed.cluster.draining, load[to] - load[name], -weights.of(task), task)

    left, chosen = set(due), list[TaskId]()
    while left and len(chosen) < limit:
        chosen.append(min(left, key=order))
        left.remove(chosen[-1])
        placed.hand_over(chosen[-1], target.places[chosen[-1]])
    return chosen


def move_of(task: TaskId, *, target: Target, observed: Observation) -> Move:
    """Return the move of a task to its target, with its reason."""
    at, cluster = observed.places[task], observed.cluster
    if at is None:
        why = "it ran nowhere"
    elif at not in cluster.slots:
        why = "decommissioned" if at in cluster.ending else f"{at} is gone"
    elif at in cluster.draining:
        why = "drain"
    else:
        why = "load" if task in target.by_load else "balance"
    return Move(task, "active", at, target.places[task], why)


@dataclass(frozen=True)
class Verdict:
    """The gain (seconds per batch) and cost (seconds, once) of `moves` optional moves, and whether they are worth it.

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


def judge(
    *,
    seconds: Mapping[TaskId, float],
    places: Mapping[TaskId, str],
    target: Mapping[TaskId, str],
    optional: Iterable[TaskId],
    slots: Mapping[str, int],
    costs: Costs,
    batches: float,
) -> Verdict:
    """Judge the `optional` moves on the way from `places` to `target`; all other moves are made anyway.

    `seconds`: the time of each task per batch. `slots`: of each executor that may run tasks. `batches`: see
    `worth.batches`; 0 makes every move worth it. Filling an executor without tasks gains at least half of its lightest
    task, so that no executor stays empty because every single move gains too little.

    >>> tasks = [TaskId(0, p) for p in range(4)]
    >>> verdict = judge(
    ...     seconds=dict.fromkeys(tasks, 1.0), places=dict.fromkeys(tasks, "x"), target=dict(zip(tasks, "xyxy")),
    ...     optional=tasks[1::2], slots={"x": 1, "y": 1}, costs=Costs(task=1.0, reload=5.0), batches=10,
    ... )
    >>> str(verdict)
    '2 moves gain 2.000 s a batch, cost 10.000 s of reloading: worth it'
    """
    target = {task: name for task, name in target.items() if name in slots}
    chosen = {task for task in optional if task in target and places.get(task) in slots}
    if not chosen:
        return Verdict()
    before = {task: places[task] if task in chosen else name for task, name in target.items()}
    gain = max(gained(seconds, before, target, slots), _filled(seconds, before, target))
    gain = round(gain, 9)  # without the noise of additions
    cost = costs.reload * len(chosen)
    measured = costs.task > 0  # nothing is measured before the first batch; moves wait for it
    return Verdict(len(chosen), gain, cost, not batches or (measured and gain * batches >= cost))


def gained(
    seconds: Mapping[TaskId, float],
    before: Mapping[TaskId, str],
    after: Mapping[TaskId, str],
    slots: Mapping[str, int],
) -> float:
    """Return the gain of the placement `after` over `before`, in seconds per batch. O(tasks + slots * log slots).

    Tasks that take equally long are judged by count. An executor's share is its part of all slots. The gain is the
    decrease of the number of tasks above the ceilings of shares, or of the number of tasks that executors lack below
    their floors, whichever is larger. It is zero exactly where the engine's balance holds before and after.

    Tasks that take different times are judged by load. The slots are sorted by their load, busiest first. The first
    slot whose load differs decides whether the change is a gain or a loss. Its size is the largest sum that any number
    of the busiest slots lose, or get in addition.

    Half of the gain is summed over the subtopologies, because the stages of a query run one after another. The other
    half is that of all tasks together, because queries run in parallel. If the two have different signs, the second
    half counts only if it changes the busiest slot: `load_leveling` ignores changes below that as well.

    Properties: a move and its reverse gain nothing together. Each hand-over of `load_leveling` is a gain, for any
    slots, because the receiver ends up below the giver's load, and no executor ends up above the busiest one.

    >>> a, b, c = (TaskId(0, p) for p in range(3))
    >>> there, slots = {a: "x", b: "x", c: "y"}, {"x": 1, "y": 1, "z": 1}
    >>> gained({a: 1.0, b: 1.0, c: 1.0}, there, there | {b: "z"}, slots)
    1.0
    >>> gained({a: 9.0, b: 2.0, c: 1.0}, there, there | {b: "z"}, slots)
    2.0
    """
    was, now = Loads(seconds, dict(before), slots), Loads(seconds, dict(after), slots)
    equal = unequal = together = 0.0
    for part in now.loads:
        own = {task: seconds[task] for task in after if part in (None, task.subtopology)}
        alike = len({*own.values()}) < 2
        gain = _by_count(own, before, after, slots) if alike else _by_load(was, now, part)
        if part is None:
            together = gain
        elif alike:
            equal += gain
        else:
            unequal += gain
    if unequal * together < 0 and unequal * _by_load(was, now, None, busiest=1) >= 0:
        together = 0.0
    return (equal + unequal + together) / 2


def _by_count(
    seconds: Mapping[TaskId, float],
    before: Mapping[TaskId, str],
    after: Mapping[TaskId, str],
    slots: Mapping[str, int],
) -> float:
    """Return the gain of tasks that take equally long."""
    total, number, less = max(1, sum(slots.values())), len(seconds), [0, 0]
    for places, sign in ((before, 1), (after, -1)):
        counts = Counter(places[task] for task in seconds)
        less[0] += sign * sum(max(0, counts[name] + number * -own // total) for name, own in slots.items())
        less[1] += sign * sum(max(0, number * own // total - counts[name]) for name, own in slots.items())
    each = next(iter(seconds.values()))
    return each * (max(less) if sum(less) > 0 else min(less) if sum(less) < 0 else 0)


def _by_load(was: Loads, now: Loads, part: int | None, *, busiest: int | None = None) -> float:
    """Return the gain of tasks that take different times; with `busiest`, only on so many of the busiest slots."""
    had, have = was.by_slot(part)[:busiest], now.by_slot(part)[:busiest]
    lost = [one - other for one, other in zip(had, have, strict=True)]
    first = next((seconds for seconds in lost if abs(seconds) > EXACT), 0.0)
    sums = list(accumulate(lost))
    return max(sums) if first > 0 else min(sums) if first < 0 else 0.0


def _filled(
    seconds: Mapping[TaskId, float], before: Mapping[TaskId, str], after: Mapping[TaskId, str]
) -> float:
    """Return the least gain of filling executors that had no task: half of the lightest task of each.

    It is half, like the gain of all tasks together.
    """
    used, lightest = set(before.values()), dict[str, float]()
    for task, name in after.items():
        if name not in used:
            lightest[name] = min(seconds[task], lightest.get(name, seconds[task]))
    return sum(lightest.values()) / 2
