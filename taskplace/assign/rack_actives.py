"""Actives close to their input (KIP-925): the same flow, with a price on reads across racks.

An instance is in the rack that its tag "rack" names; a task reads across racks once for every input partition that no
replica in its rack serves (`Task.racks`). `rack.aware.assignment.strategy` is

- min_traffic: the total balance is kept, that of each subtopology is given up for less traffic;
- balance_subtopology: both balances are kept, and traffic is the least that they allow.

The price of a target is traffic_cost * cross-rack reads + non_overlap_cost * moves (10 and 1 unless configured, as
KIP-925 has it for this assignor); below that, new copies and lag, as without racks. So a move is worth a saved read
here, and moves are no longer the fewest possible.

Shapes: tasks * (copies + racks) arcs. If racks are not known for all instances, traffic is not looked at.
"""

from __future__ import annotations

import numpy as np

from taskplace.assign.active import ActiveTarget, Placement, place_actives
from taskplace.assign.active_costs import ActiveCosts
from taskplace.assign.flow import Network, cost_budget
from taskplace.errors import ConfigError
from taskplace.model.columns import Columns, Ints
from taskplace.model.config import PlacementConfig
from taskplace.model.placement import moved
from taskplace.model.reads import RACK_TAG, cross_rack_reads, prices, reduced_prices
from taskplace.model.shares import StatelessShares, stateless_shares


def place_near_input(c: Columns, base: Ints, config: PlacementConfig) -> tuple[ActiveTarget, tuple[str, ...]]:
    """Return the target of all stateful tasks, and what to warn of. See `place_actives`."""
    plain = place_actives(c, base)
    known = cross_rack_reads(c)
    if not c.n or (known is not None and not c.stateful.any()):
        return plain, ()
    if known is None:
        note = f"rack.aware.assignment.strategy needs a tag {RACK_TAG!r} on every instance, and racks of partitions"
        return plain, (f"{note}: placed without racks",)
    rack_of, reads = known
    found = _NearInput(c, base, config, rack_of, reads).solve_once()
    if found is None:
        return plain, ("racks are not looked at beside what is parked",)
    moves = found[1]
    return ActiveTarget(found[0], base, moves, min(moves, plain.lower_bound)), ()


def place_stateless_near_input(c: Columns, active: Ints, config: PlacementConfig) -> Ints | None:
    """Return `active` completed by the stateless tasks: level loads first, then the least price of reads and moves.

    With balance_subtopology, the stateless tasks of each subtopology are level as well, wherever that can be met beside
    level loads (see `taskplace.assign.stateless`).

    A network of stateless tasks * (racks + 1) arcs. A task that is as well off where it is stays. None where racks of
    instances or of stateless tasks are not known.
    """
    tasks = np.flatnonzero(~c.stateful)
    if not any(c.racks[t] for t in tasks.tolist()):
        return None
    known = cross_rack_reads(c)
    if known is None:
        return None
    shares = stateless_shares(c, active)
    each = config.rack_aware_assignment_strategy == "balance_subtopology" and shares.kind_fits
    for alike in (True, False) if each else (False,):
        place = _stateless(c, active, tasks, known, prices(config), shares, alike=alike)
        if place is not None:
            return place
    return None


def _stateless(
    c: Columns,
    active: Ints,
    tasks: Ints,
    known: tuple[Ints, Ints],
    costs: tuple[int, int],
    shares: StatelessShares,
    *,
    alike: bool,
) -> Ints | None:
    rack_of, reads = known
    traffic, move = costs
    places, racks = shares.places, reads.shape[1]
    group = np.searchsorted(shares.subs, c.sub[tasks]) if alike else np.zeros(len(tasks), np.int64)
    groups = len(shares.subs) if alike else 1
    net = Network()
    node, hub = net.nodes(len(tasks)), net.nodes(groups * racks).reshape(groups, racks)
    pair = net.nodes(groups * c.m).reshape(groups, c.m)
    seat, sink = net.nodes(c.m), net.nodes(1)
    most = int(reads[tasks].max()) * traffic + move + 1
    fine = max(
        1, min(len(tasks) + 1, cost_budget(int(sink[0]) + 1) // most)
    )  # below it: to stay, among equals
    owner = c.owner[tasks]
    here = np.flatnonzero(c.open_slots[owner] * (owner >= 0) > 0)
    at = owner[here]
    stay = net.arcs(node[here], pair[group[here], at], 1, fine * traffic * reads[tasks[here], rack_of[at]])
    leaves = (owner >= 0).astype(np.int64)
    price = fine * (traffic * reads[tasks] + (move * leaves)[:, None]) + leaves[:, None]
    roam = net.arcs(np.repeat(node, racks), hub[group], 1, price)
    grid = pair[:, places]
    entry = net.arcs(hub[:, rack_of[places]], grid, len(tasks), 0)
    low, high = shares.low, shares.high
    seats = np.broadcast_to(seat[places], grid.shape)
    if alike:
        net.arcs(grid, seats, shares.cell_high[:, places], 0, low=shares.cell_low[:, places])
        low, high = np.maximum(low, shares.kind_low), np.minimum(high, shares.kind_high)
    else:
        net.arcs(grid, seats, len(tasks), 0)
    net.arcs(seat[places], sink.repeat(len(places)), high[places], 0, low=low[places])
    net.supply(node, 1)
    net.supply(sink, -len(tasks))
    flow = net.solve()
    if flow is None:
        return None
    place = active.copy()
    place[tasks[here[flow[stay] > 0]]] = at[flow[stay] > 0]
    row, rack = np.nonzero(flow[roam].reshape(len(tasks), racks))
    order = np.lexsort((row, rack, group[row]))
    row, rack = row[order], rack[order]
    into = flow[entry].reshape(grid.shape)
    for g, r in sorted(set(zip(group[row].tolist(), rack.tolist(), strict=True))):
        of_rack = rack_of[places] == r
        mine = row[(group[row] == g) & (rack == r)]
        place[tasks[mine]] = np.repeat(places[of_rack], into[g][of_rack])
    return place


class _NearInput(Placement):
    def __init__(self, c: Columns, base: Ints, config: PlacementConfig, rack_of: Ints, reads: Ints) -> None:
        super().__init__(c, base)
        self.rack_of, self.reads = rack_of, reads
        self.traffic_cost, self.move_cost, self.common = reduced_prices(config)
        if config.rack_aware_assignment_strategy == "min_traffic":
            self.low = np.zeros_like(self.low)
            self.high = np.where(c.open_slots > 0, len(self.tasks), 0) * np.ones_like(self.high)

    def solve_once(self) -> tuple[Ints, int] | None:
        """Return (place, moves), or None if parked pairs leave no balanced placement."""
        c, tasks = self.c, self.tasks
        places = np.flatnonzero(c.open_slots > 0)
        racks = self.reads.shape[1]
        net = Network()
        hub = net.nodes(self.s_count * racks).reshape(self.s_count, racks)
        pair = net.nodes(self.s_count * c.m).reshape(self.s_count, c.m)
        seat, sink = net.nodes(c.m), net.nodes(1)
        node = np.full(c.n, -1, np.int64)
        node[tasks] = net.nodes(len(tasks))
        dearest = int(self.reads.max(initial=0))
        most = dearest * self.traffic_cost + max(self.move_cost, 1)
        nodes = int(node.max(initial=0)) + 2
        cost = ActiveCosts(c, len(tasks), nodes, share=most)
        if not cost.fits:
            largest = (cost_budget(nodes) // (4 * len(tasks) + 4) - self.move_cost) // max(dearest, 1)
            raise ConfigError(
                "config.rack.aware.assignment.traffic_cost",
                found=self.traffic_cost * self.common,
                expected=f"at most {max(largest, 0) * self.common} for {len(tasks)} tasks, of which one has "
                f"{dearest} partitions to read from other racks",
            )
        read = cost.move * self.traffic_cost * self.reads  # [tasks, racks]
        cost.move *= self.move_cost

        grid = pair[:, places]
        net.arcs(
            grid, np.broadcast_to(seat[places], grid.shape), self.high[:, places], 0, low=self.low[:, places]
        )
        to = sink.repeat(len(places))
        net.arcs(seat[places], to, self.total_high[places], 0, low=self.total_low[places])
        entry = net.arcs(hub[:, self.rack_of[places]], grid, len(tasks), 0)
        net.supply(node[tasks], 1)
        net.supply(sink, -len(tasks))

        homes = tasks[self.home[tasks] >= 0]
        at_home = self.home[homes]
        stay = net.arcs(node[homes], pair[c.sub[homes], at_home], 1, read[homes, self.rack_of[at_home]])
        rows = self.usable_rows()
        near = read[c.task[rows], self.rack_of[c.inst[rows]]]
        go = net.arcs(
            node[c.task[rows]], pair[c.sub[c.task[rows]], c.inst[rows]], 1, cost.rows(rows, self.base) + near
        )
        parked = np.unique(c.parked // c.m)
        free = tasks[~np.isin(tasks, parked)]
        roamer, rack = np.repeat(free, racks), np.tile(np.arange(racks), len(free))
        roam = net.arcs(
            node[roamer], hub[c.sub[roamer], rack], 1, cost.roam(roamer, self.base) + read[roamer, rack]
        )
        wide, at = self.everywhere_but_parked(parked[c.stateful[parked]], places)
        far = net.arcs(
            node[wide], pair[c.sub[wide], at], 1, cost.roam(wide, self.base) + read[wide, self.rack_of[at]]
        )
        flow = net.solve()
        if flow is None:
            return None
        place = np.full(c.n, -1, np.int64)
        for task, inst, used in (
            (homes, at_home, flow[stay]), (c.task[rows], c.inst[rows], flow[go]), (wide, at, flow[far])
        ):  # fmt: skip
            place[task[used > 0]] = inst[used > 0]
        seats = flow[entry].reshape(self.s_count, len(places))
        wandering, into = roamer[flow[roam] > 0], rack[flow[roam] > 0]
        for r in range(racks):
            here = self.rack_of[places] == r
            self.seat_wanderers(wandering[into == r], seats[:, here], places[here], place)
        return place, int(moved(c, self.base, place).sum())
