"""Places actives close to their input (KIP-925): the flow of `active`, with a price on reads across racks.

The tag "rack" names the rack of an instance. A task reads an input partition across racks if no replica in its
instance's rack serves that partition (`Task.racks`). `rack.aware.assignment.strategy` is

- min_traffic: keeps the total balance, and gives up the balance of each subtopology for less traffic;
- balance_subtopology: keeps both balances, with the least traffic that they allow.

The price of a target is traffic_cost * reads across racks + non_overlap_cost * moves. The defaults are 10 and 1,
KIP-925's for this assignor. New copies and lag come after the price, as without racks. So a move can be worth a saved
read, and the target may have more moves than the fewest possible.

Shapes: tasks * (copies + racks) arcs. If racks are not known for all instances, the plan ignores them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskplace.assign.active import ActiveCosts, ActiveTarget, Placement, Ways, place_actives
from taskplace.errors import ConfigError
from taskplace.model.config import PlacementConfig
from taskplace.model.flow import Network, cost_budget
from taskplace.model.placement import RACK_TAG, costs, cross_rack_reads, moved, reduced_costs
from taskplace.model.problem_columns import Columns, Ints
from taskplace.model.shares import StatelessShares, stateless_shares


def place_near_input(c: Columns, base: Ints, config: PlacementConfig) -> tuple[ActiveTarget, tuple[str, ...]]:
    """Return the target of all stateful tasks, as `place_actives` does, and the warnings."""
    plain = place_actives(c, base)
    known = cross_rack_reads(c)
    if not c.n or (known is not None and not c.stateful.any()):
        return plain, ()
    if known is None:
        note = f"rack.aware.assignment.strategy needs a tag {RACK_TAG!r} on every instance and the racks of partitions"
        return plain, (f"{note}; the plan ignores racks",)
    rack_of, reads = known
    place = _NearInput(c, base, config, rack_of, reads).solve_once()
    if place is None:
        return plain, ("the plan ignores racks: parked copies leave no balanced placement",)
    moves = int(moved(c, base, place).sum())
    return ActiveTarget(place, base, moves=moves, lower_bound=min(moves, plain.lower_bound)), ()


def place_stateless_near_input(c: Columns, active: Ints, config: PlacementConfig) -> Ints | None:
    """Return `active` completed by the stateless tasks: level loads first, then the lowest price of reads and moves.

    With balance_subtopology, the stateless tasks of each subtopology are level as well, if that is possible together
    with level loads (see `taskplace.assign.stateless`).

    A task stays if no other instance is cheaper. Returns None if the racks of instances or of stateless tasks are not
    known. Cost: a network of stateless tasks * (racks + 1) arcs.
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
        place = _StatelessNearInput(c, active, known, costs(config), shares, alike=alike).solve()
        if place is not None:
            return place
    return None


class _StatelessNearInput:
    """The network of stateless tasks: task -> (group, instance), or task -> (group, rack) -> (group, instance); and
    (group, instance) -> instance -> sink.

    - `known`: [m] the rack of each instance, and [n, racks] reads across racks
    - `costs`: the prices of such a read and of a move
    - `alike`: each subtopology is a group, and its shares are met. Otherwise all tasks are one group
    """

    def __init__(
        self,
        c: Columns,
        active: Ints,
        known: tuple[Ints, Ints],
        costs: tuple[int, int],
        shares: StatelessShares,
        *,
        alike: bool,
    ) -> None:
        self.c, self.active, self.shares, self.alike = c, active, shares, alike
        self.rack_of, self.reads = known
        self.traffic, self.move = costs
        self.tasks = np.flatnonzero(~c.stateful)
        count, self.racks = len(self.tasks), self.reads.shape[1]
        self.group = np.searchsorted(shares.subs, c.sub[self.tasks]) if alike else np.zeros(count, np.int64)
        groups = len(shares.subs) if alike else 1
        self.net = Network()
        self.node = self.net.nodes(count)
        self.hub = self.net.nodes(groups * self.racks).reshape(groups, self.racks)
        self.pair = self.net.nodes(groups * c.m).reshape(groups, c.m)
        self.inst, self.sink = self.net.nodes(c.m), self.net.nodes(1)

    def solve(self) -> Ints | None:
        """Return `active` completed by the stateless tasks; None if the shares cannot be met."""
        stays, roam = self._task_arcs()
        entry = self._shared_arcs()
        self.net.supply(self.node, 1)
        self.net.supply(self.sink, -len(self.tasks))
        flow = self.net.solve()
        if flow is None:
            return None
        place = self.active.copy()
        stays.seat(flow, place)
        row, rack = np.nonzero(flow[roam].reshape(len(self.tasks), self.racks))
        self._seat_roamers(row, rack, flow[entry].reshape(len(self.pair), -1), place)
        return place

    def _task_arcs(self) -> tuple[Ways, slice]:
        """Add the arcs of the tasks. Return those to their own instances, and those to the racks ([tasks, racks])."""
        c, net, tasks, traffic = self.c, self.net, self.tasks, self.traffic
        most = int(self.reads[tasks].max()) * traffic + self.move + 1
        # A level below the price: of equally priced instances, a task's own.
        fine = max(1, min(len(tasks) + 1, cost_budget(int(self.sink[0]) + 1) // most))
        owner = c.owner[tasks]
        here = np.flatnonzero(c.open_slots[owner] * (owner >= 0) > 0)
        at = owner[here]
        price = fine * traffic * self.reads[tasks[here], self.rack_of[at]]
        stay = net.arcs(self.node[here], self.pair[self.group[here], at], 1, price)
        leaves = (owner >= 0).astype(np.int64)
        price = fine * (traffic * self.reads[tasks] + (self.move * leaves)[:, None]) + leaves[:, None]
        roam = net.arcs(np.repeat(self.node, self.racks), self.hub[self.group], 1, price)
        return Ways(tasks[here], at, stay), roam

    def _shared_arcs(self) -> slice:
        """Add the arcs from racks to instances, and the bounds on instances. Return the former."""
        net, shares, count = self.net, self.shares, len(self.tasks)
        places = shares.places
        pair, inst = self.pair[:, places], self.inst[places]
        entry = net.arcs(self.hub[:, self.rack_of[places]], pair, count, 0)
        low, high = shares.low, shares.high
        inst_of_pair = np.broadcast_to(inst, pair.shape)
        if self.alike:
            most, least = shares.cell_high[:, places], shares.cell_low[:, places]
            net.arcs(pair, inst_of_pair, most, 0, low=least)
            low, high = np.maximum(low, shares.kind_low), np.minimum(high, shares.kind_high)
        else:
            net.arcs(pair, inst_of_pair, count, 0)
        net.arcs(inst, self.sink.repeat(len(places)), high[places], 0, low=low[places])
        return entry

    def _seat_roamers(self, row: Ints, rack: Ints, into: Ints, place: Ints) -> None:
        """Write the instances of the tasks that go through a rack into `place`: task tasks[row[k]] goes to rack[k].

        `into`: [groups, instances] the number of tasks that the flow sends to each.
        """
        places, group = self.shares.places, self.group
        order = np.lexsort((row, rack, group[row]))
        row, rack = row[order], rack[order]
        for g, r in sorted(set(zip(group[row].tolist(), rack.tolist(), strict=True))):
            of_rack = self.rack_of[places] == r
            mine = row[(group[row] == g) & (rack == r)]
            place[self.tasks[mine]] = np.repeat(places[of_rack], into[g][of_rack])


class _RackNodes(NamedTuple):
    """The node numbers; -1 for tasks without a node."""

    hub: Ints
    """[subtopologies, racks]"""
    pair: Ints
    """[subtopologies, m]"""
    inst: Ints
    """[m]"""
    sink: Ints
    """[1]"""
    task: Ints
    """[n]"""


class _NearInput(Placement):
    """The flow of actives with a price on reads across racks, and an "anywhere" node for each (subtopology, rack)."""

    def __init__(self, c: Columns, base: Ints, config: PlacementConfig, rack_of: Ints, reads: Ints) -> None:
        super().__init__(c, base)
        self.rack_of, self.reads = rack_of, reads
        self.traffic_cost, self.move_cost, self.common = reduced_costs(config)
        if config.rack_aware_assignment_strategy == "min_traffic":
            self.low = np.zeros_like(self.low)
            self.high = np.where(c.open_slots > 0, len(self.tasks), 0) * np.ones_like(self.high)

    def solve_once(self) -> Ints | None:
        """Return [n] the instance of every stateful task, or None if parked pairs leave no balanced placement."""
        c, tasks = self.c, self.tasks
        places = np.flatnonzero(c.open_slots > 0)
        net = Network()
        nodes = self._rack_nodes(net)
        cost, read = self._costs(int(nodes.task.max(initial=0)) + 2)
        entry = self._rack_balances(net, nodes, places)
        net.supply(nodes.task[tasks], 1)
        net.supply(nodes.sink, -len(tasks))
        ways = self._direct_arcs(net, nodes, cost, read)
        free = tasks[~np.isin(tasks, c.barred // c.m)]
        racks = self.reads.shape[1]
        roamer, rack = np.repeat(free, racks), np.tile(np.arange(racks), len(free))
        price = cost.roam(roamer, self.base) + read[roamer, rack]
        roam = net.arcs(nodes.task[roamer], nodes.hub[c.sub[roamer], rack], 1, price)
        far = self._parked_arcs(net, nodes, cost, read, places)
        flow = net.solve()
        if flow is None:
            return None
        place = np.full(c.n, -1, np.int64)
        for way in (*ways, far):
            way.seat(flow, place)
        seats = flow[entry].reshape(self.s_count, len(places))
        wandering, into = roamer[flow[roam] > 0], rack[flow[roam] > 0]
        for r in range(racks):
            here = self.rack_of[places] == r
            self.seat_wanderers(wandering[into == r], seats[:, here], places[here], place)
        return place

    def _rack_nodes(self, net: Network) -> _RackNodes:
        """Add the nodes of the network."""
        c, racks = self.c, self.reads.shape[1]
        hub = net.nodes(self.s_count * racks).reshape(self.s_count, racks)
        pair = net.nodes(self.s_count * c.m).reshape(self.s_count, c.m)
        inst, sink = net.nodes(c.m), net.nodes(1)
        task = np.full(c.n, -1, np.int64)
        task[self.tasks] = net.nodes(len(self.tasks))
        return _RackNodes(hub=hub, pair=pair, inst=inst, sink=sink, task=task)

    def _costs(self, nodes: int) -> tuple[ActiveCosts, Ints]:
        """Return the costs of a network with that many nodes, and [n, racks] the costs of reads across racks.

        Errors: `ConfigError` if the costs do not fit below 2^63; it names the largest `traffic_cost` that does.
        """
        count = len(self.tasks)
        dearest = int(self.reads.max(initial=0))
        most = dearest * self.traffic_cost + max(self.move_cost, 1)
        cost = ActiveCosts(self.c, count, nodes, share=most)
        if not cost.fits:
            largest = (cost_budget(nodes) // (4 * count + 4) - self.move_cost) // max(dearest, 1)
            raise ConfigError(
                "config.rack.aware.assignment.traffic_cost",
                found=self.traffic_cost * self.common,
                expected=f"at most {max(largest, 0) * self.common} for {count} tasks with up to {dearest} partitions "
                "to read from other racks",
            )
        read = cost.move * self.traffic_cost * self.reads
        cost.move *= self.move_cost
        return cost, read

    def _rack_balances(self, net: Network, nodes: _RackNodes, places: Ints) -> slice:
        """Add the bounds on (subtopology, instance) and on instances, and the arcs from racks. Return the latter."""
        pair, inst = nodes.pair[:, places], nodes.inst[places]
        inst_of_pair = np.broadcast_to(inst, pair.shape)
        net.arcs(pair, inst_of_pair, self.high[:, places], 0, low=self.low[:, places])
        sink = nodes.sink.repeat(len(places))
        net.arcs(inst, sink, self.total_high[places], 0, low=self.total_low[places])
        return net.arcs(nodes.hub[:, self.rack_of[places]], pair, len(self.tasks), 0)

    def _direct_arcs(
        self, net: Network, nodes: _RackNodes, cost: ActiveCosts, read: Ints
    ) -> tuple[Ways, ...]:
        """Add the arcs of tasks to their homes and to the instances with their copies."""
        c = self.c
        homes = self.tasks[self.home[self.tasks] >= 0]
        at_home = self.home[homes]
        near = read[homes, self.rack_of[at_home]]
        stay = net.arcs(nodes.task[homes], nodes.pair[c.sub[homes], at_home], 1, near)
        rows = self.usable_rows()
        task, inst = c.task[rows], c.inst[rows]
        price = cost.rows(rows, self.base) + read[task, self.rack_of[inst]]
        go = net.arcs(nodes.task[task], nodes.pair[c.sub[task], inst], 1, price)
        return Ways(homes, at_home, stay), Ways(task, inst, go)

    def _parked_arcs(
        self, net: Network, nodes: _RackNodes, cost: ActiveCosts, read: Ints, places: Ints
    ) -> Ways:
        """Add the arcs of tasks with parked copies to all instances but those where they are parked."""
        c = self.c
        parked = np.unique(c.barred // c.m)
        task, at = self.everywhere_but_parked(parked[c.stateful[parked]], places)
        price = cost.roam(task, self.base) + read[task, self.rack_of[at]]
        return Ways(task, at, net.arcs(nodes.task[task], nodes.pair[c.sub[task], at], 1, price))
