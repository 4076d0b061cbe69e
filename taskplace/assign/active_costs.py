"""The costs of placing actives: moves, new copies and lag, in levels that fit below 2^63."""

from __future__ import annotations

import math

import numpy as np

from taskplace.assign.flow import cost_budget
from taskplace.model.columns import NONE, WARMUP, Columns, Ints
from taskplace.model.placement import FIXED, OPEN

STILL = 20_000
"""Up to this number of nodes, costs do not depend on which tasks have a node of their own."""


class ActiveCosts:
    """Costs in levels: a move outweighs all new copies together, a new copy all levels below it.

    Below are, in this order: copies that warm up now come before others, so that a target is pursued once begun; steps
    of lag; and ties, which fixed weights of tasks and places break, for the same reason. All levels must fit below
    2^63, so in larger problems the lower ones are coarser. In the largest problems only moves are distinguished, and
    the lower levels are not; `fits` is False if even that is impossible.
    """

    def __init__(self, c: Columns, tasks: int, node_count: int, *, share: int = 1) -> None:
        self.c = c
        self.fits = True
        self.scale = max(int(c.end[c.stateful].max(initial=0)), 1)
        # As if every task had a node of its own, if that is not too many: then all levels hold still, too.
        most = tasks + (len(c.subtopologies) + 1) * (c.m + 1)
        budget = cost_budget(max(node_count, min(most, STILL))) // share  # of a multiple of a move
        # What the levels below a copy may multiply up to; two factors of `tasks` are for copies and for moves.
        grain = max(3, budget // (4 * tasks * tasks + 4))
        if budget // (4 * tasks * tasks + 4) < 3:
            self._coarse(tasks, budget)
            return
        edge = grain ** (1 / 3)
        weight = int(min(tasks, max(1, edge)))
        self.bits = int(min(12, math.log2(max(1, edge / 2))))
        self.ties = 1 << self.bits
        self.unit = 2 * self.ties  # one step of lag: more than the two ties of an arc together
        self.steps = int(min(1024, max(1, grain // (weight * self.unit) - 4)))
        self.begun = (self.steps + 1) * self.unit * weight
        self.copy = (self.begun + (self.steps + 2) * self.unit) * tasks + 1
        self.move = 2 * self.copy * (tasks + 1)
        self.miss = self.move * (2 * c.m + 1)

    def _coarse(self, tasks: int, budget: int) -> None:
        """Set the levels of a problem for which finer ones do not fit: all below a move together are less than one."""
        self.bits, self.ties, self.unit, self.steps = 0, 1, 0, 1
        self.begun, self.copy = 1, 2
        self.move = 4 * (tasks + 1)
        self.miss = self.move * (2 * self.c.m + 1)
        self.fits = self.move <= budget

    def lag(self, lag: Ints) -> Ints:
        """Steps of lag, rounded up; the largest number if the lag is not known."""
        steps = np.ceil(np.minimum(lag / self.scale, 1.0) * self.steps).astype(np.int64)
        return np.where(lag < 0, self.steps, steps) * self.unit

    def rows(self, rows: Ints, base: Ints) -> Ints:
        """The cost of going to an instance with a copy."""
        c = self.c
        kind = base[c.task[rows]]
        moved = np.where((kind != OPEN) & ((kind == FIXED) | ~c.best[rows]), self.move, 0)
        warm = c.role[rows] == WARMUP
        fresh = np.where(c.best[rows] | (c.role[rows] != NONE) | (kind == OPEN), 0, self.copy)
        other = np.where(warm, 0, self.begun)
        # Where any lag is acceptable, all copies count as caught up; what they lack is restored all the same.
        near = c.caught[rows] & (not c.unbounded)
        behind = np.where(near, 0, self.lag(c.lag[rows])) + np.where(c.best[rows], 0, fresh)
        # What a warm-up has read does not count: warm-ups compare with each other as they did before they began.
        behind = np.where(warm, self.lag(c.end[c.task[rows]]) + self.unit, behind)
        pair = c.sub[c.task[rows]] * c.m + c.inst[rows]
        total: Ints = moved + behind + other + self.tie(c.task[rows]) + self.tie(pair)
        return total

    def roam(self, tasks: Ints, base: Ints) -> Ints:
        """The cost of going to an instance without a copy."""
        c = self.c
        moved = np.where(base[tasks] == OPEN, 0, self.move)
        made = (base[tasks] != OPEN) | c.unbounded
        fresh = np.where(made, self.copy, 0) + self.lag(c.end[tasks]) + self.unit
        return moved + np.where(c.universal[tasks], 0, fresh) + self.begun + self.tie(tasks)

    def tie(self, index: Ints) -> Ints:
        """A fixed weight below `ties` for everything that has a number; finer or coarser, in the same order."""
        mixed = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        out: Ints = (mixed >> np.uint64(32) >> np.uint64(32 - self.bits)).astype(np.int64)
        return out
