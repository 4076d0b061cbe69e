"""Finds the positions of many task ids at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
import numpy.typing as npt

from topology.tasks import TaskId

Ints = npt.NDArray[np.int64]


class Locator:
    """Finds positions of task ids: a table if the ids are dense, binary search if not."""

    def __init__(self, key: Ints) -> None:
        self.key = key
        high = (int((key >> 32).max()) + 1, int((key & 0xFFFFFFFF).max()) + 1) if len(key) else (1, 1)
        self.high = high
        self.table: npt.NDArray[np.int32] | None = None
        if high[0] * high[1] <= max(1 << 16, 8 * len(key)):
            self.table = np.full(high[0] * high[1], -1, np.int32)
            self.table[(key >> 32) * high[1] + (key & 0xFFFFFFFF)] = np.arange(len(key))

    def __call__(self, pairs: Ints) -> Ints:
        """Return the position of each (subtopology, partition), or -1."""
        s, p = pairs[:, 0], pairs[:, 1]
        if self.table is not None:
            inside = (s >= 0) & (s < self.high[0]) & (p >= 0) & (p < self.high[1])
            return np.where(inside, self.table[np.where(inside, s * self.high[1] + p, 0)], -1).astype(
                np.int64
            )
        wanted = (s << 32) | p
        at = np.minimum(np.searchsorted(self.key, wanted), max(len(self.key) - 1, 0))
        return np.where(self.key[at] == wanted, at, -1) if len(self.key) else np.full(len(s), -1, np.int64)


def pairs_of(ids: Iterable[TaskId], count: int) -> Ints:
    """Return `count` ids as an array [count, 2] of subtopologies and partitions."""
    return np.fromiter(chain.from_iterable(ids), np.int64, 2 * count).reshape(count, 2)
