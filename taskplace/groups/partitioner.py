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
- `UniformStickyPartitioner` serves one topic and one thread at a time; `TopicPartitioner` serves many of both.

Non-goals: buffering and sending. Adaptive turns (weighted by queue length, without slow partitions) give up uniformity
for throughput. KIP-794's first version rejects them. Kafka's released producer has them on by default; here they are
off.

Source: KIP-794, first version (uniform) and as released (adaptive).
"""

from __future__ import annotations

import hashlib
import random
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from taskplace import validation
from taskplace.errors import InputError
from taskplace.groups.settings import PartitionerConfig

__all__ = [
    "MOST_BYTES",
    "MOST_COUNTED",
    "Partitioner",
    "PartitionerConfig",
    "TopicPartitioner",
    "UniformStickyPartitioner",
    "murmur2",
    "partition_for_key",
]

MOST_BYTES = 2**50
"""The largest record: far more than anybody sends, and thousands of them can be summed in a column."""
MOST_COUNTED = 10_000_000
"""The most partitions of a topic that a partitioner keeps account of."""

_MOST = 2**63 - 1
_MOST_SUM = 2**62  # of the sizes that are summed in one column
_KEYLESS = -1  # in place of a partition
_FORGET = "forget(topic), if it was deleted and created again"
_MASK, _MULTIPLIER, _SEED = 0xFFFFFFFF, 0x5BD1E995, 0x9747B28C  # of murmur2
_WORD = struct.Struct("<I")


class Partitioner(Protocol):
    """What a producer calls, for those who write a partitioner of their own."""

    def partition(self, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes."""

    def on_new_batch(self, partition: int) -> None:
        """Note that a new batch has begun for `partition`: the one before is full or was sent."""


# ------------------------------------------------------------------------------------------- records with a key


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key: 32-bit murmur2 with Kafka's seed, as an unsigned number.

    Source: `Utils.murmur2` and `BuiltInPartitioner.partitionForKey` in Kafka's clients.

    >>> murmur2(b"21") == -973932308 % 2**32
    True
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InputError("key", found=data, expected="bytes: the serialized key")
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

    For one thread at a time: the caller keeps the calls of several threads apart, as `TopicPartitioner` does.

    >>> p = UniformStickyPartitioner(3, PartitionerConfig(sticky_batch_size=100), seed=1)
    >>> [p.partition(None, 50) for _ in range(6)]
    [1, 1, 2, 2, 0, 0]
    >>> p.assign([50, 50, 50]).tolist()
    [2, 2, 1]
    """

    def __init__(self, partitions: int, config: PartitionerConfig | None = None, *, seed: int = 0) -> None:
        self._partitions = _count(partitions)
        self.config = PartitionerConfig() if config is None else config
        validation.of_type(self.config, PartitionerConfig, "config")
        validation.integer(seed, "seed")
        self._turns = _Turns(partitions, self.config.turn, seed)
        self._leaderless: frozenset[int] = frozenset()
        self._queues: Mapping[int, int] = {}  # batches that wait for each partition; empty if unknown
        self._late: frozenset[int] = frozenset()  # their first batch has waited for the availability timeout

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic."""
        return self._partitions

    def partition(self, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes; a turn ends with the record that completes it."""
        if key is not None and not self.config.ignore_keys:
            return partition_for_key(key, self._partitions)
        return self._turns.take(_whole(size, "size", MOST_BYTES))

    def assign(
        self, sizes: Sequence[int] | NDArray[np.int64], keys: Iterable[bytes | None] | None = None
    ) -> NDArray[np.int64]:
        """Return the partitions of a whole batch of records, in order; `keys` holds their keys, None for none.

        Exactly what `partition` would return for one after the other. Work: the records, and a step for each turn.
        """
        measured = _sizes(sizes)
        if keys is None or self.config.ignore_keys:
            return self._turns.take_all(measured)
        listed = list(keys)
        if len(listed) != len(measured):
            raise InputError(
                "keys", found=f"{len(listed)} keys", expected=f"{len(measured)} keys, one per size"
            )
        hashed = [_KEYLESS if key is None else partition_for_key(key, self._partitions) for key in listed]
        chosen = np.array(hashed, np.int64)
        keyless = chosen == _KEYLESS
        chosen[keyless] = self._turns.take_all(measured[keyless])
        return chosen

    def on_new_batch(self, partition: int) -> None:
        """Do nothing: when batches begin is what this partitioner must not depend on."""

    def update_leaders(self, available: Iterable[int] | None) -> None:
        """Replace the partitions that have a leader; None if that is unknown, and all count as having one.

        The others get no keyless record until they are named again. If no partition has a leader, all get some: the
        records have to wait anyway. A partition that loses its leader gives up its turn at once. One that gets a leader
        takes part from the next round on: from that round, no two partitions differ by as much as a turn and two of the
        largest records. Nothing is paid back for the time without one. Keyed records are not affected.

        Errors: `InputError` for what is no partition. O(partitions).

        >>> p = UniformStickyPartitioner(3, PartitionerConfig(sticky_batch_size=1), seed=1)
        >>> p.update_leaders([0, 2])
        >>> sorted(p.assign([1] * 6).tolist())
        [0, 0, 0, 2, 2, 2]
        """
        everyone = range(self._partitions)
        if isinstance(available, str | bytes) or not isinstance(available, Iterable | None):
            raise InputError(
                "available", found=available, expected="a list of partitions with a leader, or None"
            )
        led = [
            _whole(p, "available", self._partitions - 1)
            for p in (everyone if available is None else available)
        ]
        self._leaderless = frozenset(everyone).difference(led)
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
        before = self._partitions
        if _count(partitions) < before:
            raise InputError("partitions", found=partitions, expected=f"at least {before}, the number so far")
        if partitions > before:
            self._partitions = partitions
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
        `partitioner.adaptive.partitioning.enable`, the arguments are checked and nothing changes.
        """
        lengths, waited = self._load(queues, "queues"), self._load(waited_ms, "waited_ms")
        if self.config.adaptive:
            limit = self.config.availability_timeout_ms
            self._queues = lengths
            self._late = frozenset(p for p, waits in waited.items() if limit and waits >= limit)
            self._update()

    def _load(self, values: Mapping[int, int] | None, path: str) -> dict[int, int]:
        found = {} if values is None else validation.mapping(values, path)
        return {_whole(p, path, self._partitions - 1): _whole(value, path) for p, value in found.items()}

    def _update(self) -> None:
        """Have those partitions take part that have a leader and a queue and are not late, as far as there are any.

        The weight of a partition is (longest queue + 1 - its queue). These are the rules of Kafka's Java producer.
        """
        everyone = range(self._partitions)
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


_KEYLESS = -1  # in place of a partition


def _count(value: int, path: str = "partitions") -> int:
    """Return `value` if it can be the number of partitions of a topic."""
    validation.integer(value, path, 1, MOST_COUNTED)
    return value


def _whole(value: Any, path: str, most: int = _MOST) -> int:
    """Return an integer from 0 to `most`, of Python or numpy, as one of Python."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= most:
        raise InputError(path, found=value, expected=f"an integer from 0 to {most}")
    return int(value)


def _sizes(sizes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sizes of a batch of records as a column."""
    listed = isinstance(sizes, Sequence) and not isinstance(sizes, str | bytes)
    if not (sizes.ndim == 1 if isinstance(sizes, np.ndarray) else listed):
        raise InputError("sizes", found=sizes, expected="a one-dimensional list of sizes in bytes")
    whole = isinstance(sizes, np.ndarray) and sizes.dtype.kind in "iu"
    if not whole or ((np.asarray(sizes) < 0) | (np.asarray(sizes) > MOST_BYTES)).any():
        for k, size in enumerate(sizes):  # numpy would turn booleans and fractions into integers
            _whole(size, f"sizes[{k}]", MOST_BYTES)
    return np.asarray(sizes, np.int64)


# ------------------------------------------------------------------------------------------------- many topics


@dataclass
class _Topic:
    """A topic's partitioner, made when it is first used under the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    partitioner: UniformStickyPartitioner | None = None


class TopicPartitioner:
    """Partitions records of many topics, for many threads: a `UniformStickyPartitioner` for each topic, with its lock.

    Properties: each topic is as uniform as with one thread, whichever threads send how much of it. A topic's order of
    turns comes from `seed` and its name alone, whatever topics are used before it; with several threads, the order of
    their records decides which record gets which turn. Threads wait for each other within a topic only.

    `partitions`: the number of partitions of each topic, or a function that returns it for a topic. The function is
    called for each record or batch under the topic's lock, so it has to be fast; growth is noticed at once.

    Errors: as for `UniformStickyPartitioner`; `InputError` for a topic that is not in `partitions`, and for one
    with fewer partitions than before (see `forget`).

    >>> p = TopicPartitioner({"flights": 3, "weather": 2}, PartitionerConfig(sticky_batch_size=100), seed=1)
    >>> [p.partition("flights", None, 50) for _ in range(6)]
    [2, 2, 1, 1, 0, 0]
    >>> p.assign("weather", [100, 100, 100, 100]).tolist()
    [1, 0, 1, 0]
    """

    def __init__(
        self,
        partitions: Mapping[str, int] | Callable[[str], int],
        config: PartitionerConfig | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.config = PartitionerConfig() if config is None else config
        validation.of_type(self.config, PartitionerConfig, "config")
        validation.integer(seed, "seed")
        self._seed = seed
        self._ask = partitions if callable(partitions) else None
        self._counts: dict[str, int] = {}
        if not callable(partitions):
            counts = validation.mapping(partitions, "partitions")
            self._counts = {topic: _count(n, f"partitions.{topic}") for topic, n in counts.items()}
        self._topics: dict[str, _Topic] = {}
        self._lock = threading.Lock()  # of the two dictionaries; held for a moment only

    def partition(self, topic: str, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes."""
        own = self._topic(topic)
        with own.lock:
            return self._partitioner(topic, own).partition(key, size)

    def assign(
        self, topic: str, sizes: Sequence[int] | NDArray[np.int64], keys: Iterable[bytes | None] | None = None
    ) -> NDArray[np.int64]:
        """Return the partitions of a whole batch of records of a topic, in order; no other thread comes between."""
        own = self._topic(topic)
        with own.lock:
            return self._partitioner(topic, own).assign(sizes, keys)

    def on_new_batch(self, topic: str, partition: int) -> None:
        """Do nothing: when batches begin is what this partitioner must not depend on."""

    def update_partitions(self, topic: str, partitions: int) -> None:
        """Replace the number of partitions of a topic, which may be new; see `UniformStickyPartitioner`.

        Errors: `InputError` where `partitions` is a function: it is asked.
        """
        if self._ask is not None:
            expected = "no number, because the function returns it"
            raise InputError("partitions", found=partitions, expected=expected)
        path = f"partitions.{topic}"
        with self._lock:
            before = self._counts.get(topic, 0)
            if _count(partitions, path) < before:
                raise _fewer(path, partitions, before)
            self._counts[topic] = partitions

    def update_leaders(self, topic: str, available: Iterable[int] | None) -> None:
        """Replace the partitions of a topic that have a leader; see `UniformStickyPartitioner`."""
        own = self._topic(topic)
        with own.lock:
            self._partitioner(topic, own).update_leaders(available)

    def update_load(
        self, topic: str, queues: Mapping[int, int] | None, waited_ms: Mapping[int, int] | None = None
    ) -> None:
        """Adaptive: replace what is known of the queues of a topic's partitions; see `UniformStickyPartitioner`."""
        own = self._topic(topic)
        with own.lock:
            self._partitioner(topic, own).update_load(queues, waited_ms)

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted; when it is used again, it begins anew, with any number of partitions.

        Where `partitions` is a mapping, the topic is unknown until `update_partitions` names it again.
        """
        with self._lock:
            self._counts.pop(topic, None)
            self._topics.pop(topic, None)

    def _topic(self, topic: str) -> _Topic:
        """Return the entry of a topic; a new one has no partitioner until it is used."""
        entry = self._topics.get(topic)
        if entry is None:
            validation.text(topic, "topic")
            if self._ask is None:
                self._count(topic)  # an unknown topic leaves no entry
            with self._lock:
                entry = self._topics.setdefault(topic, _Topic())
        return entry

    def _partitioner(self, topic: str, own: _Topic) -> UniformStickyPartitioner:
        """Return the partitioner of a topic whose lock is held, with as many partitions as the topic has now."""
        count = self._count(topic)
        if own.partitioner is None:
            seed = _topic_seed(self._seed, topic)
            own.partitioner = UniformStickyPartitioner(count, self.config, seed=seed)
        before = own.partitioner.partitions
        if count < before:
            raise _fewer(f"partitions.{topic}", count, before)
        if count > before:
            own.partitioner.update_partitions(count)
        return own.partitioner

    def _count(self, topic: str) -> int:
        """Return how many partitions a topic has now."""
        if self._ask is not None:
            return _count(self._ask(topic), f"partitions.{topic}")
        count = self._counts.get(topic)
        if count is None:
            known = sorted(self._counts)
            nearest = validation.nearest(topic, known)
            raise InputError("topic", found=topic, expected=f"one of {len(known)} topics", hint=nearest)
        return count


def _fewer(path: str, count: int, before: int) -> InputError:
    return InputError(path, found=count, expected=f"at least {before}, the number so far", hint=_FORGET)


def _topic_seed(seed: int, topic: str) -> int:
    """Return the seed of a topic: a hash of its name and of the common seed, the same in every process."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{topic}".encode()).digest()[:8], "big") >> 1
