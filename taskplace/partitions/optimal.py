"""The exact modes: `fair_sticky`, `sticky_fair` and `fair`.

**Idea.** Partitions with the same possible members are interchangeable, except for their owners. So it is enough to
decide how many partitions of each class a member gets. That is a small minimum-cost flow, class -> member -> sink. Each
(class, member) pair has one arc for the partitions that the member owns, and another for others. The arcs to the sink
have the bounds of `loads`.

The criteria, each strictly before the next, and each exact:

| mode | first | second | third | fourth |
|---|---|---|---|---|
| `fair_sticky` | the best balance score | the fewest moves | the fewest rack misses | the most returns |
| `fair_sticky`, racks first | the best balance score | the fewest rack misses | the fewest moves | the most returns |
| `sticky_fair` | keep all that may stay | the best score then possible | the fewest rack misses | the most returns |
| `fair` | the best balance score | | the fewest rack misses | |

A *return* is a partition that leaves its owner and goes to its previous owner. Returns come last: they save work in one
rebalance, while balance and racks matter until the next. Partitions with the same class, owner and previous owner share
one node.

`deal` decides which partitions a member keeps, and which members get the others. With equal subscriptions, no racks and
no previous owners, there is only one class, and no flow is needed.

Non-goals: weights of partitions. They would make this a bin-packing problem.

Source: KIP-54, "Proposed Changes" and "Alternatives Yet to be Considered".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskplace.errors import TaskplaceError
from taskplace.groups.sticky import Returns, best_loads, deal
from taskplace.groups.subscriptions import Bools, Columns, Ints
from taskplace.model.flow import Network, cost_budget


class Classes(NamedTuple):
    """Classes of interchangeable partitions: the same subscribers and, where it matters, the same racks. K classes."""

    of: Ints
    """[n] the class of each partition; -1 if no member subscribes to its topic."""
    allowed: Bools
    """[K, m] the members that subscribe."""
    misses: Bools
    """[K, m] whether a partition of the class would have no replica in the member's rack."""
    group: Ints
    """[K] the group of each class. Classes with the same subscribers have the same group."""


class Costs(NamedTuple):
    """The cost of one unit of each level. It outweighs all units of the lower levels together. A return saves 1."""

    miss: int
    move: int
    level: int
    """The difference between one unit above a floor and one unit above the next higher floor."""


def fair_sticky(c: Columns, *, racks_first: bool = False) -> Ints:
    """Return [n] the member of each partition, or -1: the best balance, then the fewest moves (see the module's table).

    `racks_first`: minimise rack misses before moves, if racks can differ (`Columns.racks_matter`).
    """
    base = np.zeros(c.m, np.int64)
    return _assign(c, c.keeper, c.previous, base, racks_first=racks_first and c.racks_matter)


def sticky_fair(c: Columns) -> Ints:
    """Return [n] the member of each partition, or -1: members keep all they may; other partitions balance the loads."""
    keeper = c.keeper
    kept = keeper >= 0
    goal = _assign(c, keeper, c.previous, np.bincount(keeper[kept], minlength=c.m))
    return np.where(kept, keeper, goal)


def fair(c: Columns) -> Ints:
    """Return [n] the member of each partition, or -1: the best balance. Present owners are ignored."""
    nobody = np.full(c.n, -1, np.int64)
    return _assign(c, nobody, nobody, np.zeros(c.m, np.int64))


def classes(c: Columns) -> Classes:
    """Return the classes of the partitions. There must be at least one partition."""
    subscribers, group = np.unique(c.subscribed, axis=0, return_inverse=True)
    somebody: Bools = np.asarray(subscribers.any(axis=1))
    group = group.reshape(-1)[c.topic]
    rack_set = c.rack_set if c.misses.any() else 0
    key = np.where(somebody[group], group * len(c.misses) + rack_set, -1)
    keys = np.unique(key)
    keys = keys[keys >= 0]
    of = np.where(key >= 0, np.searchsorted(keys, key), -1)
    group, racks = np.divmod(keys, len(c.misses))
    return Classes(of=of, allowed=subscribers[group], misses=c.misses[racks], group=group)


def _assign(c: Columns, keeper: Ints, previous: Ints, base: Ints, *, racks_first: bool = False) -> Ints:
    """Return the member of each partition. If `base` is not zero, keepers keep all their partitions."""
    if not c.subscribed[np.diff(c.start) > 0].any():
        return np.full(c.n, -1, np.int64)
    settled = bool(base.any())
    k = classes(c)
    count = len(k.group)
    free = (k.of >= 0) & ((keeper < 0) | (not settled))
    supply = np.bincount(k.of[free], minlength=count)
    low, high = best_loads(*_by_group(k, supply), base)
    returns = _returns(c, k, keeper, np.where(free, previous, -1))
    has = (k.of >= 0) & (keeper >= 0)
    costs = _costs(k, supply, returns, low, racks_first=racks_first)
    if returns is not None:
        if costs is None:  # the costs of all levels do not fit: leave out the last level
            returns, costs = None, _costs(k, supply, None, low, racks_first=racks_first)
        else:
            has &= returns.of < 0
    owned = np.bincount(k.of[has] * c.m + keeper[has], minlength=count * c.m).reshape(count, c.m)
    wanted = np.zeros_like(owned) if settled else owned
    if returns is None and count == 1 and not k.misses.any():
        counts = _one_class(int(supply[0]), wanted[0], low, high, base)[None, :]
        kept = np.minimum(wanted, counts)
    else:
        floor, last = low - base, np.flatnonzero(high > low)
        rank = np.unique(low, return_inverse=True)[1]
        if costs is None:
            total = int(supply.sum())
            raise TaskplaceError(
                f"{total} partitions and {c.m} members are more than the exact modes can take; "
                "use 'range' or 'round_robin'"
            )
        question = _Question(k=k, supply=supply, owned=wanted, floor=floor, last=last, rank=rank, costs=costs)
        kept, counts, returns = _flow(question, returns)
    if settled:
        kept, counts = owned, counts + owned
    return deal(k.of, c.topic, keeper=keeper, keep=kept, counts=counts, returns=returns)


def _returns(c: Columns, k: Classes, keeper: Ints, previous: Ints) -> Returns | None:
    """Return the partitions with a previous owner, in kinds; None if there are none."""
    at = np.flatnonzero((k.of >= 0) & (previous >= 0))
    if len(at) == 0:
        return None
    key, of = np.unique((k.of[at] * (c.m + 1) + keeper[at] + 1) * c.m + previous[at], return_inverse=True)
    kind = np.full(c.n, -1, np.int64)
    kind[at] = of.reshape(-1)
    group, keepers = np.divmod(key // c.m, c.m + 1)
    nothing = np.zeros(len(key), np.int64)
    return Returns(of=kind, group=group, keeper=keepers - 1, previous=key % c.m, stay=nothing, back=nothing)


def _by_group(k: Classes, supply: Ints) -> tuple[Ints, Bools]:
    """Return the supply and subscribers of each group. Classes of different racks are merged: racks forbid nothing."""
    groups, first = np.unique(k.group, return_index=True)
    return np.bincount(np.searchsorted(groups, k.group), supply).astype(np.int64), k.allowed[first]


def _one_class(supply: int, owned: Ints, low: Ints, high: Ints, base: Ints) -> Ints:
    """Return the count of each member. Members that own more than their floor are the first to get one above it."""
    spare = supply - int((low - base).sum())
    may = np.flatnonzero(high > low)
    best = may[np.argsort(owned[may] <= low[may], kind="stable")][:spare]
    counts = low - base
    counts[best] += 1
    return counts


def _costs(
    k: Classes, supply: Ints, returns: Returns | None, low: Ints, *, racks_first: bool
) -> Costs | None:
    """Return the cost of a unit of each level, or None if the costs do not fit the solver's limit."""
    total = int(supply.sum())
    returnable = 0 if returns is None else int((returns.of >= 0).sum())
    lower = returnable + 1
    higher = lower * (total + 1) if k.misses.any() else lower
    miss, move = (higher, lower) if racks_first else (lower, higher)
    costs = Costs(miss=miss, move=move, level=higher * (total + 1))
    nodes = len(k.group) + len(low) + 1 + (0 if returns is None else len(returns.group))
    return costs if costs.level * len(np.unique(low)) <= cost_budget(nodes) else None


class _Question(NamedTuple):
    """The input of the flow: K classes, m members."""

    k: Classes
    supply: Ints
    """[K] partitions to assign."""
    owned: Ints
    """[K, m] partitions that members may keep, without those of `returns`."""
    floor: Ints
    """[m] the least that each member gets."""
    last: Ints
    """The members that may get one more than their floor."""
    rank: Ints
    """[m] the rank of each member's lowest load among all members'."""
    costs: Costs


class _ClassArcs(NamedTuple):
    """Arcs from classes to members: `keep` for partitions that a member owns, `more` for any other partition."""

    row: Ints
    column: Ints
    keep: slice
    rows: Ints
    columns: Ints
    more: slice


class _ReturnArcs(NamedTuple):
    """Arcs of the kinds of `returns`: `stay` to their keepers, for the kinds in `stays`; `back` to previous owners."""

    stays: Ints
    stay: slice
    back: slice


def _flow(q: _Question, returns: Returns | None) -> tuple[Ints, Ints, Returns | None]:
    """Return kept[class, member] and counts[class, member] of the least cost, and `returns` with the results.

    `kept` excludes the partitions of `returns`.
    """
    count, m = q.owned.shape
    net = Network()
    node, member, sink = net.nodes(count), net.nodes(m), net.nodes(1)
    arcs = _class_arcs(net, q, node, member)
    _add_loads(net, q, member, sink)
    plain = q.supply.astype(np.int64)
    back = None
    if returns is not None:
        size = np.bincount(returns.of[returns.of >= 0])
        back = _return_arcs(net, q, returns, size, node=node, member=member)
        np.subtract.at(plain, returns.group, size)
    net.supply(node, plain)
    net.supply(sink, -int(q.supply.sum()))
    flow = net.solve()
    if flow is None:
        raise TaskplaceError(
            f"no assignment meets the loads of {m} members: a defect of taskplace.groups.sticky"
        )
    kept = np.zeros_like(q.owned)
    kept[arcs.row, arcs.column] = flow[arcs.keep]
    counts = kept.copy()
    counts[arcs.rows, arcs.columns] += flow[arcs.more]
    if returns is not None and back is not None:
        staying = np.zeros(len(returns.group), np.int64)
        staying[back.stays] = flow[back.stay]
        returns = returns._replace(stay=staying, back=flow[back.back])
        np.add.at(counts, (returns.group[back.stays], returns.keeper[back.stays]), flow[back.stay])
        np.add.at(counts, (returns.group, returns.previous), returns.back)
    return kept, counts, returns


def _class_arcs(net: Network, q: _Question, node: Ints, member: Ints) -> _ClassArcs:
    """Add the arcs from classes to members, at the price of rack misses and moves."""
    misses = q.k.misses * np.int64(q.costs.miss)
    row, column = np.nonzero(q.owned)
    keep = net.arcs(node[row], member[column], q.owned[row, column], misses[row, column])
    rows, columns = np.nonzero(q.k.allowed)
    more = net.arcs(node[rows], member[columns], q.supply[rows], misses[rows, columns] + q.costs.move)
    return _ClassArcs(row=row, column=column, keep=keep, rows=rows, columns=columns, more=more)


def _add_loads(net: Network, q: _Question, member: Ints, sink: Ints) -> None:
    """Add the arcs from members to the sink: the floor as a lower bound, and one more unit at a price.

    The price rises with the member's lowest load. The extra units form the bases of a matroid, for which only the order
    of costs matters. So ranks can replace the differences of squares.
    """
    net.arcs(member, np.full(len(member), sink[0]), q.floor, 0, low=q.floor)
    net.arcs(member[q.last], np.full(len(q.last), sink[0]), 1, q.costs.level * q.rank[q.last])


def _return_arcs(
    net: Network, q: _Question, returns: Returns, size: Ints, *, node: Ints, member: Ints
) -> _ReturnArcs:
    """Add the kinds of `returns`, of `size` partitions each: they stay, return, or join the other partitions of a
    class.
    """
    misses = q.k.misses * np.int64(q.costs.miss)
    kind = net.nodes(len(size))
    stays = np.flatnonzero(returns.keeper >= 0)
    keeper, group = returns.keeper[stays], returns.group[stays]
    stay = net.arcs(kind[stays], member[keeper], size[stays], misses[group, keeper])
    to_previous = misses[returns.group, returns.previous] + q.costs.move - 1
    back = net.arcs(kind, member[returns.previous], size, to_previous)
    net.arcs(kind, node[returns.group], size, 0)
    net.supply(kind, size)
    return _ReturnArcs(stays=stays, stay=stay, back=back)
