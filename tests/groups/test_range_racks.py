"""`range` with racks: Kafka's own tables, the fewest misses there are, and everything that `range` promises without."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings

from taskplace.groups.assignment import make
from taskplace.groups.classic import _in_force, _rule
from taskplace.groups.classic import sets as copartitioned_sets
from taskplace.groups.partitions import Member, Subscriptions, TopicPartition, assign_partitions
from tests.support.assignments import verify
from tests.support.groups import figures, home_of, subscriptions

Home = dict[TopicPartition, str]


def fleet(
    topics: Mapping[str, int],
    replication: int,
    brokers: str,
    consumers: str,
    heard: Sequence[Sequence[str]],
) -> Subscriptions:
    """Return a group as Kafka's tests lay it out; racks are letters, "-" is none.

    The replicas of a partition are on neighbouring brokers, the first one after that of the partition before it,
    from topic to topic.
    """
    racks, turn = {}, itertools.count()
    for topic, count in topics.items():
        first = [next(turn) for _ in range(count)]
        racks[topic] = [
            [r for j in range(replication) if (r := brokers[(k + j) % len(brokers)]) != "-"] for k in first
        ]
    return Subscriptions(
        topics,
        {
            f"consumer{k}": Member(heard[k], rack=None if rack == "-" else rack)
            for k, rack in enumerate(consumers)
        },
        racks,
    )


def written(home: Home, count: int) -> list[str]:
    """Return what each consumer has: "t1 0 1, t2 0"."""
    out = []
    for k in range(count):
        mine: dict[str, list[str]] = {}
        for topic, partition in sorted(tp for tp, name in home.items() if name == f"consumer{k}"):
            mine.setdefault(topic, []).append(str(partition))
        out.append(", ".join(f"{topic} {' '.join(found)}" for topic, found in mine.items()))
    return out


def by_kafka(s: Subscriptions) -> Home:
    c = s.columns
    goal = np.full(c.n, -1, np.int64)
    for each in copartitioned_sets(c):
        goal[c.start[each.topics][:, None] + np.arange(each.size)] = each.members[
            _rule(c, each, _in_force(c))
        ]
    return home_of(make(s, goal, "range").assignment)


def by_us(s: Subscriptions) -> Home:
    made = assign_partitions(s, "range")
    assert verify(s, made) == []
    return home_of(made.assignment)


def plain(s: Subscriptions) -> Home:
    members = {name: Member(m.topics, instance_id=m.instance_id) for name, m in s.members.items()}
    return by_us(Subscriptions(s.topics, members))


ALL3 = [["t1", "t2", "t3"]] * 3
TWO_OF_T2 = [["t1", "t2", "t3"], ["t1", "t2", "t3"], ["t1", "t3"]]
UNEVEN = {"t1": 6, "t2": 7, "t3": 2}
EVEN = {"t1": 5, "t2": 5, "t3": 5}
PAIRS = {"t1": 6, "t2": 6, "t3": 2, "t4": 2}
BY_TWOS = [["t1", "t2"], ["t1", "t2"], ["t3", "t4"], ["t3", "t4"]]
ALL4 = [["t1", "t2", "t3", "t4"]] * 4
SIX = {"t1": 6, "t2": 6, "t3": 2, "t4": 2, "t5": 4, "t6": 4}

PLAIN = {  # by topics and subscribers: what `range` gives without racks
    "uneven": ["t1 0 1, t2 0 1 2, t3 0", "t1 2 3, t2 3 4, t3 1", "t1 4 5, t2 5 6"],
    "uneven, two of t2": ["t1 0 1, t2 0 1 2 3, t3 0", "t1 2 3, t2 4 5 6, t3 1", "t1 4 5"],
    "even": ["t1 0 1, t2 0 1, t3 0 1", "t1 2 3, t2 2 3, t3 2 3", "t1 4, t2 4, t3 4"],
    "even, two of t2": ["t1 0 1, t2 0 1 2, t3 0 1", "t1 2 3, t2 3 4, t3 2 3", "t1 4, t3 4"],
    "pairs": ["t1 0 1 2, t2 0 1 2", "t1 3 4 5, t2 3 4 5", "t3 0, t4 0", "t3 1, t4 1"],
    "pairs, all of all": ["t1 0 1, t2 0 1, t3 0, t4 0", "t1 2 3, t2 2 3, t3 1, t4 1", "t1 4, t2 4", "t1 5, t2 5"],
    "six": [
        "t1 0 1, t2 0 1, t3 0, t4 0, t5 0 1, t6 0 1",
        "t1 2 3, t2 2 3, t3 1, t4 1, t5 2, t6 2",
        "t1 4 5, t2 4 5, t5 3, t6 3",
    ],
}  # fmt: skip
GROUPS = {
    "uneven": (UNEVEN, ALL3),
    "uneven, two of t2": (UNEVEN, TWO_OF_T2),
    "even": (EVEN, ALL3),
    "even, two of t2": (EVEN, TWO_OF_T2),
    "pairs": (PAIRS, BY_TWOS),
    "pairs, all of all": (PAIRS, ALL4),
    "six": (SIX, [[f"t{k}" for k in range(1, 10)]] * 3),
}


class Case(NamedTuple):
    """What Kafka's test expects of one layout; `fewest`: our misses, if its own are not the fewest."""

    group: str
    replication: int
    brokers: str
    consumers: str
    kafka: Sequence[str]
    misses: int | None
    fewest: int | None = None


CASES = [
    Case("uneven", 1, "abc", "abc", ["t1 0 3, t2 0 3 6", "t1 1 4, t2 1 4, t3 0", "t1 2 5, t2 2 5, t3 1"], 0),
    Case("uneven", 2, "abc", "abc", ["t1 0 2, t2 0 2 3, t3 1", "t1 1 3, t2 1 4, t3 0", "t1 4 5, t2 5 6"], 1, 0),
    Case("uneven", 3, "ab", "abc", PLAIN["uneven"], 4),
    Case("uneven, two of t2", 1, "abc", "abc", ["t1 0 3, t2 0 2 3 6", "t1 1 4, t2 1 4 5, t3 0", "t1 2 5, t3 1"], 2),
    Case(
        "uneven, two of t2", 2, "abc", "abc",
        ["t1 0 2, t2 0 2 3 5, t3 1", "t1 1 3, t2 1 4 6, t3 0", "t1 4 5"], 0,
    ),
    Case("uneven, two of t2", 3, "ab", "abc", PLAIN["uneven, two of t2"], 2),
    Case("even", 1, "abc", "abc", PLAIN["even"], 10),
    Case("even", 2, "abc", "abc", PLAIN["even"], 5),
    Case("even", 3, "ab", "abc", PLAIN["even"], 3),
    Case(
        "even, two of t2", 1, "abc", "abc",
        ["t1 0 1, t2 0 1 4, t3 0 1", "t1 2 3, t2 2 3, t3 2 3", "t1 4, t3 4"], 9, 7,
    ),
    Case(
        "even, two of t2", 2, "abc", "abc",
        ["t1 2, t2 0 1 3, t3 2", "t1 0 3, t2 2 4, t3 0 3", "t1 1 4, t3 1 4"], 0,
    ),
    Case("even, two of t2", 3, "ab", "abc", PLAIN["even, two of t2"], 2),
    Case("pairs", 3, "ab", "abba", PLAIN["pairs"], 0),
    Case("pairs", 2, "ab", "abba", PLAIN["pairs"], 0),
    Case("pairs", 1, "ab", "abba", ["t1 0 2 4, t2 0 2 4", "t1 1 3 5, t2 1 3 5", "t3 1, t4 1", "t3 0, t4 0"], 0),
    Case("pairs, all of all", 3, "ab", "abba", PLAIN["pairs, all of all"], 0),
    Case("pairs, all of all", 2, "ab", "abba", PLAIN["pairs, all of all"], 0),
    Case(
        "pairs, all of all", 1, "ab", "abba",
        ["t1 0 2, t2 0 2, t3 0, t4 0", "t1 1 3, t2 1 3, t3 1, t4 1", "t1 5, t2 5", "t1 4, t2 4"], 0,
    ),
    Case(
        "pairs, all of all", 1, "abc", "abba",
        ["t1 0 3, t2 0 3, t3 0, t4 0", "t1 1 4, t2 1 4, t3 1, t4 1", "t1 2, t2 2", "t1 5, t2 5"], 6,
    ),
    Case("six", 3, "---", "abc", PLAIN["six"], 0),
    Case("six", 3, "abc", "abc", PLAIN["six"], 0),
    Case(
        "six", 2, "abc", "abc",
        [
            "t1 0 2, t2 0 2, t3 0, t4 0, t5 1, t6 1",
            "t1 1 3, t2 1 3, t3 1, t4 1, t5 2, t6 2",
            "t1 4 5, t2 4 5, t5 0 3, t6 0 3",
        ], 0,
    ),
]  # fmt: skip
# Racks that make no difference: none known on one side, all of them everywhere, or no consumer in any of them.
CASES += [
    Case(group, replication, brokers, consumers, PLAIN[group], 0)
    for group in ("uneven", "uneven, two of t2", "even", "even, two of t2")
    for replication, brokers, consumers in (
        (3, "---", "abc"), (3, "abc", "---"), (3, "abc", "abc"), (4, "abcd", "abc"),
    )
] + [
    Case(group, 3, "abc", consumers, PLAIN[group], None)  # Kafka's test does not count these misses
    for group in ("uneven", "uneven, two of t2", "even", "even, two of t2")
    for consumers in ("def", "-ef")
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.group}/{c.replication}/{c.brokers}/{c.consumers}")
def test_kafkas_tables_are_reached_and_its_misses_never_exceeded(case: Case) -> None:
    topics, heard = GROUPS[case.group]
    s = fleet(topics, case.replication, case.brokers, case.consumers, heard)
    rule, made = by_kafka(s), by_us(s)
    assert written(rule, len(case.consumers)) == list(case.kafka)
    found = figures(s, rule)[2]
    assert case.misses is None or found == case.misses
    if case.fewest is None:
        assert made == rule  # it has the fewest already, so it is our answer too
    assert figures(s, made)[2] == (found if case.fewest is None else case.fewest)
    assert assign_partitions(s, "range").rack_misses == figures(s, made)[2]


def test_static_members_keep_their_racks_when_their_names_change() -> None:
    def members(**names: str) -> dict[str, Member]:
        racks = zip("abc", names.items(), strict=True)
        return {n: Member(["topic1", "topic2"], instance_id=i, rack=r) for r, (i, n) in racks}

    def racks(k: int) -> list[str]:
        return ["abc"[k % 3], "abc"[(k + 1) % 3]]

    found = []
    for names in (
        {"instance1": "consumer1", "instance2": "consumer2", "instance3": "consumer3"},
        {"instance1": "consumer1", "instance2": "consumer5", "instance3": "consumer4"},
    ):
        topics = {"topic1": 5, "topic2": 5}
        s = Subscriptions(topics, members(**names), {t: [racks(k) for k in range(5)] for t in topics})
        home = by_us(s)
        assert figures(s, home)[2] == 0
        for number, instance in enumerate(("instance1", "instance2", "instance1", "instance2", "instance3")):
            assert {home[TopicPartition(t, number)] for t in topics} == {names[instance]}
        found.append({tp: s.members[name].instance_id for tp, name in home.items()})
    assert found[0] == found[1]


def sets(s: Subscriptions) -> dict[tuple[int, tuple[str, ...]], list[str]]:
    """Return the co-partitioned topics, by their count and their subscribers."""
    out: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for topic, count in s.topics.items():
        heard = tuple(name for name, m in s.members.items() if topic in m.topics)
        if heard and count:
            out.setdefault((count, heard), []).append(topic)
    return out


def all_ranges(count: int, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield every way to give `count` partition numbers to members, floor or ceiling to each."""
    for way in itertools.product(names, repeat=count):
        sizes = [way.count(name) for name in names]
        if max(sizes) - min(sizes) <= 1:
            yield way


@settings(max_examples=80, deadline=None)
@given(subscriptions(most=9, members=3, topics=3, racks=True))
def test_no_assignment_like_a_range_has_fewer_misses_or_is_as_good_and_nearer_to_kafkas(
    s: Subscriptions,
) -> None:
    made, rule = by_us(s), by_kafka(s)
    for (count, names), topics in sets(s).items():

        def worth(way: Sequence[str], topics: Sequence[str] = topics) -> tuple[int, int]:
            home = {TopicPartition(t, p): name for t in topics for p, name in enumerate(way)}
            here = [rule[TopicPartition(topics[0], p)] for p in range(len(way))]
            return figures(s, home)[2], sum(a != b for a, b in zip(way, here, strict=True))

        ours = [made[TopicPartition(topics[0], p)] for p in range(count)]
        assert all(made[TopicPartition(t, p)] == ours[p] for t in topics for p in range(count))
        assert worth(ours) == min(worth(way) for way in all_ranges(count, names))


@settings(max_examples=50, deadline=None)
@given(subscriptions(most=14, members=5, topics=4, racks=True, equal=True))
def test_racks_never_cost_balance_where_subscriptions_are_equal(s: Subscriptions) -> None:
    assert figures(s, by_us(s))[0] <= figures(s, plain(s))[0]


@settings(max_examples=30, deadline=None)
@given(subscriptions(most=14, members=5, topics=4))
def test_without_racks_it_is_range_as_ever(s: Subscriptions) -> None:
    assert by_kafka(s) == by_us(s)


def test_replicas_on_all_racks_but_one_are_looked_at_too() -> None:
    # Kafka looks at no racks here, since all partitions are in the same ones; C, first in order, gets one more.
    members = {"C": Member(["t"], rack="c"), "D": Member(["t"], rack="a"), "E": Member(["t"], rack="b")}
    s = Subscriptions({"t": 4}, members, {"t": [["a", "b"]] * 4})
    assert (figures(s, by_kafka(s))[2], figures(s, by_us(s))[2]) == (2, 1)


def test_round_robin_looks_at_no_racks() -> None:
    topics, heard = GROUPS["even"]
    s = fleet(topics, 1, "abc", "cab", heard)
    bare = Subscriptions(s.topics, {name: Member(m.topics) for name, m in s.members.items()})
    assert assign_partitions(s, "round_robin").assignment == assign_partitions(bare, "round_robin").assignment


def test_topics_that_belong_together_are_matched_as_soon_as_racks_count_for_any_topic() -> None:
    members = {
        f"c{k}": Member(["t", "u", *more], rack=rack)
        for k, (rack, more) in enumerate([("c", ""), ("a", "v")])
    }
    everywhere = {"t": [["a", "b"]], "u": [["a", "b"]]}
    alone = Subscriptions({"t": 1, "u": 1, "v": 2}, members, {**everywhere, "v": [["a"], ["a"]]})
    beside = Subscriptions({"t": 1, "u": 1, "v": 2}, members, {**everywhere, "v": [["a"], ["b"]]})
    for s, name in ((alone, "c0"), (beside, "c1")):
        assert {by_kafka(s)[TopicPartition(t, 0)] for t in "tu"} == {name}
        assert {by_us(s)[TopicPartition(t, 0)] for t in "tu"} == {"c1"}
