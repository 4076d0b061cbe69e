"""The proposal's interface for strategies: `metadata` and `assign`.

A custom strategy returns the value that other members shall know (`metadata`), and computes the assignment from the
values of all members (`assign`).

    class Heavy(PartitionAssigner[int]):
        name = "heavy"
        def metadata(self):
            return os.cpu_count()
        def assign(self, consumer, partitions_per_topic, consumers):
            ...

Properties that a strategy has to keep: `assign` is a function of its arguments alone, so that all members, each
calling it for itself, agree; `partitions_per_topic` and `consumers` come in a canonical order.

Source: "KafkaConsumer API" in the client-side assignment proposal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from taskplace.group.errors import ProtocolError
from taskplace.group.topics import Topics
from topology.node import TopicPartition

T = TypeVar("T")


@dataclass(frozen=True)
class ConsumerMetadata(Generic[T]):
    """A consumer's name, its subscribed topics (sorted), and the metadata of its strategy.

    `owned`: its partitions in `generation`, the newest one it took part in; empty if it is new. `standby`: the
    partitions that it followed.
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
    """The assignment by member name: partitions, and partitions to follow (`standby`).

    `followup`: assign again once the standbys have caught up. `warnings`: requirements that could not be met, with the
    remedy.
    """

    active: Mapping[str, Sequence[TopicPartition]]
    standby: Mapping[str, Sequence[TopicPartition]] = field(default_factory=dict)
    followup: bool = False
    warnings: tuple[str, ...] = ()


class PartitionAssigner(Generic[T]):
    """A strategy. `name` and `version` are what members agree on.

    `needs_agreement`: whether members have to see the same topics; without, the metadata hash is not compared.
    `looks_at_leaders`: whether the hash has to cover the racks of the partitions' leaders.
    `remembers`: whether it wants to know what members owned before; they say so only then, to keep joins small.
    `replicates`: whether it gives out partitions to follow (`shares`).
    `metadata_version`: the version of the subscription it travels in, for groups with members from before.
    """

    name: str
    version: int = 0
    needs_agreement: bool = True
    looks_at_leaders: bool = False
    remembers: bool = False
    replicates: bool = False
    metadata_version: int = 1

    def metadata(self) -> T:
        """Return the current value that other members shall know: any JSON value; None by default."""
        return cast(T, None)

    def see(self, topics: Topics) -> None:
        """Take note of what is seen of the topics, before `assign`: for strategies that look at leaders."""

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
        """Return the partitions of `consumer`: of the topics with so many partitions, among these consumers.

        A strategy has this or `assign_all`, and the other by it.
        """
        return self.assign_all(partitions_per_topic, consumers)[consumer]

    def assign_all(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[T]]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of all consumers by name: what a leader asks for."""
        return {c.name: self.assign(c.name, partitions_per_topic, consumers) for c in consumers}

    def shares(
        self, partitions_per_topic: Mapping[str, int], consumers: Sequence[ConsumerMetadata[T]]
    ) -> Shares:
        """Return the partitions of all consumers with their standbys: what a strategy with replicas overrides."""
        return Shares(self.assign_all(partitions_per_topic, consumers))

    def encode(self, metadata: T) -> bytes:
        """Return the bytes of this strategy's metadata; None takes none."""
        if metadata is None:
            return b""
        return json.dumps(metadata, sort_keys=True, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> T:
        """Return the metadata in `data`, which another member has sent.

        Check here whatever `assign` relies on: a member whose metadata this refuses is left out, but an exception of
        `assign` ends the membership of whoever calls it.
        """
        try:
            metadata: Any = json.loads(data) if data else None
        except (ValueError, RecursionError):
            raise ProtocolError(f"{self.name}.metadata", found=data[:40], expected="JSON") from None
        return cast(T, metadata)


class RoundRobin(PartitionAssigner[None]):
    """Deals out partitions in turn: the smallest strategy there is.

    Each topic's partitions go to the consumers that are subscribed to it; with equal subscriptions the counts
    differ by at most 1.

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
