"""Places the active copies of stateful tasks: a minimum-cost flow.

    task -> (subtopology, instance) -> instance -> sink
    task -> anywhere(subtopology) -> (subtopology, instance)

The bounds on (subtopology, instance) and on instance -> sink are the two balances (`taskplace.model.shares`). The costs
(`ActiveCosts`) prefer, each strictly before the next: the fewest moves, the fewest new copies, the least lag. Fixed
weights of tasks and of (subtopology, instance) pairs break ties, so the target stays the same while the cluster works
towards it.

Whether a place is a move depends on the task's `Base` (`taskplace.model.placement`).

Size: linear in tasks + copies. A task has an arc to each instance with a copy of it, and one to "anywhere". Three
reductions keep the network small without changing the optimum:
- tasks of one (subtopology, owner) without a better place than "anywhere" are interchangeable and share one node;
- no arc leads into a (subtopology, instance) that is full of tasks that may stay: the task that enters and one of those
  would only change places;
- no arc leads a task away from a (subtopology, instance) that has no task to spare, for the same reason.

Source: KIP-441 (assignment, balance); the exact flow is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taskplace.model.flow import Network, cost_budget
from taskplace.model.placement import FIXED, OPEN, moved
from taskplace.model.problem_columns import NONE, WARMUP, Columns, Ints, group_starts
from taskplace.model.shares import floors_and_ceilings

STILL = 20_000
"""Up to this number of nodes, costs do not depend on which tasks have their own node."""


@dataclass(frozen=True, slots=True)
class ActiveTarget:
    """The target of actives: the instance of every stateful task.

    - `place`: [n] instance of every stateful task, -1 for others
    - `base`: [n] the `Base` of each task
    - `moves`: tasks that leave their base
    - `lower_bound`: the cost of the flow in whole moves; no target has fewer
    - `balanced`: whether both balances could be met
    """

    place: Ints
    base: Ints
    moves: int
    lower_bound: int
    balanced: bool = True


def place_actives(c: Columns, base: Ints) -> ActiveTarget:
    """Return the target of all stateful tasks; `base`: [n] their bases. One solve of a network of tasks + copies.

    Parked pairs (see `taskplace.refine.parking`) are not used. If the balances cannot be met without them, the target
    comes as close to the balances as possible, and `balanced` is False.
    """
    return Placement(c, base).solve()


class Ways(NamedTuple):
    """Arcs from tasks to instances, [k]. A task whose unit flows through one of them is placed on its instance."""

    task: Ints
    inst: Ints
    arcs: slice

    def seat(self, flow: Ints, place: Ints) -> None:
        """Write the instances of the tasks that `flow` sends through these arcs into `place` ([n])."""
        used = flow[self.arcs] > 0
        place[self.task[used]] = self.inst[used]


class _Nodes(NamedTuple):
    """The node numbers; -1 where there is no node."""

    anywhere: Ints
    """[subtopologies]"""
    pair: Ints
    """[subtopologies, m]"""
    inst: Ints
    """[m]"""
    sink: Ints
    """[1]"""
    task: Ints
    """[n]"""


class _OwnArcs(NamedTuple):
    """The arcs of tasks with their own node: `ways` to instances, and `roam` from the `roaming` tasks to anywhere."""

    ways: tuple[Ways, ...]
    roaming: Ints
    roam: slice


class _Crowd(NamedTuple):
    """Tasks without their own node: `settled` ones at home, in groups of equal price, and `roaming` ones at anywhere.

    `first`: the start of each group. `leave`: one arc per group, from home to anywhere.
    """

    settled: Ints
    roaming: Ints
    first: Ints
    leave: slice

    def wanderers(self, flow: Ints) -> Ints:
        """Return the tasks that go to anywhere: all roaming ones, and of each group the first ones that leave."""
        leavers = [self.settled[f : f + k] for f, k in zip(self.first, flow[self.leave], strict=True) if k]
        return np.concatenate([self.roaming, *leavers])


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
        # The owners with open slots, of tasks that may stay without a move.
        self.home = np.where((base == FIXED) & c.stateful & (c.open_slots[c.owner] > 0), c.owner, -1)
        at_home = self.tasks[self.home[self.tasks] >= 0]
        self.settled = np.zeros(shape, np.int64)
        np.add.at(self.settled, (c.sub[at_home], self.home[at_home]), 1)

    def solve(self) -> ActiveTarget:
        """Return the optimum. If parked pairs leave no balanced placement, return the one nearest to both balances."""
        c = self.c
        place = np.full(c.n, -1, np.int64)
        if not len(self.tasks):
            return ActiveTarget(place, self.base, moves=0, lower_bound=0)
        rows = self._useful_rows()
        for slack in (False, True):
            best = self._flow(rows, slack=slack)
            if best is not None:
                place[self.tasks] = best[self.tasks]
                moves = int(moved(c, self.base, place).sum())
                return ActiveTarget(
                    place,
                    self.base,
                    moves=moves,
                    lower_bound=min(moves, self.lower_bound),
                    balanced=not slack,
                )
        raise AssertionError("a network with slack always has a flow")

    def usable_rows(self) -> Ints:
        """Return the copy rows that an active may go to."""
        c = self.c
        usable = (
            c.stateful[c.task] & (c.open_slots[c.inst] > 0) & (c.caught | (c.lag >= 0) | (c.role != NONE))
        )
        usable &= ~c.universal[c.task]
        if len(c.barred):
            usable &= ~np.isin(c.task * c.m + c.inst, c.barred)
        return np.flatnonzero(usable)

    def _useful_rows(self) -> Ints:
        """Return the usable copy rows that need their own arc."""
        c = self.c
        usable = np.zeros(len(c.task), np.bool_)
        usable[self.usable_rows()] = True
        sub = c.sub[c.task]
        # [subtopologies, m] usable copies of tasks that are not fixed to their owner.
        loose = np.zeros_like(self.settled)
        free = usable & (self.base[c.task] != FIXED)
        np.add.at(loose, (sub[free], c.inst[free]), 1)
        home = self.home[c.task]
        full = self.settled[sub, c.inst] >= self.high[sub, c.inst]
        spare = self.settled[sub, home] + loose[sub, home] > self.low[sub, home]
        fixed_ok = ~full & (home != c.inst) & ((home < 0) | spare)
        useful = usable & np.where(self.base[c.task] == FIXED, fixed_ok, True)
        return np.flatnonzero(useful)

    def _flow(self, rows: Ints, *, slack: bool) -> Ints | None:
        """Return [n] the instance of every stateful task at the least cost, or None if the bounds cannot be met.

        `rows`: the copy rows with their own arc. `slack`: the balances may be missed, at a price above any move.
        """
        places = np.flatnonzero(self.c.open_slots > 0)
        parked = np.unique(self.c.barred // self.c.m)
        parked = parked[self.c.stateful[parked]]
        alone = np.unique(np.concatenate([self.c.task[rows], parked]))
        net = Network()
        nodes = self._nodes(net, places, alone)
        cost = ActiveCosts(
            self.c,
            len(self.tasks),
            node_count=int(nodes.task.max(initial=int(nodes.sink[0]))) + 2,
            share=2 * self.c.m + 2 if slack else 1,
        )
        entry = self._balances(net, nodes, places, cost, slack=slack)
        own = self._own_arcs(net, nodes, cost, rows=rows, alone=alone, parked=parked, places=places)
        crowd = self._crowd_arcs(net, nodes, cost, alone)
        flow = net.solve()
        if flow is None:
            return None
        place = np.full(self.c.n, -1, np.int64)
        place[crowd.settled] = self.home[crowd.settled]
        for way in own.ways:
            way.seat(flow, place)
        wanderers = np.sort(np.concatenate([crowd.wanderers(flow), own.roaming[flow[own.roam] > 0]]))
        self.seat_wanderers(wanderers, flow[entry].reshape(self.s_count, len(places)), places, place)
        # The network supplies these tasks directly at anywhere, so its cost lacks their moves.
        unpriced = int((self.base[crowd.roaming] != OPEN).sum())
        self.lower_bound = net.cost // cost.move + unpriced
        return place

    def _nodes(self, net: Network, places: Ints, alone: Ints) -> _Nodes:
        """Add the nodes of the network; `alone`: the tasks with their own node."""
        c, s_count = self.c, self.s_count
        anywhere = net.nodes(s_count)
        pair = np.full((s_count, c.m), -1, np.int64)
        pair[:, places] = net.nodes(s_count * len(places)).reshape(s_count, len(places))
        inst = np.full(c.m, -1, np.int64)
        inst[places] = net.nodes(len(places))
        sink = net.nodes(1)
        task = np.full(c.n, -1, np.int64)
        task[alone] = net.nodes(len(alone))
        return _Nodes(anywhere=anywhere, pair=pair, inst=inst, sink=sink, task=task)

    def _balances(
        self, net: Network, nodes: _Nodes, places: Ints, cost: ActiveCosts, *, slack: bool
    ) -> slice:
        """Add the arcs that all tasks share. Return those from anywhere.

        They are (subtopology, instance) -> instance -> sink, bounded by both balances, and anywhere -> (subtopology,
        instance).
        """
        count = len(self.tasks)
        pair = nodes.pair[:, places]
        inst = nodes.inst[places]
        inst_of_pair = np.broadcast_to(inst, pair.shape)
        sink = nodes.sink.repeat(len(places))
        net.arcs(pair, inst_of_pair, self.high[:, places].ravel(), 0, low=self.low[:, places].ravel())
        net.arcs(inst, sink, self.total_high[places], 0, low=self.total_low[places])
        if slack:  # the last resort if pairs are parked
            net.arcs(pair, inst_of_pair, count, cost.miss)
            net.arcs(inst_of_pair, pair, count, cost.miss)
            net.arcs(inst, sink, count, cost.miss)
            net.arcs(sink, inst, count, cost.miss)
        number = np.arange(self.s_count * self.c.m).reshape(self.s_count, self.c.m)[:, places]
        most = count if slack else self.high[:, places].ravel()
        entry = net.arcs(np.repeat(nodes.anywhere, len(places)), pair, most, cost.tie(number).ravel())
        net.supply(nodes.sink, -count)
        return entry

    def _own_arcs(
        self,
        net: Network,
        nodes: _Nodes,
        cost: ActiveCosts,
        *,
        rows: Ints,
        alone: Ints,
        parked: Ints,
        places: Ints,
    ) -> _OwnArcs:
        """Add the arcs of tasks with their own node: to their home, to instances with a copy, and to anywhere.

        Tasks with parked copies have no arc to anywhere. They have one to each instance where they are not parked.
        """
        c = self.c
        net.supply(nodes.task[alone], 1)
        homes = alone[self.home[alone] >= 0]
        at_home = self.home[homes]
        stay = net.arcs(nodes.task[homes], nodes.pair[c.sub[homes], at_home], 1, 0)
        task, inst = c.task[rows], c.inst[rows]
        go = net.arcs(nodes.task[task], nodes.pair[c.sub[task], inst], 1, cost.rows(rows, self.base))
        free = alone[~np.isin(alone, parked)]
        roam = net.arcs(nodes.task[free], nodes.anywhere[c.sub[free]], 1, cost.roam(free, self.base))
        wide, at = self.everywhere_but_parked(parked, places)
        reach = net.arcs(nodes.task[wide], nodes.pair[c.sub[wide], at], 1, cost.roam(wide, self.base))
        ways = (Ways(homes, at_home, stay), Ways(task, inst, go), Ways(wide, at, reach))
        return _OwnArcs(ways=ways, roaming=free, roam=roam)

    def _crowd_arcs(self, net: Network, nodes: _Nodes, cost: ActiveCosts, alone: Ints) -> _Crowd:
        """Supply the tasks without their own node: at home, which the cheapest leave first, or at anywhere."""
        c = self.c
        crowd = self.tasks[~np.isin(self.tasks, alone)]
        settled = crowd[self.home[crowd] >= 0]
        roaming = crowd[self.home[crowd] < 0]
        net.supply(nodes.pair[c.sub[settled], self.home[settled]], 1)
        net.supply(nodes.anywhere[c.sub[roaming]], 1)
        price = cost.roam(settled, self.base)
        order = np.lexsort((settled, price, self.home[settled], c.sub[settled]))
        settled, price = settled[order], price[order]
        first = group_starts(c.sub[settled], self.home[settled], price)
        size = np.diff(np.r_[first, len(settled)])
        one = settled[first]  # one task of each group; a group has one pair and one price
        leave = net.arcs(
            nodes.pair[c.sub[one], self.home[one]], nodes.anywhere[c.sub[one]], size, price[first]
        )
        return _Crowd(settled=settled, roaming=roaming, first=first, leave=leave)

    def everywhere_but_parked(self, parked_task: Ints, places: Ints) -> tuple[Ints, Ints]:
        """Return the (task, instance) pairs that tasks with parked copies may go to, without their homes."""
        c = self.c
        task = np.repeat(parked_task, len(places))
        at = np.tile(places, len(parked_task))
        keep = ~np.isin(task * c.m + at, c.barred) & (self.home[task] != at)
        return task[keep], at[keep]

    def seat_wanderers(self, wanderers: Ints, seats: Ints, places: Ints, place: Ints) -> None:
        """Give the tasks that go to anywhere the seats of their subtopology, both in canonical order.

        The order keeps the pairs stable: when some of the tasks have moved, the others get the same instances again.
        """
        c = self.c
        by_sub = wanderers[np.argsort(c.sub[wanderers], kind="stable")]
        place[by_sub] = np.repeat(np.tile(places, len(seats)), seats.ravel())


class ActiveCosts:
    """Costs in levels: a move outweighs all new copies together, and a new copy outweighs all levels below it.

    The lower levels, in this order:
    - copies that warm up now come before others, so that the target stays the same while a copy warms up;
    - steps of lag;
    - ties, which fixed weights of tasks and places break, also so that the target stays the same.

    All levels must fit below 2^63, so the lower ones are coarser in larger problems. In the largest problems, only
    moves are distinguished. `fits` is False if even that is impossible.
    """

    def __init__(self, c: Columns, tasks: int, node_count: int, *, share: int = 1) -> None:
        self.c = c
        self.fits = True
        self.scale = max(int(c.end[c.stateful].max(initial=0)), 1)
        # Up to STILL, count a node for every task: then the levels stay the same when tasks get or lose their node.
        most = tasks + (len(c.subtopologies) + 1) * (c.m + 1)
        budget = cost_budget(max(node_count, min(most, STILL))) // share  # for the costs of moves
        # The budget of the levels below a copy: two factors of `tasks` are reserved for copies and for moves.
        grain = max(3, budget // (4 * tasks * tasks + 4))
        if budget // (4 * tasks * tasks + 4) < 3:
            self._coarse(tasks, budget)
            return
        edge = grain ** (1 / 3)
        weight = int(min(tasks, max(1, edge)))
        self.bits = int(min(12, math.log2(max(1, edge / 2))))
        self.ties = 1 << self.bits
        self.unit = 2 * self.ties  # one step of lag: more than the two ties of an arc together
        self.steps = int(min(1024, max(1, grain // (weight * self.unit) - 4)))
        self.begun = (self.steps + 1) * self.unit * weight
        self.copy = (self.begun + (self.steps + 2) * self.unit) * tasks + 1
        self.move = 2 * self.copy * (tasks + 1)
        self.miss = self.move * (2 * c.m + 1)

    def _coarse(self, tasks: int, budget: int) -> None:
        """Set coarse levels, where finer ones do not fit: all levels below a move together cost less than one move."""
        self.bits, self.ties, self.unit, self.steps = 0, 1, 0, 1
        self.begun, self.copy = 1, 2
        self.move = 4 * (tasks + 1)
        self.miss = self.move * (2 * self.c.m + 1)
        self.fits = self.move <= budget

    def lag(self, lag: Ints) -> Ints:
        """Return the cost of a lag, in steps, rounded up. An unknown lag costs the most steps."""
        steps = np.ceil(np.minimum(lag / self.scale, 1.0) * self.steps).astype(np.int64)
        return np.where(lag < 0, self.steps, steps) * self.unit

    def rows(self, rows: Ints, base: Ints) -> Ints:
        """Return the costs of going to the instances of copy rows."""
        c = self.c
        kind = base[c.task[rows]]
        moved = np.where((kind != OPEN) & ((kind == FIXED) | ~c.best[rows]), self.move, 0)
        warm = c.role[rows] == WARMUP
        fresh = np.where(c.best[rows] | (c.role[rows] != NONE) | (kind == OPEN), 0, self.copy)
        other = np.where(warm, 0, self.begun)
        # If any lag is acceptable, all copies count as caught up. They still have to restore their lag, so it costs.
        near = c.caught[rows] & (not c.unbounded)
        behind = np.where(near, 0, self.lag(c.lag[rows])) + np.where(c.best[rows], 0, fresh)
        # A warm-up's progress does not count, so that warm-ups rank among each other as they did before they began.
        behind = np.where(warm, self.lag(c.end[c.task[rows]]) + self.unit, behind)
        pair = c.sub[c.task[rows]] * c.m + c.inst[rows]
        total: Ints = moved + behind + other + self.tie(c.task[rows]) + self.tie(pair)
        return total

    def roam(self, tasks: Ints, base: Ints) -> Ints:
        """Return the costs of going to an instance without a copy."""
        c = self.c
        moved = np.where(base[tasks] == OPEN, 0, self.move)
        made = (base[tasks] != OPEN) | c.unbounded
        fresh = np.where(made, self.copy, 0) + self.lag(c.end[tasks]) + self.unit
        return moved + np.where(c.universal[tasks], 0, fresh) + self.begun + self.tie(tasks)

    def tie(self, index: Ints) -> Ints:
        """Return fixed pseudo-random weights below `ties` for these numbers. Their order is the same for any `ties`."""
        mixed = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        out: Ints = (mixed >> np.uint64(32) >> np.uint64(32 - self.bits)).astype(np.int64)
        return out
