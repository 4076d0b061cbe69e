"""The exact modes: `fair_sticky`, `sticky_fair` and `fair`.

**Idea.** Partitions that the same members may have are interchangeable, but for who owns them. So the question is
not "which partition where" but "how many of each class where", and that is a small minimum-cost flow: class -> member
-> sink, with one arc for as many as the member owns, another for more, and the bounds of `loads` on the way out.

Lexicographic, each level exact:

| mode | first | second | third | fourth |
|---|---|---|---|---|
| `fair_sticky` | the best balance score | the fewest moves | the fewest rack misses | the most returns |
| `fair_sticky`, racks first | the best balance score | the fewest rack misses | the fewest moves | the most returns |
| `sticky_fair` | what may stay stays | the best score then possible | the fewest rack misses | the most returns |
| `fair` | the best balance score | | the fewest rack misses | |

A *return* is a partition that does not stay and goes to its previous owner. Returns come last: they help one rebalance,
balance and racks help until the next. Partitions with a previous owner are nodes of their own, one for all that have
the same class, owner and previous owner.

Which of its partitions a member keeps, and who gets which of the rest, `deal` says. With equal subscriptions, no racks
and no previous owners there is one class, and no flow is needed.

Non-goals: partitions of one size. Weights would make it a bin-packing problem.

Source: KIP-54, "Proposed Changes" and "Alternatives Yet to be Considered".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskplace.errors import TaskplaceError
from taskplace.model.flow import Network, cost_budget
from taskplace.partitions.columns import Bools, Columns, Ints
from taskplace.partitions.deal import Returns, deal
from taskplace.partitions.loads import best_loads


class Classes(NamedTuple):
    """Partitions that are alike: the same subscribers and, where it matters, the same racks. K classes."""

    of: Ints
    """[n] the class of each partition; -1 if nobody subscribes to it."""
    allowed: Bools
    """[K, m]"""
    misses: Bools
    """[K, m] whether a partition there is away from its racks."""
    group: Ints
    """[K] classes with the same subscribers have the same group."""


class Costs(NamedTuple):
    """What a unit of each level costs: more than all of the levels below it together. A return saves 1."""

    miss: int
    move: int
    level: int
    """The difference of two neighbouring floors."""


def fair_sticky(c: Columns, *, racks_first: bool = False) -> Ints:
    """Return the member of each partition (-1: nobody): best balance, then fewest moves; see the module.

    `racks_first`: rack misses stand before moves, where it matters for racks where partitions go.
    """
    base = np.zeros(c.m, np.int64)
    return _assign(c, c.keeper, c.previous, base, racks_first=racks_first and c.racks_matter)


def sticky_fair(c: Columns) -> Ints:
    """Return the member of each partition: all keep what they may keep, the rest makes it as even as can be."""
    keeper = c.keeper
    kept = keeper >= 0
    goal = _assign(c, keeper, c.previous, np.bincount(keeper[kept], minlength=c.m))
    return np.where(kept, keeper, goal)


def fair(c: Columns) -> Ints:
    """Return the member of each partition: best balance, from nothing; the same whoever owns what."""
    nobody = np.full(c.n, -1, np.int64)
    return _assign(c, nobody, nobody, np.zeros(c.m, np.int64))


def classes(c: Columns) -> Classes:
    """Return the classes; there are partitions."""
    subscribers, group = np.unique(c.subscribed, axis=0, return_inverse=True)
    somebody: Bools = np.asarray(subscribers.any(axis=1))
    group = group.reshape(-1)[c.topic]
    rack_set = c.rack_set if c.misses.any() else 0
    key = np.where(somebody[group], group * len(c.misses) + rack_set, -1)
    found = np.unique(key)
    found = found[found >= 0]
    of = np.where(key >= 0, np.searchsorted(found, key), -1)
    group, racks = np.divmod(found, len(c.misses))
    return Classes(of, subscribers[group], c.misses[racks], group)


def _assign(c: Columns, keeper: Ints, previous: Ints, base: Ints, *, racks_first: bool = False) -> Ints:
    """Return the member of each partition; where there is a `base`, what is kept is settled already."""
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
        if costs is None:  # too large for the last level: it is left out
            returns, costs = None, _costs(k, supply, None, low, racks_first=racks_first)
        else:
            has &= returns.of < 0
    owned = np.bincount(k.of[has] * c.m + keeper[has], minlength=count * c.m).reshape(count, c.m)
    wanted = np.zeros_like(owned) if settled else owned
    if returns is None and count == 1 and not k.misses.any():
        counts = _one_class(int(supply[0]), wanted[0], low, high, base)[None, :]
        kept = np.minimum(wanted, counts)
    else:
        kept, counts, returns = _flow(k, supply, wanted, returns, low, high, base, costs)
    if settled:
        kept, counts = owned, counts + owned
    return deal(k.of, c.topic, keeper, kept, counts, returns)


def _returns(c: Columns, k: Classes, keeper: Ints, previous: Ints) -> Returns | None:
    """Return the partitions that have a previous owner, in kinds, or None if none has."""
    at = np.flatnonzero((k.of >= 0) & (previous >= 0))
    if len(at) == 0:
        return None
    key, of = np.unique((k.of[at] * (c.m + 1) + keeper[at] + 1) * c.m + previous[at], return_inverse=True)
    kind = np.full(c.n, -1, np.int64)
    kind[at] = of.reshape(-1)
    group, keepers = np.divmod(key // c.m, c.m + 1)
    nothing = np.zeros(len(key), np.int64)
    return Returns(kind, group, keepers - 1, key % c.m, nothing, nothing)


def _by_group(k: Classes, supply: Ints) -> tuple[Ints, Bools]:
    """Return supply and subscribers per group: racks are a preference, they forbid nothing."""
    groups, first = np.unique(k.group, return_index=True)
    return np.bincount(np.searchsorted(groups, k.group), supply).astype(np.int64), k.allowed[first]


def _one_class(supply: int, owned: Ints, low: Ints, high: Ints, base: Ints) -> Ints:
    """Return the count of each member: who has more than the floor keeps one more of it, as far as there are."""
    spare = supply - int((low - base).sum())
    may = np.flatnonzero(high > low)
    best = may[np.argsort(owned[may] <= low[may], kind="stable")][:spare]
    counts = low - base
    counts[best] += 1
    return counts


def _costs(
    k: Classes, supply: Ints, returns: Returns | None, low: Ints, *, racks_first: bool
) -> Costs | None:
    """Return the cost of a unit of each level, or None if the solver cannot take them."""
    total = int(supply.sum())
    returnable = 0 if returns is None else int((returns.of >= 0).sum())
    lower = returnable + 1
    higher = lower * (total + 1) if k.misses.any() else lower
    miss, move = (higher, lower) if racks_first else (lower, higher)
    costs = Costs(miss, move, higher * (total + 1))
    nodes = len(k.group) + len(low) + 1 + (0 if returns is None else len(returns.group))
    return costs if costs.level * len(np.unique(low)) <= cost_budget(nodes) else None


def _flow(
    k: Classes,
    supply: Ints,
    owned: Ints,
    returns: Returns | None,
    low: Ints,
    high: Ints,
    base: Ints,
    costs: Costs | None,
) -> tuple[Ints, Ints, Returns | None]:
    """Return kept[class, member] and counts[class, member] of least cost, and `returns` with what becomes of it.

    A member's extra unit costs the more, the higher its floor. These units form the bases of a matroid, where only
    the order of costs counts, so ranks stand for the differences of squares. `kept` is without those of `returns`.
    """
    count, m = owned.shape
    total = int(supply.sum())
    if costs is None:
        raise TaskplaceError(f"{total} partitions and {m} members are more than the exact modes can take")
    misses = k.misses * np.int64(costs.miss)
    rank = np.unique(low, return_inverse=True)[1]
    net = Network()
    node, member, sink = net.nodes(count), net.nodes(m), net.nodes(1)
    row, column = np.nonzero(owned)
    keep = net.arcs(node[row], member[column], owned[row, column], misses[row, column])
    rows, columns = np.nonzero(k.allowed)
    more = net.arcs(node[rows], member[columns], supply[rows], misses[rows, columns] + costs.move)
    floor = low - base
    net.arcs(member, np.full(m, sink[0]), floor, 0, low=floor)
    last = np.flatnonzero(high > low)
    net.arcs(member[last], np.full(len(last), sink[0]), 1, costs.level * rank[last])
    plain = supply.astype(np.int64)
    if returns is not None:
        size = np.bincount(returns.of[returns.of >= 0])
        kind = net.nodes(len(size))
        stays = np.flatnonzero(returns.keeper >= 0)
        keeper, group = returns.keeper[stays], returns.group[stays]
        stay = net.arcs(kind[stays], member[keeper], size[stays], misses[group, keeper])
        to_previous = misses[returns.group, returns.previous] + costs.move - 1
        back = net.arcs(kind, member[returns.previous], size, to_previous)
        net.arcs(kind, node[returns.group], size, 0)  # anywhere else: from here on as any of the class
        net.supply(kind, size)
        np.subtract.at(plain, returns.group, size)
    net.supply(node, plain)
    net.supply(sink, -total)
    flow = net.solve()
    if flow is None:
        raise TaskplaceError(
            f"no assignment meets the loads of {m} members: a defect of taskplace.partitions.loads"
        )
    kept = np.zeros_like(owned)
    kept[row, column] = flow[keep]
    counts = kept.copy()
    counts[rows, columns] += flow[more]
    if returns is not None:
        staying = np.zeros(len(size), np.int64)
        staying[stays] = flow[stay]
        returns = returns._replace(stay=staying, back=flow[back])
        np.add.at(counts, (group, keeper), flow[stay])
        np.add.at(counts, (returns.group, returns.previous), flow[back])
    return kept, counts, returns
