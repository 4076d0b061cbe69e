"""Standbys that avoid the racks of the other copies (KIP-708).

`rack.aware.assignment.tags` names instance tags (zone, cluster, ...). A standby shares a value with another copy of
its task for every such tag on which their instances agree. Lexicographic: as many standbys as possible; the fewest
shared values; loads as level as can be; the fewest new copies; the current standbys; the least lag. With `traffic`
(KIP-925), its price comes before new copies; where loads cannot be level, they are first made as level as can be, and
then each instance keeps its number.

The standbys of a task depend on each other here, so they are placed in rounds: one for every task by an optimal flow,
then the next for every task, and so on. With one standby this is exact. With several and `traffic`, one of every task
at a time is placed anew beside the others, as long as that helps. The result replaces what is in force only if
it is better, so a stable cluster stays as it is.

Shapes: an arc from every task to every instance, as long as these are few; to its copies and a few of the instances
that share least, if they are many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from taskplace.assign.flow import Network, cost_budget
from taskplace.assign.standby_costs import StandbyCosts, Traffic
from taskplace.model.columns import STANDBY, Columns, Ints
from taskplace.model.shares import level_loads

FULL_NETWORK = 400_000
CANDIDATES = 12
ROUNDS = 4
"""So often several standbys of a task are placed anew one by one, as long as it helps."""


def shared_values(tags: Sequence[Mapping[str, str]], names: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the group of every instance (equal values of all named tags), and shared[g, h] between groups.

    An instance without a tag shares no value with anybody on it.

    >>> shared_values([{"zone": "a"}, {"zone": "b"}, {"zone": "a"}, {}], ["zone"])[0].tolist()
    [1, 2, 1, 0]
    """
    values = [tuple(t.get(name, "") for name in names) for t in tags]
    groups = sorted(set(values))
    group = np.array([groups.index(v) for v in values], np.int64)
    shared = np.array(
        [[sum(a == b != "" for a, b in zip(g, h, strict=True)) for h in groups] for g in groups], np.int64
    )
    return group, shared


def place_rack_standbys(
    c: Columns, active: Ints, replicas: int, group: Ints, shared: Ints, traffic: Traffic | None = None
) -> tuple[Ints, Ints]:
    """Return (tasks, instances) of all standbys, sorted by task, then by instance."""
    tasks = np.flatnonzero(c.stateful)
    chosen = np.zeros((len(tasks), 0), np.int64)
    for _ in range(replicas):
        chosen = np.column_stack([chosen, _one_more(c, active, tasks, chosen, group, shared, traffic)])
    options = [chosen]
    now = _in_force(c, active, tasks, replicas)
    if now is not None:
        options.insert(0, now)  # of equal ones, what is in force
    if traffic is not None and replicas > 1:
        options = [_improved(c, active, tasks, option, group, shared, traffic) for option in options]
    chosen = min(options, key=lambda option: _rank(c, active, tasks, option, group, shared, traffic))
    chosen.sort(axis=1)
    return np.repeat(tasks, replicas), chosen.ravel()


def _improved(
    c: Columns, active: Ints, tasks: Ints, chosen: Ints, group: Ints, shared: Ints, traffic: Traffic
) -> Ints:
    """Return `chosen`, or better standbys: one of every task at a time, the dearest first, is placed anew."""
    best, least = chosen, _rank(c, active, tasks, chosen, group, shared, traffic)
    for _ in range(ROUNDS):
        before = least
        for k in range(chosen.shape[1]):
            price = traffic.price(tasks[:, None], best)
            best = np.take_along_axis(best, np.argsort(-price, axis=1, kind="stable"), axis=1)
            others = np.delete(best, k, axis=1)
            anew = _one_more(c, active, tasks, others, group, shared, traffic)
            option = np.column_stack([others, anew])
            rank = _rank(c, active, tasks, option, group, shared, traffic)
            if rank < least:
                best, least = option, rank
        if least == before:
            break
    return best


def sharing_notes(c: Columns, active: Ints, task: Ints, inst: Ints, names: Sequence[str]) -> list[str]:
    """Return, for each tag, a note if copies of some tasks had to share a value: counts, cause and remedy."""
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
                f"of this tag ({', '.join(known[:5])}); add instances elsewhere to set them apart"
            )
    return out


def _one_more(
    c: Columns,
    active: Ints,
    tasks: Ints,
    chosen: Ints,
    group: Ints,
    shared: Ints,
    traffic: Traffic | None,
) -> Ints:
    """Return one more standby for every task, beside its active and those already `chosen`."""
    here = np.column_stack([active[tasks], chosen])
    load = np.bincount(here.ravel(), minlength=c.m)
    low, high = level_loads(len(tasks) * (here.shape[1] + 1), len(tasks), load, c.open_slots)
    low, high = np.maximum(low - load, 0), np.maximum(high - load, 0)
    sharing = shared[group[here]].sum(axis=1)  # [tasks, groups]
    share = (int(sharing.max(initial=0)) + 1) * (len(tasks) + 1)  # a shared value outweighs all traffic

    def priced(strict: bool, parked: bool, traffic: Traffic | None) -> StandbyCosts:
        above = 1 if traffic is None else share
        return StandbyCosts(c, active, tasks, 1, strict=strict, parked=parked, traffic=traffic, share=above)

    for strict, parked in ((True, False), (False, False), (False, True)):
        prices = priced(strict, parked, traffic if strict else None)
        row, column = _arcs(prices, sharing, group, here, traffic)
        found = _flow(prices, row, column, sharing[row, group[column]], low, high)
        if found is None:
            continue
        least = np.full(len(tasks), np.iinfo(np.int64).max)
        np.minimum.at(least, row, sharing[row, group[column]])
        if strict and int(sharing[np.arange(len(tasks)), group[found]].sum()) != int(least.sum()):
            continue
        if not strict and traffic is not None:
            prices, load = priced(True, parked, traffic), np.bincount(found, minlength=c.m)
            nearer = _flow(prices, row, column, sharing[row, group[column]], load, load)
            found = found if nearer is None else nearer
        return found
    raise AssertionError("without bounds there is always a flow")


def _arcs(
    p: StandbyCosts, sharing: Ints, group: Ints, here: Ints, traffic: Traffic | None
) -> tuple[Ints, Ints]:
    """Return (position of task, instance) of every pair that gets an arc."""
    c, tasks = p.c, p.tasks
    places = np.flatnonzero(c.open_slots > 0)
    where = np.full(c.n, -1, np.int64)
    where[tasks] = np.arange(len(tasks))
    if len(tasks) * len(places) <= FULL_NETWORK:
        pair = (np.arange(len(tasks))[:, None] * c.m + places[None, :]).ravel()
    else:
        parts = [where[c.task[p.rows]] * c.m + c.inst[p.rows]]
        parts += _candidates(c, sharing, group, places, np.zeros((len(tasks), 1), np.int64))
        if traffic is not None:
            parts += _candidates(c, sharing, group, places, traffic.reads[tasks], traffic.rack_of)
        pair = np.unique(np.concatenate(parts))
    allowed = (c.open_slots[pair % c.m] > 0) & ~np.isin(tasks[pair // c.m] * c.m + pair % c.m, p.excluded)
    taken = (np.arange(len(tasks))[:, None] * c.m + here).ravel()
    pair = pair[allowed & ~np.isin(pair, taken)]
    return pair // c.m, pair % c.m


def _candidates(
    c: Columns, sharing: Ints, group: Ints, places: Ints, reads: Ints, rack_of: Ints | None = None
) -> list[Ints]:
    """Return pairs (task position * m + instance) of each task and a few of its best instances.

    The best share least, and of these read least ([tasks, racks] `reads`) across racks.
    """
    out = []
    at = np.zeros(len(places), np.int64) if rack_of is None else rack_of[places]
    kinds, kind = np.unique(np.column_stack([sharing, reads]), axis=0, return_inverse=True)
    for k, values in enumerate(kinds):
        # The best instances come first; every task starts at another one of them.
        price = values[group[places]] * (int(reads.max(initial=0)) + 1) + values[sharing.shape[1] :][at]
        order = places[np.lexsort((places, price))]
        best = int((price == price.min()).sum())
        mine = np.flatnonzero(kind.ravel() == k)
        turn = (np.arange(len(mine))[:, None] * 7 + np.arange(CANDIDATES)[None, :]) % max(best, CANDIDATES)
        out.append((mine[:, None] * c.m + order[turn % len(order)]).ravel())
    return out


def _flow(p: StandbyCosts, row: Ints, column: Ints, sharing: Ints, low: Ints, high: Ints) -> Ints | None:
    c, tasks = p.c, p.tasks
    count = len(tasks)
    price = p.new(tasks)[row] + p.spread(tasks[row], column) + p.crossing(tasks[row], column)
    pair, held = tasks[row] * c.m + column, c.task[p.rows] * c.m + c.inst[p.rows]  # both sorted
    at = np.minimum(np.searchsorted(pair, held), max(len(pair) - 1, 0))
    hit = pair[at] == held if len(pair) else np.zeros(0, np.bool_)
    price[at[hit]] = p.held[hit]

    # A shared value outweighs an uneven load, and that all prices, as far as they fit below 2^63.
    most = int(sharing.max(initial=0)) + 1
    limit = cost_budget(count + c.m + 1) // most
    step = min(int(price.max(initial=0)) * count + 1, limit // (7 * count + 1))
    share = min(7 * step * count + 1, limit // 2)
    if p.traffic is not None:  # loads are bounds then
        share = int(price.max(initial=0)) * count + 1
    net = Network()
    node, seat, sink = net.nodes(count), net.nodes(c.m), net.nodes(1)
    places = np.flatnonzero(c.open_slots > 0)
    to_seat = net.arcs(node[row], seat[column], 1, price + share * sharing)
    net.supply(node, 1)
    net.supply(sink, -count)
    to = sink.repeat(len(places))
    if p.strict:
        net.arcs(seat[places], to, high[places], 0, low=low[places])
    else:
        net.arcs(seat[places], to, low[places], 0)
        net.arcs(seat[places], to, (high - low)[places], step)
        for level in range(2, 7):
            size = np.maximum(c.open_slots[places] << (2 * level - 4), 1) if level < 6 else count
            net.arcs(seat[places], to, size, step * level)
    flow = net.solve()
    if flow is None:
        return None
    used = flow[to_seat] > 0
    found = np.empty(count, np.int64)
    found[row[used]] = column[used]
    return found


def _in_force(c: Columns, active: Ints, tasks: Ints, replicas: int) -> Ints | None:
    """Return the standbys in force as [tasks, replicas], if they are complete and may stay."""
    rows = np.flatnonzero((c.role == STANDBY) & c.stateful[c.task])
    if (np.bincount(c.task[rows], minlength=c.n)[tasks] != replicas).any():
        return None
    taken = (c.open_slots[c.inst[rows]] == 0) | (active[c.task[rows]] == c.inst[rows])
    if taken.any() or np.isin(c.task[rows] * c.m + c.inst[rows], c.parked).any():
        return None
    return c.inst[rows].reshape(len(tasks), replicas)


def _rank(
    c: Columns,
    active: Ints,
    tasks: Ints,
    chosen: Ints,
    group: Ints,
    shared: Ints,
    traffic: Traffic | None,
) -> tuple[int, int, int]:
    """Return (shared values, distance from level loads, price of traffic) of a choice; less is better."""
    here = group[np.column_stack([active[tasks], chosen])]
    values = sum(int(shared[here[:, a], here[:, b]].sum()) for a in range(here.shape[1]) for b in range(a))
    load = np.bincount(np.column_stack([active[tasks], chosen]).ravel(), minlength=c.m)
    actives = np.bincount(active[tasks], minlength=c.m)
    low, high = level_loads(int(load.sum()), len(tasks), actives, c.open_slots)
    apart = int(np.maximum(low - load, 0).sum() + np.maximum(load - high, 0).sum())
    count = chosen.shape[1]
    crossing = 0 if traffic is None else traffic.total(c, np.repeat(tasks, count), chosen.ravel())
    return values, apart, crossing
