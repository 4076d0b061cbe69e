"""Runs the exact assignors in a Kafka consumer group, through kafka-python: `pip install "taskplace[kafka]"`.

**Idea.** A Kafka consumer calls its assignor in three cases: for the metadata that it sends when it joins (`metadata`),
for the assignment if it is the leader (`assign`), and when it has received its partitions (`on_assignment`). The
assignment itself is that of `assign_partitions`.

    from kafka import KafkaConsumer
    from taskplace.groups.kafka_python import TaskplaceAssignor

    KafkaConsumer(..., partition_assignment_strategy=[TaskplaceAssignor()])                    # eager
    KafkaConsumer(..., partition_assignment_strategy=[TaskplaceAssignor(cooperative=True)])    # KIP-429

The eager form uses the protocol name "sticky", the cooperative one "cooperative-sticky", both with Kafka's own
metadata. So its consumers can join a group of Kafka's sticky consumers one after the other. The group's leader assigns
with its own algorithm. Other modes have other protocol names, such as "taskplace-sticky_fair". Under Kafka's names,
racks come before moves, as in Kafka's own sticky assignors; see `rack_priority`.

Messages have the bytes of Kafka's Java consumer. The user data of "sticky" has a second form: kafka-python's own sticky
assignor puts a version before the fields. Both forms are read. `user_data` decides which one is written: a leader of
the other kind treats the member as owning nothing.

The metadata of members is read as Kafka reads it:

| member | its partitions | their generation |
|---|---|---|
| eager | the user data; without user data, the field `owned_partitions` | the user data, else the field |
| cooperative | the field `owned_partitions` | the field; before version 2 of the subscription, the user data |

One difference: for Kafka, an eager member without user data owns nothing. Here its fields are used. All values may be
bytes, decoded messages, or plain Python: pairs, lists, dicts. Unreadable user data counts as missing.

`copartitioned` gives partition p of all topics with equal counts and subscribers to one consumer, without standbys.

Not supported: groups of the new protocol (KIP-848, `group.protocol=consumer`). There the broker assigns. Under Kafka's
names, a single such consumer turns the group into one, and the others stay in it without an error. Under other names,
our leader puts a mark into the user data of assignments. The broker takes it for that of a custom assignor, and refuses
such a consumer. In a group of the new protocol, the mark is missing, and `on_assignment` raises an error.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from taskplace import validation
from taskplace.errors import InputError
from taskplace.groups.clients import (
    KAFKAS,
    MARK,
    Joining,
    Numbers,
    Racks,
    assigned,
    by_topic,
    check_known,
    check_leader,
    load,
    protocol_name,
)
from taskplace.groups.partitions import ALIASES, NAMES, racks_first
from taskplace.groups.subscriptions import NO_GENERATION, check_rack_priority
from topology.node import TopicPartition

try:
    from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
    from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
except ImportError as error:
    raise ImportError('kafka-python 3.0 is needed: pip install "taskplace[kafka]"') from error

_VERSION = 3  # of subscriptions, with owned partitions, generation and rack, and of assignments
_FORMS = ("java", "kafka-python")  # of the user data of "sticky"
_MOST_GENERATION = 2**31 - 1
_GENERATION = struct.Struct(">i")
"""The user data of Kafka's cooperative sticky assignor: the generation, for leaders that do not know the field."""


class TaskplaceAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """The assignor of one consumer. It remembers the consumer's partitions, so create one for each consumer.

    - `mode`: as in `assign_partitions`
    - `cooperative`: revoke only partitions that move (KIP-429)
    - `rack`: the rack of this consumer. The brokers report the racks of replicas
    - `name`: the name of the protocol. All consumers of a group need a common one
    - `rack_priority`: "stickiness" or "racks", as in `Subscriptions`; "racks" for the protocols "sticky" and
      "cooperative-sticky"
    - `user_data`: "java", or "kafka-python" while the leader may be kafka-python's own eager sticky assignor

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
        rack_priority: str | None = None,
        user_data: str = "java",
    ) -> None:
        self.mode, staged = ALIASES.get(mode, (mode, False))
        self.cooperative = cooperative or staged
        self.rack = rack
        check_known(mode, "mode", NAMES)
        check_known(user_data, "user_data", _FORMS)
        self.user_data = user_data
        load(self.mode)
        self._name = name or protocol_name(self.mode, cooperative=self.cooperative)
        first = racks_first(self._name, check_rack_priority(rack_priority))
        self.rack_priority = "racks" if first else "stickiness"
        self._owned: tuple[TopicPartition, ...] | None = None  # nothing was assigned yet
        self._generation = NO_GENERATION

    @property
    def name(self) -> str:
        """The name of the protocol."""
        return self._name

    def supported_protocols(self) -> list[Any]:
        """Return the rebalance protocol: eager (revoke everything before a join) or cooperative (revoke nothing)."""
        return [RebalanceProtocol.COOPERATIVE if self.cooperative else RebalanceProtocol.EAGER]

    def metadata(self, topics: Iterable[str]) -> Any:
        """Return the consumer's metadata for a join: topics, owned partitions, their generation, and the rack."""
        pair = ConsumerProtocolSubscription.TopicPartition
        owned = sorted(by_topic(self._owned or ()).items())
        memory: Any = None
        if self.cooperative:
            memory = _GENERATION.pack(self._generation)
        elif self._owned is not None:
            remembered = StickyAssignorUserData(owned, self._generation)
            memory = remembered.encode(header=self.user_data == "kafka-python")
        return ConsumerProtocolSubscription(
            version=_VERSION,
            topics=sorted(_topics(topics, "topics")),
            # An eager consumer owns nothing when it joins. Its remembered partitions are sent as user data.
            user_data=memory,
            owned_partitions=[pair(topic=t, partitions=p) for t, p in owned] if self.cooperative else [],
            generation_id=self._generation,
            rack_id=self.rack,
        )

    def on_assignment(self, assignment: Any, generation: Any) -> None:
        """Remember the partitions of this consumer, and their generation.

        `assignment`: a message, decoded or as bytes, or the partitions. `generation`: a number, or an object with a
        `generation_id` or `generation`.

        Errors: `InputError` for wrong partitions, bytes that are not an assignment, a generation that does not fit into
        a message, or a message that the broker has made instead of our leader. Then nothing is remembered.
        """
        assignment = _message(ConsumerProtocolAssignment, assignment, "assignment", "bytes of an assignment")
        held: Any = assignment
        if isinstance(assignment, ConsumerProtocolAssignment):
            check_leader(self.name, assignment.user_data)
            held = assignment.assigned_partitions  # null if nothing is assigned
        elif (given := _field(assignment, "assigned_partitions", "partitions")) is not None:
            held = given() if callable(given) else given
        owned = tuple(sorted(TopicPartition(*tp) for tp in set(_pairs(held, "assignment"))))
        number = (
            generation if isinstance(generation, int) else _field(generation, "generation_id", "generation")
        )
        if number is None:
            number = NO_GENERATION
        if isinstance(number, bool) or not isinstance(number, int) or number > _MOST_GENERATION:
            expected = f"an integer of at most {_MOST_GENERATION}"
            raise InputError("generation", found=number, expected=expected)
        self._owned, self._generation = owned, max(number, NO_GENERATION)

    def assign(self, cluster: Any, members: Any) -> dict[str, Any]:
        """Return the assignments of all members. Called on the group's leader.

        `members`: the group's members, as objects with `member_id`, `metadata` and `group_instance_id`, as tuples (id,
        metadata) or (id, instance id, metadata), or as a mapping from id to metadata.

        Errors: `InputError` for a member in another form, two members with the same id, metadata without topics or with
        unreadable bytes, or wrong partitions.
        """
        joining: dict[str, Joining] = {}
        for name, member in _members(members, cooperative=self.cooperative):
            if name in joining:
                raise InputError("members", found=f"{name!r} twice", expected="each member once")
            joining[name] = member
        made = assigned(
            cluster,
            joining,
            self.mode,
            cooperative=self.cooperative,
            rack_priority=self.rack_priority,
            racks_of=functools.partial(_racks, cluster),
        )
        mark = None if self.name in KAFKAS else MARK
        return {name: ConsumerProtocolAssignment(_VERSION, held, mark) for name, held in made.items()}


def _members(members: Any, *, cooperative: bool) -> Iterator[tuple[str, Joining]]:
    """Yield the id and metadata of each member, for any form of `members`."""
    if isinstance(members, str | bytes) or not isinstance(members, Iterable):
        raise InputError("members", found=members, expected="members with ids and metadata")
    entries = members.items() if isinstance(members, Mapping) else members
    for k, entry in enumerate(entries):
        name, metadata = _field(entry, "member_id"), _field(entry, "metadata")
        instance = _field(entry, "group_instance_id")
        if name is None and isinstance(entry, list | tuple) and len(entry) in (2, 3):
            name, *between, metadata = entry
            instance = between[0] if between else None
        if not isinstance(name, str) or metadata is None:
            raise InputError(f"members[{k}]", found=entry, expected="a member with an id and metadata")
        path = f"members.{name}"
        expected = "a subscription, decoded or as bytes, with topics"
        metadata = _message(ConsumerProtocolSubscription, metadata, f"{path}.metadata", expected)
        if not any(_has(metadata, field) for field in ("topics", "subscription")):
            raise InputError(f"{path}.metadata", found=metadata, expected=expected)
        owned, generation = (_cooperative_claims if cooperative else _eager_claims)(metadata, path)
        yield (
            name,
            Joining(
                _topics(_field(metadata, "topics", "subscription"), f"{path}.topics"),
                owned,
                generation,
                _field(metadata, "rack_id") or None,
                instance or None,
            ),
        )


def _eager_claims(metadata: Any, path: str) -> tuple[list[tuple[str, int]], int]:
    """Return an eager member's partitions and generation: from its user data, or else from the fields."""
    memory = _memory(_field(metadata, "user_data"))
    if memory is None:
        held, generation = _field(metadata, "owned_partitions"), _field(metadata, "generation_id")
    else:
        held, generation = memory
    return _pairs(held, f"{path}.owned"), _number(generation)


def _cooperative_claims(metadata: Any, path: str) -> tuple[list[tuple[str, int]], int]:
    """Return a cooperative member's partitions (the field) and generation (the field, or else the user data)."""
    generation = _number(_field(metadata, "generation_id"))
    if generation == NO_GENERATION:
        data = _field(metadata, "user_data")
        if isinstance(data, bytes | bytearray | memoryview) and len(data) == _GENERATION.size:
            generation = _number(_GENERATION.unpack(data)[0])
        elif isinstance(data, int):
            generation = _number(data)
        else:
            generation = _number((_memory(data) or (None, None))[1])
    return _pairs(_field(metadata, "owned_partitions"), f"{path}.owned"), generation


def _memory(data: Any) -> tuple[Any, Any] | None:
    """Return partitions and generation of a sticky assignor's user data, or None if there is no readable data."""
    if isinstance(data, bytes | bytearray | memoryview):
        data = _decoded(bytes(data)) if data else None
    if data is None or isinstance(data, str | int):
        return None
    held = _field(data, "previous_assignment", "partitions")
    if held is not None and not callable(held):
        return held, _field(data, "generation")
    pair = isinstance(data, list | tuple) and len(data) == 2
    if pair and isinstance(data[1], int) and not isinstance(data[0], str):
        return data[0], data[1]
    return (data, None) if isinstance(data, list | tuple | set | frozenset | Mapping) else None


def _decoded(data: bytes) -> Any:
    """Return the user data in these bytes, or None.

    Kafka's Java client writes only the fields; kafka-python 3 writes the version before them. Bytes count as one of the
    two forms only if encoding the result gives the same bytes.
    """
    for header in (True, False):
        for version in (1, 0):
            try:
                remembered = StickyAssignorUserData.decode(data, version=version, header=header)
                if remembered.encode(header=header) == data:
                    _pairs(remembered.previous_assignment, "user_data")  # raises for nulls
                    return remembered
            except Exception:  # the decoder may raise anything; unreadable data counts as missing
                continue
    return None


def _message(kind: Any, value: Any, path: str, expected: str) -> Any:
    """Return the message that bytes encode. Values other than bytes are returned unchanged."""
    if not isinstance(value, bytes | bytearray | memoryview):
        return value
    try:
        return kind.decode(bytes(value))
    except Exception as error:  # the decoder may raise anything
        raise InputError(path, found=bytes(value), expected=expected) from error


def _has(value: Any, name: str) -> bool:
    return name in value if isinstance(value, Mapping) else hasattr(value, name)


def _field(value: Any, *names: str) -> Any:
    """Return the first of these fields that a mapping or an object has, or None."""
    for name in names:
        part = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if part is not None:
            return part
    return None


def _number(generation: Any) -> int:
    known = isinstance(generation, int) and not isinstance(generation, bool)
    return max(generation, NO_GENERATION) if known else NO_GENERATION


def _topics(topics: Any, path: str) -> list[str]:
    if topics is None:
        return []
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise InputError(path, found=topics, expected="a list of topics")
    return [validation.text(topic, f"{path}[{k}]") for k, topic in enumerate(topics)]


def _pairs(partitions: Any, path: str) -> list[tuple[str, int]]:
    """Return (topic, partition) of partitions in any form that kafka-python has for them.

    >>> from types import SimpleNamespace
    >>> _pairs([("t", [0, 1]), ["u", 2], TopicPartition("v", 3)], "owned")
    [('t', 0), ('t', 1), ('u', 2), ('v', 3)]
    >>> _pairs({"t": [0]}, "owned") == _pairs([SimpleNamespace(topic="t", partitions=[0])], "owned")
    True
    """
    if partitions is None:
        return []
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise InputError(path, found=partitions, expected="a list of partitions")
    out: list[tuple[str, int]] = []
    for k, entry in enumerate(partitions.items() if isinstance(partitions, Mapping) else partitions):
        topic = _field(entry, "topic")
        numbers = None if topic is None else _field(entry, "partitions", "partition")
        if topic is None and isinstance(entry, list | tuple) and len(entry) == 2:
            topic, numbers = entry
        several: Any = [numbers] if isinstance(numbers, int) else numbers
        listed = (
            list(several) if isinstance(several, Iterable) and not isinstance(several, str | bytes) else None
        )
        whole = listed is not None and all(isinstance(p, int) and not isinstance(p, bool) for p in listed)
        if not isinstance(topic, str) or listed is None or not whole:
            raise InputError(f"{path}[{k}]", found=entry, expected="a topic and its partition numbers")
        out += [(topic, p) for p in listed]
    return out


def _racks(cluster: Any, numbers: Numbers) -> Racks:
    """Return, per topic and partition, the racks of the brokers that have a replica."""
    brokers = [broker for broker in cluster.brokers() if broker.rack]
    return {
        t: [
            [b.rack for b in brokers if cluster.is_replica_node(TopicPartition(t, p), b.node_id)]
            for p in of_topic
        ]
        for t, of_topic in numbers.items()
    }
