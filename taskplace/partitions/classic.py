"""Kafka's `range` and `round_robin`, for comparison and for groups that use them.

Both ignore what members own. Members are in Kafka's order: static members first, by instance id, then the others by
name. `range` considers known racks (`taskplace.groups.classic`). `round_robin` ignores them, as in Kafka.
"""

from __future__ import annotations

import numpy as np

from taskplace.groups.classic import range_near_racks
from taskplace.groups.subscriptions import Columns, Ints


def range_(c: Columns) -> Ints:
    """Return the member of each partition: each subscriber gets a range of consecutive partitions of every topic.

    If the partitions of a topic do not divide evenly, the first members get one more. Topics with equal counts and
    subscribers are split alike, so their partitions p are on one member. If racks are known, they decide which
    partitions a member gets, and which members get one more. O(n + topics * members) without racks.
    """
    if c.racked.any() and c.rack_set.any():
        return range_near_racks(c)
    goal = np.full(c.n, -1, np.int64)
    for t in range(len(c.topics)):
        members = c.order[c.subscribed[t, c.order]]
        if len(members):
            size, more = divmod(int(c.start[t + 1] - c.start[t]), len(members))
            goal[c.start[t] : c.start[t + 1]] = np.repeat(members, size + (np.arange(len(members)) < more))
    return goal


def round_robin(c: Columns) -> Ints:
    """Return the member of each partition: each member in turn, without those that do not subscribe.

    The next topic continues with the next member. O(n + topics * members).
    """
    goal = np.full(c.n, -1, np.int64)
    turn = 0
    for t in range(len(c.topics)):
        places = np.flatnonzero(c.subscribed[t, c.order])
        count = int(c.start[t + 1] - c.start[t])
        if len(places) and count:
            taken = places[(np.searchsorted(places, turn) + np.arange(count)) % len(places)]
            goal[c.start[t] : c.start[t + 1]] = c.order[taken]
            turn = int(taken[-1]) + 1
    return goal
