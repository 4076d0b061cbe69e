"""What balanced means: every instance runs the floor or the ceiling of its capacity's share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from taskplace.model.columns import Ints
from topology.ids import TaskId


def floors_and_ceilings(count: int, room: Ints) -> tuple[Ints, Ints]:
    """Return, per instance, floor and ceiling of count * room_i / sum(room); exact, in integers.

    An instance without room gets 0 and 0. The sum of the floors is at most `count`, that of the ceilings at
    least, so `count` tasks always fit between them. Both can be met at once for all tasks and for the tasks
    of each subtopology: the fractional shares meet both, and the flow they form has an integral solution.

    >>> floors_and_ceilings(7, np.array([2, 1, 0]))
    (array([4, 2, 0]), array([5, 3, 0]))
    """
    total = int(room.sum())
    if total == 0:
        raise ValueError("no instance has room")
    if count * int(room.max()) >= 2**62:  # Python integers do not overflow
        low = np.array([count * int(c) // total for c in room], np.int64)
        exact = np.array([count * int(c) % total == 0 for c in room], np.bool_)
    else:
        low, rest = np.divmod(count * room, total)
        exact = rest == 0
    return low, low + ~exact


def level_loads(copies: int, most: int, least: Ints, room: Ints) -> tuple[Ints, Ints]:
    """Return, per instance, floor and ceiling of the most even load that is possible.

    `copies` are spread in proportion to `room`, but an instance cannot hold more than `most` (two copies of a
    task are never on one instance) nor less than `least` (the actives it already has). What one instance
    cannot take, or must take, the others share: water finding its level.

    >>> level_loads(12, 6, np.array([4, 1, 1]), np.array([4, 1, 1]))   # the share of the first would be 8
    (array([6, 3, 3]), array([6, 3, 3]))
    """
    fixed = np.where(room > 0, -1, 0).astype(np.int64)
    while True:
        free = fixed < 0
        rest = copies - int(fixed[~free].sum())
        if not free.any() or rest <= 0:
            low = np.where(free, 0, fixed)
            return low, low
        floor, ceiling = floors_and_ceilings(rest, np.where(free, room, 0))
        low, high = np.where(free, floor, fixed), np.where(free, ceiling, fixed)
        over, under = free & (high > most), free & (low < least)
        low, high = np.where(under, least, low), np.where(over, most, high)
        if (low <= high).all() and int(low.sum()) <= copies <= int(high.sum()):
            return low, high
        # Fix the side that carries more; fixing it can only ease the other side.
        total = int(room[free].sum())
        excess = int((rest * room - most * total)[over].sum())
        lack = int((least * total - rest * room)[under].sum())
        fixed = np.where(over, most, fixed) if excess >= lack else np.where(under, least, fixed)


def is_even(slots: Sequence[Sequence[TaskId]], tasks: Sequence[TaskId]) -> bool:
    """Return whether every task is on one slot, and slots differ by one task at most, in all and per subtopology.

    >>> is_even([[TaskId(0, 0)], [TaskId(0, 1)]], [TaskId(0, 0), TaskId(0, 1)])
    True
    >>> is_even([[TaskId(0, 0), TaskId(0, 1)], []], [TaskId(0, 0), TaskId(0, 1)])
    False
    """
    if sorted(chain.from_iterable(slots)) != sorted(tasks):
        return False
    per = [Counter(t.subtopology for t in slot) for slot in slots]
    counts = [[len(slot) for slot in slots], *([c[s] for c in per] for s in {t.subtopology for t in tasks})]
    return all(max(n) - min(n) <= 1 for n in counts)
