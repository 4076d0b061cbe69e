"""Partitions the records of one topic: keyed ones by hash, keyless ones in uniform turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from taskplace import validation
from taskplace.errors import InputError
from taskplace.groups import partitioner as arguments
from taskplace.groups.partitioner import Availability, Turns, partition_for_key
from taskplace.groups.settings import PartitionerConfig

_KEYLESS = -1  # in place of a partition


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
        self._availability = Availability(arguments.partition_count(partitions))
        self.config = PartitionerConfig() if config is None else config
        validation.of_type(self.config, PartitionerConfig, "config")
        validation.integer(seed, "seed")
        self._turns = Turns(partitions, self.config.turn, seed)

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic."""
        return self._availability.partitions

    def partition(self, key: bytes | None, size: int) -> int:
        """Return the partition of a record of `size` bytes; a turn ends with the record that completes it."""
        if key is not None and not self.config.ignore_keys:
            return partition_for_key(key, self.partitions)
        return self._turns.take(arguments.record_size(size))

    def assign(
        self, sizes: Sequence[int] | NDArray[np.int64], keys: Iterable[bytes | None] | None = None
    ) -> NDArray[np.int64]:
        """Return the partitions of a whole batch of records, in order; `sizes` in bytes, a key or None for each.

        Exactly what `partition` would return for one after the other. Work: the records, and a step for each turn.
        """
        measured = arguments.record_sizes(sizes)
        if keys is None or self.config.ignore_keys:
            return self._turns.take_all(measured)
        listed = list(keys)
        if len(listed) != len(measured):
            raise InputError(
                "keys", found=f"{len(listed)} keys", expected=f"{len(measured)} keys, one per size"
            )
        chosen = np.array([self._hashed(key) for key in listed], np.int64)
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
        self._settle(self._availability.with_leaders(available))

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
        if arguments.partition_count(partitions) < before:
            raise InputError("partitions", found=partitions, expected=f"at least {before}, the number so far")
        if partitions > before:
            self._turns.add_partitions(partitions - before)
            self._settle(self._availability.with_partitions(partitions))

    def update_load(
        self, queues: Mapping[int, int] | None, waited_ms: Mapping[int, int] | None = None
    ) -> None:
        """Adaptive: replace how many batches wait for each partition, and for how long the first of them has.

        A partition then gets turns in proportion to (longest queue + 1 - its queue). It gets none if it has waited for
        `partitioner.availability.timeout.ms`, or is missing in `queues` (it has no leader). If that leaves no
        partition, turns are uniform. None as `queues` forgets the load, and turns are uniform again. Without
        `partitioner.adaptive.partitioning.enable`, the arguments are checked and nothing changes.
        """
        self._settle(self._availability.with_load(queues, waited_ms, self.config))

    def _hashed(self, key: bytes | None) -> int:
        return _KEYLESS if key is None else partition_for_key(key, self.partitions)

    def _settle(self, availability: Availability) -> None:
        if availability == self._availability:
            return
        self._availability = availability
        self._turns.update(availability.candidates())
