"""Partitions the records of many topics, from many threads: one partitioner with a lock for each topic."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from taskplace import validation
from taskplace.errors import InputError
from taskplace.groups.partitioner import UniformStickyPartitioner, partition_count
from taskplace.groups.settings import PartitionerConfig

_FORGET = "forget(topic), if it was deleted and created again"


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
            self._counts = {topic: partition_count(n, f"partitions.{topic}") for topic, n in counts.items()}
        self._topics: dict[str, _Topic] = {}
        self._lock = threading.Lock()  # of the two dictionaries; held for a moment only

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
        """Replace the number of partitions of a topic, which may be new; see `UniformStickyPartitioner`.

        Errors: `InputError` where `partitions` is a function: it is asked.
        """
        if self._ask is not None:
            raise InputError(
                "partitions", found=partitions, expected="no number, because the function returns it"
            )
        path = f"partitions.{topic}"
        with self._lock:
            before = self._counts.get(topic, 0)
            if partition_count(partitions, path) < before:
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
            return partition_count(self._ask(topic), f"partitions.{topic}")
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
