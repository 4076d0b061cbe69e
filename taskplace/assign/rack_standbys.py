"""Places standbys away from the racks of their task's other copies (KIP-708).

`rack.aware.assignment.tags` names instance tags (zone, cluster, ...). Two copies of a task *share a value* for each of
these tags whose value is the same on both instances. The criteria, each strictly before the next:

1. as many standbys as possible;
2. the fewest shared values;
3. loads as level as possible;
4. with `traffic` (KIP-925), the lowest price of changelog reads across racks and of moves;
5. the fewest new copies;
6. the current standbys;
7. the least lag.

With `traffic`, where loads cannot be level, a first flow makes them as level as possible. A second flow keeps each
instance's number of standbys and minimises the price.

The standbys of a task depend on each other, so they are placed in rounds. Each round is an optimal flow that places one
standby of every task. A single round is exact. With several standbys and `traffic`, further rounds replace one standby
of every task at a time, as long as that improves the result. The standbys in force stay unless the result is strictly
better, so a stable cluster does not change.

Shapes: an arc from every task to every instance, for up to `FULL_NETWORK` arcs. In larger problems, a task has arcs
only to its copies and to a few of the instances that share least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from taskplace.assign.standby import StandbyCosts, Traffic
from taskplace.model.flow import Network, cost_budget
from taskplace.model.problem_columns import STANDBY, Columns, Ints
from taskplace.model.shares import level_loads

FULL_NETWORK = 400_000
CANDIDATES = 12
ROUNDS = 4
"""The most rounds that replace the standbys of each task one by one. They end earlier if a round improves nothing."""


class Sharing(NamedTuple):
    """The groups of instances with equal tag values.

    - `group`: [m] the group of each instance
    - `shared`: [groups, groups] the number of values that two groups share
    """

    group: Ints
    shared: Ints


def shared_values(tags: Sequence[Mapping[str, str]], names: Sequence[str]) -> Sharing:
    """Return the groups of instances with equal values of all named tags, and how many values two groups share.

    An instance without a tag shares no value of that tag.

    >>> shared_values([{"zone": "a"}, {"zone": "b"}, {"zone": "a"}, {}], ["zone"]).group.tolist()
    [1, 2, 1, 0]
    """
    values = [tuple(t.get(name, "") for name in names) for t in tags]
    groups = sorted(set(values))
    group = np.array([groups.index(v) for v in values], np.int64)
    shared = np.array(
        [[sum(a == b != "" for a, b in zip(g, h, strict=True)) for h in groups] for g in groups], np.int64
    )
    return Sharing(group=group, shared=shared)


def place_rack_standbys(
    c: Columns, active: Ints, replicas: int, sharing: Sharing, traffic: Traffic | None = None
) -> tuple[Ints, Ints]:
    """Return (tasks, instances) of all standbys, sorted by task, then by instance."""
    racks = _RackStandbys(c, active, sharing, traffic)
    chosen = np.zeros((len(racks.tasks), 0), np.int64)
    for _ in range(replicas):
        chosen = np.column_stack([chosen, racks.one_more(chosen)])
    options = [chosen]
    now = racks.in_force(replicas)
    if now is not None:
        options.insert(0, now)  # of equal options, `min` takes the first: what is in force
    if traffic is not None and replicas > 1:
        options = [racks.improved(option, traffic) for option in options]
    chosen = min(options, key=racks.rank)
    chosen.sort(axis=1)
    return np.repeat(racks.tasks, replicas), chosen.ravel()


def sharing_notes(c: Columns, active: Ints, task: Ints, inst: Ints, names: Sequence[str]) -> list[str]:
    """Return one note for each tag of which copies of some task share a value: counts, cause and remedy."""
    out = []
    everyone = np.concatenate([np.flatnonzero(c.stateful), task])
    where = np.concatenate([active[c.stateful], inst])
    for name in names:
        values = [t.get(name, "") for t in c.tags]
        known = sorted({v for v, slots in zip(values, c.open_slots.tolist(), strict=True) if v and slots})
        number = np.array([known.index(v) if v in known else -1 for v in values], np.int64)[where]
        pair = (everyone * (len(known) + 1) + number)[number >= 0]
        same, count = np.unique(pair, return_counts=True)
        sharing = len(np.unique(same[count > 1] // (len(known) + 1)))
        if sharing:
            total = int(c.stateful.sum())
            out.append(
                f"{sharing} of {total} stateful tasks have two copies in one {name}: there are {len(known)} values "
                f"of this tag ({', '.join(known[:5])}); add instances with other values"
            )
    return out


class _RackStandbys:
    """Places the standbys of one problem. A choice is an array [tasks, k]: the instances of k standbys of each task."""

    def __init__(self, c: Columns, active: Ints, sharing: Sharing, traffic: Traffic | None) -> None:
        self.c, self.active, self.traffic = c, active, traffic
        self.group, self.shared = sharing
        self.tasks = np.flatnonzero(c.stateful)
        self.places = np.flatnonzero(c.open_slots > 0)

    def improved(self, chosen: Ints, traffic: Traffic) -> Ints:
        """Return `chosen` or better standbys. Replaces one standby of each task at a time, the most expensive first."""
        best, least = chosen, self.rank(chosen)
        for _ in range(ROUNDS):
            before = least
            for k in range(chosen.shape[1]):
                price = traffic.price(self.tasks[:, None], best)
                best = np.take_along_axis(best, np.argsort(-price, axis=1, kind="stable"), axis=1)
                others = np.delete(best, k, axis=1)
                option = np.column_stack([others, self.one_more(others)])
                rank = self.rank(option)
                if rank < least:
                    best, least = option, rank
            if least == before:
                break
        return best

    def one_more(self, chosen: Ints) -> Ints:
        """Return the instance of one more standby for every task, beside its active and the standbys in `chosen`."""
        c, tasks, traffic = self.c, self.tasks, self.traffic
        here = np.column_stack([self.active[tasks], chosen])
        load = np.bincount(here.ravel(), minlength=c.m)
        low, high = level_loads(len(tasks) * (here.shape[1] + 1), len(tasks), load, c.open_slots)
        low, high = np.maximum(low - load, 0), np.maximum(high - load, 0)
        sharing = self.shared[self.group[here]].sum(axis=1)  # [tasks, groups]
        above = (int(sharing.max(initial=0)) + 1) * (len(tasks) + 1)  # a shared value outweighs all traffic

        def priced(strict: bool, parked: bool, traffic: Traffic | None) -> StandbyCosts:
            share = 1 if traffic is None else above
            return StandbyCosts(
                c, self.active, tasks, 1, strict=strict, parked=parked, traffic=traffic, share=share
            )

        for strict, parked in ((True, False), (False, False), (False, True)):
            prices = priced(strict, parked, traffic if strict else None)
            arcs = self._arcs(prices, sharing, here)
            place = self._flow(prices, arcs, low, high)
            if place is None:
                continue
            least = np.full(len(tasks), np.iinfo(np.int64).max)
            np.minimum.at(least, arcs.row, arcs.sharing)
            had = sharing[np.arange(len(tasks)), self.group[place]]
            if strict and int(had.sum()) != int(least.sum()):
                continue
            if not strict and traffic is not None:
                load = np.bincount(place, minlength=c.m)
                nearer = self._flow(priced(True, parked, traffic), arcs, load, load)
                place = place if nearer is None else nearer
            return place
        raise AssertionError("without bounds there is always a flow")

    def _arcs(self, p: StandbyCosts, sharing: Ints, here: Ints) -> _Arcs:
        """Return the pairs that get an arc.

        `sharing`: [tasks, groups] values shared with the copies that are placed. `here`: [tasks, copies] their
        instances.
        """
        c, tasks, places = self.c, self.tasks, self.places
        row = np.arange(len(tasks))[:, None]
        where = np.full(c.n, -1, np.int64)
        where[tasks] = np.arange(len(tasks))
        if len(tasks) * len(places) <= FULL_NETWORK:
            pair = (row * c.m + places[None, :]).ravel()
        else:
            parts = [where[c.task[p.rows]] * c.m + c.inst[p.rows]]
            parts += self._candidates(sharing, np.zeros((len(tasks), 1), np.int64))
            if self.traffic is not None:
                parts += self._candidates(sharing, self.traffic.reads[tasks], self.traffic.rack_of)
            pair = np.unique(np.concatenate(parts))
        excluded = np.isin(tasks[pair // c.m] * c.m + pair % c.m, p.excluded)
        taken = np.isin(pair, (row * c.m + here).ravel())
        pair = pair[(c.open_slots[pair % c.m] > 0) & ~excluded & ~taken]
        row, column = pair // c.m, pair % c.m
        return _Arcs(row=row, column=column, sharing=sharing[row, self.group[column]])

    def _candidates(self, sharing: Ints, reads: Ints, rack_of: Ints | None = None) -> list[Ints]:
        """Return pairs (task position * m + instance) of each task and a few of its best instances.

        The best instances share the fewest values; among these, the fewest reads across racks (`reads`: [tasks, racks])
        come first.
        """
        c, places = self.c, self.places
        out = []
        at = np.zeros(len(places), np.int64) if rack_of is None else rack_of[places]
        kinds, kind = np.unique(np.column_stack([sharing, reads]), axis=0, return_inverse=True)
        for k, values in enumerate(kinds):
            # The best instances come first. Tasks start at different ones, so that they do not all get the same
            # candidates.
            read = values[sharing.shape[1] :][at]
            price = values[self.group[places]] * (int(reads.max(initial=0)) + 1) + read
            order = places[np.lexsort((places, price))]
            best = int((price == price.min()).sum())
            mine = np.flatnonzero(kind.ravel() == k)
            turn = np.arange(len(mine))[:, None] * 7 + np.arange(CANDIDATES)[None, :]
            turn %= max(best, CANDIDATES)
            out.append((mine[:, None] * c.m + order[turn % len(order)]).ravel())
        return out

    def _flow(self, p: StandbyCosts, arcs: _Arcs, low: Ints, high: Ints) -> Ints | None:
        """Return [tasks] the instance of each task's standby; None if the bounds cannot be met.

        A shared value outweighs an uneven load, and an uneven load outweighs all prices. In very large problems these
        factors are smaller, so that costs stay below 2^63.
        """
        c, places = self.c, self.places
        count = len(self.tasks)
        price = self._prices(p, arcs)
        most = int(arcs.sharing.max(initial=0)) + 1
        limit = cost_budget(count + c.m + 1) // most
        step = min(int(price.max(initial=0)) * count + 1, limit // (7 * count + 1))
        share = min(7 * step * count + 1, limit // 2)
        if p.traffic is not None:  # then loads are bounds and have no price
            share = int(price.max(initial=0)) * count + 1
        net = Network()
        node, inst, sink = net.nodes(count), net.nodes(c.m), net.nodes(1)
        chosen = net.arcs(node[arcs.row], inst[arcs.column], 1, price + share * arcs.sharing)
        net.supply(node, 1)
        net.supply(sink, -count)
        to = sink.repeat(len(places))
        if p.strict:
            net.arcs(inst[places], to, high[places], 0, low=low[places])
        else:
            net.arcs(inst[places], to, low[places], 0)
            net.arcs(inst[places], to, (high - low)[places], step)
            for level in range(2, 7):
                size = np.maximum(c.open_slots[places] << (2 * level - 4), 1) if level < 6 else count
                net.arcs(inst[places], to, size, step * level)
        flow = net.solve()
        if flow is None:
            return None
        used = flow[chosen] > 0
        place = np.empty(count, np.int64)
        place[arcs.row[used]] = arcs.column[used]
        return place

    def _prices(self, p: StandbyCosts, arcs: _Arcs) -> Ints:
        """Return the price of each arc. An arc to a copy costs what `StandbyCosts.held` has for that copy."""
        c = self.c
        task, inst = self.tasks[arcs.row], arcs.column
        price = p.new(self.tasks)[arcs.row] + p.spread(task, inst) + p.crossing(task, inst)
        pair, held = task * c.m + inst, c.task[p.rows] * c.m + c.inst[p.rows]  # both sorted
        at = np.minimum(np.searchsorted(pair, held), max(len(pair) - 1, 0))
        hit = pair[at] == held if len(pair) else np.zeros(0, np.bool_)
        price[at[hit]] = p.held[hit]
        return price

    def in_force(self, replicas: int) -> Ints | None:
        """Return the standbys in force as [tasks, replicas]; None if they are incomplete or one may not stay."""
        c, tasks = self.c, self.tasks
        rows = np.flatnonzero((c.role == STANDBY) & c.stateful[c.task])
        if (np.bincount(c.task[rows], minlength=c.n)[tasks] != replicas).any():
            return None
        taken = (c.open_slots[c.inst[rows]] == 0) | (self.active[c.task[rows]] == c.inst[rows])
        if taken.any() or np.isin(c.task[rows] * c.m + c.inst[rows], c.parked).any():
            return None
        return c.inst[rows].reshape(len(tasks), replicas)

    def rank(self, chosen: Ints) -> tuple[int, int, int]:
        """Return (shared values, distance from level loads, price of traffic) of a choice. Lower is better."""
        c, tasks = self.c, self.tasks
        at = np.column_stack([self.active[tasks], chosen])
        here = self.group[at]
        pairs = ((a, b) for a in range(here.shape[1]) for b in range(a))
        values = sum(int(self.shared[here[:, a], here[:, b]].sum()) for a, b in pairs)
        load = np.bincount(at.ravel(), minlength=c.m)
        actives = np.bincount(self.active[tasks], minlength=c.m)
        low, high = level_loads(int(load.sum()), len(tasks), actives, c.open_slots)
        apart = int(np.maximum(low - load, 0).sum() + np.maximum(load - high, 0).sum())
        crossing = 0
        if self.traffic is not None:
            crossing = self.traffic.total(c, np.repeat(tasks, chosen.shape[1]), chosen.ravel())
        return values, apart, crossing


class _Arcs(NamedTuple):
    """The (task position, instance) pairs with an arc, and the number of values that a standby there would share."""

    row: Ints
    column: Ints
    sharing: Ints
