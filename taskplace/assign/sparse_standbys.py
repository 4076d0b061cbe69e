"""Places standbys in large problems: a flow network linear in tasks + copies, then exchanges of places.

    task -> instance -> sink          to an instance with a copy
    task -> anywhere -> instance      to an instance without one

With racks (KIP-925), each rack has its own "anywhere" node. The arc from a task to it costs the task's reads across
racks from there. Places are then exchanged only within a rack, so that no price changes.

Without racks, the standbys of tasks whose only copies are standbys differ only in price. These tasks need no node: the
network supplies their standbys at their current instances. From there a standby may go to "anywhere" at the price of a
new copy, the cheapest first.

The flow decides only how many standbys go through "anywhere" to each instance. Tasks are matched with these places
afterwards. If a task gets a place on an instance that has a copy of it, it exchanges places with another task. If no
exchange works, the task gets an arc to every instance that it may use, and the flow is solved again. So the result
costs no more than that of the full network, and only few tasks need the additional arcs.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from taskplace.assign.standby import StandbyCosts, sink_arcs
from taskplace.model.flow import Network
from taskplace.model.problem_columns import STANDBY, Bools, Ints, group_starts, rank_in_group

TRIES = 10_000
"""The most exchanges that are tried for one wrong place."""

MANY_ARCS = 2_000_000
"""If arcs from all tasks without a place to all instances would be more than this, only the stuck tasks get them."""

HOPELESS = 32
"""Once this many tasks are stuck, no exchange is tried for the others."""


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
