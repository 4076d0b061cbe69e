"""The assignors of `taskplace.partitions` as strategies of a group.

What members own travels in their metadata, with its generation, so any member can be sticky: a new leader as
well as everybody for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskplace.errors import InputError
from taskplace.group.assigner import ConsumerMetadata, PartitionAssigner, Shares
from taskplace.group.topics import Topics
from taskplace.validation import integer, nearest
from topology.node import TopicPartition

NAMES = ("fair_sticky", "sticky_fair", "fair", "range", "round_robin", "copartitioned")
MOST_REPLICAS = 1_000


class Strategy(PartitionAssigner[None]):
    """An assignor by its name: `fair_sticky` (KIP-54), `sticky_fair`, `fair`, `range`, `round_robin`, `copartitioned`.

    `replicas`, `seed`: standbys of each partition and the seed of their spread (`copartitioned` only). They are
    part of the name, so that members that are set up differently do not share a protocol.
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

    def __init__(
        self,
        assignor: str = "fair_sticky",
        *,
        version: int = 0,
        racks: bool = False,
        replicas: int = 0,
        seed: int = 0,
    ) -> None:
        if assignor not in NAMES:
            raise InputError(
                "assignor", found=assignor, expected=", ".join(NAMES), hint=nearest(assignor, NAMES)
            )
        integer(replicas, "replicas", 0, MOST_REPLICAS)
        integer(seed, "seed")
        if (replicas or seed) and assignor != "copartitioned":
            asked = {"assignor": assignor, "replicas": replicas, "seed": seed}
            raise InputError(
                "replicas",
                found=asked,
                expected="the assignor 'copartitioned', which supports standbys and a seed",
            )
        self.assignor = assignor
        self.name = f"{assignor}/{replicas}/{seed}" if replicas or seed else assignor
        self.replicas = replicas
        self.seed = seed
        self.replicates = replicas > 0
        self.metadata_version = 2 if self.replicates else 1
        self.version = version
        self.looks_at_leaders = racks
        self.remembers = assignor in ("fair_sticky", "sticky_fair", "copartitioned")
        self._leaders: Mapping[str, tuple[str, ...]] = {}

    def see(self, topics: Topics) -> None:
        """Take note of where the leaders are."""
        self._leaders = topics.leaders if self.looks_at_leaders else {}

    def assign_all(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[None]]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of all consumers."""
        made = self.shares(partitions_per_topic, consumers)
        return {name: list(held) for name, held in made.active.items()}

    def shares(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[None]]
    ) -> Shares:
        """Return the partitions of all consumers and their standbys, with what could not be met."""
        from taskplace.partitions import Member, Subscriptions, assign_partitions  # which need numpy

        members = {
            c.name: Member(
                c.topics, c.owned, c.generation if c.owned else -1, c.rack or None, standby=c.standby
            )
            for c in consumers
        }
        racks = {
            topic: [[rack] for rack in self._leaders[topic]]
            for topic in partitions_per_topic
            if topic in self._leaders
        }
        asked = Subscriptions(partitions_per_topic, members, racks, replicas=self.replicas, seed=self.seed)
        made = assign_partitions(asked, self.assignor)
        return Shares(
            {c.name: made.assignment.get(c.name, ()) for c in consumers},
            made.standby,
            made.followup,
            made.warnings,
        )
