"""The exact modes `fair_sticky`, `sticky_fair` and `fair`: loads, then partitions per class, then the partitions.

**Idea.** Partitions with the same possible members are interchangeable, except for their owners. So it is enough to
decide how many partitions of each class a member gets. That is a small minimum-cost flow, class -> member -> sink. Each
(class, member) pair has one arc for the partitions that the member owns, and another for others. The arcs to the sink
have the bounds of `best_loads`.

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

from typing import Any, NamedTuple

import numpy as np

from taskplace.errors import TaskplaceError
from taskplace.groups.subscriptions import Bools, Columns, Ints
from taskplace.model.flow import Network, cost_budget
from taskplace.model.problem_columns import rank_in_group


class Classes(NamedTuple):
    """Classes of interchangeable partitions: the same subscribers and, where it matters, the same racks. K classes.

    - `of`: [n] the class of each partition; -1 if no member subscribes to its topic
    - `allowed`: [K, m] the members that subscribe
    - `misses`: [K, m] whether a partition of the class would have no replica in the member's rack
    - `group`: [K] the group of each class. Classes with the same subscribers have the same group
    """

    of: Ints
    allowed: Bools
    misses: Bools
    group: Ints


class Returns(NamedTuple):
    """Partitions that may return to their previous owner. A kind has one class, keeper and previous owner.

    - `of`: [n] the kind of each partition, -1 for none
    - `group`: [E] the class of each kind
    - `keeper`: [E] the keeper of each kind, or -1
    - `previous`: [E] the previous owner of each kind
    - `stay`: [E] the number of partitions that stay with their keeper
    - `back`: [E] the number of partitions that return
    """

    of: Ints
    group: Ints
    keeper: Ints
    previous: Ints
    stay: Ints
    back: Ints


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


def _assign(c: Columns, keeper: Ints, previous: Ints, base: Ints, *, racks_first: bool = False) -> Ints:
    """Return the member of each partition. If `base` is not zero, keepers keep all their partitions."""
    if not c.subscribed[np.diff(c.start) > 0].any():
        return np.full(c.n, -1, np.int64)
    settled = bool(base.any())
    k = classes(c)
    count = len(k.group)
    free = (k.of >= 0) & ((keeper < 0) | (not settled))
    supply = np.bincount(k.of[free], minlength=count).astype(np.int64)
    low, high = best_loads(*_by_group(k, supply), base)
    returns = _returns(c, k, keeper, np.where(free, previous, -1))
    costs = _costs(k, supply, returns, low, racks_first=racks_first)
    if costs is None:  # the costs of all levels do not fit: leave out the last level
        returns = _returns(c, k, keeper, np.full(c.n, -1))
        costs = _costs(k, supply, returns, low, racks_first=racks_first)
    has = (k.of >= 0) & (keeper >= 0) & (returns.of < 0)
    owned = np.bincount(k.of[has] * c.m + keeper[has], minlength=count * c.m).reshape(count, c.m)
    wanted = np.zeros_like(owned) if settled else owned
    if count == 1 and not len(returns.group) and not k.misses.any():
        counts = _one_class(int(supply[0]), wanted[0], low, high, base)[None, :]
        kept = np.minimum(wanted, counts)
    elif costs is None:
        total = int(supply.sum())
        raise TaskplaceError(
            f"{total} partitions and {c.m} members are more than the exact modes can take; "
            "use 'range' or 'round_robin'"
        )
    else:
        kept, counts, returns = _flow(k, supply, wanted, (low, high, base), costs, returns)
    if settled:
        kept, counts = owned, counts + owned
    return deal(k.of, c.topic, keeper=keeper, keep=kept, counts=counts, returns=returns)


def _returns(c: Columns, k: Classes, keeper: Ints, previous: Ints) -> Returns:
    """Return the partitions with a previous owner, in kinds."""
    at = np.flatnonzero((k.of >= 0) & (previous >= 0))
    key, of = np.unique((k.of[at] * (c.m + 1) + keeper[at] + 1) * c.m + previous[at], return_inverse=True)
    kind = np.full(c.n, -1, np.int64)
    kind[at] = of.reshape(-1)
    group, keepers = np.divmod(key // c.m, c.m + 1)
    nothing = np.zeros(len(key), np.int64)
    return Returns(of=kind, group=group, keeper=keepers - 1, previous=key % c.m, stay=nothing, back=nothing)


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


def _costs(k: Classes, supply: Ints, returns: Returns, low: Ints, *, racks_first: bool) -> Costs | None:
    """Return the cost of a unit of each level, or None if the costs do not fit the solver's limit."""
    total = int(supply.sum())
    lower = int((returns.of >= 0).sum()) + 1
    higher = lower * (total + 1) if k.misses.any() else lower
    miss, move = (higher, lower) if racks_first else (lower, higher)
    costs = Costs(miss=miss, move=move, level=higher * (total + 1))
    nodes = len(k.group) + len(low) + 1 + len(returns.group)
    return costs if costs.level * len(np.unique(low)) <= cost_budget(nodes) else None


def _flow(
    k: Classes, supply: Ints, owned: Ints, bounds: tuple[Ints, Ints, Ints], costs: Costs, returns: Returns
) -> tuple[Ints, Ints, Returns]:
    """Return kept[class, member] and counts[class, member] of the least cost, and `returns` with the results.

    - `supply`: [K] partitions to assign
    - `owned`: [K, m] partitions that members may keep. Neither it nor `kept` has the partitions of `returns`
    - `bounds`: low, high and base, [m] each, as of `best_loads`
    """
    low, high, base = bounds
    net = Network()
    node, member, sink = net.nodes(len(supply)), net.nodes(len(low)), net.nodes(1)
    # From classes to members: `keep` for partitions that a member owns, `other` for any other partition.
    misses = k.misses * np.int64(costs.miss)
    row, column = np.nonzero(owned)
    keep = net.arcs(node[row], member[column], owned[row, column], misses[row, column])
    rows, columns = np.nonzero(k.allowed)
    other = net.arcs(node[rows], member[columns], supply[rows], misses[rows, columns] + costs.move)
    # From members to the sink: the floor, and one more unit at a price that rises with the member's lowest load. These
    # extra units form the bases of a matroid, for which only the order of costs matters. So ranks can replace the
    # differences of squares.
    last, rank = np.flatnonzero(high > low), np.unique(low, return_inverse=True)[1]
    net.arcs(member, np.full(len(member), sink[0]), low - base, 0, low=low - base)
    net.arcs(member[last], np.full(len(last), sink[0]), 1, costs.level * rank[last])
    # Kinds of `returns` stay with their keepers, return, or join the other partitions of their class.
    size = np.bincount(returns.of[returns.of >= 0], minlength=len(returns.group))
    kind = net.nodes(len(size))
    stays = np.flatnonzero(returns.keeper >= 0)
    keeper, group = returns.keeper[stays], returns.group[stays]
    stay = net.arcs(kind[stays], member[keeper], size[stays], misses[group, keeper])
    to_previous = misses[returns.group, returns.previous] + costs.move - 1
    back = net.arcs(kind, member[returns.previous], size, to_previous)
    net.arcs(kind, node[returns.group], size, 0)
    net.supply(kind, size)
    plain = supply.copy()
    np.subtract.at(plain, returns.group, size)
    net.supply(node, plain)
    net.supply(sink, -int(supply.sum()))
    flow = net.solve()
    if flow is None:
        raise TaskplaceError(f"no assignment meets the loads of {len(low)} members: a defect of `best_loads`")
    kept = np.zeros_like(owned)
    kept[row, column] = flow[keep]
    counts = kept.copy()
    counts[rows, columns] += flow[other]
    staying = np.zeros(len(size), np.int64)
    staying[stays] = flow[stay]
    np.add.at(counts, (group, keeper), flow[stay])
    np.add.at(counts, (returns.group, returns.previous), flow[back])
    return kept, counts, returns._replace(stay=staying, back=flow[back])


def deal(
    of: Ints, topic: Ints, *, keeper: Ints, keep: Ints, counts: Ints, returns: Returns | None = None
) -> Ints:
    """Return the member of each partition, or -1: turn counts into partitions. O(n log n).

    A member that must give up partitions of a class gives up those of the topic of which it has most, so that topics
    stay spread. Some of the moving partitions return to their previous owner. The others are dealt out in order, each
    to the member with the fewest partitions, until all counts are met. Without owners and with equal subscriptions,
    this is round robin.

    - `of`: [n] class of each partition, -1 for none
    - `topic`: [n] topic of each partition
    - `keeper`: [n] the member that may keep it, or -1
    - `keep`: [K, m] the number of partitions of each class that a member keeps, without those of `returns`
    - `counts`: [K, m] the number that it gets in all, including those of `returns`

    >>> keep, counts = np.array([[1, 0]]), np.array([[1, 2]])
    >>> deal(np.zeros(3, int), np.zeros(3, int), keeper=np.array([0, 0, -1]), keep=keep, counts=counts)
    array([0, 1, 1])
    """
    k, m = counts.shape
    goal = np.full(len(of), -1, np.int64)
    held = np.flatnonzero((of >= 0) & (keeper >= 0))
    hand = of[held] * m + keeper[held]
    # Each partition's position among the member's partitions of the same class and topic.
    turn = rank_in_group(hand * (int(topic.max(initial=0)) + 1) + topic[held])
    room, settled = keep.ravel(), keep.copy()
    if returns is not None:
        kind = returns.of[held]
        hand = np.where(kind >= 0, k * m + kind, hand)  # each kind is a separate hand
        room = np.concatenate([room, returns.stay])
        # A kind without a keeper has stay == 0.
        np.add.at(settled, (returns.group, np.maximum(returns.keeper, 0)), returns.stay)
        np.add.at(settled, (returns.group, returns.previous), returns.back)
    order = np.lexsort((held, turn, hand))
    kept = held[order][rank_in_group(hand[order]) < room[hand[order]]]
    goal[kept] = keeper[kept]
    if returns is not None:
        open_ = np.flatnonzero((returns.of >= 0) & (goal < 0))
        kind = returns.of[open_]
        returned = open_[rank_in_group(kind) < returns.back[kind]]
        goal[returned] = returns.previous[returns.of[returned]]
    free = np.flatnonzero((of >= 0) & (goal < 0))
    free = free[np.argsort(of[free], kind="stable")]
    places = (counts - settled).ravel()
    place = np.repeat(np.arange(k * m), places)
    # The partitions that a member has before a class is dealt: those that it keeps, and those of earlier classes.
    before = np.cumsum(counts - settled, axis=0) - (counts - settled) + settled.sum(axis=0)
    level = rank_in_group(place) + before.ravel()[place]
    order = np.lexsort((place % m, level, place // m))
    goal[free] = place[order] % m
    return goal


def balance_score(loads: Ints) -> int:
    """Return KIP-54's balance score: the sum of |a - b| over all pairs of loads; O(m log m).

    >>> balance_score(np.array([1, 2, 3]))
    4
    """
    m = len(loads)
    return int((np.sort(loads) * (2 * np.arange(m) - m + 1)).sum())


def best_loads(supply: Ints, allowed: Bools, base: Ints) -> tuple[Ints, Ints]:
    """Return [m] the least and [m] the greatest load of each member in the assignments with the best balance score.

    The two differ by at most one.

    KIP-54's balance score falls whenever a partition goes to a member with at least two fewer partitions. The load
    vectors that subscriptions allow are the integral bases of a polymatroid. So the assignments with the best score are
    exactly those with the least sum of squared loads, and all of them have the same sorted loads.

    The least sum of squares over *fractional* loads is found by splitting. If every member can have the mean, the mean
    is the solution. If not, a minimum cut separates the members that must have more than the mean from the others, and
    each side is solved separately. Every integral optimum lies between the floor and the ceiling of the fractional one
    (Frank and Murota, "Decreasing minimization on base-polyhedra"). So only one unit per member is left to decide.
    Work: one maximum flow of G + m nodes per distinct fractional load; none at all if there is one group.

    - `supply`: [G] partitions to assign
    - `allowed`: [G, m] the members that may have them; at least one for each group with a supply
    - `base`: [m] other partitions that the members have already

    >>> best_loads(np.array([1, 2, 3]), np.array([[1, 1, 1], [0, 1, 1], [0, 0, 1]], bool), np.zeros(3, int))
    (array([1, 2, 3]), array([1, 2, 3]))
    """
    low, high = base.copy(), base.copy()
    groups = np.flatnonzero(supply > 0)
    if len(groups) == 1:
        at = np.flatnonzero(allowed[groups[0]])
        low[at], high[at] = _one_group(int(supply[groups[0]]), base[at])
        return low, high
    parts = [(groups, np.flatnonzero(allowed[groups].any(axis=0)))]
    while parts:
        groups, members = parts.pop()
        if len(groups) == 0:
            continue  # nothing to assign: the members keep their base
        total = int(supply[groups].sum() + base[members].sum())
        above = _above_the_mean(supply[groups], allowed[np.ix_(groups, members)], base[members], total)
        if above is None:
            low[members], high[members] = total // len(members), -(-total // len(members))
            continue
        high_groups, high_members = above
        for group, member in ((high_groups, high_members), (~high_groups, ~high_members)):
            parts.append((groups[group], members[member]))
    return low, high


def _one_group(supply: int, base: Ints) -> tuple[Ints, Ints]:
    """Return the bounds of loads if every member may have every partition. The lowest loads are filled up first.

    >>> _one_group(4, np.array([0, 5, 1]))
    (array([2, 5, 2]), array([3, 5, 3]))
    """
    heights = np.sort(base)
    # Partitions needed to fill all lower members up to each height.
    needed = heights * np.arange(1, len(base) + 1) - np.cumsum(heights)
    under = int((needed <= supply).sum())
    level, rest = divmod(supply + int(heights[:under].sum()), under)
    low = np.maximum(base, level)
    return low, low + ((base <= level) & (rest > 0))


def _above_the_mean(supply: Ints, allowed: Bools, base: Ints, total: int) -> tuple[Bools, Bools] | None:
    """Return the groups and members of a part that must be above the mean, or None if all members can have the mean.

    All amounts are multiplied by the number of members. So the mean is an integer, `total`.
    """
    from ortools.graph.python import max_flow  # only loaded where subscriptions differ

    g, m = allowed.shape
    source, sink = g + m, g + m + 1
    group, member = np.nonzero(allowed)
    loaded = np.flatnonzero(base)
    tail = np.concatenate([np.full(g, source), group, np.full(len(loaded), source), g + np.arange(m)])
    head = np.concatenate([np.arange(g), g + member, g + loaded, np.full(m, sink)])
    room = np.concatenate([supply * m, supply[group] * m + 1, base[loaded] * m, np.full(m, total)])
    solver: Any = max_flow.SimpleMaxFlow()
    solver.add_arcs_with_capacity(tail, head, room)
    if solver.solve(source, sink) != solver.OPTIMAL:
        raise TaskplaceError(f"the flow solver failed on {g} groups of partitions and {m} members")
    if solver.optimal_flow() == total * m:
        return None
    reached = np.zeros(g + m + 2, np.bool_)
    reached[solver.get_source_side_min_cut()] = True
    return reached[:g], reached[g : g + m]
