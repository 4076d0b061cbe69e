"""Turns counts into partitions: selects the partitions that each member keeps, and deals out the others.

**Idea.** A member that must give up partitions of a class gives up those of the topic of which it has most, so that
topics stay spread. Some of the moving partitions return to their previous owner. The others are dealt out in order,
each to the member with the fewest partitions, until all counts are met. Without owners and with equal subscriptions,
this is round robin.

Properties: counts are met exactly. The result is a function of the arguments alone. O(n log n), in numpy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskplace.groups.subscriptions import Ints
from taskplace.model.problem_columns import rank_in_group


class Returns(NamedTuple):
    """Partitions that may return to their previous owner. A kind has one class, keeper and previous owner."""

    of: Ints
    """[n] the kind of each partition, -1 for none."""
    group: Ints
    """[E] the class of each kind."""
    keeper: Ints
    """[E] the keeper of each kind, or -1."""
    previous: Ints
    """[E] the previous owner of each kind."""
    stay: Ints
    """[E] the number of partitions that stay with their keeper."""
    back: Ints
    """[E] the number of partitions that return."""


def deal(
    of: Ints, topic: Ints, *, keeper: Ints, keep: Ints, counts: Ints, returns: Returns | None = None
) -> Ints:
    """Return the member of each partition, or -1.

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
    room = keep.ravel()
    settled = keep
    if returns is not None:
        kind = returns.of[held]
        hand = np.where(kind >= 0, k * m + kind, hand)  # each kind is a separate hand
        room = np.concatenate([room, returns.stay])
        settled = keep.copy()
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
    level = rank_in_group(place) + _heights(settled, counts).ravel()[place]
    order = np.lexsort((place % m, level, place // m))
    goal[free] = place[order] % m
    return goal


def _heights(keep: Ints, counts: Ints) -> Ints:
    """Return [K, m] the partitions that a member has before a class is dealt: those it keeps, and earlier classes."""
    before = np.cumsum(counts - keep, axis=0) - (counts - keep)
    return np.asarray(before + keep.sum(axis=0), np.int64)
