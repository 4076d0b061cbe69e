"""The exact modes: `fair_sticky`, `sticky_fair` and `fair`.

**Idea.** Partitions that the same members may have are interchangeable, but for who owns them. So the question is
not "which partition where" but "how many of each class where", and that is a small minimum-cost flow: class -> member
-> sink, with one arc for as many as the member owns, another for more, and the bounds of `loads` on the way out.

Lexicographic, each level exact:

| mode | first | second | third |
|---|---|---|---|
| `fair_sticky` | the best balance score | the fewest moves | the fewest rack misses |
| `sticky_fair` | what may stay stays | the best balance score then possible | the fewest rack misses |
| `fair` | the best balance score | | the fewest rack misses |

Which of its partitions a member keeps, and who gets which of the rest, `deal` says. With equal subscriptions and
no racks there is one class, and no flow is needed.

Non-goals: partitions of one size. Weights would make it a bin-packing problem.

Source: KIP-54, "Proposed Changes" and "Alternatives Yet to be Considered".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskplace.errors import TaskplaceError
from taskplace.model.flow import Network, cost_budget
from taskplace.partitions.columns import Bools, Columns, Ints
from taskplace.partitions.deal import deal
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


def fair_sticky(c: Columns) -> Ints:
    """Return the member of each partition (-1: nobody): best balance, then fewest moves; see the module."""
    return _assign(c, c.keeper, np.zeros(c.m, np.int64))


def sticky_fair(c: Columns) -> Ints:
    """Return the member of each partition: all keep what they may keep, the rest makes it as even as can be."""
    keeper = c.keeper
    kept = keeper >= 0
    goal = _assign(c, keeper, np.bincount(keeper[kept], minlength=c.m))
    return np.where(kept, keeper, goal)


def fair(c: Columns) -> Ints:
    """Return the member of each partition: best balance, from nothing; the same whoever owns what."""
    return _assign(c, np.full(c.n, -1, np.int64), np.zeros(c.m, np.int64))


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


def _assign(c: Columns, keeper: Ints, base: Ints) -> Ints:
    """Return the member of each partition; where there is a `base`, what is kept is settled already."""
    if not c.subscribed[np.diff(c.start) > 0].any():
        return np.full(c.n, -1, np.int64)
    settled = bool(base.any())
    k = classes(c)
    count = len(k.group)
    free = (k.of >= 0) & ((keeper < 0) | (not settled))
    supply = np.bincount(k.of[free], minlength=count)
    has = (k.of >= 0) & (keeper >= 0)
    owned = np.bincount(k.of[has] * c.m + keeper[has], minlength=count * c.m).reshape(count, c.m)
    low, high = best_loads(*_by_group(k, supply), base)
    wanted = np.zeros_like(owned) if settled else owned
    if count == 1 and not k.misses.any():
        counts = _one_class(int(supply[0]), wanted[0], low, high, base)[None, :]
    else:
        counts = _flow(k, supply, wanted, low, high, base)
    return deal(
        k.of, c.topic, keeper, np.minimum(owned, counts) if not settled else owned, counts + settled * owned
    )


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


def _flow(k: Classes, supply: Ints, owned: Ints, low: Ints, high: Ints, base: Ints) -> Ints:
    """Return counts[class, member] of least cost: levels of load, then moves, then rack misses.

    A member's extra unit costs the more, the higher its floor. These units form the bases of a matroid, where only
    the order of costs counts, so ranks stand for the differences of squares.
    """
    count, m = owned.shape
    total = int(supply.sum())
    move = total + 1 if k.misses.any() else 1
    level = move * (total + 1)
    rank = np.unique(low, return_inverse=True)[1]
    if level * (int(rank.max()) + 1) > cost_budget(count + m + 1):
        raise TaskplaceError(f"{total} partitions and {m} members are more than the exact modes can take")
    net = Network()
    node, member, sink = net.nodes(count), net.nodes(m), net.nodes(1)
    row, column = np.nonzero(owned)
    keep = net.arcs(node[row], member[column], owned[row, column], k.misses[row, column])
    rows, columns = np.nonzero(k.allowed)
    more = net.arcs(node[rows], member[columns], supply[rows], k.misses[rows, columns] + move)
    floor = low - base
    net.arcs(member, np.full(m, sink[0]), floor, 0, low=floor)
    last = np.flatnonzero(high > low)
    net.arcs(member[last], np.full(len(last), sink[0]), 1, level * rank[last])
    net.supply(node, supply)
    net.supply(sink, -total)
    flow = net.solve()
    if flow is None:
        raise TaskplaceError(
            f"no assignment meets the loads of {m} members: a defect of taskplace.partitions.loads"
        )
    counts = np.zeros_like(owned)
    counts[row, column] = flow[keep]
    counts[rows, columns] += flow[more]
    return counts
