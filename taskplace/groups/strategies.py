"""Strategies: how the consumers of a group share partitions. The proposal's interface is `metadata` and `assign`.

A custom strategy returns the value that other members shall know (`metadata`), and computes the assignment from the
values of all members (`assign`).

    class Heavy(PartitionAssigner):
        name = "heavy"
        def metadata(self):
            return os.cpu_count()
        def assign(self, topics, consumers):
            cpus = {name: member.metadata for name, member in consumers.items()}
            ...
            return PartitionAssignment({name: [...], ...})

Requirements: `assign` must be a function of its arguments alone, so that all members agree when each calls it for
itself. Topics and consumers are passed in canonical order.

Source: "KafkaConsumer API" in the client-side assignment proposal.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from taskplace.errors import InputError
from taskplace.groups.messages import ProtocolError
from taskplace.groups.metadata import Topics
from taskplace.groups.partitions import MODES, PartitionAssignment, assign_partitions
from taskplace.groups.subscriptions import Member, Subscriptions
from taskplace.validation import one_of
from topology.node import TopicPartition

NAMES = (*MODES, "copartitioned")


class PartitionAssigner(ABC):
    """The base of strategies. Members agree on a strategy by its `name` and `version`.

    - `needs_agreement`: whether members must see the same topics. If not, metadata hashes are not compared
    - `looks_at_leaders`: whether the metadata hash covers the racks of partition leaders
    - `remembers`: whether it reads the partitions that members owned. Only then do joins contain them
    - `replicates`: whether it assigns partitions to follow
    """

    name: str
    version: int = 0
    needs_agreement: bool = True
    looks_at_leaders: bool = False
    remembers: bool = False
    replicates: bool = False

    def metadata(self) -> Any:
        """Return the value that other members shall know: any JSON value, by default None."""
        return None

    @abstractmethod
    def assign(self, topics: Topics, consumers: Mapping[str, Member]) -> PartitionAssignment:
        """Return the partitions of all consumers; a member takes its own.

        - `topics`: the subscribed topics that exist
        - `consumers`: the members by name, with their topics, rack, owned partitions and `metadata`
        """

    def encode(self, metadata: Any) -> bytes:
        """Return the bytes of this strategy's metadata. None gives empty bytes."""
        return b"" if metadata is None else json.dumps(metadata, sort_keys=True).encode()

    def decode(self, data: bytes) -> Any:
        """Return the metadata in `data`, which another member has sent.

        Check here everything that `assign` relies on. In the mode EVERY, a member whose metadata is refused here is
        left out. An exception of `assign` ends the membership of the member that calls it.
        """
        try:
            return json.loads(data) if data else None
        except (ValueError, RecursionError):
            raise ProtocolError(f"{self.name}.metadata", found=data[:40], expected="JSON") from None


class RoundRobin(PartitionAssigner):
    """Deals out partitions in turn: the smallest strategy, as a template.

    Each topic's partitions go to the consumers that subscribe to it. With equal subscriptions, the counts differ by at
    most 1.

    >>> made = RoundRobin().assign(Topics({"t": 5}), {"a": Member(["t"]), "b": Member(["t"])})
    >>> [p.partition for p in made.assignment["a"]]
    [0, 2, 4]
    """

    name = "round-robin"

    def assign(self, topics: Topics, consumers: Mapping[str, Member]) -> PartitionAssignment:
        """Deal out all partitions in turn."""
        dealt: dict[str, list[TopicPartition]] = {name: [] for name in consumers}
        turn = 0
        for topic, count in topics.partitions.items():
            names = [name for name, member in consumers.items() if topic in member.topics]
            for partition in range(count if names else 0):
                dealt[names[turn % len(names)]].append(TopicPartition(topic, partition))
                turn += 1
        return PartitionAssignment({name: tuple(held) for name, held in dealt.items()})


class Strategy(PartitionAssigner):
    """An assignor by its name: `fair_sticky` (KIP-54), `sticky_fair`, `fair`, `range`, `round_robin`, `copartitioned`.

    A member's metadata has its partitions and their generation. So any member can assign stickily: a new leader, or in
    the mode EVERY each member for itself.

    - `replicas`, `seed`: standbys of each partition, and the seed of their spread (`copartitioned` only). They are part
      of the name, so members with other settings do not share the protocol
    - `racks`: whether partitions prefer members in the rack of their leader. The metadata hash then covers leaders

    There is no cooperative strategy, because this protocol rebalances eagerly.

    Errors: `InputError` for an unknown assignor (with the nearest name), and for standbys or a seed with any assignor
    but `copartitioned`.

    >>> made = Strategy("range").assign(Topics({"t": 3}), {"a": Member(["t"]), "b": Member(["t"])})
    >>> [p.partition for p in made.assignment["a"]]
    [0, 1]
    """

    def __init__(
        self,
        assignor: str = "fair_sticky",
        *,
        racks: bool = False,
        replicas: int = 0,
        seed: int = 0,
    ) -> None:
        self.assignor = one_of(assignor, "assignor", NAMES)
        if (replicas or seed) and assignor != "copartitioned":
            expected = "the assignor 'copartitioned', which supports standbys and a seed"
            raise InputError("replicas", found=(assignor, replicas, seed), expected=expected)
        self.name = f"{assignor}/{replicas}/{seed}" if replicas or seed else assignor
        self.replicas = replicas
        self.seed = seed
        self.replicates = replicas > 0
        self.looks_at_leaders = racks
        self.remembers = assignor in ("fair_sticky", "sticky_fair", "copartitioned")

    def assign(self, topics: Topics, consumers: Mapping[str, Member]) -> PartitionAssignment:
        """Return the partitions and standbys of all consumers, with warnings for requirements that were not met."""
        leaders = topics.leaders if self.looks_at_leaders else {}
        racks = {topic: [[rack] for rack in racks] for topic, racks in leaders.items()}
        s = Subscriptions(topics.partitions, consumers, racks, replicas=self.replicas, seed=self.seed)
        return assign_partitions(s, self.assignor)


class ConsistentHash(PartitionAssigner):
    """Assigns partitions by consistent hashing, so members may see different partition counts.

    Each member has many points on a ring. A partition goes to the member at the first point after its own, but members
    that have reached their limit are skipped. Further owners, if configured, follow the first one in a fixed order of
    the members. The limit grows with the partition number. So the owners of partition p depend only on the members and
    on the partitions below p: two members that see 12 and 14 partitions of a topic agree on the first 12.

    - `owners`: the number of owners of each partition
    - `slack`: how much a member's load may exceed the mean, as a fraction
    - `points`: the number of points of each member on the ring

    Properties, for each topic, with n partitions, m members subscribed to it, and r owners each:
    - spread: no member has more than r * ceil((1 + slack) * n / m) partitions of the topic;
    - agreement: the owners of a partition depend neither on n nor on other topics;
    - stability: a change of members moves the share of the members that came or went, and partitions that the limits
      displace. These are few with much slack, several shares with little slack, and half of all partitions without
      slack (`benchmarks/bench_consistent_hash.py`);
    - redundancy: the r owners of a partition are different members. With fewer than r members, all of them own it, and
      there is a warning.

    Work: n * (r + log(points of the ring)), and the steps past full members.

    Errors: `InputError` for numbers below these minimums: 1 owner, 1 point, slack 0.

    Source: "Metadata" in the client-side assignment proposal; consistent hashing with bounded loads (Mirrokni, Thorup,
    Zadimoghaddam 2016), here with limits that grow with the partition number.

    >>> consumers = {name: Member(["t"]) for name in "abc"}
    >>> twelve, more = (ConsistentHash().assign(Topics({"t": n}), consumers).assignment["a"] for n in (12, 14))
    >>> twelve == more[: len(twelve)]
    True
    """

    name = "consistent-hash"
    needs_agreement = False

    def __init__(self, *, owners: int = 1, slack: float = 0.25, points: int = 64) -> None:
        if owners < 1 or points < 1 or not 0 <= slack < math.inf:
            expected = "owners and points of at least 1, slack of at least 0"
            raise InputError("consistent-hash", found=(owners, slack, points), expected=expected)
        self.owners = owners
        self.slack = slack
        self.points = points

    def assign(self, topics: Topics, consumers: Mapping[str, Member]) -> PartitionAssignment:
        """Return the partitions that each consumer owns."""
        owned: dict[str, list[TopicPartition]] = {name: [] for name in consumers}
        short = 0
        for topic, count in topics.partitions.items():
            members = tuple(sorted(name for name, member in consumers.items() if topic in member.topics))
            short += count if 0 < len(members) < self.owners else 0
            for partition, names in enumerate(self._owners(topic, count, members) if members else ()):
                for name in names:
                    owned[name].append(TopicPartition(topic, partition))
        warning = f"{short} partitions got fewer than {self.owners} owners: too few members subscribe to them"
        return PartitionAssignment(
            {name: tuple(held) for name, held in owned.items()}, warnings=(warning,) if short else ()
        )

    def _owners(self, topic: str, count: int, members: tuple[str, ...]) -> list[list[str]]:
        points, names = _ring(members, self.points)
        # Members sorted by hash: a member that comes or goes changes only the followers of its neighbours.
        chain = sorted(members, key=lambda name: (_point(name), name))
        place = {name: k for k, name in enumerate(chain)}
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
            owners.append([chain[(first + k) % len(chain)] for k in range(min(self.owners, len(chain)))])
        return owners


@functools.lru_cache(maxsize=8)
def _ring(members: tuple[str, ...], points: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the points of all members, ascending, and their members."""
    # Sorted by point and then by name: the ring is the same everywhere, even if two points are equal.
    ring = sorted((_point(f"{k}:{name}"), name) for name in members for k in range(points))
    return tuple(point for point, _ in ring), tuple(name for _, name in ring)


def _point(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
