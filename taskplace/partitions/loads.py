"""Computes how many partitions each member has in the most balanced assignment.

**Idea.** KIP-54's balance score is the sum of |load - load| over all pairs of members. It falls whenever a partition
goes to a member with at least two fewer partitions. The load vectors that subscriptions allow are the integral bases of
a polymatroid. So the assignments with the best score are exactly those with the least sum of squared loads, and all of
them have the same sorted loads.

The least sum of squares over *fractional* loads is found by splitting. If every member can have the mean, the mean is
the solution. If not, a minimum cut separates the members that must have more than the mean from the others, and each
side is solved separately. Every integral optimum lies between the floor and the ceiling of the fractional one (Frank
and Murota, "Decreasing minimization on base-polyhedra"). So only one unit per member is left to decide.

Shapes: G groups of partitions, m members. Complexity: one maximum flow of G + m nodes per distinct fractional load;
none at all if there is one group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskplace.errors import TaskplaceError
from taskplace.groups.subscriptions import Bools, Ints


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

    - `supply`: [G] partitions to assign
    - `allowed`: [G, m] the members that may have them; at least one for each group with a supply
    - `base`: [m] other partitions that the members have already

    >>> best_loads(np.array([1, 2, 3]), np.array([[1, 1, 1], [0, 1, 1], [0, 0, 1]], bool), np.zeros(3, int))
    (array([1, 2, 3]), array([1, 2, 3]))
    """
    low, high = base.copy(), base.copy()
    groups = np.flatnonzero(supply > 0)
    if len(groups) == 0:
        return low, high
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
