"""Standbys for large problems: a network linear in tasks + copies, and an exchange of places afterwards.

    task -> instance -> sink          where a copy is
    task -> anywhere -> instance      where none is

With racks (KIP-925) there is an "anywhere" for each rack, at the price of reads across racks from there, and places are
exchanged within a rack only, so that no price changes.

Without racks, standbys of tasks that have no other copies are interchangeable as far as prices go: they are supplied
at their instances, and leave to "anywhere" at the price of a new copy, the cheapest first. What goes through "anywhere"
gets its place afterwards. A place may be wrong for a task, that has a copy there; then it is exchanged with another's.
Where no exchange helps, the task gets arcs of its own to every instance it may go to, and the flow is solved again:
so the result is that of the full network, and only the few tasks that need it pay for it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from taskplace.assign.flow import Network
from taskplace.assign.standby_costs import StandbyCosts, sink_arcs
from taskplace.model.columns import STANDBY, Bools, Ints

TRIES = 10_000
"""So many exchanges are tried for a place that is wrong."""

MANY_ARCS = 2_000_000
"""More arcs of their own than this are only given to tasks that need them."""

HOPELESS = 32
"""Once so many tasks are stuck, no exchange is tried for the others."""


def place_sparse_standbys(p: StandbyCosts, low: Ints, high: Ints) -> tuple[Ints, Ints] | None:
    """Return (tasks, instances) of all standbys; None if the bounds cannot be met."""
    exact = np.zeros(p.c.n, np.bool_)
    while True:
        found = _solve(p, low, high, exact)
        if found is None:
            return None
        kept_task, kept_inst, units, hub, seats = found
        seating = _Seating(p, kept_task, kept_inst)
        hub_of = _hub_of(p)
        given = [seating.give(units[hub == h], seats[hub_of[seats] == h]) for h in np.unique(hub).tolist()]
        stuck = np.unique(np.concatenate([units[:0], *(one[2] for one in given)]))
        if not len(stuck):
            parts = [(kept_task, kept_inst), *((one[0], one[1]) for one in given)]
            return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        # Others are about to take the place of those that are stuck: let them know, too, where they can go.
        exact[stuck if len(units) * p.c.m > MANY_ARCS else np.concatenate([stuck, units])] = True


def _hub_of(p: StandbyCosts) -> Ints:
    """Return which "anywhere" leads to each instance: that of its rack, or the only one."""
    return np.zeros(p.c.m, np.int64) if p.traffic is None else p.traffic.rack_of


def _solve(
    p: StandbyCosts, low: Ints, high: Ints, exact: Bools
) -> tuple[Ints, Ints, Ints, Ints, Ints] | None:
    """Return (tasks, instances) of the standbys that are placed, and the tasks, their hubs, and the places to join."""
    c, tasks, replicas = p.c, p.tasks, p.replicas
    places = np.flatnonzero(c.open_slots > 0)
    count = np.bincount(c.task[p.rows], minlength=c.n)
    current = c.role[p.rows] == STANDBY
    standbys = np.bincount(c.task[p.rows[current]], minlength=c.n)
    alone = exact.copy()  # tasks with a node of their own
    alone[tasks] |= (count[tasks] > standbys[tasks]) | (standbys[tasks] > replicas) | (p.traffic is not None)
    own = np.flatnonzero(alone)

    # A task cannot go to its own active's instance: where that is the one that needs standbys, others should leave.
    needy = low > np.bincount(c.inst[p.rows[current]], minlength=c.m)

    def price_to_leave(which: Ints) -> Ints:
        return p.new(which) + p.ties * needy[p.active[which]]

    net = Network()
    hubs = 1 if p.traffic is None else p.traffic.racks
    anywhere, sink = net.nodes(hubs), net.nodes(1)
    seat = np.full(c.m, -1, np.int64)
    seat[places] = net.nodes(len(places))
    node = np.full(c.n, -1, np.int64)
    node[own] = net.nodes(len(own))
    entry = net.arcs(anywhere[_hub_of(p)[places]], seat[places], len(tasks), 0)
    dearest = int(max(price_to_leave(tasks).max(initial=0), p.held.max(initial=0)))
    sink_arcs(net, seat[places], sink, low[places], high[places], p, dearest)
    net.supply(sink, -replicas * len(tasks))

    mine = p.rows[alone[c.task[p.rows]]]
    to_copy = net.arcs(node[c.task[mine]], seat[c.inst[mine]], 1, p.held[alone[c.task[p.rows]]])
    roaming = own[~exact[own]]
    roamer, into = np.repeat(roaming, hubs), np.tile(np.arange(hubs), len(roaming))
    price = price_to_leave(roamer)
    if p.traffic is not None:
        price = price + p.unit * (p.traffic.read * p.traffic.reads[roamer, into] + p.traffic.move)
    roam = net.arcs(node[roamer], anywhere[into], replicas, price)
    far_task, far_inst = _everywhere_else(p, np.flatnonzero(exact), places)
    price = p.new(far_task) + p.spread(far_task, far_inst) + p.crossing(far_task, far_inst)
    far = net.arcs(node[far_task], seat[far_inst], 1, price)
    net.supply(node[own], replicas)

    stay = p.rows[~alone[c.task[p.rows]]]  # current standbys of all others
    net.supply(seat[c.inst[stay]], 1)
    others = tasks[~alone[tasks]]
    net.supply(anywhere[0], int((replicas - standbys[others]).sum()))
    price = price_to_leave(c.task[stay])
    order = np.lexsort((c.task[stay], price, c.inst[stay]))
    stay, price = stay[order], price[order]
    first = _group_starts(c.inst[stay], price)
    size = np.diff(np.r_[first, len(stay)])
    leave = net.arcs(seat[c.inst[stay[first]]], anywhere[0].repeat(len(first)), size, price[first])
    flow = net.solve()
    if flow is None:
        return None

    going = _choose(c.task[stay], first, size, flow[leave], c.n)
    used, reached = mine[flow[to_copy] > 0], flow[far] > 0
    wandering = [np.repeat(others, replicas - standbys[others]), c.task[stay[going]]]
    return (
        np.concatenate([c.task[used], far_task[reached], c.task[stay[~going]]]),
        np.concatenate([c.inst[used], far_inst[reached], c.inst[stay[~going]]]),
        np.concatenate([*wandering, np.repeat(roamer, flow[roam])]),
        np.concatenate([np.zeros(sum(map(len, wandering)), np.int64), np.repeat(into, flow[roam])]),
        np.repeat(places, flow[entry]),
    )


def _choose(task: Ints, first: Ints, size: Ints, leaving: Ints, n: int) -> Bools:
    """Return which of the standbys go: `leaving` of each group, rather of tasks of which none goes yet."""
    going = np.zeros(len(task), np.bool_)
    gone = np.zeros(n, np.int64)
    some = leaving > 0
    for f, s, k in zip(first[some].tolist(), size[some].tolist(), leaving[some].tolist(), strict=True):
        chosen = f + np.argsort(gone[task[f : f + s]], kind="stable")[:k]
        going[chosen] = True
        gone[task[chosen]] += 1
    return going


def _everywhere_else(p: StandbyCosts, tasks: Ints, places: Ints) -> tuple[Ints, Ints]:
    """Return the (task, instance) pairs where a task may have a standby, and has no copy."""
    c = p.c
    pair = (tasks[:, None] * c.m + places[None, :]).ravel()
    wrong = np.concatenate([c.task[p.rows] * c.m + c.inst[p.rows], tasks * c.m + p.active[tasks], p.excluded])
    pair = pair[~np.isin(pair, wrong)]
    return pair // c.m, pair % c.m


def _group_starts(*keys: Ints) -> Ints:
    """Return where a new group of equal keys starts."""
    if not len(keys[0]):
        return np.zeros(0, np.int64)
    differs = np.zeros(len(keys[0]) - 1, np.bool_)
    for key in keys:
        differs |= key[1:] != key[:-1]
    return np.flatnonzero(np.r_[True, differs])


def _rank(key: Ints) -> Ints:
    """Return, for each entry, how many entries before it have the same key."""
    order = np.argsort(key, kind="stable")
    rank = np.empty(len(key), np.int64)
    rank[order] = np.arange(len(key)) - np.searchsorted(key[order], key[order])
    return rank


class _Seating:
    """Gives places to units (a task, once per standby that it still needs), none where its task is already."""

    def __init__(self, p: StandbyCosts, kept_task: Ints, kept_inst: Ints) -> None:
        c = p.c
        self.m = c.m
        self.active = p.active
        self.sub = c.sub
        self.taken = np.sort(
            np.concatenate([kept_task * c.m + kept_inst, p.tasks * c.m + p.active[p.tasks], p.excluded])
        )

    def give(self, units: Ints, seats: Ints) -> tuple[Ints, Ints, Ints]:
        """Return (units in another order, their instances, tasks for which no exchange was found).

        Units of one subtopology and active instance come together, and places in rounds over the instances, so that
        the standbys of one instance are on many. The second unit of a task comes long after its first.
        """
        order = np.lexsort((units, self.active[units], self.sub[units], _rank(units)))
        task = units[order]
        inst = seats[np.lexsort((seats, _rank(seats)))]
        wrong = self._wrong(task, inst)
        return task, inst, self._exchange(task, inst, wrong.tolist())

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
                continue  # it was one of two, and the other has moved
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
