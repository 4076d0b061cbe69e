"""Decides which partitions take part in the turns, and with which weights, from leaders and queues.

The rules are those of Kafka's Java producer (KIP-794); kafka-python and librdkafka do not have them. The load comes as
a whole, for all partitions at once, so nothing is gained by keeping partitions sorted between two loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from taskplace.groups import partitioner as arguments
from taskplace.groups.settings import PartitionerConfig


class Candidates(NamedTuple):
    """The partitions that take part, ascending; their weights, or None if all weigh the same."""

    partitions: list[int]
    weights: list[int] | None


@dataclass(frozen=True)
class Availability:
    """What is known of the partitions of a topic. Its methods return a new value.

    `queues`: how many batches wait for each partition, None if unknown; `late`: partitions whose first batch has waited
    for the availability timeout.

    >>> Availability(3).with_leaders([0, 2]).candidates()
    Candidates(partitions=[0, 2], weights=None)
    """

    partitions: int
    leaderless: frozenset[int] = frozenset()
    queues: Mapping[int, int] | None = None
    late: frozenset[int] = frozenset()

    def with_leaders(self, available: Iterable[int] | None) -> Availability:
        """Replace the partitions that have a leader; None: all of them."""
        everyone = range(self.partitions)
        led = (
            everyone
            if available is None
            else arguments.partition_numbers(available, "available", self.partitions)
        )
        return replace(self, leaderless=frozenset(everyone).difference(led))

    def with_partitions(self, partitions: int) -> Availability:
        """Replace the number of partitions; the load is forgotten, since it does not cover the new ones."""
        return replace(self, partitions=partitions, queues=None, late=frozenset())

    def with_load(
        self, queues: Mapping[int, int] | None, waited_ms: Mapping[int, int] | None, config: PartitionerConfig
    ) -> Availability:
        """Replace the load, if `config` has adaptive turns; the arguments are checked in any case."""
        lengths = arguments.load({} if queues is None else queues, "queues", self.partitions)
        waited = arguments.load({} if waited_ms is None else waited_ms, "waited_ms", self.partitions)
        if not config.adaptive:
            return self
        limit = config.availability_timeout_ms
        late = frozenset(p for p, waits in waited.items() if limit and waits >= limit)
        return replace(self, queues=None if queues is None else lengths, late=late)

    def candidates(self) -> Candidates:
        """Return who takes part: partitions that have a leader and a queue and are not late, as far as there are any.

        The weight of a partition is (longest queue + 1 - its queue).
        """
        everyone = range(self.partitions)
        led = [p for p in everyone if p not in self.leaderless] or list(everyone)
        queues = self.queues or {}
        queued = [p for p in led if p in queues]
        ready = [p for p in queued if p not in self.late]
        longest = max((queues[p] for p in ready), default=0)
        weights = [longest + 1 - queues[p] for p in ready]
        return Candidates(ready or queued or led, weights if len(set(weights)) > 1 else None)
