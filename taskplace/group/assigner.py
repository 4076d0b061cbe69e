"""The proposal's interface for strategies: `metadata` and `assign`.

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

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from taskplace.groups.messages import ProtocolError
from taskplace.groups.metadata import Topics
from topology.node import TopicPartition

T = TypeVar("T")


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
    - `replicates`: whether it assigns partitions to follow (`shares`)
    - `metadata_version`: the version of the subscription that contains its metadata
    """

    name: str
    version: int = 0
    needs_agreement: bool = True
    looks_at_leaders: bool = False
    remembers: bool = False
    replicates: bool = False
    metadata_version: int = 1

    def metadata(self) -> T:
        """Return the value that other members shall know: any JSON value, by default None."""
        return cast(T, None)

    def see(self, topics: Topics) -> None:
        """Receive the member's view of the topics before `assign`. Strategies that look at leaders override this."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.assign is PartitionAssigner.assign and cls.assign_all is PartitionAssigner.assign_all:
            raise TypeError(f"{cls.__name__} needs a method assign or assign_all")

    def assign(
        self,
        consumer: str,
        partitions_per_topic: Mapping[str, int],
        consumers: Sequence[ConsumerMetadata[T]],
    ) -> list[TopicPartition]:
        """Return the partitions of `consumer`, for these partition counts and consumers.

        A strategy overrides this or `assign_all`. Each of them calls the other by default.
        """
        return self.assign_all(partitions_per_topic, consumers)[consumer]

    def assign_all(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[T]]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of all consumers, by name. A leader calls this through `shares`."""
        return {c.name: self.assign(c.name, partitions_per_topic, consumers) for c in consumers}

    def shares(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[T]]
    ) -> Shares:
        """Return the partitions and standbys of all consumers. A strategy with standbys overrides this."""
        return Shares(self.assign_all(partitions_per_topic, consumers))

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
            metadata: Any = json.loads(data) if data else None
        except (ValueError, RecursionError):
            raise ProtocolError(f"{self.name}.metadata", found=data[:40], expected="JSON") from None
        return cast(T, metadata)


class RoundRobin(PartitionAssigner[None]):
    """Deals out partitions in turn.

    Each topic's partitions go to the consumers that subscribe to it. With equal subscriptions, the counts differ by at
    most 1.

    >>> consumers = [ConsumerMetadata("a", ("t",), None), ConsumerMetadata("b", ("t",), None)]
    >>> [p.partition for p in RoundRobin().assign("a", {"t": 5}, consumers)]
    [0, 2, 4]
    """

    name = "round-robin"

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def assign_all(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[None]]
    ) -> dict[str, list[TopicPartition]]:
        """Deal out all partitions in turn."""
        dealt: dict[str, list[TopicPartition]] = {c.name: [] for c in consumers}
        subscribed = {
            topic: [c.name for c in consumers if topic in c.topics] for topic in partitions_per_topic
        }
        turn = 0
        for topic, count in partitions_per_topic.items():
            for partition in range(count if subscribed[topic] else 0):
                dealt[subscribed[topic][turn % len(subscribed[topic])]].append(
                    TopicPartition(topic, partition)
                )
                turn += 1
        return dealt
