"""Real assignors of kafka-python's interface, with the bytes that go over the wire."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

kafka = pytest.importorskip("kafka")

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol  # noqa: E402
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor  # noqa: E402
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor  # noqa: E402
from kafka.protocol.consumer.group import JoinGroupResponse  # noqa: E402
from kafka.protocol.consumer.metadata import (  # noqa: E402
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from taskplace.errors import InputError  # noqa: E402
from taskplace.groups.kafka_python import TaskplaceAssignor  # noqa: E402
from tests.support.kafka_python_group import Held, cluster, members, told  # noqa: E402

ROOT = Path(__file__).parents[2]


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
        joined = []
        for name, assignor in self.assignors.items():
            wire = assignor.metadata(self.topics[name]).encode()
            metadata = ConsumerProtocolSubscription.decode(wire)
            joined.append((name, metadata))
        answers = self.assignors[leader].assign(self.cluster, members(*joined))
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
        old = ConsumerProtocolSubscription(version=1, topics=["t"], user_data=data, owned_partitions=[])
        wire = ConsumerProtocolSubscription.decode(old.encode())
        made = TaskplaceAssignor(cooperative=cooperative).assign(cluster({"t": 2}), members(("B", wire)))
        assert len(made["B"].partitions()) == 2


def test_partitions_move_for_racks_under_kafkas_protocols() -> None:
    def changed(**options: Any) -> bool:
        group = Group({"t": 4})
        for name, rack in (("A", "a"), ("B", "b")):
            assignor = TaskplaceAssignor(rack=rack, **options)
            group.join(name, assignor, "t")
            assignor.on_assignment(told(*(("t", p) for p in range(4) if p % 2 == (name == "A"))), 1)
        return group.rebalance("A") == {"A": {("t", 0), ("t", 2)}, "B": {("t", 1), ("t", 3)}}

    assert changed() and changed(rack_priority="racks", name="ours")
    assert not changed(rack_priority="stickiness") and not changed(name="ours")
    with pytest.raises(InputError, match="rack_priority: found 'rack'"):
        TaskplaceAssignor(rack_priority="rack")


def test_an_assignment_of_the_broker_is_refused_where_only_ours_may_lead() -> None:
    """In a group of the new protocol (KIP-848), the broker assigns: its message is Kafka's plain one."""
    brokers = ConsumerProtocolAssignment(3, [("t", [0])], None)
    known = cluster({"t": 1})
    for mode, refused in (("fair", True), ("copartitioned", True), ("sticky", False), ("cooperative", False)):
        assignor = TaskplaceAssignor(mode)
        assignor.on_assignment(assignor.assign(known, members(("A", assignor.metadata(["t"]))))["A"], 1)
        if refused:
            with pytest.raises(InputError, match=r"restart it with group\.protocol=classic"):
                assignor.on_assignment(brokers, 2)
        else:
            assignor.on_assignment(brokers, 2)
        assert assignor.metadata(["t"]).generation_id == 2 - refused


@pytest.mark.parametrize(
    ("mode", "topics"),
    [("sticky", ("t", "tu", "v")), ("range", ("tuv",) * 3), ("copartitioned", ("t", "tu", "v"))],
)
def test_what_an_assignment_needs_is_loaded_before_the_first_one(mode: str, topics: tuple[str, ...]) -> None:
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
