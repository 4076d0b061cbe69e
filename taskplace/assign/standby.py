"""Places standbys after the actives, by another minimum-cost flow.

    task -> instance -> sink
    task -> anywhere -> instance          (large problems)

The criteria, each strictly before the next:

1. as many standbys as possible, each on another instance than the active and the other standbys;
2. loads (actives + standbys) as level as possible;
3. with `traffic` (KIP-925), the lowest price of changelog reads across racks and of moves;
4. the fewest new copies;
5. the current standbys;
6. the least lag;
7. the standbys of one instance's actives on many instances, so that the loss of that instance burdens none of them
much.

With `traffic`, where loads cannot be level, a first flow makes them as level as possible. A second flow keeps each
instance's number of standbys and minimises the price.

There are two networks with the same optimum. The full one has an arc from every task to every instance. The sparse one
has arcs to copies only, so it is linear in tasks + copies:

- With racks (KIP-925), each rack has its own "anywhere" node. The arc from a task to it costs the task's reads across
  racks from there. Places are then exchanged only within a rack, so that no price changes.
- Without racks, the standbys of tasks whose only copies are standbys differ only in price. These tasks need no node:
  the network supplies their standbys at their current instances. From there a standby may go to "anywhere" at the price
  of a new copy, the cheapest first.
- The flow decides only how many standbys go through "anywhere" to each instance. Tasks are matched with these places
  afterwards. If a task gets a place on an instance that has a copy of it, it exchanges places with another task. If no
  exchange works, the task gets an arc to every instance that it may use, and the flow is solved again. So the result
  costs no more than that of the full network, and only few tasks need the additional arcs.

Source: KIP-441, KIP-925.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taskplace.errors import ConfigError
from taskplace.model.config import PlacementConfig
from taskplace.model.flow import Network, cost_budget
from taskplace.model.placement import changelog_reads, reduced_costs
from taskplace.model.problem_columns import NONE, STANDBY, Bools, Columns, Ints, group_starts, rank_in_group
from taskplace.model.shares import level_loads

TRIES = 10_000
"""The most exchanges that are tried for one wrong place."""

MANY_ARCS = 2_000_000
"""If arcs from all tasks without a place to all instances would be more than this, only the stuck tasks get them."""

HOPELESS = 32
"""Once this many tasks are stuck, no exchange is tried for the others."""

COARSEST = 8
"""The smallest budget below one unit of traffic. It leaves three prices: a standby in force, a copy, and no copy."""

FULL_NETWORK = 4_000
"""Up to this number of arcs (tasks * instances), the full network is as fast as the sparse one."""


@dataclass(frozen=True, slots=True)
class StandbyTarget:
    """The standbys: one entry of `task` and `inst` each, sorted by task, then by instance. Each task has `replicas`."""

    task: Ints
    inst: Ints
    replicas: int


def replicas_possible(c: Columns, wanted: int) -> int:
    """Return how many standbys every stateful task can have: at most the instances with open slots less one."""
    return max(0, min(wanted, int((c.open_slots > 0).sum()) - 1))


def place_standbys(
    c: Columns, active: Ints, wanted: int, full: int | None = None, traffic: Traffic | None = None
) -> StandbyTarget:
    """Return the standbys of the stateful tasks, whose actives are at `active`.

    Cost: one flow over tasks * instances arcs if these are at most `full` (default: FULL_NETWORK). Otherwise, a flow
    over tasks + copies arcs, with `traffic` over tasks * racks + copies.
    """
    replicas = replicas_possible(c, wanted)
    tasks = np.flatnonzero(c.stateful)
    if replicas == 0 or not len(tasks):
        return StandbyTarget(task=tasks[:0], inst=tasks[:0], replicas=replicas)
    actives = np.bincount(active[tasks], minlength=c.m)
    low, high = level_loads(len(tasks) * (1 + replicas), len(tasks), actives, c.open_slots)
    low, high = np.maximum(low - actives, 0), np.maximum(high - actives, 0)
    limit = FULL_NETWORK if full is None else full
    solver = _full if len(tasks) * c.m <= limit else place_sparse_standbys
    # First level loads without parked copies, then loads as level as possible, and finally with parked copies.
    for strict, parked in ((True, False), (False, False), (False, True)):
        near = traffic if strict else None
        prices = StandbyCosts(c, active, tasks, replicas, strict=strict, parked=parked, traffic=near)
        placed = solver(prices, low, high)
        if placed is not None and traffic is not None and not strict:
            load = np.bincount(placed[1], minlength=c.m)
            prices = StandbyCosts(c, active, tasks, replicas, strict=True, parked=parked, traffic=traffic)
            placed = solver(prices, load, load) or placed
        if placed is not None:
            task, inst = placed
            order = np.lexsort((inst, task))
            return StandbyTarget(task=task[order], inst=inst[order], replicas=replicas)
    raise AssertionError("without bounds there is always a flow")


def _full(p: StandbyCosts, low: Ints, high: Ints) -> tuple[Ints, Ints] | None:
    c, tasks = p.c, p.tasks
    places = np.flatnonzero(c.open_slots > 0)
    price = np.repeat(p.new(tasks)[:, None], c.m, axis=1)
    price += p.spread(tasks[:, None], np.arange(c.m)[None, :])
    price += p.crossing(tasks[:, None], np.arange(c.m)[None, :])
    where = np.full(c.n, -1, np.int64)
    where[tasks] = np.arange(len(tasks))
    price[where[c.task[p.rows]], c.inst[p.rows]] = p.held
    allowed = p.active[tasks][:, None] != np.arange(c.m)[None, :]
    allowed &= (c.open_slots > 0)[None, :]
    if p.excluded.size:
        hit = where[p.excluded // c.m] >= 0
        allowed[where[p.excluded[hit] // c.m], p.excluded[hit] % c.m] = False
    net = Network()
    node, seat, sink = net.nodes(len(tasks)), net.nodes(c.m), net.nodes(1)
    row, column = np.nonzero(allowed)
    to_seat = net.arcs(node[row], seat[column], 1, price[row, column])
    net.supply(node, p.replicas)
    net.supply(sink, -p.replicas * len(tasks))
    sink_arcs(
        net,
        p,
        seats=seat[places],
        sink=sink,
        low=low[places],
        high=high[places],
        dearest=int(price.max()),
    )
    flow = net.solve()
    if flow is None:
        return None
    used = flow[to_seat] > 0
    return tasks[row[used]], column[used]


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


def place_sparse_standbys(p: StandbyCosts, low: Ints, high: Ints) -> tuple[Ints, Ints] | None:
    """Return (tasks, instances) of all standbys; None if the bounds cannot be met."""
    exact = np.zeros(p.c.n, np.bool_)
    while True:
        solved = _SparseNetwork(p, low, high, exact).solve()
        if solved is None:
            return None
        seating = _Seating(p, solved.kept_task, solved.kept_inst)
        hub_of = _hub_of(p)
        units, seats = solved.units, solved.seats
        given = [
            seating.give(units[solved.hub == h], seats[hub_of[seats] == h])
            for h in np.unique(solved.hub).tolist()
        ]
        stuck = np.unique(np.concatenate([units[:0], *(one.stuck for one in given)]))
        if not len(stuck):
            tasks = np.concatenate([solved.kept_task, *(one.task for one in given)])
            return tasks, np.concatenate([solved.kept_inst, *(one.inst for one in given)])
        # The other tasks must be able to give up their places for the stuck ones, so they get these arcs too.
        exact[stuck if len(units) * p.c.m > MANY_ARCS else np.concatenate([stuck, units])] = True


def _hub_of(p: StandbyCosts) -> Ints:
    """Return [m] the "anywhere" node that leads to each instance: that of its rack, or the only one."""
    return np.zeros(p.c.m, np.int64) if p.traffic is None else p.traffic.rack_of


class _Solved(NamedTuple):
    """The decision of a flow: standbys with an instance, and units and places that have yet to be matched.

    A unit is a task, once per standby that goes through "anywhere".
    """

    kept_task: Ints
    kept_inst: Ints
    units: Ints
    hub: Ints
    """The "anywhere" that each unit goes through."""
    seats: Ints
    """The instance of each place that "anywhere" leads to."""


class _OwnArcs(NamedTuple):
    """The arcs of tasks with their own node: `copies`, `roam` to "anywhere", `far` to instances without a copy."""

    copy_rows: Ints
    copies: slice
    roaming: Ints
    hub: Ints
    roam: slice
    far_task: Ints
    far_inst: Ints
    far: slice


class _Current(NamedTuple):
    """The current standbys of tasks without their own node, in groups of equal instance and price.

    - `rows`: the copy rows of the standbys, group by group
    - `first`, `size`: the start and size of each group
    - `leave`: one arc per group, to "anywhere"
    - `missing`: tasks, once per standby that they lack
    """

    rows: Ints
    first: Ints
    size: Ints
    leave: slice
    missing: Ints


class _SparseNetwork:
    """The network of standbys, to be solved once.

    `exact`: [n] the tasks with an arc to every instance. A task has its own node if it is `exact`, has a copy other
    than a standby, or has too many standbys. With traffic, every task has one.
    """

    def __init__(self, p: StandbyCosts, low: Ints, high: Ints, exact: Bools) -> None:
        c = p.c
        self.p, self.low, self.high, self.exact = p, low, high, exact
        copies = np.bincount(c.task[p.rows], minlength=c.n)
        current = p.rows[c.role[p.rows] == STANDBY]
        self.standbys = np.bincount(c.task[current], minlength=c.n)
        has_own = (copies > self.standbys) | (self.standbys > p.replicas) | (p.traffic is not None)
        self.alone = exact.copy()
        self.alone[p.tasks] |= has_own[p.tasks]
        # A standby cannot go to its active's instance. If that instance still needs standbys, the standbys of tasks
        # with other actives should be the ones that leave their places.
        self.needy = low > np.bincount(c.inst[current], minlength=c.m)

        self.net = Network()
        self.places = np.flatnonzero(c.open_slots > 0)
        self.hubs = 1 if p.traffic is None else p.traffic.racks
        self.anywhere, self.sink = self.net.nodes(self.hubs), self.net.nodes(1)
        self.seat = np.full(c.m, -1, np.int64)
        self.seat[self.places] = self.net.nodes(len(self.places))
        self.own = np.flatnonzero(self.alone)
        self.node = np.full(c.n, -1, np.int64)
        self.node[self.own] = self.net.nodes(len(self.own))

    def solve(self) -> _Solved | None:
        """Return the standbys at the least cost; None if the bounds cannot be met."""
        c = self.p.c
        entry = self._bounds()
        own = self._own_arcs()
        current = self._current_arcs()
        flow = self.net.solve()
        if flow is None:
            return None
        used, reached = own.copy_rows[flow[own.copies] > 0], flow[own.far] > 0
        task = c.task[current.rows]
        going = _choose(task, current.first, current.size, flow[current.leave], c.n)
        stay = current.rows[~going]
        wandering = np.concatenate([current.missing, task[going]])
        return _Solved(
            kept_task=np.concatenate([c.task[used], own.far_task[reached], c.task[stay]]),
            kept_inst=np.concatenate([c.inst[used], own.far_inst[reached], c.inst[stay]]),
            units=np.concatenate([wandering, np.repeat(own.roaming, flow[own.roam])]),
            hub=np.concatenate([np.zeros(len(wandering), np.int64), np.repeat(own.hub, flow[own.roam])]),
            seats=np.repeat(self.places, flow[entry]),
        )

    def _price_to_leave(self, tasks: Ints) -> Ints:
        return self.p.new(tasks) + self.p.ties * self.needy[self.p.active[tasks]]

    def _bounds(self) -> slice:
        """Add the arcs from "anywhere" to instances and from instances to the sink. Return the former."""
        p, places = self.p, self.places
        entry = self.net.arcs(self.anywhere[_hub_of(p)[places]], self.seat[places], len(p.tasks), 0)
        dearest = int(max(self._price_to_leave(p.tasks).max(initial=0), p.held.max(initial=0)))
        sink_arcs(
            self.net,
            p,
            seats=self.seat[places],
            sink=self.sink,
            low=self.low[places],
            high=self.high[places],
            dearest=dearest,
        )
        self.net.supply(self.sink, -p.replicas * len(p.tasks))
        return entry

    def _own_arcs(self) -> _OwnArcs:
        """Add the arcs of tasks with their own node."""
        p, c, net = self.p, self.p.c, self.net
        mine = self.alone[c.task[p.rows]]
        rows = p.rows[mine]
        copies = net.arcs(self.node[c.task[rows]], self.seat[c.inst[rows]], 1, p.held[mine])
        roaming = self.own[~self.exact[self.own]]
        roaming, hub = np.repeat(roaming, self.hubs), np.tile(np.arange(self.hubs), len(roaming))
        price = self._price_to_leave(roaming)
        if p.traffic is not None:
            price = price + p.unit * (p.traffic.read * p.traffic.reads[roaming, hub] + p.traffic.move)
        roam = net.arcs(self.node[roaming], self.anywhere[hub], p.replicas, price)
        task, inst = _everywhere_else(p, np.flatnonzero(self.exact), self.places)
        price = p.new(task) + p.spread(task, inst) + p.crossing(task, inst)
        far = net.arcs(self.node[task], self.seat[inst], 1, price)
        net.supply(self.node[self.own], p.replicas)
        return _OwnArcs(
            copy_rows=rows, copies=copies, roaming=roaming, hub=hub, roam=roam,
            far_task=task, far_inst=inst, far=far,
        )  # fmt: skip

    def _current_arcs(self) -> _Current:
        """Supply the standbys of other tasks: the current ones at their instances, the missing ones at "anywhere"."""
        p, c = self.p, self.p.c
        rows = p.rows[~self.alone[c.task[p.rows]]]
        self.net.supply(self.seat[c.inst[rows]], 1)
        others = p.tasks[~self.alone[p.tasks]]
        missing = np.repeat(others, p.replicas - self.standbys[others])
        self.net.supply(self.anywhere[0], len(missing))
        price = self._price_to_leave(c.task[rows])
        order = np.lexsort((c.task[rows], price, c.inst[rows]))
        rows, price = rows[order], price[order]
        first = group_starts(c.inst[rows], price)
        size = np.diff(np.r_[first, len(rows)])
        hub = self.anywhere[0].repeat(len(first))
        leave = self.net.arcs(self.seat[c.inst[rows[first]]], hub, size, price[first])
        return _Current(rows=rows, first=first, size=size, leave=leave, missing=missing)


def _choose(task: Ints, first: Ints, size: Ints, leaving: Ints, n: int) -> Bools:
    """Return which standbys leave: `leaving` of each group, those of tasks with the fewest leaving standbys first."""
    going = np.zeros(len(task), np.bool_)
    gone = np.zeros(n, np.int64)
    some = leaving > 0
    for f, s, k in zip(first[some].tolist(), size[some].tolist(), leaving[some].tolist(), strict=True):
        chosen = f + np.argsort(gone[task[f : f + s]], kind="stable")[:k]
        going[chosen] = True
        gone[task[chosen]] += 1
    return going


def _everywhere_else(p: StandbyCosts, tasks: Ints, places: Ints) -> tuple[Ints, Ints]:
    """Return the (task, instance) pairs where a task may have a standby and has no copy."""
    c = p.c
    pair = (tasks[:, None] * c.m + places[None, :]).ravel()
    wrong = np.concatenate([c.task[p.rows] * c.m + c.inst[p.rows], tasks * c.m + p.active[tasks], p.excluded])
    pair = pair[~np.isin(pair, wrong)]
    return pair // c.m, pair % c.m


class _Given(NamedTuple):
    """The units, reordered, with their instances; and the `stuck` tasks, for which no exchange worked."""

    task: Ints
    inst: Ints
    stuck: Ints


class _Seating:
    """Matches units with places, so that no unit gets an instance that has a copy of its task or is excluded."""

    def __init__(self, p: StandbyCosts, kept_task: Ints, kept_inst: Ints) -> None:
        c = p.c
        self.m = c.m
        self.active = p.active
        self.sub = c.sub
        self.taken = np.sort(
            np.concatenate([kept_task * c.m + kept_inst, p.tasks * c.m + p.active[p.tasks], p.excluded])
        )

    def give(self, units: Ints, seats: Ints) -> _Given:
        """Return the units with their instances.

        Units are sorted by subtopology and active instance, and places in rounds over the instances. So the standbys of
        one instance's actives go to many instances. The second units of all tasks come after all first units.
        """
        order = np.lexsort((units, self.active[units], self.sub[units], rank_in_group(units)))
        task = units[order]
        inst = seats[np.lexsort((seats, rank_in_group(seats)))]
        wrong = self._wrong(task, inst)
        stuck = self._exchange(task, inst, wrong.tolist())
        return _Given(task=task, inst=inst, stuck=stuck)

    def _wrong(self, task: Ints, inst: Ints) -> Ints:
        pair = task * self.m + inst
        at = np.minimum(np.searchsorted(self.taken, pair), len(self.taken) - 1)
        bad = self.taken[at] == pair
        by_pair = np.argsort(pair, kind="stable")
        bad[by_pair[1:][pair[by_pair[1:]] == pair[by_pair[:-1]]]] = True
        return np.flatnonzero(bad)

    def _allowed(self, task: int, inst: int) -> bool:
        pair = task * self.m + inst
        at = int(np.searchsorted(self.taken, pair))
        return at == len(self.taken) or int(self.taken[at]) != pair

    def _exchange(self, task: Ints, inst: Ints, wrong: list[int]) -> Ints:
        """Exchange places until none is wrong; return the tasks for which that failed."""
        n = len(task)
        tasks, pairs = task.tolist(), Counter((task * self.m + inst).tolist() if wrong else ())
        stuck: list[int] = []

        def free(t: int, i: int) -> bool:
            return not pairs[t * self.m + i] and self._allowed(t, i)

        for a in wrong:
            t, i = tasks[a], int(inst[a])
            if pairs[t * self.m + i] == 1 and self._allowed(t, i):
                continue  # two units had this place, and the other one has moved
            if len(stuck) >= HOPELESS:
                stuck.append(t)
                continue
            for k in range(1, min(n, TRIES)):
                b = (a + k) % n
                u, j = tasks[b], int(inst[b])
                if i != j and t != u and free(t, j) and free(u, i):
                    pairs.subtract((t * self.m + i, u * self.m + j))
                    pairs.update((t * self.m + j, u * self.m + i))
                    inst[a], inst[b] = j, i
                    break
            else:
                stuck.append(t)
        return np.unique(np.array(stuck, np.int64))
