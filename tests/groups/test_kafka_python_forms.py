"""kafka-python's interface: what a consumer was told, and values that decode to nulls."""

from __future__ import annotations

from typing import Any

import pytest

kafka = pytest.importorskip("kafka")

from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData  # noqa: E402
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment  # noqa: E402

from taskplace.groups.kafka_python import TaskplaceAssignor  # noqa: E402
from tests.support.kafka_python_group import cluster, made_of, member, subscription, told  # noqa: E402


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


def test_static_members_keep_their_order() -> None:
    joined = [member("A", subscription(), "z"), member("B", subscription(), "y")]
    made = TaskplaceAssignor("range").assign(cluster({"t": 3, "u": 3}), joined)
    assert ("t", 0) in made_of(made)["B"]


@pytest.mark.parametrize(("generation", "sent"), [(2**31 - 1, 2**31 - 1), (0, 0), (-1, -1), (-5, -1)])
def test_a_generation_is_remembered(generation: int, sent: int) -> None:
    assignor = TaskplaceAssignor()
    assignor.on_assignment(told(("t", 0)), generation)
    assert assignor.metadata(["t"]).generation_id == sent
