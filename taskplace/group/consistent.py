"""Consistent hashing: every partition has its owners by a hash, so members need not see the same partition counts.

Members stand on a ring, each at many points. A partition looks for its owner from its own point on; a member
that has its share is passed over. Further owners, if asked for, are those who follow the first in a fixed order
of the members. The share grows with the partition number, so who owns partition p depends on the partitions
below p and on the members alone: two members that see 12 and 14 partitions of a topic agree on the first 12.

Properties, for each topic, with n partitions, m members subscribed to it, and r owners each:
- spread: nobody has more than r * ceil((1 + slack) * n / m) partitions of the topic;
- agreement: the owners of a partition do not depend on n, nor on any other topic;
- stability: a change of members moves the share of who came or went, and what the limits push on: little with
  much slack, several shares with little, half of all partitions with none (`benchmarks/bench_consistent_hash.py`);
- redundancy: the r owners of a partition are different members; with fewer than r members all of them own it, and
  a warning says so.

Work: n * (r + log(points of the ring)), and the walk past full members.

Source: "Metadata" in the client-side assignment proposal; consistent hashing with bounded loads (Mirrokni, Thorup,
Zadimoghaddam 2016), here with limits that grow as the partitions come.
"""

from __future__ import annotations

import hashlib
import logging
import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from fractions import Fraction

from taskplace.errors import InputError
from taskplace.group.assigner import ConsumerMetadata, PartitionAssigner
from topology.node import TopicPartition

log = logging.getLogger(__name__)


class ConsistentHash(PartitionAssigner[None]):
    """Owners by hash. `owners` of each partition; `slack` is how much above the mean is allowed; `points` on
    the ring.

    >>> consumers = [ConsumerMetadata(name, ("t",), None) for name in "abc"]
    >>> twelve, some_more = (ConsistentHash().assign("a", {"t": n}, consumers) for n in (12, 14))
    >>> twelve == some_more[: len(twelve)]
    True
    """

    name = "consistent-hash"
    needs_agreement = False

    def __init__(self, *, owners: int = 1, slack: float = 0.25, points: int = 64) -> None:
        if owners < 1 or points < 1 or not 0 <= slack < math.inf:
            raise InputError(
                "consistent-hash",
                found=(owners, slack, points),
                expected="owners and points of at least 1, slack of at least 0",
            )
        self.owners = owners
        self.slack = slack
        self.points = points

    def assign(
        self,
        consumer: str,
        partitions_per_topic: Mapping[str, int],
        consumers: Sequence[ConsumerMetadata[None]],
    ) -> list[TopicPartition]:
        """Return what `consumer` owns."""
        own = next(c.topics for c in consumers if c.name == consumer)
        topics = {topic: count for topic, count in partitions_per_topic.items() if topic in own}
        return self.assign_all(topics, consumers)[consumer]

    def assign_all(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[None]]
    ) -> dict[str, list[TopicPartition]]:
        """Return what everybody owns."""
        owned: dict[str, list[TopicPartition]] = {c.name: [] for c in consumers}
        rings: dict[tuple[str, ...], tuple[list[int], list[str]]] = {}
        short = 0
        for topic, count in partitions_per_topic.items():
            members = tuple(sorted(c.name for c in consumers if topic in c.topics))
            if not members:
                continue
            if members not in rings:
                rings[members] = self._ring(members)
            short += count if len(members) < self.owners else 0
            for partition, names in enumerate(self._owners(topic, count, members, rings[members])):
                for name in names:
                    owned[name].append(TopicPartition(topic, partition))
        if short:
            log.warning(
                "%d partitions got fewer than %d owners, because too few members subscribe to them; "
                "add members",
                short,
                self.owners,
            )
        return owned

    def _ring(self, members: Sequence[str]) -> tuple[list[int], list[str]]:
        # Sorted by point and then by name: the same ring everywhere, should two points meet.
        ring = sorted((_point(f"{k}:{name}"), name) for name in members for k in range(self.points))
        return [point for point, _ in ring], [name for _, name in ring]

    def _owners(
        self, topic: str, count: int, members: Sequence[str], ring: tuple[list[int], list[str]]
    ) -> list[list[str]]:
        points, names = ring
        # A chain by hash: whoever comes or goes changes the followers of its neighbours only.
        chain = sorted(members, key=lambda name: (_point(name), name))
        place = {name: k for k, name in enumerate(chain)}
        each = min(self.owners, len(members))
        load = dict.fromkeys(members, 0)
        # Exact: a limit that is rounded differently somewhere would be another assignment.
        share = Fraction(str(1 + self.slack)) / len(members)
        owners = []
        for partition in range(count):
            limit = math.ceil(share * (partition + 1))  # times the members, more than there is: the walk ends
            at = bisect(points, _point(f"{topic}/{partition}")) % len(names)
            while load[names[at]] >= limit:
                at = (at + 1) % len(names)
            load[names[at]] += 1
            first = place[names[at]]
            owners.append([chain[(first + k) % len(chain)] for k in range(each)])
        return owners


def _point(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
