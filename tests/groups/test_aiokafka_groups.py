"""Consumers of aiokafka in groups on a real broker: they join, leave, crash, and meet those of kafka-python."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

pytest.importorskip("aiokafka")
pytest.importorskip("kafka")

from tests.support.kafka_consumers import Consumer, ConsumerGroup
from tests.support.kafka_consumers import group as group

pytestmark = pytest.mark.kafka


def join(group: ConsumerGroup, name: str, assignor: str | dict[str, Any] | None = None) -> Consumer:
    """Start a consumer of aiokafka with our assignor, or with its own sticky one."""
    given = {
        "bootstrap": group.bootstrap,
        "group": group.group,
        "topics": group.topics,
        "assignor": assignor or {},
    }
    return group.start(name, [sys.executable, "-m", "tests.support.aiokafka_member", json.dumps(given)])


def test_members_join_leave_and_crash(group):
    g = group(7, 5)
    join(g, "A")
    g.balanced(12)
    join(g, "B")
    two = g.balanced(6, 6)
    join(g, "C")
    three = g.balanced(4, 4, 4)
    assert three["A"] < two["A"] and three["B"] < two["B"]
    g.leave("A")  # the leader, and with it all it knew
    left = g.balanced(6, 6)
    assert left["B"] > three["B"] and left["C"] > three["C"]
    g.crash("B")
    assert g.balanced(12)["C"] > left["C"]
    assert g.overlaps() == []


def test_a_group_has_consumers_of_both_clients(group):
    g = group(8)
    join(g, "A", {"mode": "fair"})
    g.balanced(8)
    g.join("B", {"mode": "fair"})  # kafka-python
    g.balanced(4, 4, protocol="taskplace-fair")
    g.leave("A")
    g.balanced(8, protocol="taskplace-fair")
    join(g, "A", {"mode": "fair"})  # kafka-python's leads now
    g.balanced(4, 4, protocol="taskplace-fair")
    assert g.overlaps() == []


def test_a_group_changes_over_from_aiokafkas_own_sticky_assignor(group):
    g = group(6)
    for name, sizes in (("A", [6]), ("B", [3, 3])):
        join(g, name, "sticky")
        g.balanced(*sizes)
    for name in "AB":
        g.leave(name)
        g.balanced(6)
        join(g, name)
        g.balanced(3, 3)
    assert g.overlaps() == []
