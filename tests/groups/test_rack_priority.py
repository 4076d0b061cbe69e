"""Racks before moves, as in Kafka's own sticky assignors: exact, and only where it matters where partitions go."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from taskplace.errors import InputError
from taskplace.groups.partitions import Member, Subscriptions, TopicPartition, assign_partitions
from taskplace.groups.verify import verify
from taskplace.model.flow import Network
from tests.support.groups import (
    claims,
    everything,
    group,
    home_of,
    levels,
    misses,
    previous,
    racks_matter,
    subscriptions,
    tables,
)


@settings(max_examples=80, deadline=None)
@given(subscriptions(most=5, racks=True))
def test_balance_then_racks_then_moves_then_previous_owners(s: Subscriptions) -> None:
    made = assign_partitions(s, rack_priority="racks")
    assert verify(s, made) == []
    best = min(levels(s, home, racks_first=True) for home in everything(s))
    assert levels(s, home_of(made.assignment), racks_first=True) == best


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=6, equal=True, racks=True, clean=True))
def test_equal_subscriptions_are_exact_too(s: Subscriptions) -> None:
    made = assign_partitions(s, rack_priority="racks")
    best = min(levels(s, home, racks_first=True) for home in everything(s))
    assert levels(s, home_of(made.assignment), racks_first=True) == best


@settings(max_examples=80, deadline=None)
@given(subscriptions(most=6, racks=True))
def test_when_it_matters_where_partitions_go(s: Subscriptions) -> None:
    assert s.columns.racks_matter == racks_matter(s)


def plain_flow(s: Subscriptions, *, racks_first: bool) -> dict[TopicPartition, str]:
    """Return a best assignment: every partition a node, every unit of load an arc of its own."""
    names, owner, before = list(s.members), claims(s), previous(s)
    pairs = [TopicPartition(t, p) for t, n in s.topics.items() for p in range(n)]
    pairs = [tp for tp in pairs if any(tp.topic in m.topics for m in s.members.values())]
    step = len(pairs) + 1
    miss, move = (step**2, step) if racks_first and racks_matter(s) else (step, step**2)
    net = Network()
    node, member, sink = net.nodes(len(pairs)), net.nodes(len(names)), net.nodes(1)
    arcs = [
        (k, j, move * (owner.get(tp) != name) + miss * misses(s, tp, name) + (before.get(tp) != name))
        for k, tp in enumerate(pairs)
        for j, name in enumerate(names)
        if tp.topic in s.members[name].topics
    ]
    # Not going back costs one only where a partition does not stay.
    arcs = [(k, j, cost - (owner.get(pairs[k]) == names[j])) for k, j, cost in arcs]
    tail, head, cost = (np.array(column) for column in zip(*arcs, strict=True))
    flows = net.arcs(node[tail], member[head], 1, cost)
    unit = np.arange(len(pairs))
    for j in range(len(names)):
        net.arcs(np.full(len(unit), member[j]), np.full(len(unit), sink[0]), 1, (2 * unit + 1) * step**3)
    net.supply(node, 1)
    net.supply(sink, -len(pairs))
    flow = net.solve()
    assert flow is not None
    used = np.flatnonzero(flow[flows])
    return {pairs[tail[a]]: names[head[a]] for a in used.tolist()}


@pytest.mark.parametrize("priority", ["stickiness", "racks"])
@pytest.mark.parametrize("seed", range(12))
def test_larger_groups_against_a_plain_flow(seed: int, priority: str) -> None:
    rng = random.Random(seed)
    topics = {f"t{k}": rng.choice([1, 3, 10, 20]) for k in range(rng.randint(2, 6))}
    parts = [(t, p) for t, n in topics.items() for p in range(n)]
    zones = rng.choice(["a", "abc"])
    few = rng.choice([1, len(topics)])
    members = {
        f"C{k:02}": Member(
            sorted(topics) if seed % 3 == 0 else rng.sample(sorted(topics), rng.randint(1, few)),
            rng.sample(parts, rng.randint(0, len(parts) // 2)),
            rng.randint(1, 6),
            rng.choice(zones),
        )
        for k in range(rng.randint(2, 12))
    }
    racks = {t: [rng.sample("abc", rng.randint(1, 2)) for _ in range(n)] for t, n in topics.items()}
    s = Subscriptions(topics, members, racks if seed % 4 else {}, rack_priority=priority)
    made = assign_partitions(s)
    assert verify(s, made) == []
    first = priority == "racks"
    best = levels(s, plain_flow(s, racks_first=first), racks_first=first)
    assert levels(s, home_of(made.assignment), racks_first=first) == best


def swapped() -> Subscriptions:
    """Return a group in balance whose members are in each other's racks."""
    racks = {"t": [["a"], ["a"], ["b"], ["b"]]}
    members = {
        "A": Member(["t"], [("t", 2), ("t", 3)], rack="a"),
        "B": Member(["t"], [("t", 0), ("t", 1)], rack="b"),
    }
    return Subscriptions({"t": 4}, members, racks)


def test_partitions_move_to_their_racks_under_kafkas_names() -> None:
    stay, go = {"A": "tp2 tp3", "B": "tp0 tp1"}, {"A": "tp0 tp1", "B": "tp2 tp3"}
    for name, priority, expected in (
        ("fair_sticky", None, stay),
        ("cooperative", None, stay),
        ("sticky", None, go),
        ("cooperative-sticky", None, go),
        ("sticky", "stickiness", stay),
        ("fair_sticky", "racks", go),
        ("cooperative", "racks", go),
        ("sticky_fair", "racks", stay),  # nothing moves that may stay
    ):
        made = assign_partitions(swapped(), name, rack_priority=priority)
        both = home_of(made.assignment) | home_of(made.withheld)
        found = {n: [tp for tp, at in both.items() if at == n] for n in "AB"}
        assert tables(found) == expected, (name, priority)
        assert made.rack_misses == (4 if expected is stay else 0)
        by_document = Subscriptions.from_dict(
            swapped().to_dict() | {"assignor": name, "rack_priority": priority}
        )
        assert assign_partitions(by_document) == made


def test_balance_stands_before_racks() -> None:
    racks = {"t": [["a"]] * 4}
    s = Subscriptions({"t": 4}, {"A": Member(["t"], rack="a"), "B": Member(["t"], rack="b")}, racks)
    made = assign_partitions(s, rack_priority="racks")
    assert (made.balance_score, made.rack_misses) == (0, 2)


@pytest.mark.parametrize("racks", [["a", "b"], ["b"]])
def test_racks_that_are_the_same_for_all_partitions_move_nothing(racks: list[str]) -> None:
    # A has more than B, and B is nearer to all of them; but no partition would be better off than another.
    owned = [("t", 0), ("t", 1)]
    members = {"A": Member(["t"], owned, rack="c"), "B": Member(["t"], [("t", 2)], rack="b")}
    s = Subscriptions({"t": 3}, members, {"t": [racks] * 3})
    assert not s.columns.racks_matter
    assert assign_partitions(s, rack_priority="racks").moved == 0


@pytest.mark.parametrize("racks", [{"t": [["a"]]}, {"t": [["a"]], "u": [[]]}])
def test_a_partition_whose_racks_are_not_known_counts_as_different(racks: dict[str, list[list[str]]]) -> None:
    # As in Kafka. u[0] misses nobody, so B may as well have it, and A is near t[0].
    members = {"A": Member(["t", "u"], [("u", 0)], rack="a"), "B": Member(["t", "u"], [("t", 0)], rack="b")}
    s = Subscriptions({"t": 1, "u": 1}, members, racks)
    made = assign_partitions(s, rack_priority="racks")
    assert tables(made.assignment) == {"A": "tp0", "B": "up0"}
    assert (made.rack_misses, made.moved) == (0, 2)
    assert assign_partitions(s).moved == 0


def test_racks_that_no_member_is_in_move_nothing() -> None:
    # B tells no rack, so it misses none; but nothing would be nearer to it.
    members = {"A": Member(["t"], [("t", 0), ("t", 1)], rack="c"), "B": Member(["t"], [("t", 2)])}
    s = Subscriptions({"t": 3}, members, {"t": [["a"], ["b"], ["a"]]})
    assert not s.columns.racks_matter
    assert assign_partitions(s, rack_priority="racks").moved == 0


def test_racks_of_topics_that_nobody_hears_do_not_count() -> None:
    s = group({"t": 2, "other": 1}, A="t", B="t")
    members = {n: Member(m.topics, rack="a") for n, m in s.members.items()}
    racks = {"t": [["a", "b"]] * 2, "other": [["b"]]}
    assert not Subscriptions(s.topics, members, racks).columns.racks_matter


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("rack", "did you mean 'racks'?"),
        (True, "found true"),
        (["racks"], "expected one of stickiness, racks"),
    ],
)
def test_a_bad_priority_is_one_error(value: Any, message: str) -> None:
    for ask in (
        lambda: assign_partitions(swapped(), rack_priority=value),
        lambda: Subscriptions({"t": 1}, {"A": Member(["t"])}, rack_priority=value),
        lambda: Subscriptions.from_dict(swapped().to_dict() | {"rack_priority": value}),
    ):
        with pytest.raises(InputError, match="rack_priority: found") as error:
            ask()
        assert message in str(error.value)
