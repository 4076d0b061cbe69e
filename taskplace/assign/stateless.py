"""Where stateless tasks run: least loaded, sticky. They have no state to move, so they go there at once."""

from __future__ import annotations

import heapq

import numpy as np

from taskplace.model.columns import Columns, Ints
from taskplace.model.shares import level_loads


def place_stateless(c: Columns, active: Ints) -> Ints:
    """Return `active` (the target of the stateful tasks) completed by the stateless ones.

    Each stays where it is, as long as its instance has no more than its share of all tasks; the others go
    to the instance with the least load for its capacity. O(tasks * log instances).
    """
    tasks = np.flatnonzero(~c.stateful)
    place = active.copy()
    if not len(tasks):
        return place
    busy = np.bincount(active[c.stateful], minlength=c.m)
    low, high = level_loads(c.n, c.n, busy, c.room)
    load = busy.copy()
    extra = c.n - int(low.sum())  # so many tasks are beyond the floors
    kept = np.where(c.room[c.owner[tasks]] > 0, c.owner[tasks], -1)
    rank = _rank_in_group(kept)
    spare = low - busy
    stays = (kept >= 0) & (rank < spare[kept])
    # One more each, where the share is not whole, for instances that have it already.
    more = (kept >= 0) & (rank == spare[kept]) & (high[kept] > low[kept])
    more[np.flatnonzero(more)[max(extra, 0) :]] = False
    stays |= more
    place[tasks[stays]] = kept[stays]
    np.add.at(load, kept[stays], 1)
    # Up to the floor first, then one more where the share is not whole; among equals the least loaded.
    whole = high == low

    def key(i: int) -> tuple[int, float, int]:
        return int(load[i] - low[i] + whole[i]), int(load[i] + 1) / int(c.room[i]), i

    heap = [key(int(i)) for i in np.flatnonzero(c.room > 0)]
    heapq.heapify(heap)
    for t in tasks[~stays]:
        i = heap[0][2]
        place[t] = i
        load[i] += 1
        heapq.heapreplace(heap, key(i))
    return place


def _rank_in_group(group: Ints) -> Ints:
    """Return, for each entry, how many entries before it have the same value."""
    order = np.argsort(group, kind="stable")
    sorted_group = group[order]
    first = np.searchsorted(sorted_group, sorted_group)
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - first
    return rank
