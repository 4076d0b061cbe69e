"""The assignors of `taskplace.partitions` as strategies of a group.

What members own travels in their metadata, with its generation, so any member can be sticky: a new leader as
well as everybody for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskplace.errors import InputError
from taskplace.group.assigner import ConsumerMetadata, PartitionAssigner
from taskplace.group.topics import Topics
from taskplace.model.reading import nearest
from topology.node import TopicPartition

NAMES = ("fair_sticky", "sticky_fair", "fair", "range", "round_robin", "copartitioned")


class Strategy(PartitionAssigner[None]):
    """An assignor by its name: `fair_sticky` (KIP-54), `sticky_fair`, `fair`, `range`, `round_robin`, `copartitioned`.

    `racks`: whether partitions prefer members in the rack of their leader; the metadata hash then covers leaders.
    The cooperative one is not here: this protocol rebalances eagerly.

    >>> consumers = [ConsumerMetadata(name, ("t",), None) for name in "ab"]
    >>> [p.partition for p in Strategy("range").assign("a", {"t": 3}, consumers)]
    [0, 1]
    >>> Strategy("fair_stiky")
    Traceback (most recent call last):
    taskplace.errors.InputError: assignor: found 'fair_stiky', expected fair_sticky, sticky_fair, fair, range, \
round_robin, copartitioned; did you mean 'fair_sticky'?
    """

    def __init__(self, assignor: str = "fair_sticky", *, version: int = 0, racks: bool = False) -> None:
        if assignor not in NAMES:
            raise InputError(
                "assignor", found=assignor, expected=", ".join(NAMES), hint=nearest(assignor, NAMES)
            )
        self.name = assignor
        self.version = version
        self.looks_at_leaders = racks
        self.remembers = assignor in ("fair_sticky", "sticky_fair", "copartitioned")
        self._leaders: Mapping[str, tuple[str, ...]] = {}

    def see(self, topics: Topics) -> None:
        """Take note of where the leaders are."""
        self._leaders = topics.leaders if self.looks_at_leaders else {}

    def assign(
        self,
        consumer: str,
        partitions_per_topic: Mapping[str, int],
        consumers: Sequence[ConsumerMetadata[None]],
    ) -> list[TopicPartition]:
        """Return the partitions of `consumer`."""
        return self.assign_all(partitions_per_topic, consumers)[consumer]

    def assign_all(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[None]]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of all consumers."""
        from taskplace.partitions import Member, Subscriptions, assign_partitions  # which need numpy

        members = {
            c.name: Member(c.topics, c.owned, c.generation if c.owned else -1, c.rack or None)
            for c in consumers
        }
        racks = {
            topic: [[rack] for rack in self._leaders[topic]]
            for topic in partitions_per_topic
            if topic in self._leaders
        }
        asked = Subscriptions(partitions_per_topic, members, racks)
        given = assign_partitions(asked, self.name).assignment
        return {c.name: [TopicPartition(*p) for p in given.get(c.name, ())] for c in consumers}
