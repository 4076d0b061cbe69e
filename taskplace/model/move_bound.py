"""Computes the fewest moves that both balances allow: the cost of a small network over groups of tasks.

    group -> (subtopology, instance) -> instance -> sink       at home, at no cost
    group -> anywhere(subtopology) -> (subtopology, instance)  elsewhere, at the cost of a move

The tasks of a group are of one subtopology and may be on the same instances without a move: on their owner or, if
the owner is gone or lags, on the instances with the best copies. The network does not use lags or ties. So it does
not depend on how a target was found, and proves that no target has fewer moves.

Cost: one flow over subtopologies * instances arcs, with one node for each group.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from taskplace.model.flow import Network
from taskplace.model.placement import FIXED, OPEN
from taskplace.model.problem_columns import Columns, Ints
from taskplace.model.shares import floors_and_ceilings


def fewest_moves(c: Columns, base: Ints) -> int:
    """Return the least number of stateful tasks that must leave their base (`taskplace.model.placement.bases`)."""
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
