"""Real assignors of kafka-python's interface, with the bytes that go over the wire, and whom they believe."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kafka")

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from taskplace.errors import InputError
from taskplace.groups.kafka_python import TaskplaceAssignor
from tests.support.kafka_python_group import Held, cluster, made_of, members, subscription, told

ROOT = Path(__file__).parents[2]


class Group:
    """A group of consumers around real assignors; every message is encoded and decoded."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.cluster = cluster(topics)
        self.members: dict[str, tuple[Any, tuple[str, ...]]] = {}
        self.generation = 0

    def join(self, names: str, *topics: str, assignor: Any = TaskplaceAssignor, **options: Any) -> Any:
        for name in names:
            self.members[name] = assignor(**options), topics
        return self.members[name][0]

    def rebalance(self, leader: str) -> dict[str, Held]:
        self.generation += 1
        wire = {
            name: assignor.metadata(set(topics)).encode() for name, (assignor, topics) in self.members.items()
        }
        joined = [(name, ConsumerProtocolSubscription.decode(data)) for name, data in wire.items()]
        answers = self.members[leader][0].assign(self.cluster, members(*joined))
        assert set(answers) == set(self.members)
        decoded = {n: ConsumerProtocolAssignment.decode(answer.encode()) for n, answer in answers.items()}
        for name, answer in decoded.items():
            self.members[name][0].on_assignment(answer, self.generation)
        return made_of(decoded)


def sizes(held: dict[str, Held]) -> list[int]:
    return sorted(map(len, held.values()))


def test_it_is_one_of_theirs():
    eager, cooperative = TaskplaceAssignor(), TaskplaceAssignor("cooperative")
    assert isinstance(eager, AbstractPartitionAssignor)
    assert eager.supported_protocols() == [RebalanceProtocol.EAGER]
    assert cooperative.supported_protocols() == [RebalanceProtocol.COOPERATIVE]
    assert TaskplaceAssignor("range").name == "taskplace-range"
    assert TaskplaceAssignor("fair", cooperative=True, name="ours").name == "ours"
    for option in ({"mode": "fair_stiky"}, {"rack_priority": "rack"}, {"user_data": "Java"}):
        with pytest.raises(InputError, match="did you mean"):
            TaskplaceAssignor(**option)


def test_sticky_through_members_that_leave_and_a_leader_that_is_new():
    group = Group({"t": 7, "u": 5})
    group.join("ABC", "t", "u")
    first = group.rebalance("A")
    assert sizes(first) == [4, 4, 4]
    del group.members["A"]  # and with it all it knew
    second = group.rebalance("B")
    assert sizes(second) == [6, 6]
    assert first["B"] <= second["B"] and first["C"] <= second["C"]


def test_cooperative_hands_over_in_two_rounds():
    group = Group({"t": 6})
    group.join("AB", "t", cooperative=True)
    before = group.rebalance("A")
    group.join("C", "t", cooperative=True)
    first, second = group.rebalance("A"), group.rebalance("C")
    assert first["C"] == set() and first["A"] < before["A"] and first["B"] < before["B"]
    assert sizes(second) == [2, 2, 2]
    assert first["A"] == second["A"] and first["B"] == second["B"]


@pytest.mark.parametrize("theirs", [StickyPartitionAssignor, CooperativeStickyAssignor])
def test_a_group_can_change_over_one_consumer_after_the_other(theirs):
    group = Group({"t": 8})
    group.join("AB", "t", assignor=theirs)
    first = group.rebalance("A")
    del group.members["B"]
    new = group.join("N", "t", cooperative=theirs is CooperativeStickyAssignor)
    assert new.name == group.members["A"][0].name
    by_theirs = [group.rebalance("A") for _ in range(2)][1]
    by_ours = group.rebalance("N")
    assert sizes(by_ours) == [4, 4]
    assert by_ours["A"] == by_theirs["A"] == first["A"]


def test_racks_come_from_the_brokers():
    group = Group({"t": 8})
    group.join("A", "t", rack="b")
    group.join("B", "t", rack="a")
    held = group.rebalance("A")
    assert held == {"A": {("t", p) for p in (1, 3, 5, 7)}, "B": {("t", p) for p in (0, 2, 4, 6)}}


@pytest.mark.parametrize(
    ("options", "moves"),
    [
        ({}, True),
        ({"rack_priority": "racks", "name": "ours"}, True),
        ({"rack_priority": "stickiness"}, False),
        ({"name": "ours"}, False),
    ],
)
def test_partitions_move_for_racks_under_kafkas_protocols(options, moves):
    group = Group({"t": 4})
    for name, rack, had in (("A", "a", (1, 3)), ("B", "b", (0, 2))):
        group.join(name, "t", rack=rack, **options).on_assignment(told(*(("t", p) for p in had)), 1)
    assert (group.rebalance("A") == {"A": {("t", 0), ("t", 2)}, "B": {("t", 1), ("t", 3)}}) is moves


def user_data(*numbers: int, generation: int | None = None, topic: bytes = b"t") -> bytes:
    """Return the user data of one topic with these partitions, as Java writes it."""
    fields = struct.pack(">ihc", 1, 1, topic) + struct.pack(f">{1 + len(numbers)}i", len(numbers), *numbers)
    return fields if generation is None else fields + struct.pack(">i", generation)


RUBBISH = [
    struct.pack(">ihii", 1, -1, -1, 0),  # one topic without a name and without partitions
    struct.pack(">ihci", 1, 1, b"t", -1),  # a topic without partitions
    struct.pack(">i", -1),
    struct.pack(">ii", -1, 5),
    *(random.Random(5).randbytes(1 + n % 40) for n in range(300)),
]


def test_topics_that_nobody_knows_and_user_data_that_is_rubbish():
    group = Group({"t": 2})
    group.join("A", "t", "tomorrow")
    assert group.rebalance("A") == {"A": {("t", 0), ("t", 1)}}
    for data in RUBBISH:
        for cooperative in (False, True):
            old = ConsumerProtocolSubscription(version=1, topics=["t"], user_data=data, owned_partitions=[])
            wire = ConsumerProtocolSubscription.decode(old.encode())
            made = TaskplaceAssignor(cooperative=cooperative).assign(group.cluster, members(("B", wire)))
            assert len(made["B"].partitions()) == 2


@pytest.mark.parametrize(
    ("mode", "only_ours"),
    [("fair", True), ("copartitioned", True), ("sticky", False), ("cooperative", False)],
)
def test_an_assignment_of_the_broker_is_refused_where_only_ours_may_lead(mode, only_ours):
    """In a group of the new protocol (KIP-848), the broker assigns: its message is Kafka's plain one."""
    assignor, brokers = TaskplaceAssignor(mode), ConsumerProtocolAssignment(3, [("t", [0])], None)
    ours = assignor.assign(cluster({"t": 1}), members(("A", assignor.metadata(["t"]))))["A"]
    assignor.on_assignment(ours, 1)
    if only_ours:
        with pytest.raises(InputError, match=r"restart it with group\.protocol=classic"):
            assignor.on_assignment(brokers, 2)
    else:
        assignor.on_assignment(brokers, 2)
    assert assignor.metadata(["t"]).generation_id == 2 - only_ours


@pytest.mark.parametrize(
    ("mode", "topics"),
    [("sticky", ("t", "tu", "v")), ("range", ("tuv",) * 3), ("copartitioned", ("t", "tu", "v"))],
)
def test_what_an_assignment_needs_is_loaded_before_the_first_one(mode, topics):
    """A slow first assignment stops the leader's heartbeats, and kafka-python may lose it."""
    text = (
        "import sys; from taskplace.groups.kafka_python import TaskplaceAssignor; "
        "from tests.support.kafka_python_group import cluster, members; known = cluster({'t': 7, 'u': 7, 'v': 3}); "
        f"made = TaskplaceAssignor({mode!r}); before = set(sys.modules); "
        f"told = [(name, made.metadata(list(mine))) for name, mine in zip('ABC', {topics!r})]; "
        "made.assign(known, members(*told)); print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ------------------------------------------------------------- whom the assignor believes about what members own


def generation_of(metadata: Any, *, cooperative: bool = False) -> int:
    """Return the generation that an assignor reads: the claim is tried against one of each generation."""
    found = []
    for rival in range(-1, 12):
        mine = subscription(
            owned_partitions=[("t", [0])],
            generation_id=rival,
            user_data=StickyAssignorUserData([("t", [0])], rival).encode(),
        )
        joined = members(("A", mine), ("B", metadata), ("C", subscription()))
        made = TaskplaceAssignor("sticky_fair", cooperative=cooperative).assign(cluster({"t": 1}), joined)
        if made_of(made)["B"]:
            found.append(rival)
    return max(found, default=-2) + 1


EIGHT = struct.pack(">i", 8)  # as Kafka's own cooperative assignor tells older leaders


@pytest.mark.parametrize(
    ("version", "data", "field", "generation"),
    [(1, EIGHT, -1, 8), (3, EIGHT, 5, 5), *((3, data, -1, -1) for data in (b"", b"abc", b"abcde", None))],
)
def test_cooperative_members_tell_their_generation_in_the_field_or_else_in_user_data(
    version, data, field, generation
):
    told = subscription(version=version, owned_partitions=[("t", [0])], user_data=data, generation_id=field)
    wire = ConsumerProtocolSubscription.decode(told.encode(), version=1) if version == 1 else told
    assert generation_of(wire, cooperative=True) == generation


def test_a_cooperative_member_owns_what_the_field_says_and_nothing_else():
    data = StickyAssignorUserData([("t", [0])], 6).encode()
    joined = members(("A", subscription()), ("B", subscription(user_data=data, generation_id=6)))
    made = TaskplaceAssignor(cooperative=True).assign(cluster({"t": 1}), joined)
    assert made_of(made) == {"A": {("t", 0)}, "B": set()}


OLD = StickyAssignorUserData(version=0, previous_assignment=[("t", [0, 2])]).encode()


@pytest.mark.parametrize(
    ("data", "held", "generation"),
    [
        (user_data(0, 2, generation=7), {0, 2}, 7),  # Java's, version 1
        (user_data(0, 2), {0, 2}, -1),  # Java's, version 0, knows no generation
        (b"\x00\x01" + user_data(0, 2, generation=7), {0, 2}, 7),  # kafka-python puts a version in front
        (StickyAssignorUserData([("t", [0, 2])], 6).encode(), {0, 2}, 6),
        (OLD, {0, 2}, -1),
        (struct.pack(">ii", 0, 7), None, None),  # a member that had nothing, as of generation 7
        (user_data(0, 2) + b"\0", None, None),  # more or fewer bytes than the fields have are no user data
        (user_data(0, 2)[:-1], None, None),
    ],
)
def test_eager_members_are_believed_by_their_user_data(data, held, generation):
    joined = members(("A", subscription()), ("B", subscription(user_data=data)), ("C", subscription()))
    made = made_of(TaskplaceAssignor("sticky_fair").assign(cluster({"t": 3}), joined))["B"]
    if held is None:
        assert len(made) == 1
    else:
        assert made == {("t", p) for p in held}
        # Partitions and generation of the user data count, not those of the fields.
        both = subscription(user_data=data, owned_partitions=[("t", [1])], generation_id=9)
        assert generation_of(both) == generation


def test_a_consumer_that_owns_nothing_knows_since_when():
    assignor = TaskplaceAssignor()
    assert assignor.metadata(["t"]).user_data is None
    for held, generation in (([("t", [1])], 5), ([], 6), (None, 6)):
        assignor.on_assignment(ConsumerProtocolAssignment(0, held, b""), generation)
        data = StickyAssignorUserData.decode(assignor.metadata(["t"]).user_data, version=1, header=False)
        assert [(one.topic, one.partitions) for one in data.previous_assignment] == (held or [])
        assert data.generation == generation
