"""kafka-python's interface: partitions and members in any form, and one error for what is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

kafka = pytest.importorskip("kafka")

from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData  # noqa: E402
from kafka.protocol.consumer.metadata import (  # noqa: E402
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.structs import TopicPartition  # noqa: E402
from taskplace.groups.kafka_python import TaskplaceAssignor  # noqa: E402

from taskplace.errors import InputError  # noqa: E402
from tests.support.kafka_python_group import PAIR, cluster, made_of, member, subscription  # noqa: E402

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


def remembered(metadata: Any) -> tuple[list[tuple[str, list[int]]], int]:
    """Return the partitions and the generation in an eager consumer's user data."""
    told = StickyAssignorUserData.decode(metadata.user_data, version=1, header=False)
    return [(one.topic, one.partitions) for one in told.previous_assignment], told.generation


def test_what_a_consumer_owns_may_come_as_bytes_or_as_nothing() -> None:
    assignor = TaskplaceAssignor()
    assert assignor.metadata(["t"]).user_data is None
    wire = ConsumerProtocolAssignment(0, [("t", [1])], b"").encode()
    assignor.on_assignment(wire, SimpleNamespace(generation_id=5))
    assert remembered(assignor.metadata({"t": None})) == ([("t", [1])], 5)
    assignor.on_assignment(None, 6)
    assert remembered(assignor.metadata(["t"])) == ([], 6)  # it owns nothing now, and knows since when


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
        ([("B", subscription(user_data=[("t", "x")]))], "members.B.owned[0]: found ['t', 'x']"),
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
        (None, "members: found nothing"),
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
        ([("t", 0)], True, "generation: found true"),
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
    assert remembered(assignor.metadata(["t"])) == ([], 2)


@pytest.mark.parametrize(
    ("generation", "told"),
    [(2**31 - 1, 2**31 - 1), (0, 0), (-1, -1), (-5, -1), (None, -1), (SimpleNamespace(), -1)],
)
def test_a_generation_that_fits_into_a_message_is_remembered(generation: Any, told: int) -> None:
    assignor = TaskplaceAssignor()
    assignor.on_assignment([("t", 0)], generation)
    assert assignor.metadata(["t"]).generation_id == told
