"""Cases of Kafka's sticky assignors: members with their partitions, and the expected assignments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from taskplace.groups.partitions import (
    Member,
    PartitionAssignment,
    Subscriptions,
    TopicPartition,
    assign_partitions,
)
from tests.support.assignments import verify

KINDS = ("sticky", "cooperative-sticky")


def parts(words: str) -> list[tuple[str, int]]:
    """Return partitions written as "tp0 up1"."""
    return [(word.rpartition("p")[0], int(word.rpartition("p")[2])) for word in words.split()]


class Fact(NamedTuple):
    """An input and the expected assignment."""

    topics: dict[str, int]
    members: dict[str, Member]
    expected: dict[str, str]
    waits: str = ""
    """The partitions that must be revoked first, with the cooperative protocol."""


def told(topics: str, owned: str = "", generation: int = 1) -> Member:
    return Member(topics.split(), parts(owned), generation)


FACTS = {
    "nobody subscribes to anything": Fact({}, {"C": told("")}, {"C": ""}),
    "a topic that is not there": Fact({}, {"C": told("t")}, {"C": ""}),
    "one member, one topic": Fact({"t": 3}, {"C": told("t")}, {"C": "tp0 tp1 tp2"}),
    "what is owned of topics that are not there is forgotten": Fact(
        {"t": 2}, {"C": told("t", "tp0 tp1 otherp0 otherp1")}, {"C": "tp0 tp1"}
    ),
    "one member, two topics": Fact({"t": 1, "u": 2}, {"C": told("t u")}, {"C": "tp0 up0 up1"}),
    "two members, one partition": Fact({"t": 1}, {"A": told("t"), "B": told("t")}, {"A": "tp0", "B": ""}),
    "two members, two partitions": Fact({"t": 2}, {"A": told("t"), "B": told("t")}, {"A": "tp0", "B": "tp1"}),
    "mixed subscriptions": Fact(
        {"t": 3, "u": 2},
        {"A": told("t"), "B": told("t u"), "C": told("t")},
        {"A": "tp0 tp2", "B": "up0 up1", "C": "tp1"},
    ),
    "two members, two topics, in turn": Fact(
        {"t": 3, "u": 3},
        {"A": told("t u"), "B": told("t u")},
        {"A": "tp0 tp2 up1", "B": "tp1 up0 up2"},
    ),
    "two members, two topics, an odd number": Fact(
        {"t": 3, "u": 4},
        {"A": told("t u"), "B": told("t u")},
        {"A": "tp0 tp2 up1 up3", "B": "tp1 up0 up2"},
    ),
    "who has the floor gets one more": Fact(
        {"t": 2, "u": 3},
        {"A": told("t u", "tp0 up1"), "B": told("t u", "tp1 up2")},
        {"A": "tp0 up0 up1", "B": "tp1 up2"},
    ),
    "all below the floor": Fact(
        {"t": 2, "u": 3},
        {"A": told("t u", "tp0"), "B": told("t u", "tp1"), "C": told("t u")},
        {"A": "tp0 up1", "B": "tp1 up2", "C": "up0"},
    ),
    "a member that comes takes one": Fact(
        {"t": 3}, {"A": told("t", "tp0 tp1 tp2"), "B": told("t")}, {"A": "tp0 tp1", "B": "tp2"}, "tp2"
    ),
    "a member that goes leaves all to the other": Fact(
        {"t": 3}, {"B": told("t", "tp2")}, {"B": "tp0 tp1 tp2"}
    ),
    "who has the ceiling keeps it, and the free one goes to the new member": Fact(
        {"t": 4},
        {"A": told("t", "tp0 tp1"), "B": told("t", "tp2"), "C": told("t")},
        {"A": "tp0 tp1", "B": "tp2", "C": "tp3"},
    ),
    "a stale generation loses": Fact(
        {"t": 3, "u": 3},
        {"A": told("t u", "tp0 tp2 up1", 10), "B": told("t u", "tp0 tp2 up1", 9)},
        {"A": "tp0 tp2 up1", "B": "tp1 up0 up2"},
    ),
    "no generation loses": Fact(
        {"t": 3, "u": 3},
        {"A": told("t u", "tp0 tp2 up1", 10), "B": told("t u", "tp0 tp2 up1", -1)},
        {"A": "tp0 tp2 up1", "B": "tp1 up0 up2"},
    ),
    "an older generation keeps what nobody newer claims": Fact(
        {"t": 3, "u": 3},
        {"A": told("t u", "tp0 up1 tp1", 10), "B": told("t u", "tp0 up1 up2", 8)},
        {"A": "tp0 tp1 up1", "B": "tp2 up0 up2"},
    ),
    "three generations": Fact(
        {"t": 3, "u": 3, "v": 3},
        {
            "A": told("t u v", "tp0 up0 vp0", 10),
            "B": told("t u v", "tp1 up1 vp1", 9),
            "C": told("t u v", "up1 vp0 vp2", 8),
        },
        {"A": "tp0 up0 vp0", "B": "tp1 up1 vp1", "C": "tp2 up2 vp2"},
    ),
    "four generations, and nobody loses anything": Fact(
        {"s": 3, "t": 3, "u": 3, "v": 3},
        {
            "A": told("s t u v", "", -1),
            "B": told("s t u v", "sp0 up0 tp0", 9),
            "C": told("s t u v", "vp2 up2 tp1", 8),
            "D": told("s t u v", "vp1 sp1 sp2", 7),
        },
        {"A": "tp2 up1 vp0", "B": "sp0 tp0 up0", "C": "tp1 up2 vp2", "D": "sp1 sp2 vp1"},
    ),
    "claimed twice in one generation: to a third": Fact(
        {"t": 3},
        {"A": told("t", "tp0 tp1"), "B": told("t", "tp0 tp2"), "C": told("t")},
        {"A": "tp1", "B": "tp2", "C": "tp0"},
        "tp0",
    ),
    "members of older versions": Fact(
        {"t": 3},
        {"A": told("t", "tp0"), "B": told("t", "tp1"), "C": told("t")},
        {"A": "tp0", "B": "tp1", "C": "tp2"},
    ),
    "two members come to two": Fact(
        {"t": 3, "u": 4},
        {
            "A": told("t u", "tp0 tp2 up1 up3"),
            "B": told("t u", "tp1 up0 up2"),
            "C": told("t u"),
            "D": told("t u"),
        },
        {"A": "tp0 up1", "B": "up0 tp1", "C": "tp2 up3", "D": "up2"},
        "tp2 up2 up3",
    ),
    "claimed twice in one generation, and one is free": Fact(
        {"t": 4},
        {"A": told("t", "tp0 tp1"), "B": told("t", "tp0 tp2"), "C": told("t")},
        {"A": "tp1 tp3", "B": "tp2", "C": "tp0"},
        "tp0",
    ),
}


def ask(fact: Fact, kind: str) -> tuple[Subscriptions, PartitionAssignment]:
    s = Subscriptions(fact.topics, fact.members, assignor=kind)
    made = assign_partitions(s)
    assert verify(s, made) == []
    return s, made


def home(assignment: Mapping[str, str]) -> dict[TopicPartition, str]:
    return {TopicPartition(*pair): name for name, held in assignment.items() for pair in parts(held)}
