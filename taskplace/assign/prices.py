"""What a standby costs where: nothing where it is one already, most where there is no copy."""

from __future__ import annotations

import numpy as np

from taskplace.assign.flow import Network, cost_budget
from taskplace.model.columns import NONE, STANDBY, Columns, Ints


class StandbyPrices:
    """Prices of standbys for `tasks`, whose actives are at `active`; both networks use the same.

    Levels: a new copy outweighs all lags together, and a step of lag all ties of a task. `rows`: the copy rows that
    can serve as a standby, and `held` their prices. `excluded`: parked pairs, as task * m + instance, that must not
    be used, unless `parked`. `strict`: loads have to be level; if not, they are a price above all others.
    """

    def __init__(
        self, c: Columns, active: Ints, tasks: Ints, replicas: int, *, strict: bool, parked: bool
    ) -> None:
        self.c, self.active, self.tasks, self.replicas, self.strict = c, active, tasks, replicas, strict
        count = replicas * len(tasks)
        budget = cost_budget(len(tasks) + c.m + 2)
        if not strict:
            budget //= 7 * count + 7
        grain = max(4, budget // (2 * count + 2))
        self.ties = int(min(c.m, max(1, grain // 8)))
        self.steps = int(min(1000, max(1, grain // self.ties - 4)))
        self.copy = (self.steps + 3) * self.ties * count + 1
        self.scale = max(int(c.end[tasks].max(initial=0)), 1)
        pair = c.task * c.m + c.inst
        self.excluded = c.parked if not parked else c.parked[:0]
        usable = c.stateful[c.task] & (c.room[c.inst] > 0) & (active[c.task] != c.inst)
        usable &= (c.lag >= 0) | (c.role != NONE)
        if len(self.excluded):
            usable &= ~np.isin(pair, self.excluded)
        self.rows = np.flatnonzero(usable)
        self.held = self._held(self.rows)

    def new(self, tasks: Ints) -> Ints:
        """The price of a copy that has to be made."""
        c = self.c
        return np.where(c.universal[tasks], self.ties, self.copy + self._lag(c.end[tasks]) + 2 * self.ties)

    def spread(self, tasks: Ints, insts: Ints) -> Ints:
        """A tie below `ties` for each pair, that sends the standbys of one instance's actives apart."""
        if not hasattr(self, "_first"):
            home = self.active[self.tasks]
            order = np.argsort(home, kind="stable")
            rank = np.empty(len(home), np.int64)
            rank[order] = np.arange(len(home)) - np.searchsorted(home[order], home[order])
            self._first = np.zeros(self.c.n, np.int64)
            self._first[self.tasks] = home + 1 + rank
        return ((insts - self._first[tasks]) % self.c.m) * self.ties // self.c.m

    def _held(self, rows: Ints) -> Ints:
        c = self.c
        follows = c.caught[rows] | (c.role[rows] != NONE)
        price = np.where(follows, self.ties, self.copy)
        price = price + np.where(c.caught[rows], 0, self._lag(c.lag[rows]))
        return np.where(c.role[rows] == STANDBY, 0, price)

    def _lag(self, lag: Ints) -> Ints:
        steps = np.ceil(np.minimum(lag / self.scale, 1.0) * self.steps).astype(np.int64)
        return np.where(lag < 0, self.steps, steps) * self.ties


def sink_arcs(
    net: Network, seats: Ints, sink: Ints, low: Ints, high: Ints, p: StandbyPrices, dearest: int
) -> None:
    """Add the arcs from instances to the sink: bounds if loads must be level, rising prices if not."""
    to = sink.repeat(len(seats))
    if p.strict:
        net.arcs(seats, to, high, 0, low=low)
        return
    # As level as can be: each further share of load costs more than all that copies can save.
    count = p.replicas * len(p.tasks)
    step = dearest * count + 1
    room = p.c.room[p.c.room > 0]
    net.arcs(seats, to, low, 0)
    net.arcs(seats, to, high - low, step)
    for level in range(2, 7):
        size = np.maximum(room * (1 << (2 * level - 4)), 1) if level < 6 else count
        net.arcs(seats, to, size, step * level)
