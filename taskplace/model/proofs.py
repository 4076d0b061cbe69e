"""Proves that a target is optimal, without the code that finds targets. Each can reveal errors of the other.

- `saving`: how many moves a target could save, found by exchanges
- `fewest_moves`: the fewest moves that both balances allow, found by a small network over groups of tasks
- `detour`: whether standbys could read less across racks (KIP-925), found by hand-overs

**Idea.** A target that keeps both balances is a flow. It has the fewest moves if and only if no cycle of exchanges
saves a move (Klein's theorem: a flow has minimum cost if and only if its residual network has no negative cycle). An
exchange hands one task of a subtopology from one instance to another. A cycle of exchanges keeps all balances. The
same holds for standbys at level loads, with the price of their reads and moves.

Source: M. Klein, "A Primal Method for Minimal Cost Flows", 1967.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from taskplace.model.config import PlacementConfig
from taskplace.model.flow import Network
from taskplace.model.placement import FIXED, OPEN, changelog_reads, costs
from taskplace.model.problem_columns import STANDBY, Columns, Ints
from taskplace.model.shares import floors_and_ceilings, level_loads

FAR = 1 << 20  # the cost of an impossible exchange of tasks, above any sum of moves
NEVER = 1 << 60  # the cost of an impossible hand-over of a standby, above any sum of prices


def saving(c: Columns, base: Ints, place: Ints) -> int:
    """Return how many moves can be saved compared with `place` ([n] instances), under both balances.

    0 proves that `place` has the fewest moves. `place` must keep both balances (`taskplace.verify` checks that first).
    p instances with open slots, s subtopologies: a search is O(rounds * s * p^2), usually with a few rounds. There is
    one search for each cycle that saves moves, and a last one without a result.
    """
    exchanges = _Exchanges(c, base, place)
    before = exchanges.moves
    while (cycle := exchanges.cycle()) is not None:
        exchanges.carry_out(cycle)
    return before - exchanges.moves


class _Exchanges:
    """The network of the exchanges that are possible from a placement.

    Nodes: one per (subtopology, instance), one per instance, one sink. `_costs()[s, i, j]` is the cost of handing the
    cheapest task of subtopology s from i to j: -1, 0 or 1 move; FAR if there is no such task. Lifetime: `_at` is the
    current placement, as positions among the instances with open slots. `carry_out` changes it.
    """

    def __init__(self, c: Columns, base: Ints, place: Ints) -> None:
        tasks = np.flatnonzero(c.stateful)
        places = np.flatnonzero(c.open_slots > 0)
        position = np.full(c.m, -1, np.int64)
        position[places] = np.arange(len(places))
        self._p, self._s = len(places), len(c.subtopologies)
        self._sub, self._at = c.sub[tasks], position[place[tasks]]
        self._homes = [_homes(c, base, int(t), position) for t in tasks]
        self._low, self._high = self._bounds(c.open_slots[places])

    def _bounds(self, open_slots: Ints) -> tuple[Ints, Ints]:
        """Return the floors and ceilings of each subtopology, and of all tasks (last row), on each instance."""
        counts = [*np.bincount(self._sub, minlength=self._s).tolist(), len(self._sub)]
        bounds = [floors_and_ceilings(count, open_slots) for count in counts]
        return np.array([b[0] for b in bounds]), np.array([b[1] for b in bounds])

    @property
    def moves(self) -> int:
        """The number of tasks that are not at home."""
        return sum(self._price(k, at) for k, at in enumerate(self._at.tolist()))

    def _price(self, task: int, at: int) -> int:
        homes = self._homes[task]
        return 0 if homes is None or at in homes else 1

    def _costs(self) -> Ints:
        cost = np.full((self._s, self._p, self._p), FAR, np.int64)
        rows = zip(self._sub.tolist(), self._at.tolist(), self._homes, strict=True)
        for s, i, homes in set(rows):
            here = 0 if homes is None or i in homes else 1
            row = cost[s, i]
            np.minimum(row, (0 if homes is None else 1) - here, out=row)
            for j in homes or ():
                row[j] = min(row[j], -here)
        return cost

    def cycle(self) -> list[int] | None:
        """Return the nodes of a cycle of exchanges that saves moves; None if there is none (Bellman and Ford)."""
        s, p = self._s, self._p
        cost = self._costs()
        load = np.zeros((s + 1, p), np.int64)
        np.add.at(load, (self._sub, self._at), 1)
        load[s] = load[:s].sum(axis=0)
        more, fewer = load < self._high, load > self._low
        seat, sink = s * p, s * p + p
        near = np.zeros(sink + 1, np.int64)
        before = np.full(sink + 1, -1, np.int64)
        for _ in range(sink + 2):
            changed = False

            def improve(nodes: Ints, distance: Ints, by: Ints) -> None:
                nonlocal changed
                better = distance < near[nodes]
                near[nodes[better]], before[nodes[better]] = distance[better], by[better]
                changed |= bool(better.any())

            at = np.arange(p)
            for k in range(s):
                through = near[k * p : k * p + p, None] + cost[k]
                best = through.argmin(axis=0)
                improve(k * p + at, through[best, at], k * p + best)
                improve(k * p + at[fewer[k]], near[seat + at[fewer[k]]], seat + at[fewer[k]])
                improve(seat + at[more[k]], near[k * p + at[more[k]]], k * p + at[more[k]])
            free = seat + at[more[s]]
            improve(np.full(len(free), sink), near[free], free)
            back = seat + at[fewer[s]]
            improve(back, np.full(len(back), near[sink]), np.full(len(back), sink))
            if not changed:
                return None
            if (circle := _circle(before)) is not None:
                return circle
        raise AssertionError("Bellman and Ford: no end and no cycle")

    def carry_out(self, cycle: list[int]) -> None:
        """Hand over a task for each step of a cycle between two instances of one subtopology."""
        p = self._p
        for tail, head in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            if tail >= self._s * p or head >= self._s * p:
                continue
            (s, i), j = divmod(tail, p), head % p
            there = np.flatnonzero((self._sub == s) & (self._at == i)).tolist()
            task = min(there, key=lambda k: self._price(k, j) - self._price(k, i))
            self._at[task] = j


def _homes(c: Columns, base: Ints, task: int, position: Ints) -> frozenset[int] | None:
    """Return the instances with open slots where a task can be without a move; None if that is anywhere."""
    if base[task] == OPEN:
        return None
    if base[task] == FIXED:
        homes: Iterable[int] = [int(c.owner[task])]
    else:
        rows = slice(int(c.start[task]), int(c.start[task + 1]))
        homes = c.inst[rows][c.best[rows]].tolist()
    return frozenset(int(position[i]) for i in homes if position[i] >= 0)


def _circle(before: Ints) -> list[int] | None:
    """Return a cycle in the predecessors, in the direction of its arcs; None if there is none."""
    seen: dict[int, int] = {}
    back = before.tolist()
    for start in range(len(back)):
        node = start
        while node >= 0 and node not in seen:
            seen[node] = start
            node = back[node]
        if node >= 0 and seen[node] == start:
            cycle = [node]
            while back[cycle[-1]] != node:
                cycle.append(back[cycle[-1]])
            return cycle[::-1]
    return None


def detour(c: Columns, config: PlacementConfig, active: Ints, task: Ints, inst: Ints) -> bool:
    """Return whether other standbys of these tasks, at equally level loads, would cost less in reads and moves.

    A cycle that saves hands one standby from each of its instances to the next. A chain also counts as a cycle, if its
    last instance may have one standby more and its first one fewer. s standbys, m instances: O(s * m) for the best
    hand-overs, then O(rounds * m^2), usually with a few rounds.

    `active`: [n] instances. `task`, `inst`: one entry per standby. Returns False if racks are not known.
    """
    known = changelog_reads(c)
    if known is None or not len(task):
        return False
    cost = _hand_overs(c, config, known, active, task, inst)
    more, fewer = _slack(c, active, task, inst)
    near, sink = np.zeros(c.m, np.int64), 0
    for _ in range(c.m + 2):
        nearer = np.minimum(near, (near[:, None] + cost).min(axis=0))
        end = min([sink, *nearer[more].tolist()])
        nearer[fewer] = np.minimum(nearer[fewer], end)
        if end == sink and (nearer == near).all():
            return False
        near, sink = nearer, end
    return True  # Bellman-Ford: a path that still becomes cheaper contains a cycle that saves


def _hand_overs(
    c: Columns, config: PlacementConfig, known: tuple[Ints, Ints], active: Ints, task: Ints, inst: Ints
) -> Ints:
    """Return [m, m] the change of the price by the cheapest hand-over of a standby from one instance to another."""
    (rack_of, reads), (read, move) = known, costs(config)
    now = np.zeros((c.n, c.m), np.bool_)
    rows = c.role == STANDBY
    now[c.task[rows], c.inst[rows]] = True
    taken = np.zeros((c.n, c.m), np.bool_)
    taken[np.arange(c.n), active] = True
    taken[task, inst] = True
    taken[:, c.open_slots == 0] = True
    cost = np.full((c.m, c.m), NEVER, np.int64)
    for i in np.unique(inst).tolist():
        mine = task[inst == i]
        price = read * reads[mine][:, rack_of] + move * ~now[mine]
        gain = np.where(taken[mine], NEVER, price - price[:, [i]])
        cost[i] = gain.min(axis=0)
    return cost


def _slack(c: Columns, active: Ints, task: Ints, inst: Ints) -> tuple[Ints, Ints]:
    """Return the instances that may have one standby more, and one fewer. Both are empty if loads are uneven."""
    tasks = np.flatnonzero(c.stateful)
    actives = np.bincount(active[tasks], minlength=c.m)
    load = actives + np.bincount(inst, minlength=c.m)
    low, high = level_loads(len(tasks) + len(task), len(tasks), actives, c.open_slots)
    if ((load < low) | (load > high)).any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.flatnonzero(load < high), np.flatnonzero(load > low)


def fewest_moves(c: Columns, base: Ints) -> int:
    """Return the least number of stateful tasks that must leave their base (`taskplace.model.placement.bases`).

        group -> (subtopology, instance) -> instance -> sink       at home, at no cost
        group -> anywhere(subtopology) -> (subtopology, instance)  elsewhere, at the cost of a move

    The tasks of a group are of one subtopology and may be on the same instances without a move: on their owner or, if
    the owner is gone or lags, on the instances with the best copies. The network does not use lags or ties. So it does
    not depend on how a target was found. Cost: one flow over subtopologies * instances arcs, with one node for each
    group.
    """
    groups = _groups(c, base)
    tasks = sum(groups.values())
    if not tasks:
        return 0
    places = np.flatnonzero(c.open_slots > 0)
    net = Network()
    sink = int(net.nodes(1)[0])
    seat = dict(zip(places.tolist(), net.nodes(len(places)).tolist(), strict=True))
    pair: dict[tuple[int, int], int] = {}
    anywhere: dict[int, int] = {}
    low, high = floors_and_ceilings(tasks, c.open_slots)
    net.arcs(list(seat.values()), [sink] * len(seat), high[places], 0, low=low[places])
    net.supply([sink], [-tasks])
    sizes: Counter[int] = Counter()
    for (s, _), count in groups.items():
        sizes[s] += count
    for s, count in sorted(sizes.items()):
        low, high = floors_and_ceilings(count, c.open_slots)
        anywhere[s] = int(net.nodes(1)[0])
        nodes = net.nodes(len(places))
        pair.update({(s, i): n for i, n in zip(places.tolist(), nodes.tolist(), strict=True)})
        net.arcs(nodes, list(seat.values()), high[places], 0, low=low[places])
        net.arcs([anywhere[s]] * len(places), nodes, count, 0)
    for (s, homes), count in sorted(groups.items(), key=lambda g: (g[0][0], sorted(g[0][1]))):
        node = int(net.nodes(1)[0])
        net.supply([node], [count])
        net.arcs([node], [anywhere[s]], count, 1 if homes else 0)
        at = [pair[s, i] for i in sorted(homes) if c.open_slots[i]]
        if at:
            net.arcs([node] * len(at), at, count, 0)
    net.solve()
    return net.cost


def _groups(c: Columns, base: Ints) -> Counter[tuple[int, frozenset[int]]]:
    """Return the number of tasks of each (subtopology, instances without a move). An empty set means anywhere."""
    out: Counter[tuple[int, frozenset[int]]] = Counter()
    fixed = np.flatnonzero(c.stateful & (base == FIXED))
    pairs, counts = np.unique(c.sub[fixed] * c.m + c.owner[fixed], return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        out[pair // c.m, frozenset((pair % c.m,))] = count
    for t in np.flatnonzero(c.stateful & (base != FIXED)).tolist():
        rows = slice(int(c.start[t]), int(c.start[t + 1]))
        homes = c.inst[rows][c.best[rows]].tolist() if base[t] != OPEN else ()
        out[int(c.sub[t]), frozenset(homes)] += 1
    return out
