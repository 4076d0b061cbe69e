"""Chooses the partition of each record: by Kafka's hash of its key, or in turns measured in bytes if it has no key.

**Idea.** Kafka's first sticky partitioner moved on whenever a batch was sent. A slow broker sends its batches late, so
it kept the turn longer and got more records, which made it slower. `UniformStickyPartitioner` moves on after so many
*bytes*, whatever the brokers do.

Properties:
- strictly uniform: at any time, the bytes of two partitions differ by less than a turn and the largest record. A record
  that exceeds its turn is taken off the next turn of that partition (deficit round robin);
- sticky: consecutive records stay together for a whole turn;
- a partition without a leader gets no keyless record while another partition has a leader. It is not compensated: it
  returns with the next round, level with the others;
- keyed records go where Kafka's own producers put them, and do not count towards turns;
- reproducible: `seed` alone determines the order of the turns, and `assign` for a whole batch returns what `partition`
  returns record by record;
- a partitioner serves one topic and one thread at a time.

Non-goals: buffering and sending. Adaptive turns (weighted by queue length, without slow partitions) give up uniformity
for throughput. KIP-794's first version rejects them. Kafka's released producer has them on by default; here they are
off.

Source: KIP-794, first version (uniform) and as released (adaptive).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Annotated

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model.keys import Configuration, Count, about

MOST_BYTES = 2**50
"""The largest record: far more than anybody sends, and thousands of them can be summed in a column."""

_MOST_SUM = 2**62  # of the sizes that are summed in one column
_KEYLESS = -1  # in place of a partition
_MASK, _MULTIPLIER, _SEED = 0xFFFFFFFF, 0x5BD1E995, 0x9747B28C  # of murmur2
_WORD = struct.Struct("<I")


class PartitionerConfig(Configuration, frozen=True):
    """Kafka's keys; sizes in bytes, times in milliseconds. docs/configuration.md lists them.

    >>> PartitionerConfig.from_properties({"batch.size": 1000}).turn
    1000
    >>> PartitionerConfig.from_properties({"partitioner.ignore.key": True})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.partitioner.ignore.key: ... did you mean 'partitioner.ignore.keys'?
    """

    sticky_batch_size: Annotated[Count, about("length of a turn; 0: use `batch.size`", unit="bytes")] = field(
        name="partitioner.sticky.batch.size", default=0
    )
    batch_size: Annotated[Count, about("used if `partitioner.sticky.batch.size` is 0", unit="bytes")] = 16384
    ignore_keys: Annotated[bool, about("treat all records as without a key")] = field(
        name="partitioner.ignore.keys", default=False
    )
    adaptive: Annotated[bool, about("prefer partitions with shorter queues; Kafka's default: true")] = field(
        name="partitioner.adaptive.partitioning.enable", default=False
    )
    availability_timeout_ms: Annotated[
        Count, about("adaptive: skip partitions not drained for this long; 0: never")
    ] = field(name="partitioner.availability.timeout.ms", default=0)

    @property
    def turn(self) -> int:
        """The length of a turn in bytes; at least 1, which moves on with every record."""
        return self.sticky_batch_size or self.batch_size or 1


# ------------------------------------------------------------------------------------------- records with a key


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key: 32-bit murmur2 with Kafka's seed, as an unsigned number.

    Source: `Utils.murmur2` and `BuiltInPartitioner.partitionForKey` in Kafka's clients.

    >>> murmur2(b"21") == -973932308 % 2**32
    True
    """
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for (word,) in _WORD.iter_unpack(data[:whole]):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        h = h * _MULTIPLIER & _MASK ^ word
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's producers choose for a key.

    >>> partition_for_key(b"foobar", 12)
    6
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


# ---------------------------------------------------------------------------------------------------- one topic


class UniformStickyPartitioner:
    """Partitions records of one topic with `partitions` partitions.

    For one thread at a time: the caller keeps the calls of several threads apart.

    >>> p = UniformStickyPartitioner(3, PartitionerConfig(sticky_batch_size=100), seed=1)
    >>> [p.partition(None, 50) for _ in range(6)]
    [1, 1, 2, 2, 0, 0]
    >>> p.assign([50, 50, 50]).tolist()
    [2, 2, 1]
    """

    def __init__(self, partitions: int, config: PartitionerConfig | None = None, *, seed: int = 0) -> None:
        validation.integer(partitions, "partitions", 1)
        self.partitions = partitions
        self.config = config or PartitionerConfig()
        self._turns = _Turns(partitions, self.config.turn, seed)
        self._leaderless: frozenset[int] = frozenset()
        self._queues: Mapping[int, int] = {}  # batches that wait for each partition; empty if unknown
        self._late: frozenset[int] = frozenset()  # their first batch has waited for the availability timeout

    def partition(self, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes; a turn ends with the record that completes it."""
        if key is not None and not self.config.ignore_keys:
            return partition_for_key(key, self.partitions)
        if not 0 <= size <= MOST_BYTES:
            raise InputError("size", found=size, expected=f"from 0 to {MOST_BYTES} bytes")
        return self._turns.take(int(size))

    def assign(
        self, sizes: Sequence[int] | NDArray[np.int64], keys: Iterable[bytes | None] | None = None
    ) -> NDArray[np.int64]:
        """Return the partitions of a whole batch of records, in order; `keys` holds their keys, None for none.

        Exactly what `partition` would return for one after the other. Work: the records, and a step for each turn.
        """
        measured = np.asarray(sizes, np.int64)
        if ((measured < 0) | (measured > MOST_BYTES)).any():
            found = [measured.min(), measured.max()]
            raise InputError("sizes", found=found, expected=f"sizes from 0 to {MOST_BYTES} bytes")
        if keys is None or self.config.ignore_keys:
            return self._turns.take_all(measured)
        hashed = [_KEYLESS if key is None else partition_for_key(key, self.partitions) for key in keys]
        if len(hashed) != len(measured):
            raise InputError("keys", found=f"{len(hashed)} keys", expected=f"{len(measured)}, one per size")
        chosen = np.array(hashed, np.int64)
        keyless = chosen == _KEYLESS
        chosen[keyless] = self._turns.take_all(measured[keyless])
        return chosen

    def update_leaders(self, available: Iterable[int] | None) -> None:
        """Replace the partitions that have a leader; None if that is unknown, and all count as having one.

        The others get no keyless record until they are named again. If no partition has a leader, all get some: the
        records have to wait anyway. A partition that loses its leader gives up its turn at once. One that gets a leader
        takes part from the next round on: from that round, no two partitions differ by as much as a turn and two of the
        largest records. Nothing is paid back for the time without one. Keyed records are not affected.

        O(partitions).

        >>> p = UniformStickyPartitioner(3, PartitionerConfig(sticky_batch_size=1), seed=1)
        >>> p.update_leaders([0, 2])
        >>> sorted(p.assign([1] * 6).tolist())
        [0, 0, 0, 2, 2, 2]
        """
        everyone = range(self.partitions)
        self._leaderless = frozenset(everyone).difference(everyone if available is None else available)
        self._update()

    def update_partitions(self, partitions: int) -> None:
        """Replace the number of partitions of the topic; new ones take part from the next round on.

        New partitions count as having a leader. Adaptive: the load is forgotten, since it does not cover the new
        partitions; turns are uniform until the next `update_load`.

        Errors: `InputError` for fewer than before: a topic's partitions only become more. For a topic that was deleted
        and created again, make a new partitioner.

        >>> p = UniformStickyPartitioner(1, PartitionerConfig(sticky_batch_size=1))
        >>> p.update_partitions(2)
        >>> sorted(p.assign([1] * 5).tolist())  # the round of one partition had begun already
        [0, 0, 0, 1, 1]
        """
        before = self.partitions
        if partitions < before:
            raise InputError("partitions", found=partitions, expected=f"at least {before}, the number so far")
        if partitions > before:
            self.partitions = partitions
            self._queues, self._late = {}, frozenset()
            self._turns.add_partitions(partitions - before)
            self._update()

    def update_load(
        self, queues: Mapping[int, int] | None, waited_ms: Mapping[int, int] | None = None
    ) -> None:
        """Adaptive: replace how many batches wait for each partition, and for how long the first of them has.

        A partition then gets turns in proportion to (longest queue + 1 - its queue). It gets none if it has waited for
        `partitioner.availability.timeout.ms`, or is missing in `queues` (it has no leader). If that leaves no
        partition, turns are uniform. None as `queues` forgets the load, and turns are uniform again. Without
        `partitioner.adaptive.partitioning.enable`, nothing changes.
        """
        if self.config.adaptive:
            limit = self.config.availability_timeout_ms
            self._queues = dict(queues or {})
            self._late = frozenset(p for p, waits in (waited_ms or {}).items() if limit and waits >= limit)
            self._update()

    def _update(self) -> None:
        """Have those partitions take part that have a leader and a queue and are not late, as far as there are any.

        The weight of a partition is (longest queue + 1 - its queue). These are the rules of Kafka's Java producer.
        """
        everyone = range(self.partitions)
        led = [p for p in everyone if p not in self._leaderless] or list(everyone)
        queued = [p for p in led if p in self._queues]
        ready = [p for p in queued if p not in self._late]
        longest = max((self._queues[p] for p in ready), default=0)
        weights = [longest + 1 - self._queues[p] for p in ready]
        self._turns.update(ready or queued or led, weights if len(set(weights)) > 1 else None)


class _Turns:
    """The turns of one topic, of `length` bytes each; `current` is the partition that the next record goes to.

    Uniform turns are a deficit round robin: each round is a random order of all candidates, and a partition whose last
    record exceeded its turn starts the next one with that much less. Weighted turns draw each partition at random.

    No library does this. kafka-python and librdkafka have KIP-480 only, and packages for round robin count items, not
    their sizes.
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
            reached = min(before + self._credit[partition], validation.MOST)
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

    def update(self, candidates: list[int], weights: list[int] | None) -> None:
        """Replace the partitions that take part. One that leaves gives up its turn at once, and its credit."""
        before, self._candidates = self._candidates, candidates
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
