"""Runs the exact assignors in a Kafka consumer group, through aiokafka: `pip install "taskplace[aiokafka]"`.

    from aiokafka import AIOKafkaConsumer
    from taskplace.groups.aiokafka import TaskplaceAssignor

    AIOKafkaConsumer(..., partition_assignment_strategy=[TaskplaceAssignor()])

**Idea.** aiokafka's interface is for eager assignors, which revoke everything before a join. Its consumers remember
their partitions, as Kafka's sticky consumers do: they send them as user data, in the form of Kafka's Java client. The
leader reads this form and kafka-python's.

aiokafka does not tell an assignor the generation. So our leader numbers its assignments, one above the highest number
that a member has sent, and puts the number into their user data. If two members claim a partition, the higher number
wins. Members know no number after an assignment of another leader.

Protocol names are those of `taskplace.groups.kafka_python`, so consumers of both clients can be in one group.

Non-goals, since the interface has no place for them: cooperative rebalancing, racks of members, and instance ids of
static members, which aiokafka drops before the leader sees them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from taskplace.errors import InputError
from taskplace.groups.clients import (
    MARK,
    Joining,
    assigned,
    by_topic,
    check_known,
    check_leader,
    load,
    protocol_name,
)
from taskplace.groups.partitions import ALIASES, NAMES
from taskplace.groups.subscriptions import NO_GENERATION
from topology.node import TopicPartition

try:
    from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
    from aiokafka.protocol.struct import Struct
    from aiokafka.protocol.types import Schema
except ImportError as error:
    raise ImportError('aiokafka 0.14 is needed: pip install "taskplace[aiokafka]"') from error

_VERSION = 0  # the one that aiokafka's messages have the fields of
_NUMBER = struct.Struct(">i")  # of an assignment, behind the mark
_VERSIONED = struct.Struct(">h")  # kafka-python's user data begins with a version
_MOST = 2**31 - 1


class _UserDataV0(Struct):  # type: ignore[misc]
    """What sticky consumers before Kafka 2.3 send: partitions without their generation."""

    SCHEMA = Schema(("previous_assignment", StickyAssignorUserDataV1.SCHEMA.fields[0]))


class TaskplaceAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """The assignor of one consumer. It remembers the consumer's partitions, so create one for each consumer.

    - `mode`: as in `assign_partitions`, without those that revoke in two steps
    - `name`: the name of the protocol. All consumers of a group need a common one

    Errors: `InputError` for an unknown mode, or one that needs cooperative consumers.

    >>> TaskplaceAssignor().name, TaskplaceAssignor("fair").name
    ('sticky', 'taskplace-fair')
    """

    def __init__(self, mode: str = "fair_sticky", *, name: str | None = None) -> None:
        check_known(mode, "mode", NAMES)
        self.mode, cooperative = ALIASES.get(mode, (mode, False))
        if cooperative:
            hint = "aiokafka's consumers let go of all partitions before they join"
            raise InputError("mode", found=mode, expected="a mode of eager consumers", hint=hint)
        load(self.mode)
        self._name = name or protocol_name(self.mode)
        self._owned: tuple[TopicPartition, ...] | None = None  # nothing was assigned yet
        self._number = NO_GENERATION

    @property
    def name(self) -> str:
        """The name of the protocol."""
        return self._name

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the consumer's metadata for a join: its topics, and the partitions that it had, with their number."""
        memory = b""
        if self._owned is not None:
            owned = sorted(by_topic(self._owned).items())
            memory = StickyAssignorUserDataV1(owned, self._number).encode()
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), memory)

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Remember the consumer's partitions, and the number of the assignment.

        Errors: `InputError` for an assignment that the broker has made instead of our leader.
        """
        check_leader(self.name, assignment.user_data)
        self._owned = tuple(sorted(TopicPartition(*tp) for tp in assignment.partitions()))
        self._number = _number(assignment.user_data)

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignments of all members. Called on the group's leader, with decoded metadata."""
        joining = {name: _joining(member) for name, member in members.items()}
        latest = max((member.generation for member in joining.values()), default=NO_GENERATION)
        data = MARK + _NUMBER.pack(min(latest + 1, _MOST))
        made = assigned(cluster, joining, self.mode)
        return {name: ConsumerProtocolMemberAssignment(_VERSION, held, data) for name, held in made.items()}


def _number(data: bytes | None) -> int:
    """Return the number in the user data of an assignment, if one of our leaders has put it there."""
    if not data or not data.startswith(MARK) or len(data) != len(MARK) + _NUMBER.size:
        return NO_GENERATION
    return max(int(_NUMBER.unpack(data[len(MARK) :])[0]), NO_GENERATION)


def _joining(metadata: ConsumerProtocolMemberMetadata) -> Joining:
    """Return what a member has sent. Unreadable user data counts as none."""
    return Joining(list(metadata.subscription or ()), *_memory(metadata.user_data or b""))


def _memory(data: bytes) -> tuple[list[tuple[str, int]], int]:
    """Return the partitions and their number in the user data of a sticky consumer, in Java's form or kafka-python's.

    Bytes count as one of the forms only if encoding the result gives the same bytes.
    """
    for versioned in (True, False):
        for version, kind in ((1, StickyAssignorUserDataV1), (0, _UserDataV0)):
            head = _VERSIONED.pack(version) if versioned else b""
            try:
                remembered = kind.decode(data.removeprefix(head))
                if head + remembered.encode() == data:
                    owned = [(topic, p) for topic, numbers in remembered.previous_assignment for p in numbers]
                    return owned, max(getattr(remembered, "generation", NO_GENERATION), NO_GENERATION)
            except Exception:  # the decoder may raise anything
                continue
    return [], NO_GENERATION
