"""Balances the load where task weights differ: exchanges tasks until every load is within one task of its share.

The flow balances the number of tasks. Where weights differ, pairs of tasks then change places, between an instance with
too much load and one with too little. The two tasks are of the same subtopology, which keeps both balances. Or they are
of two subtopologies, if the floors and ceilings of both allow the exchange on both instances. The exchanges end as soon
as no load differs from its share by more than the heaviest task weighs, or no exchange helps. A placement that meets
this condition is left alone, so a target that was reached stays the target.

Properties: both balances are kept, and the largest load never rises. If exchanges cannot level the loads, the plan has
a warning. To place unsplittable weights optimally is NP-hard (bin packing). So the plan's metrics have a bound that no
placement can beat, and the gap to it (`weighted_load_*`).
Shapes: n weights; at most n exchanges, each of which compares the tasks of an instance with those of up to `PARTNERS`
others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from taskplace.model.problem_columns import Columns, Ints
from taskplace.model.shares import floors_and_ceilings

PARTNERS = 8
"""How many instances on the other side of their share are tried as partners of an exchange."""

Floats = npt.NDArray[np.float64]


def uneven(c: Columns) -> bool:
    """Return whether stateful tasks differ in weight."""
    weights = c.weight[c.stateful]
    return bool(len(weights)) and bool((weights != weights[0]).any())


def level(c: Columns, place: Ints) -> bool:
    """Return whether all stateful tasks have a place, and no load is further from its share than the heaviest task."""
    tasks = np.flatnonzero(c.stateful)
    if (place[tasks] < 0).any():
        return False
    share = c.weight[tasks].sum() * c.open_slots / c.open_slots.sum()
    load = np.bincount(place[tasks], weights=c.weight[tasks], minlength=c.m)
    excess = np.where(c.open_slots > 0, load - share, 0.0)
    return bool(np.abs(excess).max() <= c.weight[tasks].max())


def level_weights(c: Columns, place: Ints) -> Ints:
    """Return `place` after the exchanges that bring the loads of instances closer to their shares."""
    loads = _Loads(c, place.copy())
    for _ in range(len(loads.tasks)):
        exchange = None if loads.level() else loads.best_exchange()
        if exchange is None:
            break
        loads.exchange(*exchange)
    return loads.place


class _Loads:
    """The loads of a placement, updated with each exchange.

    - `excess`: [m] load above the share; negative if below
    - `counts`: [subtopologies, m] number of tasks
    - `low`, `high`: [subtopologies, m] the bounds of `counts`
    """

    def __init__(self, c: Columns, place: Ints) -> None:
        self.c, self.place = c, place
        self.tasks = tasks = np.flatnonzero(c.stateful)
        self.share = c.weight[tasks].sum() * c.open_slots / c.open_slots.sum()
        self.load = np.bincount(place[tasks], weights=c.weight[tasks], minlength=c.m)
        self.heaviest = float(c.weight[tasks].max())
        self.parked = set(c.barred.tolist())
        self.counts = np.zeros((len(c.subtopologies), c.m), np.int64)
        np.add.at(self.counts, (c.sub[tasks], place[tasks]), 1)
        bounds = [floors_and_ceilings(int(n), c.open_slots) for n in self.counts.sum(axis=1)]
        self.low, self.high = np.array([b[0] for b in bounds]), np.array([b[1] for b in bounds])

    @property
    def excess(self) -> Floats:
        return np.where(self.c.open_slots > 0, self.load - self.share, 0.0)

    def level(self) -> bool:
        """Return whether no load differs from its share by more than the weight of the heaviest task."""
        return bool(np.abs(self.excess).max() <= self.heaviest)

    def exchange(self, t: int, u: int) -> None:
        """Exchange the places of two tasks."""
        c = self.c
        a, b = int(self.place[t]), int(self.place[u])
        self.place[t], self.place[u] = b, a
        np.add.at(self.counts, (c.sub[[t, u, t, u]], np.array([b, a, a, b])), np.array([1, 1, -1, -1]))
        difference = c.weight[t] - c.weight[u]
        self.load[a] -= difference
        self.load[b] += difference

    def best_exchange(self) -> tuple[int, int] | None:
        """Return the tasks of the best exchange with the instance that is furthest from its share; None if none helps.

        An exchange helps if it lowers the sum of squared distances from the shares. Then neither of the two distances
        becomes larger than the larger one was.
        """
        c, tasks, place, excess = self.c, self.tasks, self.place, self.excess
        spare, open_ = self.counts > self.low, self.counts < self.high
        worst = int(np.abs(excess).argmax())
        best: tuple[float, int, int] | None = None
        mine = tasks[place[tasks] == worst]
        against = np.where(c.open_slots > 0, excess * -np.sign(excess[worst]), -np.inf)
        for other in np.argsort(-against, kind="stable")[:PARTNERS].tolist():
            if other == worst or against[other] <= 0:
                continue
            theirs = tasks[place[tasks] == other]
            gap = (excess[worst] - excess[other]) / 2  # what an ideal exchange moves from `worst` to `other`
            for s in np.intersect1d(c.sub[mine], c.sub[theirs]).tolist():
                ours, others = mine[c.sub[mine] == s], theirs[c.sub[theirs] == s]
                difference = c.weight[ours][:, None] - c.weight[others][None, :]
                gain = np.abs(gap) - np.abs(gap - difference)
                k = int(gain.argmax())
                t, u = int(ours[k // len(others)]), int(others[k % len(others)])
                if (
                    not self._helps(gain.flat[k], gap)
                    or self._is_parked(t, other)
                    or self._is_parked(u, worst)
                ):
                    continue
                if best is None or gain.flat[k] > best[0]:
                    best = (float(gain.flat[k]), t, u)
            goes = mine[(spare[:, worst] & open_[:, other])[c.sub[mine]]]
            comes = theirs[(spare[:, other] & open_[:, worst])[c.sub[theirs]]]
            across = _nearest(c, goes, comes, gap)
            if across is not None and (best is None or across[0] > best[0]):
                gained, t, u = across
                if (
                    self._helps(gained, gap)
                    and not self._is_parked(t, other)
                    and not self._is_parked(u, worst)
                ):
                    best = across
        return None if best is None else best[1:]

    @staticmethod
    def _helps(gain: float, gap: float) -> bool:
        return gain > 1e-9 * max(1.0, abs(gap))

    def _is_parked(self, task: int, inst: int) -> bool:
        return task * self.c.m + inst in self.parked


def _nearest(c: Columns, goes: Ints, comes: Ints, gap: float) -> tuple[float, int, int] | None:
    """Return (gain, task, other task) of the pair whose weights differ most nearly by `gap`. O(tasks * log tasks)."""
    if not len(goes) or not len(comes):
        return None
    comes = comes[np.argsort(c.weight[comes], kind="stable")]
    weights = c.weight[comes]
    after = np.searchsorted(weights, c.weight[goes] - gap)
    near = np.stack([np.clip(after - 1, 0, len(comes) - 1), np.clip(after, 0, len(comes) - 1)])
    gain = abs(gap) - np.abs(gap - (c.weight[goes][None, :] - weights[near]))
    k = int(gain.argmax())
    return float(gain.flat[k]), int(goes[k % len(goes)]), int(comes[near.flat[k]])


def load_and_bound(c: Columns, place: Ints) -> tuple[float, float]:
    """Return the largest load per slot of a placement, and a lower bound of it for any placement.

    The bound is the mean load per slot, or the weight of the heaviest task per slot of the instance with most open
    slots, whichever is larger.
    """
    tasks = np.flatnonzero(c.stateful)
    if not len(tasks) or not c.open_slots.any():
        return 0.0, 0.0
    load = np.bincount(place[tasks], weights=c.weight[tasks], minlength=c.m)
    used = c.open_slots > 0
    mean = float(c.weight[tasks].sum() / c.open_slots.sum())
    return float((load[used] / c.open_slots[used]).max()), max(
        mean, float(c.weight[tasks].max() / c.open_slots.max())
    )
