"""Deals records to partitions in turns of so many bytes.

Uniform turns are a deficit round robin: each round is a random order of all candidates, and a partition whose last
record exceeded its turn starts the next one with that much less. Weighted turns draw each partition at random.

No library does this. kafka-python and librdkafka have KIP-480 only, and packages for round robin count items, not their
sizes. A round is a shuffled list that is taken from its end, so a sorted container would not help.
"""

from __future__ import annotations

import random
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from taskplace.groups.partitioner import Candidates

_MOST = 2**63 - 1
_MOST_SUM = 2**62  # of the sizes that are summed in one column


class Turns:
    """The turns of one topic; `current` is the partition that the next record goes to.

    >>> turns = Turns(3, 100, seed=1)
    >>> [turns.take(50) for _ in range(6)]
    [1, 1, 2, 2, 0, 0]
    """

    def __init__(self, partitions: int, length: int, seed: int) -> None:
        self._length = length
        self._random = random.Random(seed)
        # Bytes that a partition may still get; negative after a record that exceeded its turn.
        self._credit = [0] * partitions
        self._round: list[int] = []  # the partitions still to come in this round, last first
        self._candidates = list(range(partitions))
        self._cumulative_weights: list[int] | None = None
        self.current = self._next()

    def take(self, size: int) -> int:
        """Return the partition of a record of `size` bytes; the turn ends with the record that completes it."""
        chosen = self.current
        self._credit[chosen] -= size
        if self._credit[chosen] <= 0:
            self.current = self._next()
        return chosen

    def take_all(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the partition of each record, as `take` would one after the other. One step for each turn."""
        most = _MOST_SUM // int(sizes.max(initial=1))
        if len(sizes) > most:
            parts = [self.take_all(sizes[at : at + most]) for at in range(0, len(sizes), most)]
            return np.concatenate(parts)
        chosen = np.empty(len(sizes), np.int64)
        total = np.cumsum(sizes)
        at, before = 0, 0
        while at < len(sizes):
            # The record that completes the turn is the first with which the sum reaches the credit.
            partition = self.current
            reached = min(before + self._credit[partition], _MOST)
            end = min(int(np.searchsorted(total, reached, side="left")) + 1, len(sizes))
            chosen[at:end] = partition
            self._credit[partition] -= int(total[end - 1]) - before
            at, before = end, int(total[end - 1])
            if self._credit[partition] <= 0:
                self.current = self._next()
        return chosen

    def add_partitions(self, count: int) -> None:
        """Make room for `count` more partitions; they take part once they are among the candidates."""
        self._credit += [0] * count

    def update(self, candidates: Candidates) -> None:
        """Replace the partitions that take part. One that leaves gives up its turn at once, and its credit."""
        before, self._candidates = self._candidates, candidates.partitions
        weights = candidates.weights
        self._cumulative_weights = None if weights is None else list(accumulate(weights))
        if self._candidates == before:
            return
        now = set(self._candidates)
        self._round = [p for p in self._round if p in now]
        for p in now.difference(before):
            self._credit[p] = 0
        if self.current not in now:
            self.current = self._next()

    def _next(self) -> int:
        """Return the partition of the next turn, with a turn's credit."""
        if self._cumulative_weights is not None:
            # Uniformity is given up, so nothing is carried over from turn to turn.
            [chosen] = self._random.choices(self._candidates, cum_weights=self._cumulative_weights)
            self._credit[chosen] = self._length
            self._round.clear()
            return chosen
        while True:
            if not self._round:
                self._begin_round()
            chosen = self._round.pop()
            self._credit[chosen] += self._length
            if self._credit[chosen] > 0:
                return chosen

    def _begin_round(self) -> None:
        """Shuffle the candidates, so that no two partitions are always neighbours."""
        self._round = self._random.sample(self._candidates, len(self._candidates))
        # A record of many turns' size is paid back over many rounds. Rounds without any turn are done in one step.
        owed = -max(self._credit[p] for p in self._candidates)
        if owed >= self._length:
            for p in self._candidates:
                self._credit[p] += owed // self._length * self._length
