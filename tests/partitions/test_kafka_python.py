"""Real assignors of kafka-python's interface, with the bytes that go over the wire."""

from __future__ import annotations

import random
import struct
from types import SimpleNamespace
from typing import Any

import pytest

kafka = pytest.importorskip("kafka")

from kafka.cluster import ClusterMetadata  # noqa: E402
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol  # noqa: E402
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor  # noqa: E402
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor  # noqa: E402
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData  # noqa: E402
from kafka.protocol.consumer.group import JoinGroupResponse  # noqa: E402
from kafka.protocol.consumer.metadata import (  # noqa: E402
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.protocol.metadata import MetadataResponse  # noqa: E402
from kafka.structs import TopicPartition  # noqa: E402

from taskplace.errors import InputError  # noqa: E402
from taskplace.partitions.kafka_python import TaskplaceAssignor  # noqa: E402

Held = set[tuple[str, int]]


def cluster(topics: dict[str, int], racks: tuple[str, ...] = ("a", "b")) -> Any:
    """Return cluster metadata: one broker in each rack, partition p on the broker p modulo their number."""
    brokers = [
        MetadataResponse.MetadataResponseBroker(node_id=k, host="broker", port=1000 + k, rack=rack)
        for k, rack in enumerate(racks)
    ]
    topic, part = (
        MetadataResponse.MetadataResponseTopic,
        MetadataResponse.MetadataResponseTopic.MetadataResponsePartition,
    )
    found = ClusterMetadata()
    response = MetadataResponse(
        version=5,
        throttle_time_ms=0,
        cluster_id=None,
        brokers=brokers,
        controller_id=0,
        topics=[
            topic(
                error_code=0,
                name=name,
                is_internal=False,
                partitions=[
                    part(
                        error_code=0,
                        partition_index=p,
                        leader_id=p % len(racks),
                        replica_nodes=[p % len(racks)],
                        isr_nodes=[p % len(racks)],
                        offline_replicas=[],
                    )
                    for p in range(count)
                ],
            )
            for name, count in topics.items()
        ],
    )
    found.update_metadata(MetadataResponse.decode(response.encode(), version=5))
    return found


class Group:
    """A group of consumers around real assignors; every message is encoded and decoded."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.cluster = cluster(topics)
        self.assignors: dict[str, Any] = {}
        self.topics: dict[str, set[str]] = {}
        self.held: dict[str, Held] = {}
        self.generation = 0

    def join(self, name: str, assignor: Any, *topics: str) -> None:
        self.assignors[name], self.topics[name], self.held[name] = assignor, set(topics), set()

    def leave(self, name: str) -> None:
        del self.assignors[name], self.topics[name], self.held[name]

    def rebalance(self, leader: str) -> dict[str, Held]:
        self.generation += 1
        members = []
        for name, assignor in self.assignors.items():
            wire = assignor.metadata(self.topics[name]).encode()
            metadata = ConsumerProtocolSubscription.decode(wire)
            members.append(
                JoinGroupResponse.JoinGroupResponseMember(
                    member_id=name, group_instance_id=None, metadata=metadata
                )
            )
        answers = self.assignors[leader].assign(self.cluster, members)
        assert set(answers) == set(self.assignors)
        for name, answer in answers.items():
            decoded = ConsumerProtocolAssignment.decode(answer.encode())
            self.assignors[name].on_assignment(decoded, self.generation)
            self.held[name] = {(tp.topic, tp.partition) for tp in decoded.partitions()}
        return self.held


def sizes(held: dict[str, Held]) -> list[int]:
    return sorted(map(len, held.values()))


def test_it_is_one_of_theirs() -> None:
    eager, cooperative = TaskplaceAssignor(), TaskplaceAssignor("cooperative")
    assert isinstance(eager, AbstractPartitionAssignor)
    assert eager.supported_protocols() == [RebalanceProtocol.EAGER]
    assert cooperative.supported_protocols() == [RebalanceProtocol.COOPERATIVE]
    assert TaskplaceAssignor("range").name == "taskplace-range"
    assert TaskplaceAssignor("fair", cooperative=True, name="ours").name == "ours"
    with pytest.raises(InputError, match="did you mean 'fair_sticky'"):
        TaskplaceAssignor("fair_stiky")


def test_sticky_through_members_that_leave_and_a_leader_that_is_new() -> None:
    group = Group({"t": 7, "u": 5})
    for name in "ABC":
        group.join(name, TaskplaceAssignor(), "t", "u")
    first = {name: set(held) for name, held in group.rebalance("A").items()}
    assert sizes(first) == [4, 4, 4]
    group.leave("A")  # and with it all it knew
    second = group.rebalance("B")
    assert sizes(second) == [6, 6]
    assert first["B"] <= second["B"] and first["C"] <= second["C"]


def test_cooperative_hands_over_in_two_rounds() -> None:
    group = Group({"t": 6})
    for name in "AB":
        group.join(name, TaskplaceAssignor(cooperative=True), "t")
    group.rebalance("A")
    group.join("C", TaskplaceAssignor(cooperative=True), "t")
    before = {name: set(held) for name, held in group.held.items()}
    first = {name: set(held) for name, held in group.rebalance("A").items()}
    assert first["C"] == set() and first["A"] < before["A"] and first["B"] < before["B"]
    second = group.rebalance("C")
    assert sizes(second) == [2, 2, 2]
    assert first["A"] == second["A"] and first["B"] == second["B"]


@pytest.mark.parametrize("theirs", [StickyPartitionAssignor, CooperativeStickyAssignor])
def test_a_group_can_change_over_one_consumer_after_the_other(theirs: Any) -> None:
    staged = theirs is CooperativeStickyAssignor
    group = Group({"t": 8})
    for name in "AB":
        group.join(name, theirs(), "t")
    first = {name: set(held) for name, held in group.rebalance("A").items()}
    group.leave("B")
    group.join("N", TaskplaceAssignor(cooperative=staged), "t")
    assert group.assignors["N"].name == group.assignors["A"].name
    for _ in range(2):
        by_theirs = {name: set(held) for name, held in group.rebalance("A").items()}
    by_ours = group.rebalance("N")
    assert sizes(by_ours) == [4, 4]
    assert by_ours["A"] == by_theirs["A"] == first["A"]


def test_racks_come_from_the_brokers() -> None:
    group = Group({"t": 8})
    group.join("A", TaskplaceAssignor(rack="b"), "t")
    group.join("B", TaskplaceAssignor(rack="a"), "t")
    held = group.rebalance("A")
    assert held == {"A": {("t", p) for p in (1, 3, 5, 7)}, "B": {("t", p) for p in (0, 2, 4, 6)}}


def test_topics_that_nobody_knows_and_user_data_that_is_rubbish() -> None:
    group = Group({"t": 2})
    group.join("A", TaskplaceAssignor(), "t", "tomorrow")
    assert group.rebalance("A") == {"A": {("t", 0), ("t", 1)}}
    print("seed 5")
    rng = random.Random(5)
    for _ in range(300):
        metadata = ConsumerProtocolSubscription(
            version=0, topics=["t"], user_data=rng.randbytes(rng.randint(1, 40))
        )
        member = JoinGroupResponse.JoinGroupResponseMember(member_id="B", metadata=metadata)
        made = TaskplaceAssignor().assign(group.cluster, [member])
        assert len(made["B"].partitions()) == 2


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">ihii", 1, -1, -1, 0),  # one topic without a name and without partitions
        struct.pack(">ihciii", 1, 1, b"t", -1, 0, 0)[:-4],  # a topic without partitions
        struct.pack(">i", -1),
        struct.pack(">ii", -1, 5),
    ],
)
def test_user_data_that_decodes_to_nulls(data: bytes) -> None:
    for cooperative in (False, True):
        told = ConsumerProtocolSubscription(version=1, topics=["t"], user_data=data, owned_partitions=[])
        wire = ConsumerProtocolSubscription.decode(told.encode())
        made = TaskplaceAssignor(cooperative=cooperative).assign(cluster({"t": 2}), [("B", wire)])
        assert len(made["B"].partitions()) == 2


PAIR = ConsumerProtocolSubscription.TopicPartition
FORMS = {
    "message": [PAIR(topic="t", partitions=[1, 2]), PAIR(topic="u", partitions=[0])],
    "versioned message": [
        PAIR(topic="t", partitions=[1, 2], version=1),
        PAIR(topic="u", partitions=[0], version=1),
    ],
    "pairs with lists": [("t", [1, 2]), ["u", (0,)]],
    "pairs": [("t", 1), ("t", 2), ("u", 0)],
    "partitions": [TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0)],
    "mapping": {"t": {1, 2}, "u": [0]},
    "items": {"t": [1, 2], "u": [0]}.items(),
    "mappings": [{"topic": "t", "partitions": [1, 2]}, {"topic": "u", "partition": 0}],
    "objects": [SimpleNamespace(topic="t", partitions=[1, 2]), SimpleNamespace(topic="u", partition=0)],
    "generator": (tp for tp in [("t", [1, 2]), ("u", [0])]),
}
HELD = {("t", 1), ("t", 2), ("u", 0)}
TOPICS = {"t": 3, "u": 3}


def made_of(made: dict[str, Any]) -> dict[str, Held]:
    return {n: {(tp.topic, tp.partition) for tp in a.partitions()} for n, a in made.items()}


def subscription(**fields: Any) -> Any:
    return ConsumerProtocolSubscription(**{"topics": ["t", "u"], "user_data": b"", **fields})


def member(name: str, metadata: Any, instance: str | None = None) -> Any:
    return JoinGroupResponse.JoinGroupResponseMember(
        member_id=name, group_instance_id=instance, metadata=metadata
    )


def fresh(form: str) -> Any:
    """Return the partitions in this form; a generator can be used up only once."""
    found = FORMS[form]
    return (tp for tp in [("t", [1, 2]), ("u", [0])]) if form == "generator" else found


@pytest.mark.parametrize("form", FORMS)
def test_partitions_are_read_in_any_form(form: str) -> None:
    other = member("A", subscription())
    # The user data of eager members, decoded or built by hand.
    for data in (
        StickyAssignorUserData(fresh(form), 4),
        SimpleNamespace(previous_assignment=fresh(form), generation=4),
        {"previous_assignment": fresh(form), "generation": 4},
        (fresh(form), 4),
    ):
        made = TaskplaceAssignor().assign(cluster(TOPICS), [other, member("B", subscription(user_data=data))])
        assert made_of(made)["B"] == HELD
    # The field of cooperative ones.
    told = subscription(owned_partitions=fresh(form), generation_id=4)
    made = TaskplaceAssignor(cooperative=True).assign(cluster(TOPICS), [other, member("B", told)])
    assert made_of(made)["B"] == HELD
    # What a consumer is told that it owns.
    for told in (
        ConsumerProtocolAssignment(assigned_partitions=fresh(form), user_data=b""),
        SimpleNamespace(partitions=lambda: fresh(form)),
        fresh(form),
    ):
        assignor = TaskplaceAssignor(cooperative=True)
        assignor.on_assignment(told, 7)
        told = ConsumerProtocolSubscription.decode(assignor.metadata({"t", "u"}).encode())
        assert {(tp.topic, p) for tp in told.owned_partitions for p in tp.partitions} == HELD
        assert told.generation_id == 7


def test_what_a_consumer_owns_may_come_as_bytes_or_as_nothing() -> None:
    assignor = TaskplaceAssignor()
    assert assignor.metadata(["t"]).user_data == b""
    wire = ConsumerProtocolAssignment(0, [("t", [1])], b"").encode()
    assignor.on_assignment(wire, SimpleNamespace(generation_id=5))
    memory = assignor.metadata({"t": None}).user_data
    assert (memory.previous_assignment, memory.generation) == ([("t", [1])], 5)
    assignor.on_assignment(None, 6)
    memory = assignor.metadata(["t"]).user_data  # it owns nothing now, and knows since when
    assert (memory.previous_assignment, memory.generation) == ([], 6)


@pytest.mark.parametrize("staged", [False, True])
def test_members_are_read_in_any_form(staged: bool) -> None:
    field = {"owned_partitions": [("t", [1, 2])], "generation_id": 3}
    fields = field if staged else {"user_data": ([("t", [1, 2])], 3)}
    b = subscription(**fields)
    wire = TaskplaceAssignor(cooperative=staged)
    wire.on_assignment([("t", [1, 2])], 3)
    plain = {"topics": {"t", "u"}, **fields}
    old = SimpleNamespace(subscription=["t", "u"], **fields)
    for told in (b, wire.metadata({"t", "u"}).encode(), plain, old):
        for members in (
            [member("A", subscription()), member("B", told)],
            [("A", subscription()), ("B", told)],
            [("A", None, subscription()), ["B", None, told]],
            [{"member_id": "A", "metadata": subscription()}, SimpleNamespace(member_id="B", metadata=told)],
            {"A": subscription(), "B": told},
            (m for m in [("A", subscription()), ("B", told)]),
        ):
            made = made_of(TaskplaceAssignor(cooperative=staged).assign(cluster(TOPICS), members))
            assert {("t", 1), ("t", 2)} <= made["B"] and len(made["A"]) == 3
    # Static members keep their order, however they are given.
    for members in (
        [member("A", subscription(), "z"), member("B", subscription(), "y")],
        [("A", "z", subscription()), ("B", "y", subscription())],
    ):
        assert ("t", 0) in made_of(TaskplaceAssignor("range").assign(cluster(TOPICS), members))["B"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("B",)], "members[0]"),
        ([member("B", None)], "members[0]"),
        ([("B", subscription(user_data=[("t", "x")]))], "members.B.owned[0]: found ('t', 'x')"),
        ([("B", subscription(user_data=["t0"]))], "members.B.owned[0]: found 't0'"),
        ([("B", subscription(user_data=[("t", [0, True])]))], "members.B.owned[0]"),
        ([("B", subscription(user_data=[SimpleNamespace(topic="t")]))], "members.B.owned[0]"),
        ([("B", subscription(owned_partitions="t0"))], "members.B.owned: found 't0'"),
        ([("B", subscription(owned_partitions=7))], "members.B.owned: found 7"),
        ([("B", subscription(topics="t"))], "members.B.topics: found 't'"),
        ([("B", subscription(topics=[7]))], "members.B.topics[0]: found 7"),
    ],
)
def test_what_is_no_member_is_one_error(members: list[Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        TaskplaceAssignor().assign(cluster(TOPICS), members)
    assert message in str(error.value)
    with pytest.raises(InputError, match="topics: found 't'"):
        TaskplaceAssignor().metadata("t")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("B", b"")], "members.B.metadata: found b''"),
        ([("B", b"\0\3\xff")], "members.B.metadata"),
        ([("B", bytearray(b"junkjunkjunk"))], "members.B.metadata"),
        ([("B", "t")], "members.B.metadata: found 't'"),
        ([("B", ["t"])], "members.B.metadata: found ['t']"),
        ({"B": {"topic": ["t"]}}, "members.B.metadata"),
        ([("B", subscription()), ("B", subscription(topics=[]))], "members: found \"'B' twice\""),
        (None, "members: found None"),
        (7, "members: found 7"),
    ],
)
def test_metadata_that_is_none_is_one_error(members: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        TaskplaceAssignor().assign(cluster(TOPICS), members)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("assignment", "generation", "message"),
    [
        (b"", 3, "assignment: found b''"),
        (b"\0\0\0\0\0\1", 3, "assignment"),
        ([("t", 0)], 2**31, "generation: found 2147483648"),
        ([("t", 0)], SimpleNamespace(generation_id="3"), "generation: found '3'"),
        ([("t", 0)], True, "generation: found True"),
        (5, 3, "assignment: found 5"),
    ],
)
def test_what_is_no_assignment_is_one_error_and_is_not_remembered(
    assignment: Any, generation: Any, message: str
) -> None:
    assignor = TaskplaceAssignor()
    assignor.on_assignment([("t", [1])], 2)
    before = assignor.metadata(["t"]).encode()
    with pytest.raises(InputError) as error:
        assignor.on_assignment(assignment, generation)
    assert message in str(error.value)
    assert assignor.metadata(["t"]).encode() == before


def test_an_assignment_of_nulls_is_nothing() -> None:
    assignor = TaskplaceAssignor()
    assignor.on_assignment(ConsumerProtocolAssignment(0, None, b""), 2)
    memory = assignor.metadata(["t"]).user_data
    assert (memory.previous_assignment, memory.generation) == ([], 2)


def generation_of(metadata: Any, *, cooperative: bool) -> int:
    """Return the generation that an assignor reads: the claim is tried against one of each generation."""
    found = []
    for rival in range(-1, 12):
        mine = subscription(
            owned_partitions=[("t", [0])], generation_id=rival, user_data=([("t", [0])], rival)
        )
        members = [("A", mine), ("B", metadata), ("C", subscription())]
        made = TaskplaceAssignor("sticky_fair", cooperative=cooperative).assign(cluster({"t": 1}), members)
        if made_of(made)["B"]:
            found.append(rival)
    return max(found, default=-2) + 1


def test_cooperative_members_below_version_2_tell_their_generation_in_user_data() -> None:
    # That is how Kafka's own cooperative assignor tells older leaders: four bytes.
    old = subscription(
        version=1, owned_partitions=[PAIR(topic="t", partitions=[0])], user_data=struct.pack(">i", 8)
    )
    wire = ConsumerProtocolSubscription.decode(old.encode(), version=1)
    assert generation_of(wire, cooperative=True) == 8
    assert generation_of(subscription(owned_partitions=[("t", 0)], user_data=8), cooperative=True) == 8
    # The field comes first; without either, and with rubbish, it is unknown.
    both = subscription(owned_partitions=[("t", 0)], user_data=struct.pack(">i", 8), generation_id=5)
    assert generation_of(both, cooperative=True) == 5
    for data in (b"", b"abc", b"abcde", None):
        unknown = subscription(owned_partitions=[("t", 0)], user_data=data)
        assert generation_of(unknown, cooperative=True) == -1


def test_cooperative_metadata_tells_the_generation_twice() -> None:
    assignor = TaskplaceAssignor(cooperative=True)
    assert assignor.metadata(["t"]).user_data == struct.pack(">i", -1)
    assignor.on_assignment([("t", 0)], 10)
    decoded = ConsumerProtocolSubscription.decode(assignor.metadata(["t"]).encode())
    assert (decoded.generation_id, decoded.user_data) == (10, struct.pack(">i", 10))
    # A leader that knows no field for it reads the user data.
    before = ConsumerProtocolSubscription.decode(assignor.metadata(["t"]).encode(), version=1)
    assert generation_of(before, cooperative=True) == 10


def test_eager_members_are_believed_by_their_user_data() -> None:
    # Partitions and generation of the user data count, not those of the fields.
    data = StickyAssignorUserData([("t", [0])], 6).encode()
    both = subscription(user_data=data, owned_partitions=[("t", [1])], generation_id=9)
    assert generation_of(both, cooperative=False) == 6
    made = TaskplaceAssignor().assign(cluster({"t": 2}), [("A", subscription()), ("B", both)])
    assert made_of(made)["B"] == {("t", 0)}
    # Version 0 of the user data knows no generation.
    first = StickyAssignorUserData(version=0, previous_assignment=[("t", [0])]).encode()
    assert generation_of(subscription(user_data=first), cooperative=False) == -1


def test_user_data_of_the_java_client_has_no_version_in_front() -> None:
    def fields(*numbers: int) -> bytes:
        """Return one topic "t" with these partitions, as Java writes it."""
        return struct.pack(">ihc", 1, 1, b"t") + struct.pack(f">{1 + len(numbers)}i", len(numbers), *numbers)

    def held(data: bytes) -> Held:
        members = [("A", subscription()), ("B", subscription(user_data=data)), ("C", subscription())]
        return made_of(TaskplaceAssignor("sticky_fair").assign(cluster({"t": 3}), members))["B"]

    # Version 1 ends with the generation, version 0 does not.
    assert held(fields(0, 2) + struct.pack(">i", 7)) == held(fields(0, 2)) == {("t", 0), ("t", 2)}
    assert generation_of(subscription(user_data=fields(0) + struct.pack(">i", 7)), cooperative=False) == 7
    assert generation_of(subscription(user_data=fields(0)), cooperative=False) == -1
    # A member that had nothing, as of generation 7.
    assert len(held(struct.pack(">ii", 0, 7))) == 1
    # kafka-python puts the version in front, of the same fields.
    for version, tail in ((0, b""), (1, struct.pack(">i", 7))):
        data = struct.pack(">h", version) + fields(0, 2) + tail
        theirs = StickyAssignorUserData(version=version, previous_assignment=[("t", [0, 2])])
        assert theirs.encode()[: len(data) - len(tail)] == data[: len(data) - len(tail)]
        assert held(data) == {("t", 0), ("t", 2)}
    # More or fewer bytes than the fields have are no user data.
    assert len(held(fields(0, 2) + b"\0")) == len(held(fields(0, 2)[:-1])) == 1


def test_a_cooperative_member_owns_what_the_field_says_and_nothing_else() -> None:
    data = StickyAssignorUserData([("t", [0])], 6).encode()
    members = [("A", subscription()), ("B", subscription(user_data=data, generation_id=6))]
    made = TaskplaceAssignor(cooperative=True).assign(cluster({"t": 1}), members)
    assert made_of(made) == {"A": {("t", 0)}, "B": set()}


def test_partitions_move_for_racks_under_kafkas_protocols() -> None:
    def changed(**options: Any) -> bool:
        group = Group({"t": 4})
        for name, rack in (("A", "a"), ("B", "b")):
            assignor = TaskplaceAssignor(rack=rack, **options)
            group.join(name, assignor, "t")
            assignor.on_assignment([("t", p) for p in range(4) if p % 2 == (name == "A")], 1)
        return group.rebalance("A") == {"A": {("t", 0), ("t", 2)}, "B": {("t", 1), ("t", 3)}}

    assert changed() and changed(rack_priority="racks", name="ours")
    assert not changed(rack_priority="stickiness") and not changed(name="ours")
    with pytest.raises(InputError, match="rack_priority: found 'rack'"):
        TaskplaceAssignor(rack_priority="rack")
