"""Defines the costs of actives: moves, new copies and lag, in levels that fit below 2^63."""

from __future__ import annotations

import math

import numpy as np

from taskplace.model.flow import cost_budget
from taskplace.model.placement import FIXED, OPEN
from taskplace.model.problem_columns import NONE, WARMUP, Columns, Ints

STILL = 20_000
"""Up to this number of nodes, costs do not depend on which tasks have their own node."""


class ActiveCosts:
    """Costs in levels: a move outweighs all new copies together, and a new copy outweighs all levels below it.

    The lower levels, in this order:
    - copies that warm up now come before others, so that the target stays the same while a copy warms up;
    - steps of lag;
    - ties, which fixed weights of tasks and places break, also so that the target stays the same.

    All levels must fit below 2^63, so the lower ones are coarser in larger problems. In the largest problems, only
    moves are distinguished. `fits` is False if even that is impossible.
    """

    def __init__(self, c: Columns, tasks: int, node_count: int, *, share: int = 1) -> None:
        self.c = c
        self.fits = True
        self.scale = max(int(c.end[c.stateful].max(initial=0)), 1)
        # Up to STILL, count a node for every task: then the levels stay the same when tasks get or lose their node.
        most = tasks + (len(c.subtopologies) + 1) * (c.m + 1)
        budget = cost_budget(max(node_count, min(most, STILL))) // share  # for the costs of moves
        # The budget of the levels below a copy: two factors of `tasks` are reserved for copies and for moves.
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
        """Set coarse levels, where finer ones do not fit: all levels below a move together cost less than one move."""
        self.bits, self.ties, self.unit, self.steps = 0, 1, 0, 1
        self.begun, self.copy = 1, 2
        self.move = 4 * (tasks + 1)
        self.miss = self.move * (2 * self.c.m + 1)
        self.fits = self.move <= budget

    def lag(self, lag: Ints) -> Ints:
        """Return the cost of a lag, in steps, rounded up. An unknown lag costs the most steps."""
        steps = np.ceil(np.minimum(lag / self.scale, 1.0) * self.steps).astype(np.int64)
        return np.where(lag < 0, self.steps, steps) * self.unit

    def rows(self, rows: Ints, base: Ints) -> Ints:
        """Return the costs of going to the instances of copy rows."""
        c = self.c
        kind = base[c.task[rows]]
        moved = np.where((kind != OPEN) & ((kind == FIXED) | ~c.best[rows]), self.move, 0)
        warm = c.role[rows] == WARMUP
        fresh = np.where(c.best[rows] | (c.role[rows] != NONE) | (kind == OPEN), 0, self.copy)
        other = np.where(warm, 0, self.begun)
        # If any lag is acceptable, all copies count as caught up. They still have to restore their lag, so it costs.
        near = c.caught[rows] & (not c.unbounded)
        behind = np.where(near, 0, self.lag(c.lag[rows])) + np.where(c.best[rows], 0, fresh)
        # A warm-up's progress does not count, so that warm-ups rank among each other as they did before they began.
        behind = np.where(warm, self.lag(c.end[c.task[rows]]) + self.unit, behind)
        pair = c.sub[c.task[rows]] * c.m + c.inst[rows]
        total: Ints = moved + behind + other + self.tie(c.task[rows]) + self.tie(pair)
        return total

    def roam(self, tasks: Ints, base: Ints) -> Ints:
        """Return the costs of going to an instance without a copy."""
        c = self.c
        moved = np.where(base[tasks] == OPEN, 0, self.move)
        made = (base[tasks] != OPEN) | c.unbounded
        fresh = np.where(made, self.copy, 0) + self.lag(c.end[tasks]) + self.unit
        return moved + np.where(c.universal[tasks], 0, fresh) + self.begun + self.tie(tasks)

    def tie(self, index: Ints) -> Ints:
        """Return fixed pseudo-random weights below `ties` for these numbers. Their order is the same for any `ties`."""
        mixed = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        out: Ints = (mixed >> np.uint64(32) >> np.uint64(32 - self.bits)).astype(np.int64)
        return out
