"""Defines the costs of standbys: zero for a current standby, the highest for an instance without a copy.

With racks (KIP-925), changelog reads across racks outweigh all of these: see `Traffic`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskplace.errors import ConfigError
from taskplace.model.config import PlacementConfig
from taskplace.model.flow import Network, cost_budget
from taskplace.model.placement import changelog_reads, reduced_costs
from taskplace.model.problem_columns import NONE, STANDBY, Columns, Ints, rank_in_group


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """The prices of standbys in changelog reads across racks, and in moves.

    - `rack_of`: [m] rack of each instance
    - `reads`: [n, racks] changelog partitions that a standby of the task reads across racks
    - `read`: the price of one such read, divided by `common`
    - `move`: the price of a standby on an instance without a standby in force, divided by `common`
    - `common`: the largest common factor of the two configured prices
    """

    rack_of: Ints
    reads: Ints
    read: int
    move: int
    common: int = 1

    @classmethod
    def of(cls, c: Columns, config: PlacementConfig) -> Traffic | None:
        """Return the prices that `config` sets; None if it has no rack strategy, or racks are not known."""
        known = changelog_reads(c) if config.rack_aware_assignment_strategy != "none" else None
        if known is None:
            return None
        rack_of, reads = known
        read, move, common = reduced_costs(config)
        return cls(rack_of=rack_of, reads=reads, read=read, move=move, common=common)

    @property
    def racks(self) -> int:
        """The number of racks."""
        return int(self.reads.shape[1])

    @property
    def most(self) -> int:
        """The highest price that a single standby can have."""
        return int(self.reads.max(initial=0)) * self.read + self.move

    def price(self, tasks: Ints, insts: Ints) -> Ints:
        """Return the prices of new standbys of `tasks` on `insts`; shapes are broadcast."""
        return self.read * self.reads[tasks, self.rack_of[insts]] + self.move

    def total(self, c: Columns, tasks: Ints, insts: Ints) -> int:
        """Return the sum of the prices of these standbys. A standby in force costs its reads, but no move."""
        rows = c.role == STANDBY
        stays = np.isin(tasks * c.m + insts, c.task[rows] * c.m + c.inst[rows])
        return int(self.price(tasks, insts).sum()) - self.move * int(stays.sum())


COARSEST = 8
"""The smallest budget below one unit of traffic. It leaves three prices: a standby in force, a copy, and no copy."""


class StandbyCosts:
    """The prices of standbys of `tasks`, whose actives are at `active`. All networks use these prices.

    Levels: with `traffic`, one unit of its price outweighs everything else of all standbys together. A new copy
    outweighs all lags together. A step of lag outweighs all ties of a task.

    Arguments:
    - `strict`: loads must be level. If not, uneven loads have a price above all others
    - `parked`: use parked pairs too
    - `share`: the highest price times `share` must fit below the solver's limit

    Attributes:
    - `rows`: the copy rows that can serve as a standby; `held`: their prices
    - `excluded`: pairs (task * m + instance) that must not be used: the parked ones, unless `parked`

    Errors: `ConfigError` if the prices of traffic do not fit; it names the largest `traffic_cost` that does.
    """

    def __init__(
        self,
        c: Columns,
        active: Ints,
        tasks: Ints,
        replicas: int,
        *,
        strict: bool,
        parked: bool,
        traffic: Traffic | None = None,
        share: int = 1,
    ) -> None:
        self.c, self.active, self.tasks, self.replicas, self.strict = c, active, tasks, replicas, strict
        self.traffic = traffic
        count = replicas * len(tasks)
        budget = cost_budget(len(tasks) + c.m + 2 + (traffic.racks if traffic else 0)) // share
        if not strict:
            budget //= 7 * count + 7
        whole = budget // (count + 1)
        if traffic is not None:
            budget = whole // (traffic.most + 1)
        grain = max(4, budget // (2 * count + 2))
        self.ties = int(min(c.m, max(1, grain // 8)))
        self.steps = int(min(1000, max(1, grain // self.ties - 4)))
        self.copy = (self.steps + 3) * self.ties * count + 1
        if traffic is not None and budget // (2 * count + 2) < 8:
            self._coarse(whole, count, traffic)
        self.unit = (self.copy + (self.steps + 4) * self.ties) * count + 1
        self.scale = max(int(c.end[tasks].max(initial=0)), 1)
        pair = c.task * c.m + c.inst
        self.excluded = c.parked if not parked else c.parked[:0]
        usable = c.stateful[c.task] & (c.open_slots[c.inst] > 0) & (active[c.task] != c.inst)
        usable &= (c.lag >= 0) | (c.role != NONE)
        if len(self.excluded):
            usable &= ~np.isin(pair, self.excluded)
        self.rows = np.flatnonzero(usable)
        self.held = self._held(self.rows)

    def _coarse(self, whole: int, count: int, traffic: Traffic) -> None:
        """Set coarse levels below traffic, where finer ones do not fit: a standby in force, a copy, no copy."""
        self.ties, self.steps, self.copy = 1, 0, 2
        if whole < COARSEST * (traffic.most + 1):
            dearest = max(int(traffic.reads.max(initial=0)), 1)
            largest = max(0, (whole // COARSEST - 1 - traffic.move) // dearest)
            raise ConfigError(
                "config.rack.aware.assignment.traffic_cost",
                found=traffic.read * traffic.common,
                expected=f"at most {largest * traffic.common} for {count} standbys with up to {dearest} changelog "
                "partitions to read from other racks",
            )

    def crossing(self, tasks: Ints, insts: Ints) -> Ints | int:
        """Return the price of traffic for new standbys of `tasks` on `insts`."""
        return 0 if self.traffic is None else self.unit * self.traffic.price(tasks, insts)

    def new(self, tasks: Ints) -> Ints:
        """Return the price of a new copy, without traffic."""
        c = self.c
        return np.where(c.universal[tasks], self.ties, self.copy + self._lag(c.end[tasks]) + 2 * self.ties)

    def spread(self, tasks: Ints, insts: Ints) -> Ints:
        """Return a tie-break below `ties` for each pair. It spreads the standbys of one instance's actives."""
        if not hasattr(self, "_first"):
            home = self.active[self.tasks]
            self._first = np.zeros(self.c.n, np.int64)
            self._first[self.tasks] = home + 1 + rank_in_group(home)
        return ((insts - self._first[tasks]) % self.c.m) * self.ties // self.c.m

    def _held(self, rows: Ints) -> Ints:
        c = self.c
        follows = c.caught[rows] | (c.role[rows] != NONE)
        price = np.where(follows, self.ties, self.copy)
        price = price + np.where(c.caught[rows], 0, self._lag(c.lag[rows]))
        stays = c.role[rows] == STANDBY
        held: Ints = np.where(stays, 0, price)
        if self.traffic is not None:
            held = held + self.crossing(c.task[rows], c.inst[rows]) - self.unit * self.traffic.move * stays
        return held

    def _lag(self, lag: Ints) -> Ints:
        steps = np.ceil(np.minimum(lag / self.scale, 1.0) * self.steps).astype(np.int64)
        return np.where(lag < 0, self.steps, steps) * self.ties


def sink_arcs(
    net: Network, p: StandbyCosts, *, seats: Ints, sink: Ints, low: Ints, high: Ints, dearest: int
) -> None:
    """Add the arcs from instances to the sink: bounds if loads must be level, rising prices if not.

    `seats`: the nodes of the instances with open slots. `low`, `high`: their bounds. `dearest`: the highest price of a
    standby.
    """
    to = sink.repeat(len(seats))
    if p.strict:
        net.arcs(seats, to, high, 0, low=low)
        return
    # As level as possible: each further share of load costs more than all standbys together can save.
    count = p.replicas * len(p.tasks)
    step = dearest * count + 1
    open_slots = p.c.open_slots[p.c.open_slots > 0]
    net.arcs(seats, to, low, 0)
    net.arcs(seats, to, high - low, step)
    for level in range(2, 7):
        size = np.maximum(open_slots * (1 << (2 * level - 4)), 1) if level < 6 else count
        net.arcs(seats, to, size, step * level)
