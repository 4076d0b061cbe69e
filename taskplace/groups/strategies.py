"""Strategies: how the consumers of a group share partitions. The proposal's interface is `metadata` and `assign`.

A custom strategy returns the value that other members shall know (`metadata`), and computes the assignment from the
values of all members (`assign`).

    class Heavy(PartitionAssigner[int]):
        name = "heavy"
        def metadata(self):
            return os.cpu_count()
        def assign(self, consumer, partitions_per_topic, consumers):
            ...

Requirements: `assign` must be a function of its arguments alone, so that all members agree when each calls it for
itself. `partitions_per_topic` and `consumers` are passed in canonical order.

Source: "KafkaConsumer API" in the client-side assignment proposal.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, TypeVar, cast

from taskplace.errors import InputError
from taskplace.groups.messages import ProtocolError
from taskplace.groups.metadata import Topics
from taskplace.groups.partitions import MODES, assign_partitions
from taskplace.groups.subscriptions import Member, Subscriptions, check_known
from taskplace.validation import integer
from topology.node import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

NAMES = (*MODES, "copartitioned")
MOST_REPLICAS = 1_000


@dataclass(frozen=True)
class ConsumerMetadata(Generic[T]):
    """One consumer, as strategies see it.

    - `name`: its name in the group
    - `topics`: the subscribed topics, sorted
    - `metadata`: the metadata of its strategy
    - `rack`: its rack, or ""
    - `owned`: its partitions in `generation`, the newest in which it took part; empty for a new consumer
    - `standby`: the partitions that it followed
    """

    name: str
    topics: tuple[str, ...]
    metadata: T
    rack: str = ""
    owned: tuple[TopicPartition, ...] = ()
    generation: int = 0
    standby: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class Shares:
    """An assignment by member name: partitions (`active`), and partitions to follow (`standby`).

    - `followup`: whether to assign again when the standbys have caught up
    - `warnings`: requirements that could not be met, with the remedy
    """

    active: Mapping[str, Sequence[TopicPartition]]
    standby: Mapping[str, Sequence[TopicPartition]] = field(default_factory=dict)
    followup: bool = False
    warnings: tuple[str, ...] = ()


class PartitionAssigner(Generic[T]):
    """The base of strategies. Members agree on a strategy by its `name` and `version`.

    - `needs_agreement`: whether members must see the same topics. If not, metadata hashes are not compared
    - `looks_at_leaders`: whether the metadata hash covers the racks of partition leaders
    - `remembers`: whether it reads the partitions that members owned. Only then do joins contain them
    - `replicates`: whether it assigns partitions to follow
    - `metadata_version`: the version of the subscription that contains its metadata
    """

    name: str
    version: int = 0
    needs_agreement: bool = True
    looks_at_leaders: bool = False
    remembers: bool = False
    replicates: bool = False
    metadata_version: int = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.assign is PartitionAssigner.assign and cls.shares is PartitionAssigner.shares:
            raise TypeError(f"{cls.__name__} needs a method assign or shares")

    def metadata(self) -> T:
        """Return the value that other members shall know: any JSON value, by default None."""
        return cast(T, None)

    def see(self, topics: Topics) -> None:
        """Receive the member's view of the topics before `assign`. Strategies that look at leaders override this."""

    def assign(
        self, consumer: str, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[T]]
    ) -> list[TopicPartition]:
        """Return the partitions of `consumer`, for these partition counts and consumers.

        A strategy overrides this or `shares`. Each of them calls the other by default.
        """
        return list(self.shares(partitions_per_topic, consumers).active[consumer])

    def shares(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[T]]
    ) -> Shares:
        """Return the partitions and standbys of all consumers. A leader calls this."""
        return Shares({c.name: self.assign(c.name, partitions_per_topic, consumers) for c in consumers})

    def encode(self, metadata: T) -> bytes:
        """Return the bytes of this strategy's metadata. None gives empty bytes."""
        if metadata is None:
            return b""
        return json.dumps(metadata, sort_keys=True, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> T:
        """Return the metadata in `data`, which another member has sent.

        Check here everything that `assign` relies on. In the mode EVERY, a member whose metadata is refused here is
        left out. An exception of `assign` ends the membership of the member that calls it.
        """
        try:
            return cast(T, json.loads(data) if data else None)
        except (ValueError, RecursionError):
            raise ProtocolError(f"{self.name}.metadata", found=data[:40], expected="JSON") from None


class RoundRobin(PartitionAssigner[None]):
    """Deals out partitions in turn: the smallest strategy, as a template.

    Each topic's partitions go to the consumers that subscribe to it. With equal subscriptions, the counts differ by at
    most 1.

    >>> consumers = [ConsumerMetadata("a", ("t",), None), ConsumerMetadata("b", ("t",), None)]
    >>> [p.partition for p in RoundRobin().assign("a", {"t": 5}, consumers)]
    [0, 2, 4]
    """

    name = "round-robin"

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def shares(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[None]]
    ) -> Shares:
        """Deal out all partitions in turn."""
        dealt: dict[str, list[TopicPartition]] = {c.name: [] for c in consumers}
        turn = 0
        for topic, count in partitions_per_topic.items():
            names = [c.name for c in consumers if topic in c.topics]
            for partition in range(count if names else 0):
                dealt[names[turn % len(names)]].append(TopicPartition(topic, partition))
                turn += 1
        return Shares(dealt)


class Strategy(PartitionAssigner[None]):
    """An assignor by its name: `fair_sticky` (KIP-54), `sticky_fair`, `fair`, `range`, `round_robin`, `copartitioned`.

    A member's metadata has its partitions and their generation. So any member can assign stickily: a new leader, or in
    the mode EVERY each member for itself.

    - `replicas`, `seed`: standbys of each partition, and the seed of their spread (`copartitioned` only). They are part
      of the name, so members with other settings do not share the protocol
    - `racks`: whether partitions prefer members in the rack of their leader. The metadata hash then covers leaders

    There is no cooperative strategy, because this protocol rebalances eagerly.

    Errors: `InputError` for an unknown assignor (with the nearest name), and for standbys or a seed with any assignor
    but `copartitioned`.

    >>> consumers = [ConsumerMetadata(name, ("t",), None) for name in "ab"]
    >>> [p.partition for p in Strategy("range").assign("a", {"t": 3}, consumers)]
    [0, 1]
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
        check_known(assignor, "assignor", NAMES)
        integer(replicas, "replicas", 0, MOST_REPLICAS)
        integer(seed, "seed")
        if (replicas or seed) and assignor != "copartitioned":
            expected = "the assignor 'copartitioned', which supports standbys and a seed"
            raise InputError("replicas", found=(assignor, replicas, seed), expected=expected)
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

    def shares(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[None]]
    ) -> Shares:
        """Return the partitions and standbys of all consumers, with warnings for requirements that were not met."""
        members = {
            c.name: Member(
                c.topics, c.owned, c.generation if c.owned else -1, c.rack or None, standby=c.standby
            )
            for c in consumers
        }
        racks = {t: [[rack] for rack in self._leaders[t]] for t in partitions_per_topic if t in self._leaders}
        asked = Subscriptions(partitions_per_topic, members, racks, replicas=self.replicas, seed=self.seed)
        made = assign_partitions(asked, self.assignor)
        return Shares(made.assignment, made.standby, made.followup, made.warnings)


class ConsistentHash(PartitionAssigner[None]):
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
      a warning is logged.

    Work: n * (r + log(points of the ring)), and the steps past full members.

    Errors: `InputError` for numbers below these minimums: 1 owner, 1 point, slack 0.

    Source: "Metadata" in the client-side assignment proposal; consistent hashing with bounded loads (Mirrokni, Thorup,
    Zadimoghaddam 2016), here with limits that grow with the partition number.

    >>> consumers = [ConsumerMetadata(name, ("t",), None) for name in "abc"]
    >>> twelve, some_more = (ConsistentHash().assign("a", {"t": n}, consumers) for n in (12, 14))
    >>> twelve == some_more[: len(twelve)]
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

    def shares(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[None]]
    ) -> Shares:
        """Return the partitions that each consumer owns."""
        owned: dict[str, list[TopicPartition]] = {c.name: [] for c in consumers}
        short = 0
        for topic, count in partitions_per_topic.items():
            members = tuple(sorted(c.name for c in consumers if topic in c.topics))
            short += count if 0 < len(members) < self.owners else 0
            for partition, names in enumerate(self._owners(topic, count, members) if members else ()):
                for name in names:
                    owned[name].append(TopicPartition(topic, partition))
        if short:
            log.warning(
                "%d partitions got fewer than %d owners: too few members subscribe to them",
                short,
                self.owners,
            )
        return Shares(owned)

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
