"""`range` and `round_robin` without racks: what Java's and kafka-python's own tests expect, fact by fact."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from taskplace.groups.partitions import Member, Subscriptions, assign_partitions
from tests.support.assignments import verify
from tests.support.groups import subscriptions, tables


class Case(NamedTuple):
    """`members`: their topics, after "name" or "name=instance id"; what each gets in each mode."""

    topics: dict[str, int]
    members: dict[str, str]
    range: dict[str, str]
    round_robin: dict[str, str]


BOTH = "t1 t2"
CASES = {
    "one consumer, no topic": Case({}, {"c": ""}, {"c": ""}, {"c": ""}),
    "one consumer, a topic that does not exist": Case({}, {"c": "t1"}, {"c": ""}, {"c": ""}),
    "one consumer, one topic": Case({"t1": 3}, {"c": "t1"}, {"c": "t1p0 t1p1 t1p2"}, {"c": "t1p0 t1p1 t1p2"}),
    "subscribed topics only": Case(
        {"t1": 3, "other": 3}, {"c": "t1"}, {"c": "t1p0 t1p1 t1p2"}, {"c": "t1p0 t1p1 t1p2"}
    ),
    "one consumer, several topics": Case(
        {"t1": 1, "t2": 2}, {"c": BOTH}, {"c": "t1p0 t2p0 t2p1"}, {"c": "t1p0 t2p0 t2p1"}
    ),
    "two consumers, one partition": Case(
        {"t1": 1}, {"c1": "t1", "c2": "t1"}, {"c1": "t1p0", "c2": ""}, {"c1": "t1p0", "c2": ""}
    ),
    "two consumers, two partitions": Case(
        {"t1": 2}, {"c1": "t1", "c2": "t1"}, {"c1": "t1p0", "c2": "t1p1"}, {"c1": "t1p0", "c2": "t1p1"}
    ),
    "mixed topics": Case(
        {"t1": 3, "t2": 2},
        {"c1": "t1", "c2": BOTH, "c3": "t1"},
        {"c1": "t1p0", "c2": "t1p1 t2p0 t2p1", "c3": "t1p2"},
        {"c1": "t1p0", "c2": "t1p1 t2p0 t2p1", "c3": "t1p2"},
    ),
    "two consumers, two topics, six partitions": Case(
        {"t1": 3, "t2": 3},
        {"c1": BOTH, "c2": BOTH},
        {"c1": "t1p0 t1p1 t2p0 t2p1", "c2": "t1p2 t2p2"},
        {"c1": "t1p0 t1p2 t2p1", "c2": "t1p1 t2p0 t2p2"},
    ),
    "two static consumers, in the order of their instance ids": Case(
        {"t1": 3, "t2": 3},
        {"b=i1": BOTH, "a=i2": BOTH},
        {"b": "t1p0 t1p1 t2p0 t2p1", "a": "t1p2 t2p2"},
        {"b": "t1p0 t1p2 t2p1", "a": "t1p1 t2p0 t2p2"},
    ),
    "a static consumer goes first": Case(
        {"t1": 3, "t2": 3},
        {"b=i1": BOTH, "a": BOTH},
        {"b": "t1p0 t1p1 t2p0 t2p1", "a": "t1p2 t2p2"},
        {"b": "t1p0 t1p2 t2p1", "a": "t1p1 t2p0 t2p2"},
    ),
    "round robin skips who does not subscribe": Case(
        {"t0": 1, "t1": 2, "t2": 3},
        {"C0": "t0", "C1": "t0 t1", "C2": "t0 t1 t2"},
        {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"},
        {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"},
    ),
}


def asked(topics: dict[str, int], members: dict[str, str]) -> Subscriptions:
    told = (name.partition("=") for name in members)
    return Subscriptions(
        topics,
        {
            name: Member(heard.split(), instance_id=instance or None)
            for (name, _, instance), heard in zip(told, members.values(), strict=True)
        },
    )


def placed(s: Subscriptions, replicas: str, members: str) -> Subscriptions:
    """Return the same with replicas of every partition on all of `replicas`, and members in turn on `members`."""
    told = {
        name: replace(m, rack=members[k % 3] if members else None)
        for k, (name, m) in enumerate(s.members.items())
    }
    return Subscriptions(s.topics, told, {t: [list(replicas)] * n for t, n in s.topics.items()})


RACKS = pytest.mark.parametrize(
    "racks", [("", ""), ("abc", ""), ("", "abc"), ("abc", "abc")], ids=["none", "replicas", "members", "both"]
)


@pytest.mark.parametrize("mode", ["range", "round_robin"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_tables(case: Case, mode: str) -> None:
    s = asked(case.topics, case.members)
    made = assign_partitions(s, mode)
    assert verify(s, made) == []
    assert tables(made.assignment) == dict(sorted(getattr(case, mode).items()))


@RACKS
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_racks_change_no_range_if_a_side_is_unknown_or_replicas_are_on_all(
    case: Case, racks: tuple[str, str]
) -> None:
    s = placed(asked(case.topics, case.members), *racks)
    made = assign_partitions(s, "range")
    assert verify(s, made) == []
    assert tables(made.assignment) == dict(sorted(case.range.items())) and made.rack_misses == 0


STATIC = {
    "range, 5 and 4 partitions": (
        "range", {"t1": 5, "t2": 4}, ["t1p0 t1p1 t2p0", "t1p2 t2p1", "t1p3 t2p2", "t1p4 t2p3"],
    ),
    "round robin, 3 and 3 partitions": (
        "round_robin", {"t1": 3, "t2": 3}, ["t1p0 t2p1", "t1p1 t2p2", "t1p2", "t2p0"],
    ),
}  # fmt: skip


@RACKS
@pytest.mark.parametrize(("mode", "topics", "found"), STATIC.values(), ids=STATIC)
def test_static_members_keep_theirs_when_a_dynamic_one_is_replaced(
    mode: str, topics: dict[str, int], found: list[str], racks: tuple[str, str]
) -> None:
    for last in ("c4", "c5"):
        s = placed(asked(topics, {"c1=i1": BOTH, "c2=i2": BOTH, "c3=i3": BOTH, last: BOTH}), *racks)
        assert tables(assign_partitions(s, mode).assignment) == dict(
            zip(("c1", "c2", "c3", last), found, strict=True)
        )


RENAMED = {
    "range": ["t1p0 t1p1 t2p0 t2p1", "t1p2 t1p3 t2p2 t2p3", "t1p4 t2p4"],
    "round_robin": ["t1p0 t1p3 t2p1 t2p4", "t1p1 t1p4 t2p2", "t1p2 t2p0 t2p3"],
}


@RACKS
@pytest.mark.parametrize("mode", RENAMED)
def test_static_members_keep_theirs_when_they_come_back_under_other_names(
    mode: str, racks: tuple[str, str]
) -> None:
    for names in (("c1", "c2", "c3"), ("c1", "c5", "c4")):
        s = placed(asked({"t1": 5, "t2": 5}, {f"{n}=i{k}": BOTH for k, n in enumerate(names, 1)}), *racks)
        assert tables(assign_partitions(s, mode).assignment) == dict(
            sorted(zip(names, RENAMED[mode], strict=True))
        )


# kafka-python's own assignors, as they are installed, on the same questions.

kafka = pytest.importorskip("kafka")


def theirs(assignor: Any, s: Subscriptions) -> dict[str, list[tuple[str, int]]]:
    from kafka.protocol.consumer.group import JoinGroupResponse

    class Cluster:
        def partitions_for_topic(self, topic: str) -> set[int] | None:
            return set(range(s.topics[topic])) if s.topics.get(topic) else None

    members = [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=name, group_instance_id=m.instance_id, metadata=assignor.metadata(m.topics)
        )
        for name, m in s.members.items()
    ]
    found = assignor.assign(Cluster(), members)
    return {
        name: sorted((t, p) for t, numbers in answer.assigned_partitions for p in numbers)
        for name, answer in found.items()
    }


@settings(max_examples=60, deadline=None)
@given(subscriptions(most=14, members=5, topics=4))
def test_range_is_kafka_pythons(s: Subscriptions) -> None:
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    made = assign_partitions(s, "range").assignment
    assert theirs(RangePartitionAssignor, s) == {
        name: [tuple(tp) for tp in held] for name, held in made.items()
    }


@settings(max_examples=60, deadline=None)
@given(subscriptions(most=14, members=5, topics=4, equal=True))
def test_round_robin_is_kafka_pythons(s: Subscriptions) -> None:
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    made = assign_partitions(s, "round_robin").assignment
    assert theirs(RoundRobinPartitionAssignor, s) == {
        name: [tuple(tp) for tp in held] for name, held in made.items()
    }
