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
(`sparse_standbys`) has arcs to copies only, so it is linear in tasks + copies. It cannot exclude a task's own instances
from "anywhere", so places are exchanged afterwards.

Source: KIP-441, KIP-925.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskplace.assign.standby import StandbyCosts, Traffic, place_sparse_standbys, sink_arcs
from taskplace.model.flow import Network
from taskplace.model.problem_columns import Columns, Ints
from taskplace.model.shares import level_loads

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
