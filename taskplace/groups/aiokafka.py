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
from taskplace.groups.clients import MARK, Consumer, assigned, recalled
from taskplace.groups.subscriptions import NO_GENERATION, Member

try:
    from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
except ImportError as error:
    raise ImportError('aiokafka 0.14 is needed: pip install "taskplace[aiokafka]"') from error

_VERSION = 0  # the one that aiokafka's messages have the fields of
_NUMBER = struct.Struct(">i")  # of an assignment, behind the mark
_MOST = 2**31 - 1


class TaskplaceAssignor(Consumer, AbstractPartitionAssignor):  # type: ignore[misc]
    """The assignor of one consumer. It remembers the consumer's partitions, so create one for each consumer.

    - `mode`: as in `assign_partitions`, without those that revoke in two steps
    - `name`: the name of the protocol. All consumers of a group need a common one

    Errors: `InputError` for an unknown mode, or one that needs cooperative consumers.

    >>> TaskplaceAssignor().name, TaskplaceAssignor("fair").name
    ('sticky', 'taskplace-fair')
    """

    def __init__(self, mode: str = "fair_sticky", *, name: str | None = None) -> None:
        super().__init__(mode, name)
        if self.cooperative:
            hint = "aiokafka's consumers let go of all partitions before they join"
            raise InputError("mode", found=mode, expected="a mode of eager consumers", hint=hint)

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the consumer's metadata for a join: its topics, and the partitions that it had, with their number."""
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), self._user_data() or b"")

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Remember the consumer's partitions, and the number of the assignment.

        Errors: `InputError` for an assignment that the broker has made instead of our leader.
        """
        data = assignment.user_data or b""
        marked = data.startswith(MARK) and len(data) == len(MARK) + _NUMBER.size
        number = _NUMBER.unpack(data[len(MARK) :])[0] if marked else NO_GENERATION
        self._remember(assignment.partitions(), number, data)

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignments of all members. Called on the group's leader, with decoded metadata."""
        nothing: tuple[list[tuple[str, int]], int] = ([], NO_GENERATION)
        joining = {
            name: Member(list(member.subscription or ()), *(recalled(member.user_data) or nothing))
            for name, member in members.items()
        }
        latest = max((member.generation for member in joining.values()), default=NO_GENERATION)
        data = MARK + _NUMBER.pack(min(latest + 1, _MOST))
        made = assigned(cluster, joining, self.mode)
        return {name: ConsumerProtocolMemberAssignment(_VERSION, held, data) for name, held in made.items()}
