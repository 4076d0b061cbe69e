"""Places stateless tasks beside the stateful actives: level first, then with as few moves as possible.

    subtopology -> instance -> sink

The criteria, each strictly before the next:

1. the total: every instance has the floor or the ceiling of its share of all actives. An instance with more stateful
   actives than that gets no stateless task, and the others share the rest (`level_loads`);
2. the kind: it has the floor or the ceiling of its share of all stateless tasks;
3. the subtopology: it has the floor or the ceiling of its share of each stateless subtopology;
4. as few tasks as possible leave their instance. Placing a task that runs nowhere is not a move;
5. as many tasks as possible go to their instance in `toward`.

The total is always met. If the other shares cannot be met, the sum of the distances from them is minimised: for the
kind first, then for the subtopologies. Instances of equal capacity with level stateful actives can meet all three: an
instance has one of two numbers of stateful actives, so it is enough to deal the remaining tasks to those with fewer,
one subtopology after the other. With unequal capacities this may be impossible. It may also be impossible in a step,
where the stateful actives can be anywhere.

Tasks of one subtopology on one instance are interchangeable and have no copies. So the network has one node per
subtopology and per instance, and one arc for each stretch of equal cost between them. If the assignment in force is
level already, no solver runs.

Non-goals: weights (`taskplace.assign.weights` levels those of stateful tasks), racks (`taskplace.assign.rack_actives`).
Cost: O(tasks + subtopologies * instances) if nothing moves, else flows over a small multiple of subtopologies *
instances arcs.

Source: KIP-441 (stateless tasks must be assigned as well; balance of tasks and of subtopologies).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taskplace.model.flow import Network, cost_budget
from taskplace.model.problem_columns import Columns, Ints, rank_in_group
from taskplace.model.shares import StatelessShares, stateless_shares


def place_stateless(c: Columns, active: Ints, toward: Ints | None = None) -> Ints:
    """Return `active` completed by the instances of the stateless tasks. Only its stateful entries are read.

    `toward`: [n] the preferred instances of stateless tasks that cannot stay: those of the target.
    """
    tasks = np.flatnonzero(~c.stateful)
    place = active.copy()
    if not len(tasks):
        return place
    owner = c.owner[tasks]
    home = np.where((owner >= 0) & (c.open_slots[owner] > 0), owner, -1)
    shares = stateless_shares(c, active)
    sub = np.searchsorted(shares.subs, c.sub[tasks])
    here = _counted(sub, home, shares.cell_low.shape)
    if (home >= 0).all() and shares.misses(here) == (0, 0, 0):
        place[tasks] = home
        return place
    goal = None if toward is None else toward[tasks]
    near = here * 0 if goal is None else _counted(sub, goal, here.shape)
    place[tasks] = _seated(sub, home, _counts(shares, here, near), goal)
    return place


def _counted(sub: Ints, inst: Ints, shape: tuple[int, ...]) -> Ints:
    """Return the number of tasks of each (subtopology, instance). Tasks at instance -1 are not counted."""
    counts = np.zeros(shape, np.int64)
    some = inst >= 0
    np.add.at(counts, (sub[some], inst[some]), 1)
    return counts


@dataclass(frozen=True, slots=True)
class _Costs:
    """The costs: a distance from the `kind` or `sub` share, a `move`, and missing `near`. Each outweighs all later
    ones.
    """

    kind: int
    sub: int
    move: int
    near: int

    @classmethod
    def of(cls, tasks: int, nodes: int, *, hard_kind: bool, hard_sub: bool) -> _Costs:
        """Return the costs for that many tasks. If they do not fit into 64 bits, `near` is 0."""
        for near in (1, 0):
            move = near * tasks + 1
            sub = 0 if hard_sub else (move + near) * tasks + 1
            kind = 0 if hard_kind else (2 * sub + move + near) * tasks + 1
            if kind + sub + move + near <= cost_budget(nodes):
                break
        return cls(kind=kind, sub=sub, move=move, near=near)


def _counts(shares: StatelessShares, here: Ints, near: Ints) -> Ints:
    """Return [subtopologies, m] the number of tasks that each instance gets.

    The first attempt makes all shares hard bounds, which needs few cost levels. If that fails, missed shares get a
    cost.
    """
    for hard_sub in (True, False) if shares.kind_fits else (False,):
        counts = _flow(shares, here, near, hard_kind=shares.kind_fits, hard_sub=hard_sub)
        if counts is not None:
            return counts
    raise AssertionError("level loads can always be met")


def _flow(shares: StatelessShares, here: Ints, near: Ints, *, hard_kind: bool, hard_sub: bool) -> Ints | None:
    """Return [subtopologies, m] counts of the least cost; None if the hard shares cannot be met."""
    places = shares.places
    of_sub = shares.cell_sum
    net = Network()
    pool, seat, sink = net.nodes(len(of_sub)), net.nodes(len(places)), net.nodes(1)
    tasks = int(of_sub.sum())
    costs = _Costs.of(tasks, len(of_sub) + len(places) + 1, hard_kind=hard_kind, hard_sub=hard_sub)
    cells = _cells(shares, here[:, places], near[:, places], costs, hard_sub=hard_sub)
    carried = net.arcs(pool[cells.row], seat[cells.column], cells.size, cells.cost)
    net.supply(pool, of_sub - cells.fixed.sum(axis=1))
    net.supply(seat, cells.fixed.sum(axis=0))
    _add_loads(net, shares, seat, sink, costs, hard_kind=hard_kind)
    net.supply(sink, -tasks)
    flow = net.solve()
    if flow is None:
        return None
    out = np.zeros_like(here)
    out[:, places] = cells.fixed
    np.add.at(out, (cells.row, places[cells.column]), flow[carried])
    return out


class _Cells(NamedTuple):
    """The arcs from subtopologies to instances, as columns: one arc for each stretch of equal cost.

    - `row`, `column`: the subtopology and the instance of an arc
    - `fixed`: [subtopologies, instances] tasks that a lower bound requires; they are counted and not sent through arcs
    """

    row: Ints
    column: Ints
    size: Ints
    cost: Ints
    fixed: Ints


def _cells(shares: StatelessShares, held: Ints, goal: Ints, costs: _Costs, *, hard_sub: bool) -> _Cells:
    """Return the arcs from subtopologies to instances. The k-th task costs what the stretch that contains k costs.

    `held`, `goal`: [subtopologies, instances] the number of tasks now, and in the target.
    """
    low, high = shares.cell_low[:, shares.places], shares.cell_high[:, shares.places]
    whole = np.broadcast_to(shares.cell_sum[:, None], held.shape)
    ends = np.sort(np.minimum(np.stack([low, high, held, goal, whole]), whole), axis=0)
    begins = np.concatenate([ends[:1] * 0, ends[:-1]])
    cost = np.where(ends <= held, -costs.move, 0) - np.where(ends <= goal, costs.near, 0)
    must = np.zeros_like(ends)
    size = ends - begins
    if hard_sub:
        must = np.where(ends <= low, size, 0)
        size = np.where(begins >= high, 0, size)
    else:
        cost += np.where(begins >= high, costs.sub, 0) - np.where(ends <= low, costs.sub, 0)
    at = np.nonzero(size - must)
    return _Cells(row=at[1], column=at[2], size=size[at], cost=cost[at], fixed=must.sum(axis=0))


def _add_loads(
    net: Network, shares: StatelessShares, seat: Ints, sink: Ints, costs: _Costs, *, hard_kind: bool
) -> None:
    """Add the arcs from instances to the sink, bounded by the total. The kind is a bound (`hard_kind`) or a cost."""
    places = shares.places
    to = sink.repeat(len(places))
    low, high = shares.low[places], shares.high[places]
    kind_low, kind_high = shares.kind_low[places], shares.kind_high[places]
    if hard_kind:
        net.arcs(seat, to, np.minimum(high, kind_high), 0, low=np.maximum(low, kind_low))
        return
    ends = np.sort(np.minimum(np.stack([low, kind_low, kind_high, high]), high), axis=0)
    begins = np.concatenate([ends[:1] * 0, ends[:-1]])
    cost = np.where(begins >= kind_high, costs.kind, 0) - np.where(ends <= kind_low, costs.kind, 0)
    for first, last, each in zip(begins, ends, cost, strict=True):
        must = np.where(last <= low, last - first, 0)
        net.arcs(seat, to, last - first, each, low=must)


def _seated(sub: Ints, home: Ints, counts: Ints, goal: Ints | None) -> Ints:
    """Return the instance of each task: its home while `counts` allows it, else its goal, else any instance.

    Tasks are taken in canonical order. Tasks whose home is their goal come before the others.
    """
    at = np.full(len(sub), -1, np.int64)
    counts = counts.copy()
    m = counts.shape[1]
    stays = np.zeros(len(sub), np.bool_) if goal is None else goal == home
    for wanted in (home, goal):
        if wanted is None:
            continue
        open_ = np.flatnonzero((at < 0) & (wanted >= 0))
        open_ = open_[np.argsort(~stays[open_], kind="stable")]
        group = sub[open_] * m + wanted[open_]
        taken = open_[rank_in_group(group) < counts.ravel()[group]]
        at[taken] = wanted[taken]
        np.add.at(counts, (sub[taken], at[taken]), -1)
    rest = np.flatnonzero(at < 0)
    rest = rest[np.argsort(sub[rest], kind="stable")]
    at[rest] = np.repeat(np.tile(np.arange(m), len(counts)), counts.ravel())
    return at
