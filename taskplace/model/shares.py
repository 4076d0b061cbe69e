"""Defines balance: every instance runs the floor or the ceiling of its capacity's share.

`imbalance` says in one number how evenly active tasks are spread, for metrics, reports and simulations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from taskplace.model.cluster import Instance, Task
from taskplace.model.flow import Network
from taskplace.model.plan import Roles
from taskplace.model.problem_columns import Columns, Ints
from topology.tasks import TaskId


def floors_and_ceilings(count: int, open_slots: Ints) -> tuple[Ints, Ints]:
    """Return, per instance, floor and ceiling of count * open_slots_i / sum(open_slots); exact, in integers.

    An instance without open slots gets 0 and 0. The sum of the floors is at most `count`, and the sum of the ceilings
    at least `count`, so `count` tasks always fit between them. The bounds of all tasks and those of each subtopology
    can be met together: the fractional shares meet both, and the flow that they form has an integral solution.

    Errors: `ValueError` if no instance has open slots.

    >>> floors_and_ceilings(7, np.array([2, 1, 0]))
    (array([4, 2, 0]), array([5, 3, 0]))
    """
    total = int(open_slots.sum())
    if total == 0:
        raise ValueError("no instance has open slots")
    if count * int(open_slots.max()) >= 2**62:  # Python integers do not overflow
        low = np.array([count * int(c) // total for c in open_slots], np.int64)
        exact = np.array([count * int(c) % total == 0 for c in open_slots], np.bool_)
    else:
        low, rest = np.divmod(count * open_slots, total)
        exact = rest == 0
    return low, low + ~exact


def level_loads(copies: int, most: int, least: Ints, open_slots: Ints) -> tuple[Ints, Ints]:
    """Return, per instance, floor and ceiling of the most even load that is possible.

    `copies` are spread in proportion to `open_slots`. But an instance cannot hold more than `most` (two copies of a
    task are never on one instance), nor less than `least` (the actives that it already has). The other instances share
    the difference. An instance without open slots gets `least`.

    >>> level_loads(12, 6, np.array([4, 1, 1]), np.array([4, 1, 1]))   # the share of the first would be 8
    (array([6, 3, 3]), array([6, 3, 3]))
    """
    fixed = np.where(open_slots > 0, -1, least).astype(np.int64)
    while True:
        free = fixed < 0
        rest = copies - int(fixed[~free].sum())
        if not free.any() or rest <= 0:
            low = np.where(free, 0, fixed)
            return low, low
        floor, ceiling = floors_and_ceilings(rest, np.where(free, open_slots, 0))
        low, high = np.where(free, floor, fixed), np.where(free, ceiling, fixed)
        over, under = free & (high > most), free & (low < least)
        low, high = np.where(under, least, low), np.where(over, most, high)
        if (low <= high).all() and int(low.sum()) <= copies <= int(high.sum()):
            return low, high
        # Fix the side that carries more; that can only relax the other side.
        total = int(open_slots[free].sum())
        excess = int((rest * open_slots - most * total)[over].sum())
        lack = int((least * total - rest * open_slots)[under].sum())
        fixed = np.where(over, most, fixed) if excess >= lack else np.where(under, least, fixed)


@dataclass(frozen=True, slots=True)
class StatelessShares:
    """The numbers of stateless tasks that each instance may have beside its stateful actives.

    m instances, s subtopologies with stateless tasks.

    - `places`: the instances with open slots
    - `subs`: [s] the subtopologies, as positions in `Columns.subtopologies`
    - `low`, `high`: [m] bounds with which the total of actives is level
    - `kind_low`, `kind_high`: [m] floor and ceiling of the share of all stateless tasks
    - `cell_low`, `cell_high`: [s, m] floor and ceiling of the share of each subtopology
    - `cell_sum`: [s] the number of stateless tasks of each subtopology
    - `kind_fits`: whether total and kind can be met together
    """

    places: Ints
    subs: Ints
    low: Ints
    high: Ints
    kind_low: Ints
    kind_high: Ints
    cell_low: Ints
    cell_high: Ints
    cell_sum: Ints
    kind_fits: bool

    def misses(self, counts: Ints) -> tuple[int, int, int]:
        """Return the distances of [s, m] counts from the shares of the total, the kind, and the subtopologies."""
        each = counts.sum(axis=0)
        kind = _distance(each, self.kind_low, self.kind_high)
        return (
            _distance(each, self.low, self.high),
            kind,
            _distance(counts, self.cell_low, self.cell_high),
        )

    def can_be_met(self) -> bool:
        """Return whether some placement meets all shares. Cost: one flow over s * m arcs."""
        net = Network()
        pool, seat, sink = net.nodes(len(self.subs)), net.nodes(len(self.places)), net.nodes(1)
        to = np.broadcast_to(seat, (len(pool), len(seat)))
        low, high = self.cell_low[:, self.places], self.cell_high[:, self.places]
        net.arcs(np.repeat(pool, len(seat)), to, high, 0, low=low)
        least, most = np.maximum(self.low, self.kind_low), np.minimum(self.high, self.kind_high)
        net.arcs(seat, sink.repeat(len(seat)), most[self.places], 0, low=least[self.places])
        net.supply(pool, self.cell_sum)
        net.supply(sink, -int(self.cell_sum.sum()))
        return self.kind_fits and net.solve() is not None


def _distance(counts: Ints, low: Ints, high: Ints) -> int:
    return int((np.maximum(low - counts, 0) + np.maximum(counts - high, 0)).sum())


def stateless_shares(c: Columns, active: Ints) -> StatelessShares:
    """Return the shares of the stateless tasks beside the stateful ones in `active` ([n] instances).

    Total and kind can be met together if their ranges overlap on each instance, and the number of stateless tasks is
    between the sums of the lower and of the upper ends.
    """
    loose = ~c.stateful
    busy = np.bincount(active[c.stateful], minlength=c.m)
    low, high = level_loads(c.n, c.n, busy, c.open_slots)
    low, high = np.maximum(low - busy, 0), np.maximum(high - busy, 0)
    count = int(loose.sum())
    kind_low, kind_high = floors_and_ceilings(count, c.open_slots)
    least, most = np.maximum(low, kind_low), np.minimum(high, kind_high)
    subs, sums = np.unique(c.sub[loose], return_counts=True)
    # Few subtopologies differ in size.
    size, kind_of = np.unique(sums, return_inverse=True)
    bounds = [floors_and_ceilings(int(k), c.open_slots) for k in size]
    cell_low, cell_high = (
        np.array([b[k] for b in bounds], np.int64).reshape(-1, c.m)[kind_of] for k in (0, 1)
    )
    return StatelessShares(
        places=np.flatnonzero(c.open_slots > 0),
        subs=subs,
        low=low,
        high=high,
        kind_low=kind_low,
        kind_high=kind_high,
        cell_low=cell_low,
        cell_high=cell_high,
        cell_sum=sums.astype(np.int64),
        kind_fits=bool((least <= most).all() and least.sum() <= count <= most.sum()),
    )


def is_even(slots: Sequence[Sequence[TaskId]], tasks: Sequence[TaskId]) -> bool:
    """Return whether every task is on one slot, and slots differ by at most one task, in all and per subtopology.

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


def imbalance(
    weights: Mapping[TaskId, float], slots: Mapping[str, int], assignment: Mapping[str, Roles]
) -> float | None:
    """Return the largest load per slot divided by the mean; 1 is even, None without a load.

    - `weights`: of tasks; a task without one weighs 1
    - `slots`: of the instances that count: those that have slots and do not drain

    O(tasks).

    >>> a, b, c = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)
    >>> imbalance({}, {"x": 1, "y": 1}, {"x": Roles((a, b, c)), "y": Roles()})
    2.0
    """
    loads = [
        sum(weights.get(task, 1.0) for task in assignment.get(name, Roles()).active) / count
        for name, count in slots.items()
    ]
    mean = sum(loads) / len(loads) if loads else 0.0
    return max(loads) / mean if mean else None


def imbalance_of(
    tasks: Iterable[Task], instances: Iterable[Instance], assignment: Mapping[str, Roles]
) -> float | None:
    """Return the `imbalance` of an assignment of a problem's tasks to its instances.

    >>> task = TaskId(0, 0)
    >>> imbalance_of([Task(task)], [Instance("x"), Instance("y", draining=True)], {"x": Roles((task,))})
    1.0
    """
    slots = {one.id: one.capacity for one in instances if one.capacity and not one.draining}
    return imbalance({task.id: task.weight for task in tasks}, slots, assignment)
