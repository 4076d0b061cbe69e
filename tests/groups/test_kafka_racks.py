"""What the rack tests of Kafka's sticky assignors expect, as facts; theirs is a heuristic, so ours may be better.

Fifteen partitions of three topics; replica r of partition p of the k-th partition in all is on broker k + r.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from taskplace.groups.partitions import Member, Subscriptions, assign_partitions
from tests.support.assignments import verify
from tests.support.groups import home_of, levels
from tests.support.kafka_sticky import home, parts

TOPICS = {"t": 6, "u": 7, "v": 2}
EQUAL = ("t u v", "t u v", "t u v")
DIFFERENT = ("t u v", "t u v", "t v")

IN_TURN = ("tp0 tp3 up0 up3 up6", "tp1 tp4 up1 up4 vp0", "tp2 tp5 up2 up5 vp1")
BLOCKS = ("tp0 tp1 tp2 tp3 tp4", "tp5 up0 up1 up2 up3", "up4 up5 up6 vp0 vp1")
"""Owned partitions that are balanced, and away from their racks."""
GENERAL = ("tp5 up0 up2 up4 up6", "tp3 up1 up3 up5 vp0", "tp0 tp1 tp2 tp4 vp1")
GENERAL_1 = ("tp3 up0 up2 up3 up6", "tp4 up1 up4 up5 vp0", "tp0 tp1 tp2 tp5 vp1")
GENERAL_2 = ("tp3 up0 up2 up5 up6", "tp0 up1 up3 up4 vp0", "tp1 tp2 tp4 tp5 vp1")
KEPT = ("tp2 tp3 tp4 up4 up5", "up0 up1 up2 up3 up6", "tp0 tp1 tp5 vp0 vp1")


class Row(NamedTuple):
    """A line of the table: what is where, and what Kafka makes of it."""

    heard: tuple[str, str, str]
    replicas: int
    brokers: str
    """One letter a broker, "-" without a rack."""
    members: str
    expected: tuple[str, str, str]
    misses: int | None = None
    owned: tuple[str, str, str] = ("", "", "")


FROM_NOTHING = [
    Row(EQUAL, 3, "---", "abc", IN_TURN),
    Row(EQUAL, 3, "abc", "---", IN_TURN),
    Row(EQUAL, 3, "abc", "abc", IN_TURN, 0),
    Row(EQUAL, 4, "abcd", "abc", IN_TURN, 0),
    Row(EQUAL, 3, "abc", "def", IN_TURN),
    Row(EQUAL, 3, "abc", "-ef", IN_TURN),
    Row(EQUAL, 1, "abc", "abc", IN_TURN, 0),
    Row(EQUAL, 2, "abc", "abc", IN_TURN, 0),
    Row(EQUAL, 3, "ab", "abc", IN_TURN, 5),
    Row(DIFFERENT, 3, "---", "abc", GENERAL),
    Row(DIFFERENT, 3, "abc", "---", GENERAL),
    Row(DIFFERENT, 3, "abc", "abc", GENERAL, 0),
    Row(DIFFERENT, 4, "abcd", "abc", GENERAL, 0),
    Row(DIFFERENT, 3, "abc", "def", GENERAL),
    Row(DIFFERENT, 3, "abc", "-ef", GENERAL),
    Row(DIFFERENT, 1, "abc", "abc", GENERAL_1, 4),
    Row(DIFFERENT, 2, "abc", "abc", GENERAL_2, 0),
    Row(DIFFERENT, 3, "ab", "abc", GENERAL, 5),
]
OWNED = [
    Row(EQUAL, 1, "abc", "abc", IN_TURN, 0, BLOCKS),
    Row(DIFFERENT, 1, "abc", "abc", GENERAL_1, 4, BLOCKS),
    Row(DIFFERENT, 3, "abc", "abc", KEPT, 0, BLOCKS),
    Row(DIFFERENT, 3, "abc", "abc", GENERAL, 0, BLOCKS),
]
ROWS = [*FROM_NOTHING, *(row._replace(owned=row.expected) for row in FROM_NOTHING), *OWNED]


def question(row: Row, kind: str) -> Subscriptions:
    racks: dict[str, list[list[str]]] = {}
    k = 0
    for topic, count in TOPICS.items():
        racks[topic] = []
        for _ in range(count):
            on = {row.brokers[(k + r) % len(row.brokers)] for r in range(row.replicas)}
            racks[topic].append(sorted(on - {"-"}))
            k += 1
    members = {
        f"C{k}": Member(heard.split(), parts(owned), rack=None if rack == "-" else rack)
        for k, (heard, owned, rack) in enumerate(zip(row.heard, row.owned, row.members, strict=True))
    }
    return Subscriptions(TOPICS, members, racks, kind)


@pytest.mark.parametrize("kind", ["sticky", "cooperative-sticky"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.replicas}-{row.brokers}-{row.members}")
def test_balance_racks_and_moves_are_at_least_as_good(row: Row, kind: str) -> None:
    s = question(row, kind)
    made = assign_partitions(s)
    assert verify(s, made) == []
    both = home_of(made.assignment) | home_of(made.withheld)
    theirs = home({f"C{k}": held for k, held in enumerate(row.expected)})
    if row.misses is not None:
        assert levels(s, theirs)[2] == row.misses  # the table is read right
        assert made.rack_misses <= row.misses
    assert levels(s, both, racks_first=True) <= levels(s, theirs, racks_first=True)
    if row.owned == row.expected and levels(s, both) == levels(s, theirs):
        assert both == theirs


def test_partitions_that_change_racks_wait_for_their_owners() -> None:
    members = {
        "A": Member(["t"], [("t", 0), ("t", 1)], rack="a"),
        "B": Member(["t"], [("t", 2), ("t", 3)], rack="b"),
    }
    racks = {"t": [["a"], ["b"], ["a"], ["b"]]}
    made = assign_partitions(Subscriptions({"t": 4}, members, racks, "cooperative-sticky"))
    assert made.withheld == {"A": (("t", 2),), "B": (("t", 1),)} and made.rack_misses == 0
