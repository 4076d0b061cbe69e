"""`range` and `round_robin`: what Java's and kafka-python's own tests expect, case by case; racks and their misses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from taskplace.groups.assignment import make
from taskplace.groups.classic import _in_force, _rule
from taskplace.groups.classic import sets as copartitioned_sets
from taskplace.groups.partitions import Member, Subscriptions, TopicPartition, assign_partitions
from tests.support.assignments import verify
from tests.support.groups import counts, figures, home_of, named, subscriptions, table, tables, text

Home = dict[TopicPartition, str]
UNKNOWN = [
    ("", ""),
    ("abc", ""),
    ("", "abc"),
    ("abc", "abc"),
]  # racks of replicas and members that change nothing


def asked(topics: str, members: str, replicas: str, racks: str) -> Subscriptions:
    """Return the group of a case, with replicas of every partition on all of `replicas`; members in turn on `racks`."""
    told = {}
    for k, cell in enumerate(members.split(";")):
        name, _, heard = cell.strip().partition(":")
        name, _, instance = name.partition("=")
        told[name] = Member(heard.split(), instance_id=instance or None, rack=racks[k % 3] if racks else None)
    partitions = counts(topics)
    return Subscriptions(partitions, told, {t: [list(replicas)] * n for t, n in partitions.items()})


@pytest.mark.parametrize("racks", UNKNOWN, ids=["none", "replicas", "members", "both"])
@pytest.mark.parametrize("case", table("classic"), ids=lambda case: case[0])
def test_kafkas_tables(case, racks):
    _, topics, members, of_range, of_round_robin = case
    s = asked(topics, members, *racks)
    for mode, expected in (("range", of_range), ("round_robin", of_round_robin)):
        if expected != "not said":
            made = assign_partitions(s, mode)
            assert verify(s, made) == [] and made.rack_misses == 0
            assert tables(made.assignment) == named(expected)


def theirs(assignor: Any, s: Subscriptions) -> dict[str, list[tuple[str, int]]]:
    """Return what an assignor of kafka-python answers, as it is installed."""
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
    return {
        name: sorted((t, p) for t, numbers in answer.assigned_partitions for p in numbers)
        for name, answer in assignor.assign(Cluster(), members).items()
    }


def is_kafka_pythons(mode: str, assignor: Any, s: Subscriptions) -> bool:
    return {n: [*map(tuple, h)] for n, h in assign_partitions(s, mode).assignment.items()} == theirs(
        assignor, s
    )


@settings(max_examples=60, deadline=None)
@given(subscriptions(most=14, members=5, topics=4), subscriptions(most=14, members=5, topics=4, equal=True))
def test_answers_are_kafka_pythons(s, equal):
    of_range = pytest.importorskip("kafka.coordinator.assignors.range").RangePartitionAssignor
    in_turn = pytest.importorskip("kafka.coordinator.assignors.roundrobin").RoundRobinPartitionAssignor
    assert is_kafka_pythons("range", of_range, s) and is_kafka_pythons("round_robin", in_turn, equal)


def fleet(topics: str, heard: str, replicas: str, brokers: str, racks: str) -> Subscriptions:
    """Return a group as Kafka's tests lay it out; racks are letters, "-" is none.

    The replicas of a partition are on neighbouring brokers, the first one after that of the partition before it, from
    topic to topic.
    """
    on, turn = {}, itertools.count()
    for topic, count in counts(topics).items():
        spread = [
            [brokers[(k + j) % len(brokers)] for j in range(int(replicas))]
            for k in itertools.islice(turn, count)
        ]
        on[topic] = [[rack for rack in of if rack != "-"] for of in spread]
    members = {
        f"consumer{k}": Member(mine.split(), rack=None if rack == "-" else rack)
        for k, (mine, rack) in enumerate(zip(heard.split(";"), racks, strict=True))
    }
    return Subscriptions(counts(topics), members, on)


def by_kafka(s: Subscriptions) -> Home:
    c = s.columns
    goal = np.full(c.n, -1, np.int64)
    for each in copartitioned_sets(c):
        rule = _rule(c, each, _in_force(c))
        goal[c.start[each.topics][:, None] + np.arange(each.size)] = each.members[rule]
    return home_of(make(s, goal, "range").assignment)


def by_us(s: Subscriptions) -> Home:
    made = assign_partitions(s, "range")
    assert verify(s, made) == []
    return home_of(made.assignment)


def without_racks(s: Subscriptions) -> Subscriptions:
    return Subscriptions(s.topics, {name: replace(m, rack=None) for name, m in s.members.items()})


@pytest.mark.parametrize("case", table("range_racks"), ids=" ".join)
def test_kafkas_tables_with_racks_are_reached_and_its_misses_never_exceeded(case):
    *layout, answer, misses, fewest = case
    s = fleet(*layout)
    rule, made = by_kafka(s), by_us(s)
    written = [text(tp for tp, at in rule.items() if at == name) for name in s.members]
    assert written == [cell.strip() for cell in answer.split(";")]
    found = figures(s, rule)[2]
    assert misses == "" or found == int(misses)
    if fewest == "":
        assert made == rule  # it has the fewest already, so it is our answer too
    assert figures(s, made)[2] == (found if fewest == "" else int(fewest))
    assert assign_partitions(s, "range").rack_misses == figures(s, made)[2]
    in_turn = assign_partitions(s, "round_robin").assignment
    assert in_turn == assign_partitions(without_racks(s), "round_robin").assignment


@pytest.mark.parametrize(
    "names", [("consumer1", "consumer2", "consumer3"), ("consumer1", "consumer5", "consumer4")]
)
def test_static_members_keep_their_racks_when_their_names_change(names):
    members = {
        name: Member(["t1", "t2"], instance_id=f"instance{k}", rack="abc"[k]) for k, name in enumerate(names)
    }
    racks = [["abc"[k % 3], "abc"[(k + 1) % 3]] for k in range(5)]
    s = Subscriptions({"t1": 5, "t2": 5}, members, {"t1": racks, "t2": racks})
    home = by_us(s)
    assert figures(s, home)[2] == 0
    for topic in s.topics:
        assert [names.index(home[TopicPartition(topic, p)]) for p in range(5)] == [0, 1, 0, 1, 2]


@settings(max_examples=80, deadline=None)
@given(subscriptions(most=9, members=3, topics=3, racks=True))
def test_no_assignment_like_a_range_has_fewer_misses_or_is_as_good_and_nearer_to_kafkas(s):
    made, rule = by_us(s), by_kafka(s)
    sets: dict[tuple[int, tuple[str, ...]], list[str]] = {}  # co-partitioned topics by count and subscribers
    for topic, count in s.topics.items():
        heard = tuple(name for name, m in s.members.items() if topic in m.topics)
        if heard and count:
            sets.setdefault((count, heard), []).append(topic)
    for (count, names), topics in sets.items():

        def worth(way, topics=topics):
            home = {TopicPartition(t, p): name for t in topics for p, name in enumerate(way)}
            here = [rule[TopicPartition(topics[0], p)] for p in range(len(way))]
            return figures(s, home)[2], sum(a != b for a, b in zip(way, here, strict=True))

        def is_range(way, names=names):
            sizes = [way.count(name) for name in names]
            return max(sizes) - min(sizes) <= 1

        ours = [made[TopicPartition(topics[0], p)] for p in range(count)]
        assert all(made[TopicPartition(t, p)] == ours[p] for t in topics for p in range(count))
        assert worth(ours) == min(worth(w) for w in itertools.product(names, repeat=count) if is_range(w))


@settings(max_examples=50, deadline=None)
@given(subscriptions(most=14, members=5, topics=4, racks=True, equal=True))
def test_racks_never_cost_balance_where_subscriptions_are_equal(s):
    assert figures(s, by_us(s))[0] <= figures(s, by_us(without_racks(s)))[0]


@settings(max_examples=30, deadline=None)
@given(subscriptions(most=14, members=5, topics=4))
def test_without_racks_it_is_range_as_ever(s):
    assert by_kafka(s) == by_us(s)


def test_replicas_on_all_racks_but_one_are_looked_at_too():
    # Kafka looks at no racks here, since all partitions are in the same ones; C, first in order, gets one more.
    members = {name: Member(["t"], rack=rack) for name, rack in zip("CDE", "cab", strict=True)}
    s = Subscriptions({"t": 4}, members, {"t": [["a", "b"]] * 4})
    assert (figures(s, by_kafka(s))[2], figures(s, by_us(s))[2]) == (2, 1)


@pytest.mark.parametrize(("racks_of_v", "kafkas"), [("aa", "c0"), ("ab", "c1")])
def test_topics_that_belong_together_are_matched_as_soon_as_racks_count_for_any_topic(racks_of_v, kafkas):
    members = {"c0": Member(["t", "u"], rack="c"), "c1": Member(["t", "u", "v"], rack="a")}
    racks = {"t": [["a", "b"]], "u": [["a", "b"]], "v": [[rack] for rack in racks_of_v]}
    s = Subscriptions({"t": 1, "u": 1, "v": 2}, members, racks)
    assert {by_kafka(s)[TopicPartition(t, 0)] for t in "tu"} == {kafkas}
    assert {by_us(s)[TopicPartition(t, 0)] for t in "tu"} == {"c1"}
