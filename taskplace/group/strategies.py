"""The assignors of `taskplace.groups.partitions`, as strategies of a group.

A member's metadata has its partitions and their generation. So any member can assign stickily: a new leader, or in the
mode EVERY each member for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskplace.errors import InputError
from taskplace.groups.metadata import Topics
from taskplace.groups.strategies import ConsumerMetadata, PartitionAssigner, Shares
from taskplace.validation import integer, nearest
from topology.node import TopicPartition

NAMES = ("fair_sticky", "sticky_fair", "fair", "range", "round_robin", "copartitioned")
MOST_REPLICAS = 1_000


class Strategy(PartitionAssigner[None]):
    """An assignor by its name: `fair_sticky` (KIP-54), `sticky_fair`, `fair`, `range`, `round_robin`, `copartitioned`.

    - `replicas`, `seed`: standbys of each partition, and the seed of their spread (`copartitioned` only). They are part
      of the name, so members with other settings do not share the protocol
    - `racks`: whether partitions prefer members in the rack of their leader. The metadata hash then covers leaders

    There is no cooperative strategy, because this protocol rebalances eagerly.

    Errors: `InputError` for an unknown assignor (with the nearest name), and for standbys or a seed with any assignor
    but `copartitioned`.

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
        """Remember the racks of the leaders."""
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
        """Return the partitions and standbys of all consumers, with warnings for requirements that were not met."""
        from taskplace.groups.partitions import Member, Subscriptions, assign_partitions  # late: needs numpy

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
