"""Consistent hashing: a hash determines the owners of each partition, so members may see different partition counts.

Each member has many points on a ring. A partition goes to the member at the first point after its own, but members that
have reached their limit are skipped. Further owners, if configured, follow the first one in a fixed order of the
members. The limit grows with the partition number. So the owners of partition p depend only on the members and on the
partitions below p: two members that see 12 and 14 partitions of a topic agree on the first 12.

Properties, for each topic, with n partitions, m members subscribed to it, and r owners each:
- spread: no member has more than r * ceil((1 + slack) * n / m) partitions of the topic;
- agreement: the owners of a partition depend neither on n nor on other topics;
- stability: a change of members moves the share of the members that came or went, and partitions that the limits
  displace. These are few with much slack, several shares with little slack, and half of all partitions without slack
  (`benchmarks/bench_consistent_hash.py`);
- redundancy: the r owners of a partition are different members. With fewer than r members, all of them own it, and a
  warning is logged.

Work: n * (r + log(points of the ring)), and the steps past full members.

Source: "Metadata" in the client-side assignment proposal; consistent hashing with bounded loads (Mirrokni, Thorup,
Zadimoghaddam 2016), here with limits that grow with the partition number.
"""

from __future__ import annotations

import hashlib
import logging
import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from fractions import Fraction

from taskplace.errors import InputError
from taskplace.groups.strategies import ConsumerMetadata, PartitionAssigner
from topology.node import TopicPartition

log = logging.getLogger(__name__)


class ConsistentHash(PartitionAssigner[None]):
    """Assigns partitions by consistent hashing.

    - `owners`: the number of owners of each partition
    - `slack`: how much a member's load may exceed the mean, as a fraction
    - `points`: the number of points of each member on the ring

    Errors: `InputError` for numbers below these minimums: 1 owner, 1 point, slack 0.

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
        """Return the partitions that `consumer` owns."""
        own = next(c.topics for c in consumers if c.name == consumer)
        topics = {topic: count for topic, count in partitions_per_topic.items() if topic in own}
        return self.assign_all(topics, consumers)[consumer]

    def assign_all(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[None]]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions that each consumer owns."""
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
        # Sorted by point and then by name: the ring is the same everywhere, even if two points are equal.
        ring = sorted((_point(f"{k}:{name}"), name) for name in members for k in range(self.points))
        return [point for point, _ in ring], [name for _, name in ring]

    def _owners(
        self, topic: str, count: int, members: Sequence[str], ring: tuple[list[int], list[str]]
    ) -> list[list[str]]:
        points, names = ring
        # Members sorted by hash: a member that comes or goes changes only the followers of its neighbours.
        chain = sorted(members, key=lambda name: (_point(name), name))
        place = {name: k for k, name in enumerate(chain)}
        each = min(self.owners, len(members))
        load = dict.fromkeys(members, 0)
        # Exact fractions: a limit that one member rounds differently would give another assignment.
        share = Fraction(str(1 + self.slack)) / len(members)
        owners = []
        for partition in range(count):
            # All limits together exceed the load, so the loop below ends.
            limit = math.ceil(share * (partition + 1))
            at = bisect(points, _point(f"{topic}/{partition}")) % len(names)
            while load[names[at]] >= limit:
                at = (at + 1) % len(names)
            load[names[at]] += 1
            first = place[names[at]]
            owners.append([chain[(first + k) % len(chain)] for k in range(each)])
        return owners


def _point(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
