"""The configuration of the partitioners: Kafka's keys, with its defaults except for adaptive turns."""

from __future__ import annotations

from dataclasses import dataclass

from taskplace.model.keys import Boolean, Configuration, Integer, key


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
        Integer(0),
        0,
        "bytes that go to a partition before the next one is chosen; 0: use `batch.size`",
        name="partitioner.sticky.batch.size",
        unit="bytes",
    )
    batch_size: int = key(Integer(0), 16_384, "used if `partitioner.sticky.batch.size` is 0", unit="bytes")
    ignore_keys: bool = key(
        Boolean(), False, "treat records with a key as records without one", name="partitioner.ignore.keys"
    )
    adaptive: bool = key(
        Boolean(),
        False,
        "choose partitions with shorter queues more often; KIP-794's first version says false, Kafka's default is true",
        name="partitioner.adaptive.partitioning.enable",
    )
    availability_timeout_ms: int = key(
        Integer(0),
        0,
        "with adaptive partitioning: skip a partition that was not drained for this long; 0: never skip",
        name="partitioner.availability.timeout.ms",
    )

    @property
    def turn(self) -> int:
        """The length of a turn in bytes; at least 1, which moves on with every record."""
        return self.sticky_batch_size or self.batch_size or 1
