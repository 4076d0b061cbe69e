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

One difference: for Kafka, an eager member without user data owns nothing. Here its fields are used. Unreadable user
data counts as missing.

`copartitioned` gives partition p of all topics with equal counts and subscribers to one consumer, without standbys.

Not supported: groups of the new protocol (KIP-848, `group.protocol=consumer`). There the broker assigns. Under Kafka's
names, a single such consumer turns the group into one, and the others stay in it without an error. Under other names,
our leader puts a mark into the user data of assignments. The broker takes it for that of a custom assignor, and refuses
such a consumer. In a group of the new protocol, the mark is missing, and `on_assignment` raises an error.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from typing import Any

from taskplace.groups.clients import KAFKAS, MARK, Consumer, Numbers, Racks, assigned, recalled
from taskplace.groups.partitions import racks_first
from taskplace.groups.subscriptions import NO_GENERATION, Member, RackPriority
from taskplace.validation import one_of
from topology.node import TopicPartition

try:
    from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
except ImportError as error:
    raise ImportError('kafka-python 3.0 is needed: pip install "taskplace[kafka]"') from error

_VERSION = 3  # of subscriptions, with owned partitions, generation and rack, and of assignments
_HEADERS = {"java": b"", "kafka-python": struct.pack(">h", 1)}  # of the user data of "sticky"
_GENERATION = struct.Struct(">i")
"""The user data of Kafka's cooperative sticky assignor: the generation, for leaders that do not know the field."""
_NEEDED = ("_on_join_prepare_async", "request_rejoin")


class TaskplaceAssignor(Consumer, AbstractPartitionAssignor):  # type: ignore[misc]
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
        rack_priority: RackPriority | None = None,
        user_data: str = "java",
    ) -> None:
        super().__init__(mode, name, cooperative=cooperative)
        self.rack = rack
        self.user_data = one_of(user_data, "user_data", tuple(_HEADERS))
        first = racks_first(self.name, rack_priority)
        self.rack_priority: RackPriority = "racks" if first else "stickiness"

    def supported_protocols(self) -> list[Any]:
        """Return the rebalance protocol: eager (revoke everything before a join) or cooperative (revoke nothing)."""
        return [RebalanceProtocol.COOPERATIVE if self.cooperative else RebalanceProtocol.EAGER]

    def metadata(self, topics: Iterable[str]) -> Any:
        """Return the consumer's metadata for a join: topics, owned partitions, their generation, and the rack."""
        pair = ConsumerProtocolSubscription.TopicPartition
        memory = self._user_data()
        if self.cooperative:
            memory = _GENERATION.pack(self._generation)
        elif memory is not None:
            memory = _HEADERS[self.user_data] + memory
        return ConsumerProtocolSubscription(
            version=_VERSION,
            topics=sorted(topics),
            # An eager consumer owns nothing when it joins. Its remembered partitions are sent as user data.
            user_data=memory,
            owned_partitions=[pair(topic=t, partitions=p) for t, p in self._held()]
            if self.cooperative
            else [],
            generation_id=self._generation,
            rack_id=self.rack,
        )

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Remember the partitions of this consumer, and their generation.

        Errors: `InputError` for an assignment that the broker has made instead of our leader.
        """
        # Null if nothing is assigned.
        held = assignment.partitions() if assignment.assigned_partitions else ()
        self._remember(held, generation, assignment.user_data)

    def assign(self, cluster: Any, members: Iterable[Any]) -> dict[str, Any]:
        """Return the assignments of all members. Called on the group's leader, with decoded metadata."""
        made = assigned(
            cluster,
            {member.member_id: _joining(member, cooperative=self.cooperative) for member in members},
            self.mode,
            cooperative=self.cooperative,
            rack_priority=self.rack_priority,
            racks_of=functools.partial(_racks, cluster),
        )
        mark = None if self.name in KAFKAS else MARK
        return {name: ConsumerProtocolAssignment(_VERSION, held, mark) for name, held in made.items()}


def _joining(member: Any, *, cooperative: bool) -> Member:
    """Return what a member has sent, by the table above."""
    said = member.metadata
    owned = [(held.topic, p) for held in said.owned_partitions or () for p in held.partitions or ()]
    generation = max(said.generation_id, NO_GENERATION)
    remembered = recalled(said.user_data)
    if not cooperative and remembered is not None:
        owned, generation = remembered
    elif cooperative and generation == NO_GENERATION:
        if said.user_data and len(said.user_data) == _GENERATION.size:
            generation = max(_GENERATION.unpack(said.user_data)[0], NO_GENERATION)
        elif remembered is not None:
            generation = remembered[1]
    return Member(
        list(said.topics), owned, generation, said.rack_id or None, member.group_instance_id or None
    )


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


def finish_joins(consumer: Any) -> Any:
    """Return the `KafkaConsumer` after changing it: a join that outlasts a `poll` goes on in the next one.

    Call it once, before the first `poll`. Without it, poll with timeouts that are longer than any join.

        consumer = finish_joins(KafkaConsumer(..., partition_assignment_strategy=[TaskplaceAssignor()]))

    It calls private methods of kafka-python 3.0, because the public ones do not reach a join. A consumer without a
    group stays as it is.

    kafka-python 3.0 joins a group within `poll`. If the timeout of a `poll` ends first, the next one goes on with the
    join, but only if the consumer still needs one. A consumer that joins because of changed topics needs none as soon
    as its request is sent. So it forgets the join: it owns nothing from then on, sends no heartbeats, and `poll`
    returns no error.

    Errors: `TypeError` for anything else than a `KafkaConsumer` of kafka-python 3.0.
    """
    coordinator: Any = getattr(consumer, "_coordinator", None)
    if any(not callable(getattr(coordinator, name, None)) for name in _NEEDED):
        raise TypeError(f"consumer: found {consumer!r}, expected a KafkaConsumer of kafka-python 3.0")
    prepare = coordinator._on_join_prepare_async

    async def prepare_once_needed(*args: Any, **kwargs: Any) -> None:
        # Only the end of a join takes this back, so each `poll` until then goes on with it.
        coordinator.request_rejoin()
        await prepare(*args, **kwargs)

    coordinator._on_join_prepare_async = prepare_once_needed
    return consumer
