"""Where the active copies of stateful tasks belong: a minimum-cost flow.

    task -> (subtopology, instance) -> instance -> sink
    task -> anywhere(subtopology) -> (subtopology, instance)

The bounds on (subtopology, instance) and on instance -> sink are the two balances (see `shares`); the costs
prefer, each strictly before the next, as few moves as possible, then as few new copies as possible, then
the least lag. A tie is broken by a fixed weight of the (subtopology, instance) pair, so that the target
holds still while the cluster works towards it.

What counts as a move depends on a task's *base*: see `taskplace.model.placement`.

Shapes: n stateful tasks, arcs only to instances that hold a copy, plus one for anywhere: linear in tasks +
copies. Tasks of one (subtopology, owner) that have no better place than "anywhere" are interchangeable and
share one node. Two kinds of arcs are left out since no optimum uses them, by exchanging the two tasks
concerned: into a (subtopology, instance) that is full with tasks of its own, and out of one that has none
to spare.

Source: KIP-441 (assignment, balance); the exact flow is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskplace.assign.active_costs import ActiveCosts
from taskplace.assign.flow import Network
from taskplace.model.columns import NONE, Columns, Ints
from taskplace.model.placement import FIXED, OPEN, moved
from taskplace.model.shares import floors_and_ceilings


@dataclass(frozen=True, slots=True)
class ActiveTarget:
    """`place`: [n] instance of every stateful task, -1 for others. `base`: [n] FIXED, FORCED or OPEN.

    `moves`: tasks that leave their base; `lower_bound`: the cost of the flow in whole moves, which no other
    target can undercut. `balanced`: whether both balances could be met.
    """

    place: Ints
    base: Ints
    moves: int
    lower_bound: int
    balanced: bool = True


def place_actives(c: Columns, base: Ints) -> ActiveTarget:
    """Return the target of all stateful tasks, whose `bases` are given. O(solve) of a network linear in
    tasks + copies.

    Parked pairs (see `taskplace.refine.parking`) are not used; if the balances cannot be met without them,
    they are met as far as they can be, and `balanced` is False.
    """
    return Placement(c, base).solve()


class Placement:
    """The flow network of one problem; `taskplace.assign.rack_actives` builds another from the same parts."""

    def __init__(self, c: Columns, base: Ints) -> None:
        self.c, self.base = c, base
        self.lower_bound = 0
        self.tasks = np.flatnonzero(c.stateful)
        self.s_count = len(c.subtopologies)
        self.total_low, self.total_high = floors_and_ceilings(len(self.tasks), c.open_slots)
        per_sub = np.bincount(c.sub[self.tasks], minlength=self.s_count)
        bounds = [floors_and_ceilings(int(p), c.open_slots) for p in per_sub]
        shape = (self.s_count, c.m)
        self.low = np.array([b[0] for b in bounds], np.int64).reshape(shape)
        self.high = np.array([b[1] for b in bounds], np.int64).reshape(shape)
        # Tasks that are at home where there is room: they may stay without a move.
        self.home = np.where((base == FIXED) & c.stateful & (c.open_slots[c.owner] > 0), c.owner, -1)
        at_home = self.tasks[self.home[self.tasks] >= 0]
        self.settled = np.zeros(shape, np.int64)
        np.add.at(self.settled, (c.sub[at_home], self.home[at_home]), 1)

    def solve(self) -> ActiveTarget:
        """Return the optimum; beside parked copies, as near to both balances as can be."""
        c = self.c
        place = np.full(c.n, -1, np.int64)
        if not len(self.tasks):
            return ActiveTarget(place, self.base, 0, 0)
        rows = self._useful_rows()
        for slack in (False, True):
            found = self._flow(rows, slack)
            if found is not None:
                place[self.tasks] = found[self.tasks]
                moves = int(moved(c, self.base, place).sum())
                return ActiveTarget(place, self.base, moves, min(moves, self.lower_bound), not slack)
        raise AssertionError("a network with slack always has a flow")

    def usable_rows(self) -> Ints:
        """Return the copy rows where an active could go."""
        c = self.c
        usable = (
            c.stateful[c.task] & (c.open_slots[c.inst] > 0) & (c.caught | (c.lag >= 0) | (c.role != NONE))
        )
        usable &= ~c.universal[c.task]
        if len(c.parked):
            usable &= ~np.isin(c.task * c.m + c.inst, c.parked)
        return np.flatnonzero(usable)

    def _useful_rows(self) -> Ints:
        """Return the usable copy rows that deserve an arc of their own."""
        c = self.c
        usable = np.zeros(len(c.task), np.bool_)
        usable[self.usable_rows()] = True
        sub = c.sub[c.task]
        # (subtopology, instance) pairs that tasks without a base may settle on at no cost.
        loose = np.zeros_like(self.settled)
        free = usable & (self.base[c.task] != FIXED)
        np.add.at(loose, (sub[free], c.inst[free]), 1)
        home = self.home[c.task]
        full = self.settled[sub, c.inst] >= self.high[sub, c.inst]
        spare = self.settled[sub, home] + loose[sub, home] > self.low[sub, home]
        fixed_ok = ~full & (home != c.inst) & ((home < 0) | spare)
        useful = usable & np.where(self.base[c.task] == FIXED, fixed_ok, True)
        return np.flatnonzero(useful)

    def _flow(self, rows: Ints, slack: bool) -> Ints | None:
        c, m, s_count = self.c, self.c.m, self.s_count
        parked_task = np.unique(c.parked // m)
        parked_task = parked_task[c.stateful[parked_task]]
        alone = np.unique(np.concatenate([c.task[rows], parked_task]))  # tasks with a node of their own
        is_alone = np.zeros(c.n, np.bool_)
        is_alone[alone] = True
        places = np.flatnonzero(c.open_slots > 0)
        net = Network()
        anywhere = net.nodes(s_count)
        pair = np.full((s_count, m), -1, np.int64)
        pair[:, places] = net.nodes(s_count * len(places)).reshape(s_count, len(places))
        seat = np.full(m, -1, np.int64)
        seat[places] = net.nodes(len(places))
        sink = net.nodes(1)
        node = np.full(c.n, -1, np.int64)
        node[alone] = net.nodes(len(alone))
        cost = ActiveCosts(
            c,
            len(self.tasks),
            node_count=int(node.max(initial=int(sink[0]))) + 2,
            share=2 * c.m + 2 if slack else 1,
        )

        # (subtopology, instance) -> instance -> sink, and anywhere -> (subtopology, instance)
        grid = pair[:, places]
        owner_of = np.broadcast_to(seat[places], grid.shape)
        net.arcs(grid, owner_of, self.high[:, places].ravel(), 0, low=self.low[:, places].ravel())
        net.arcs(
            seat[places], sink.repeat(len(places)), self.total_high[places], 0, low=self.total_low[places]
        )
        if slack:  # the last resort beside parked pairs: miss a balance, at a price above any move
            many = len(self.tasks)
            net.arcs(grid, owner_of, many, cost.miss)
            net.arcs(owner_of, grid, many, cost.miss)
            net.arcs(seat[places], sink.repeat(len(places)), many, cost.miss)
            net.arcs(sink.repeat(len(places)), seat[places], many, cost.miss)
        entry = net.arcs(
            np.repeat(anywhere, len(places)), grid, self.high[:, places].ravel() if not slack else
            len(self.tasks), cost.tie(np.arange(s_count * m).reshape(s_count, m)[:, places]).ravel(),
        )  # fmt: skip
        net.supply(sink, -len(self.tasks))

        # Tasks with a node: stay at home, go where a copy is, go anywhere.
        net.supply(node[alone], 1)
        homes = alone[self.home[alone] >= 0]
        stay = net.arcs(node[homes], pair[c.sub[homes], self.home[homes]], 1, 0)
        go = net.arcs(
            node[c.task[rows]], pair[c.sub[c.task[rows]], c.inst[rows]], 1, cost.rows(rows, self.base)
        )
        roam_tasks = alone[~np.isin(alone, parked_task)]
        roam = net.arcs(node[roam_tasks], anywhere[c.sub[roam_tasks]], 1, cost.roam(roam_tasks, self.base))
        wide, at = self.everywhere_but_parked(parked_task, places)
        reach = net.arcs(node[wide], pair[c.sub[wide], at], 1, cost.roam(wide, self.base))

        # All others: at home, with the cheapest to go first; or straight to anywhere.
        crowd = self.tasks[~is_alone[self.tasks]]
        settled = crowd[self.home[crowd] >= 0]
        roaming = crowd[self.home[crowd] < 0]
        net.supply(pair[c.sub[settled], self.home[settled]], 1)
        net.supply(anywhere[c.sub[roaming]], 1)
        price = cost.roam(settled, self.base)
        order = np.lexsort((settled, price, self.home[settled], c.sub[settled]))
        settled, price = settled[order], price[order]
        key = np.stack([c.sub[settled], self.home[settled], price])
        first = (
            np.flatnonzero(np.r_[True, (key[:, 1:] != key[:, :-1]).any(axis=0)])
            if len(settled)
            else np.zeros(0, int)
        )
        size = np.diff(np.r_[first, len(settled)])
        leave = net.arcs(
            pair[c.sub[settled[first]], self.home[settled[first]]],
            anywhere[c.sub[settled[first]]],
            size,
            price[first],
        )
        flow = net.solve()
        if flow is None:
            return None

        place = np.full(c.n, -1, np.int64)
        place[settled] = self.home[settled]
        place[homes[flow[stay] > 0]] = self.home[homes[flow[stay] > 0]]
        used = rows[flow[go] > 0]
        place[c.task[used]] = c.inst[used]
        place[wide[flow[reach] > 0]] = at[flow[reach] > 0]
        # Tasks that had no choice but to roam were given to the solver without their price.
        self.lower_bound = net.cost // cost.move + int((self.base[roaming] != OPEN).sum())
        leavers = np.concatenate(
            [settled[f : f + k] for f, k in zip(first, flow[leave], strict=True) if k] or [roaming[:0]]
        )
        wanderers = np.sort(np.concatenate([roaming, leavers, roam_tasks[flow[roam] > 0]]))
        self.seat_wanderers(wanderers, flow[entry].reshape(s_count, len(places)), places, place)
        return place

    def everywhere_but_parked(self, parked_task: Ints, places: Ints) -> tuple[Ints, Ints]:
        """Return the (task, instance) pairs that tasks with parked copies may roam to."""
        c = self.c
        task = np.repeat(parked_task, len(places))
        at = np.tile(places, len(parked_task))
        keep = ~np.isin(task * c.m + at, c.parked) & (self.home[task] != at)
        return task[keep], at[keep]

    def seat_wanderers(self, wanderers: Ints, seats: Ints, places: Ints, place: Ints) -> None:
        """Give tasks that may go anywhere the seats of their subtopology, both in canonical order.

        In order, so that the pairs that remain, once some have been moved, are the same pairs again.
        """
        c = self.c
        by_sub = wanderers[np.argsort(c.sub[wanderers], kind="stable")]
        place[by_sub] = np.repeat(np.tile(places, len(seats)), seats.ravel())
