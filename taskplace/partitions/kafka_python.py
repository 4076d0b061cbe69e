"""The exact assignors in a real consumer group, through kafka-python: `pip install "taskplace[kafka]"`.

**Idea.** A Kafka consumer asks its assignor three things: what to tell when it joins (`metadata`), who gets what, if it
leads (`assign`), and to note what it got (`on_assignment`). Everything between is `assign_partitions`.

    from kafka import KafkaConsumer
    from taskplace.partitions.kafka_python import TaskplaceAssignor

    KafkaConsumer(..., partition_assignment_strategy=[TaskplaceAssignor()])                    # eager
    KafkaConsumer(..., partition_assignment_strategy=[TaskplaceAssignor(cooperative=True)])    # KIP-429

The eager form speaks the protocol "sticky", the cooperative one "cooperative-sticky", with Kafka's own metadata. So it
can join a group of Kafka's sticky consumers, one after the other; whoever leads decides by its own algorithm. Other
modes have names of their own: "taskplace-sticky_fair", and so on.

Not here: `copartitioned`, whose standbys no consumer knows what to do with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from taskplace.errors import InputError
from taskplace.model import reading
from taskplace.partitions.assignors import ALIASES, MODES, assign_partitions
from taskplace.partitions.subscriptions import NO_GENERATION, Member, Subscriptions
from topology.node import TopicPartition

try:
    from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
    from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
except ImportError as error:
    raise ImportError('kafka-python 3.0 is needed: pip install "taskplace[kafka]"') from error

_SUBSCRIPTION_VERSION = 3  # with owned partitions, generation and rack
_ASSIGNMENT_VERSION = 0


class TaskplaceAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """One consumer's assignor: make one for each consumer, as it remembers what that one owns.

    `mode`: as in `assign_partitions`. `rack`: of this consumer; replicas' racks come from the brokers.
    `name`: of the protocol. Consumers of a group have one in common, or they cannot join.

    >>> TaskplaceAssignor().name, TaskplaceAssignor(cooperative=True).name, TaskplaceAssignor("fair").name
    ('sticky', 'cooperative-sticky', 'taskplace-fair')
    """

    def __init__(
        self,
        mode: str = "fair_sticky",
        *,
        cooperative: bool = False,
        rack: str | None = None,
        name: str | None = None,
    ) -> None:
        self.mode, staged = ALIASES.get(mode, (mode, False))
        self.cooperative = cooperative or staged
        self.rack = rack
        if self.mode not in MODES:
            known = (*MODES, *ALIASES)
            hint = reading.nearest(mode, known)
            raise InputError("mode", found=mode, expected="one of " + ", ".join(known), hint=hint)
        self._name = name or _protocol(self.mode, self.cooperative)
        self._owned: tuple[TopicPartition, ...] = ()
        self._generation = NO_GENERATION

    @property
    def name(self) -> str:
        """The name of the protocol."""
        return self._name

    def supported_protocols(self) -> list[Any]:
        """Return whether the consumer lets go of everything before it joins, or of nothing."""
        return [RebalanceProtocol.COOPERATIVE if self.cooperative else RebalanceProtocol.EAGER]

    def metadata(self, topics: Iterable[str]) -> Any:
        """Return what this consumer tells when it joins: topics, what it owns, since when, and where it is."""
        pair = ConsumerProtocolSubscription.TopicPartition
        by_topic = sorted(_by_topic(self._owned).items())
        memory = StickyAssignorUserData(by_topic, self._generation) if self._owned else b""
        return ConsumerProtocolSubscription(
            version=_SUBSCRIPTION_VERSION,
            topics=sorted(topics),
            # An eager consumer owns nothing by the time it joins; what it remembers travels as user data.
            user_data=b"" if self.cooperative else memory,
            owned_partitions=[pair(topic=t, partitions=p) for t, p in by_topic] if self.cooperative else [],
            generation_id=self._generation,
            rack_id=self.rack,
        )

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Remember what this consumer owns, and as of which generation."""
        self._owned = tuple(sorted(TopicPartition(*tp) for tp in assignment.partitions()))
        self._generation = generation

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """Return what every member gets; called on the group's leader."""
        topics = sorted({topic for member in members for topic in member.metadata.topics})
        # Numbers without gaps for the assignor; `numbers` leads back to Kafka's.
        numbers = {t: sorted(found) for t in topics if (found := cluster.partitions_for_topic(t))}
        place = {(t, p): k for t, found in numbers.items() for k, p in enumerate(found)}
        told = {
            member.member_id: Member(
                member.metadata.topics,
                [(t, place[t, p]) for t, p in _owned(member.metadata) if (t, p) in place],
                _generation(member.metadata),
                getattr(member.metadata, "rack_id", None) or None,
                getattr(member, "group_instance_id", None) or None,
            )
            for member in members
        }
        racks = _racks(cluster, numbers) if any(m.rack for m in told.values()) else {}
        s = Subscriptions({t: len(found) for t, found in numbers.items()}, told, racks)
        made = assign_partitions(s, self.mode, cooperative=self.cooperative)
        return {
            name: ConsumerProtocolAssignment(
                _ASSIGNMENT_VERSION,
                [(t, [numbers[t][k] for k in found]) for t, found in sorted(_by_topic(held).items())],
                b"",
            )
            for name, held in made.assignment.items()
        }


def _protocol(mode: str, cooperative: bool) -> str:
    if mode == "fair_sticky":
        return "cooperative-sticky" if cooperative else "sticky"
    return f"taskplace-{'cooperative-' if cooperative else ''}{mode}"


def _by_topic(held: Iterable[TopicPartition]) -> dict[str, list[int]]:
    out: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in held:
        out[topic].append(partition)
    return dict(out)


def _memory(metadata: Any) -> Any:
    """Return the user data of Kafka's sticky assignor, or None if there is none, or none that can be read."""
    data = metadata.user_data
    if not data or isinstance(data, StickyAssignorUserData):
        return data or None
    for version in (1, 0):
        try:
            return StickyAssignorUserData.decode(bytes(data), version=version)
        except Exception:  # the decoder raises whatever it stumbles over; nothing remembered is safe
            continue
    return None


def _owned(metadata: Any) -> list[tuple[str, int]]:
    """Return what a member owns: by the protocol's own field, or else by its user data."""
    told = getattr(metadata, "owned_partitions", None)
    if not told:
        memory = _memory(metadata)
        told = memory.previous_assignment if memory is not None else ()
    return [(tp.topic, p) for tp in told for p in tp.partitions]


def _generation(metadata: Any) -> int:
    told = getattr(metadata, "generation_id", None)
    if told is None or told == NO_GENERATION:
        memory = _memory(metadata)
        told = getattr(memory, "generation", None) if memory is not None else None
    return NO_GENERATION if told is None else max(int(told), NO_GENERATION)


def _racks(cluster: Any, numbers: dict[str, list[int]]) -> dict[str, list[list[str]]]:
    """Return, per topic and partition, the racks of the brokers that have a replica."""
    brokers = [broker for broker in cluster.brokers() if broker.rack]
    return {
        t: [
            [b.rack for b in brokers if cluster.is_replica_node(TopicPartition(t, p), b.node_id)]
            for p in found
        ]
        for t, found in numbers.items()
    }
