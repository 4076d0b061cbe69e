"""kafka-python's interface: whom the assignor believes about what members own, by version and generation."""

from __future__ import annotations

import struct
from typing import Any

import pytest

kafka = pytest.importorskip("kafka")

from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData  # noqa: E402
from kafka.protocol.consumer.metadata import (  # noqa: E402
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from taskplace.groups.kafka_python import TaskplaceAssignor  # noqa: E402
from tests.support.kafka_python_group import (  # noqa: E402
    Held,
    cluster,
    made_of,
    members,
    subscription,
)


def generation_of(metadata: Any, *, cooperative: bool) -> int:
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


def test_cooperative_members_below_version_2_tell_their_generation_in_user_data() -> None:
    # That is how Kafka's own cooperative assignor tells older leaders: four bytes.
    old = subscription(version=1, owned_partitions=[("t", [0])], user_data=struct.pack(">i", 8))
    wire = ConsumerProtocolSubscription.decode(old.encode(), version=1)
    assert generation_of(wire, cooperative=True) == 8
    # The field comes first; without either, and with rubbish, it is unknown.
    both = subscription(owned_partitions=[("t", [0])], user_data=struct.pack(">i", 8), generation_id=5)
    assert generation_of(both, cooperative=True) == 5
    for data in (b"", b"abc", b"abcde", None):
        unknown = subscription(owned_partitions=[("t", [0])], user_data=data)
        assert generation_of(unknown, cooperative=True) == -1


def test_eager_members_are_believed_by_their_user_data() -> None:
    # Partitions and generation of the user data count, not those of the fields.
    data = StickyAssignorUserData([("t", [0])], 6).encode()
    both = subscription(user_data=data, owned_partitions=[("t", [1])], generation_id=9)
    assert generation_of(both, cooperative=False) == 6
    made = TaskplaceAssignor().assign(cluster({"t": 2}), members(("A", subscription()), ("B", both)))
    assert made_of(made)["B"] == {("t", 0)}
    # Version 0 of the user data knows no generation.
    first = StickyAssignorUserData(version=0, previous_assignment=[("t", [0])]).encode()
    assert generation_of(subscription(user_data=first), cooperative=False) == -1


def test_user_data_of_the_java_client_has_no_version_in_front() -> None:
    def fields(*numbers: int) -> bytes:
        """Return one topic "t" with these partitions, as Java writes it."""
        return struct.pack(">ihc", 1, 1, b"t") + struct.pack(f">{1 + len(numbers)}i", len(numbers), *numbers)

    def held(data: bytes) -> Held:
        joined = members(("A", subscription()), ("B", subscription(user_data=data)), ("C", subscription()))
        return made_of(TaskplaceAssignor("sticky_fair").assign(cluster({"t": 3}), joined))["B"]

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
    joined = members(("A", subscription()), ("B", subscription(user_data=data, generation_id=6)))
    made = TaskplaceAssignor(cooperative=True).assign(cluster({"t": 1}), joined)
    assert made_of(made) == {"A": {("t", 0)}, "B": set()}


def remembered(metadata: Any) -> tuple[list[tuple[str, list[int]]], int]:
    """Return the partitions and the generation in an eager consumer's user data."""
    data = StickyAssignorUserData.decode(metadata.user_data, version=1, header=False)
    return [(one.topic, one.partitions) for one in data.previous_assignment], data.generation


def test_a_consumer_that_owns_nothing_knows_since_when() -> None:
    assignor = TaskplaceAssignor()
    assert assignor.metadata(["t"]).user_data is None
    assignor.on_assignment(ConsumerProtocolAssignment(0, [("t", [1])], b""), 5)
    assert remembered(assignor.metadata({"t": None})) == ([("t", [1])], 5)
    for nothing in ([], None):
        assignor.on_assignment(ConsumerProtocolAssignment(0, nothing, b""), 6)
        assert remembered(assignor.metadata(["t"])) == ([], 6)
