"""The configuration of the partitioners: Kafka's keys, with its defaults except for adaptive turns."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from taskplace.model.keys import Configuration, Count, about


class PartitionerConfig(Configuration, frozen=True):
    """Kafka's keys; sizes in bytes, times in milliseconds. docs/configuration.md lists them.

    >>> PartitionerConfig.from_properties({"batch.size": 1000}).turn
    1000
    >>> PartitionerConfig.from_properties({"partitioner.ignore.key": True})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.partitioner.ignore.key: ... did you mean 'partitioner.ignore.keys'?
    """

    sticky_batch_size: Annotated[
        Count,
        about(
            "bytes that go to a partition before the next one is chosen; 0: use `batch.size`", unit="bytes"
        ),
    ] = field(name="partitioner.sticky.batch.size", default=0)
    batch_size: Annotated[Count, about("used if `partitioner.sticky.batch.size` is 0", unit="bytes")] = 16384
    ignore_keys: Annotated[bool, about("treat records with a key as records without one")] = field(
        name="partitioner.ignore.keys", default=False
    )
    adaptive: Annotated[
        bool,
        about(
            "choose partitions with shorter queues more often; KIP-794's first version says false, "
            "Kafka's default is true"
        ),
    ] = field(name="partitioner.adaptive.partitioning.enable", default=False)
    availability_timeout_ms: Annotated[
        Count,
        about(
            "with adaptive partitioning: skip a partition that was not drained for this long; 0: never skip"
        ),
    ] = field(name="partitioner.availability.timeout.ms", default=0)

    @property
    def turn(self) -> int:
        """The length of a turn in bytes; at least 1, which moves on with every record."""
        return self.sticky_batch_size or self.batch_size or 1
