"""Which partition a record goes to: keyed ones by Kafka's hash, keyless ones in turns that are measured in bytes.

Kafka's first sticky partitioner moved on whenever a batch was sent. A slow broker sends its batches late, so it
kept the turn longer and got more records, which made it slower. `UniformStickyPartitioner` moves on after so
many *bytes*, whatever the brokers do.

Properties:
- strictly uniform: at any time, no two partitions differ by as much as a turn and the largest record, in bytes; a turn
  that ran over is paid back with the partition's next one (deficit round robin);
- sticky: consecutive records stay together for a whole turn;
- a partition without a leader gets no keyless record, as long as another has one; what it misses is not paid back:
  it comes back with the next round, level with the others;
- keyed records go where Kafka's own producers put them, and do not count for the turns;
- reproducible: the order of the turns comes from `seed` and nothing else; `assign` for a whole batch gives
  exactly what `partition` gives record by record;
- `UniformStickyPartitioner` is for one topic and one thread at a time; `TopicPartitioner` is for many of both.

Non-goals: buffering and sending. Adaptive turns (by queue size, slow partitions left out) are an option:
they give up uniformity for throughput, which the text rejects; Kafka's released producer has them on by
default, here they are off.

Source: KIP-794, first version (uniform) and as released (adaptive).
"""

from __future__ import annotations

import hashlib
import random
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model.keys import Boolean, Configuration, Integer, key

MOST_BYTES = 2**50
"""The largest record: far more than anybody sends, and thousands of them can be summed in a column."""

_SIZE = f"a whole number of bytes, 0 to {MOST_BYTES}"
_MOST = 2**63 - 1
#: The most partitions of a topic that a partitioner keeps account of.
MOST_COUNTED = 10_000_000

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C
_WORD = struct.Struct("<I")


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key: 32-bit murmur2 with Kafka's seed, as an unsigned number.

    >>> murmur2(b"21") == -973932308 % 2**32
    True
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InputError("key", found=data, expected="bytes: a key as it is sent")
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for (k,) in _WORD.iter_unpack(data[:whole]):
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's producers choose for a key.

    >>> partition_for_key(b"foobar", 12)
    6
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner(Protocol):
    """A partitioner of one's own: what a producer calls."""

    def partition(self, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes."""

    def on_new_batch(self, partition: int) -> None:
        """Take note that a new batch has begun for `partition`: its last one is full, or on its way."""


@dataclass(frozen=True)
class PartitionerConfig(Configuration):
    """Kafka's keys; sizes in bytes, times in milliseconds. docs/configuration.md lists them.

    >>> PartitionerConfig.from_properties({"batch.size": 1000}).turn
    1000
    >>> PartitionerConfig.from_properties({"partitioner.ignore.key": True})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.partitioner.ignore.key: ... did you mean 'partitioner.ignore.keys'?
    """

    sticky_batch_size: int = key(
        Integer(0), 0, "length of a turn; 0: `batch.size`", name="partitioner.sticky.batch.size"
    )
    batch_size: int = key(Integer(0), 16_384, "length of a turn where the key above is 0")
    ignore_keys: bool = key(
        Boolean(), False, "treat keyed records as keyless", name="partitioner.ignore.keys"
    )
    adaptive: bool = key(
        Boolean(),
        False,
        "turns in proportion to how short queues are; false is the text's choice, Kafka's default is true",
        name="partitioner.adaptive.partitioning.enable",
    )
    availability_timeout_ms: int = key(
        Integer(0),
        0,
        "adaptive: leave out what was not drained for so long; 0: never",
        name="partitioner.availability.timeout.ms",
    )

    @property
    def turn(self) -> int:
        """The length of a turn in bytes; at least 1, which moves on with every record."""
        return self.sticky_batch_size or self.batch_size or 1


class UniformStickyPartitioner:
    """Partitions records of one topic with `partitions` partitions.

    For one thread at a time: calls of several threads have to be kept apart, as `TopicPartitioner` does.

    >>> p = UniformStickyPartitioner(3, PartitionerConfig(sticky_batch_size=100), seed=1)
    >>> [p.partition(None, 50) for _ in range(6)]
    [1, 1, 2, 2, 0, 0]
    >>> p.assign([50, 50, 50]).tolist()
    [2, 2, 1]
    """

    def __init__(self, partitions: int, config: PartitionerConfig | None = None, *, seed: int = 0) -> None:
        self.partitions = _partition_count(partitions)
        self.config = PartitionerConfig() if config is None else config
        validation.of_type(self.config, PartitionerConfig, "config")
        validation.integer(seed, "seed")
        self._random = random.Random(seed)
        self._credit = [
            0
        ] * partitions  # bytes that a partition may still get; negative after a turn that ran over
        self._round: list[int] = []  # who has still to come, last first
        self._leaderless: frozenset[int] = frozenset()
        self._queues: dict[int, int] | None = None  # what `update_load` said last
        self._late: frozenset[int] = frozenset()
        self._weights: list[int] | None = None
        self._usable: list[int] = list(range(partitions))  # who takes part in rounds, ascending
        self._current = self._next()

    def partition(self, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes; a turn ends with the record that completes it."""
        if key is not None and not self.config.ignore_keys:
            return partition_for_key(key, self.partitions)
        if not _is_size(size):
            raise InputError("size", found=size, expected=_SIZE)
        size = int(size)  # a number of numpy's would overflow
        chosen = self._current
        self._credit[chosen] -= size
        if self._credit[chosen] <= 0:
            self._current = self._next()
        return chosen

    def assign(
        self, sizes: Sequence[int] | NDArray[np.int64], keys: Iterable[bytes | None] | None = None
    ) -> NDArray[np.int64]:
        """Return the partitions of a whole batch of records, in order; `sizes` in bytes, a key or None for each.

        Exactly what `partition` would return for one after the other. Work: the records, and a step for each turn.
        """
        measured = _measured(sizes)
        chosen = np.empty(len(measured), np.int64)
        keyless = np.ones(len(measured), bool)
        if keys is not None and not self.config.ignore_keys:
            listed = list(keys)
            if len(listed) != len(measured):
                raise InputError(
                    "keys", found=f"{len(listed)} keys", expected=f"{len(measured)}, as many as sizes"
                )
            for k, key in enumerate(listed):
                if key is not None:
                    chosen[k], keyless[k] = partition_for_key(key, self.partitions), False
        chosen[keyless] = self._turns(measured[keyless])
        return chosen

    def on_new_batch(self, partition: int) -> None:
        """Do nothing: when batches begin is what this partitioner must not depend on."""

    def update_leaders(self, available: Iterable[int] | None) -> None:
        """Take note of which partitions have a leader; None if it is not known, and all are taken to have one.

        The others get no keyless record until they are named again. If no partition has a leader, all get some: the
        records have to wait anyway. A partition that loses its leader gives up its turn at once. One that gets a leader
        takes part from the next round on: from that round, no two partitions differ by as much as a turn and two of the
        largest records. Nothing is paid back for the time without one. Keyed records go where they went.

        Errors: `InputError` for what is no partition. O(partitions).

        >>> p = UniformStickyPartitioner(3, PartitionerConfig(sticky_batch_size=1), seed=1)
        >>> p.update_leaders([0, 2])
        >>> sorted(p.assign([1] * 6).tolist())
        [0, 0, 0, 2, 2, 2]
        """
        led = (
            range(self.partitions) if available is None else _numbers(available, "available", self.partitions)
        )
        self._leaderless = frozenset(range(self.partitions)).difference(led)
        self._settle()

    def update_partitions(self, partitions: int) -> None:
        """Take note of how many partitions the topic has now; new ones take part from the next round on.

        New partitions count as having a leader. Adaptive: what is known of the load is forgotten, since it says nothing
        of them; turns are uniform until the next `update_load`.

        Errors: `InputError` for fewer than before: a topic's partitions only become more. Start anew for a topic that
        was deleted and created again.

        >>> p = UniformStickyPartitioner(1, PartitionerConfig(sticky_batch_size=1))
        >>> p.update_partitions(2)
        >>> sorted(p.assign([1] * 5).tolist())  # the round of one partition was dealt already
        [0, 0, 0, 1, 1]
        """
        if _partition_count(partitions) < self.partitions:
            raise InputError(
                "partitions", found=partitions, expected=f"at least {self.partitions}, as before"
            )
        if partitions == self.partitions:
            return
        self._credit += [0] * (partitions - self.partitions)
        self.partitions = partitions
        self._queues, self._late = None, frozenset()
        self._settle()

    def update_load(
        self, queues: Mapping[int, int] | None, waited_ms: Mapping[int, int] | None = None
    ) -> None:
        """Adaptive: take note of how many batches wait for each partition, and for how long the first of them has.

        A partition then gets turns in proportion to (longest queue + 1 - its queue). One that has waited for
        `partitioner.availability.timeout.ms` gets none; so does one that is not in `queues` (it has no leader),
        unless that would leave nobody: then turns are uniform. None as `queues` forgets the load, and turns are uniform
        again. Nothing happens unless `partitioner.adaptive.partitioning.enable` is set.
        """
        given = {} if queues is None else queues
        for path, told in (("queues", given), ("waited_ms", {} if waited_ms is None else waited_ms)):
            for partition, value in _mapped(told, path).items():
                counts = _is_count(partition) and _is_count(value)
                if not counts or not 0 <= partition < self.partitions or value < 0:
                    found = {partition: value}
                    raise InputError(
                        path, found=found, expected=f"0 or more for partitions below {self.partitions}"
                    )
        if not self.config.adaptive:
            return
        limit = self.config.availability_timeout_ms
        self._queues = None if queues is None else {int(p): int(n) for p, n in queues.items()}
        self._late = frozenset(p for p, waited in (waited_ms or {}).items() if limit and waited >= limit)
        self._settle()

    def _settle(self) -> None:
        """Work out who takes part, and by what weights, from what is known of leaders and load."""
        everyone = range(self.partitions)
        led = [p for p in everyone if p not in self._leaderless] or list(everyone)
        queues = {} if self._queues is None else self._queues
        ready = [p for p in led if p in queues and p not in self._late]
        usable = ready or [p for p in led if p in queues] or led
        longest = max((queues[p] for p in ready), default=0)
        weights = [longest + 1 - queues[p] for p in ready]
        before, self._usable = self._usable, usable
        self._weights = weights if len(set(weights)) > 1 else None
        if usable == before:
            return
        now = set(usable)
        self._round = [p for p in self._round if p in now]
        for p in now.difference(before):
            self._credit[p] = 0  # neither what it owed nor what it was owed when it left
        if self._current not in now:
            self._current = self._next()

    # ------------------------------------------------------------------------------------------- turns

    def _next(self) -> int:
        """Return whose turn it is next, with a turn's credit."""
        while True:
            if self._weights is not None:
                # By weight, at random: uniformity is given up, so nothing is owed either.
                chosen = self._random.choices(self._usable, self._weights)[0]
                self._credit[chosen] = self.config.turn
                self._round.clear()
                return chosen
            if not self._round:
                # Every round in another order: no two partitions are always neighbours.
                self._round = self._random.sample(self._usable, len(self._usable))
                # A record of many turns' size is paid back over many rounds: those without a turn are one step.
                owed = -max(self._credit[p] for p in self._usable)
                for p in self._usable if owed >= self.config.turn else ():
                    self._credit[p] += owed // self.config.turn * self.config.turn
            chosen = self._round.pop()
            self._credit[chosen] += self.config.turn
            if self._credit[chosen] > 0:
                return chosen

    def _turns(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        most = 2**62 // int(sizes.max(initial=1))  # so many can be summed in a column
        if len(sizes) > most:
            parts = [self._turns(sizes[at : at + most]) for at in range(0, len(sizes), most)]
            return np.concatenate(parts)
        chosen = np.empty(len(sizes), np.int64)
        total = np.cumsum(sizes)
        at, before = 0, 0
        while at < len(sizes):
            # The record that completes the turn is the first with which the sum reaches the credit.
            credit = self._credit[self._current]
            last = int(np.searchsorted(total, min(before + credit, _MOST), side="left"))
            end = min(last + 1, len(sizes))
            chosen[at:end] = self._current
            self._credit[self._current] -= int(total[end - 1]) - before
            at, before = end, int(total[end - 1])
            if self._credit[chosen[end - 1]] <= 0:
                self._current = self._next()
        return chosen


class TopicPartitioner:
    """Partitions records of many topics, for many threads: a `UniformStickyPartitioner` for each topic, with its lock.

    Properties: each topic is as uniform as with one thread, whichever threads send how much of it. A topic's order of
    turns comes from `seed` and its name alone, whatever topics are used before it; which record gets which place in it
    is up to the threads. Threads wait for each other within a topic only.

    `partitions`: the number of partitions of each topic; or a function that gives it for a topic. The function is
    called for each record or batch, under the topic's lock, so it has to be fast, and sees to growing numbers.

    Errors: as for `UniformStickyPartitioner`; `InputError` for a topic that `partitions` does not have, and for one
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
        self._seed = validation.integer(seed, "seed")
        self._ask = partitions if callable(partitions) else None
        self._counts: dict[str, int] = {}
        if not callable(partitions):
            self._counts = {
                t: _partition_count(n, f"partitions.{t}")
                for t, n in _mapped(partitions, "partitions").items()
            }
        self._topics: dict[str, _Topic] = {}
        self._lock = threading.Lock()  # of the two dicts; held for a moment only

    def partition(self, topic: str, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes."""
        own = self._topic(topic)
        with own.lock:
            return self._partitioner(topic, own).partition(key, size)

    def assign(
        self,
        topic: str,
        sizes: Sequence[int] | NDArray[np.int64],
        keys: Iterable[bytes | None] | None = None,
    ) -> NDArray[np.int64]:
        """Return the partitions of a whole batch of records of a topic, in order; no other thread comes between."""
        own = self._topic(topic)
        with own.lock:
            return self._partitioner(topic, own).assign(sizes, keys)

    def on_new_batch(self, topic: str, partition: int) -> None:
        """Do nothing: when batches begin is what this partitioner must not depend on."""

    def update_partitions(self, topic: str, partitions: int) -> None:
        """Take note of how many partitions a topic has now, also of a new topic; see `UniformStickyPartitioner`.

        Errors: `InputError` where `partitions` is a function: it is asked.
        """
        if self._ask is not None:
            raise InputError(
                "partitions", found=partitions, expected="no number: the function is asked for it"
            )
        with self._lock:
            before = self._counts.get(topic, 0)
            if _partition_count(partitions, f"partitions.{topic}") < before:
                raise InputError(
                    f"partitions.{topic}",
                    found=partitions,
                    expected=f"at least {before}, as before",
                    hint=_FORGET,
                )
            self._counts[topic] = partitions

    def update_leaders(self, topic: str, available: Iterable[int] | None) -> None:
        """Take note of which partitions of a topic have a leader; see `UniformStickyPartitioner`."""
        own = self._topic(topic)
        with own.lock:
            self._partitioner(topic, own).update_leaders(available)

    def update_load(
        self, topic: str, queues: Mapping[int, int] | None, waited_ms: Mapping[int, int] | None = None
    ) -> None:
        """Adaptive: take note of what waits for the partitions of a topic; see `UniformStickyPartitioner`."""
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
        """Return what there is of a topic, with its lock; a new one is empty until it is used."""
        found = self._topics.get(topic)
        if found is None:
            validation.text(topic, "topic")
            if self._ask is None:
                self._count(topic)  # nothing is kept of a topic that there is not
            with self._lock:
                found = self._topics.setdefault(topic, _Topic())
        return found

    def _partitioner(self, topic: str, own: _Topic) -> UniformStickyPartitioner:
        """Return the partitioner of a topic whose lock is held, with as many partitions as the topic has now."""
        count = self._count(topic)
        if own.partitioner is None:
            own.partitioner = UniformStickyPartitioner(
                count, self.config, seed=_topic_seed(self._seed, topic)
            )
        elif count != own.partitioner.partitions:
            if count < own.partitioner.partitions:
                least = own.partitioner.partitions
                raise InputError(
                    f"partitions.{topic}", found=count, expected=f"at least {least}, as before", hint=_FORGET
                )
            own.partitioner.update_partitions(count)
        return own.partitioner

    def _count(self, topic: str) -> int:
        if self._ask is not None:
            return _partition_count(self._ask(topic), f"partitions.{topic}")
        count = self._counts.get(topic)
        if count is None:
            known = sorted(self._counts)
            raise InputError(
                "topic",
                found=topic,
                expected=f"one of {len(known)} topics",
                hint=validation.nearest(topic, known),
            )
        return count


_FORGET = "forget(topic), if it was deleted and created again"


@dataclass
class _Topic:
    """A topic's partitioner, made when it is first used under the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    partitioner: UniformStickyPartitioner | None = None


def _topic_seed(seed: int | None, topic: str) -> int:
    """Return the seed of a topic: a hash of its name and of the common seed, the same in every process."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{topic}".encode()).digest()[:8], "big") >> 1


def _partition_count(found: Any, path: str = "partitions") -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise InputError(path, found=found, expected="an integer of at least 1")
    if found > MOST_COUNTED:
        raise InputError(path, found=found, expected=f"at most {MOST_COUNTED}")
    return found


def _numbers(found: Any, path: str, partitions: int) -> list[int]:
    """Return partitions as numbers; `InputError` for the first that is none."""
    if isinstance(found, str | bytes) or not isinstance(found, Iterable):
        raise InputError(path, found=found, expected="partitions that have a leader, or None")
    listed = list(found)
    for p in listed:
        if not _is_count(p) or not 0 <= p < partitions:
            raise InputError(path, found=p, expected=f"partitions from 0 to {partitions - 1}")
    return [int(p) for p in listed]


def _mapped(found: Any, path: str) -> Mapping[Any, Any]:
    return validation.mapping(found, path)


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_size(size: object) -> bool:
    whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
    return whole and 0 <= size <= MOST_BYTES  # type: ignore[operator]


def _measured(sizes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return sizes as a column; `InputError` for the first that is none."""
    if isinstance(sizes, str | bytes | Mapping) or not isinstance(sizes, Sequence | np.ndarray):
        raise InputError("sizes", found=sizes, expected="a row of numbers of bytes")
    if isinstance(sizes, np.ndarray) and sizes.ndim != 1:
        raise InputError("sizes", found=f"{sizes.ndim} dimensions", expected="a row of numbers of bytes")
    if isinstance(sizes, np.ndarray) and sizes.dtype.kind in "iu":
        wrong = np.flatnonzero((sizes < 0) | (sizes > MOST_BYTES))
    else:  # numpy would take true, false and fractions for numbers: each is looked at
        wrong = np.array([k for k, size in enumerate(sizes) if not _is_size(size)], np.int64)
    if len(wrong):
        k = int(wrong[0])
        raise InputError(f"sizes[{k}]", found=sizes[k], expected=_SIZE)
    return np.asarray(sizes, np.int64)
