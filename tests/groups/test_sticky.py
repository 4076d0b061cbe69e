"""The exact modes: against brute force and plain flows, by their loads and their dealing, previous owners, racks."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from taskplace.errors import TaskplaceError
from taskplace.groups import sticky as optimal
from taskplace.groups.partitions import Member, Subscriptions, TopicPartition, assign_partitions
from taskplace.groups.sticky import balance_score, best_loads, deal
from taskplace.model.flow import Network
from tests.support.assignments import verify
from tests.support.groups import (
    claims,
    document,
    everything,
    figures,
    home_of,
    levels,
    misses,
    previous,
    racks_matter,
    subscriptions,
    tables,
)


@pytest.mark.parametrize("priority", ["stickiness", "racks"])
@settings(max_examples=80, deadline=None)
@given(
    st.one_of(
        subscriptions(most=5),
        subscriptions(most=5, racks=True),
        subscriptions(most=6, equal=True, racks=True),
    )
)
def test_fair_sticky_is_exact_in_all_its_levels(priority, s):
    made = assign_partitions(s, rack_priority=priority)
    assert verify(s, made) == []
    first = priority == "racks"
    best = min(levels(s, home, racks_first=first) for home in everything(s))
    assert levels(s, home_of(made.assignment), racks_first=first) == best
    assert (made.balance_score, made.moved, made.rack_misses) == figures(s, home_of(made.assignment))


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=5, racks=True))
def test_fair_remembers_nothing(s):
    made = assign_partitions(s, "fair")
    assert verify(s, made) == []
    assert made.balance_score == min(figures(s, home) for home in everything(s))[0]
    assert assign_partitions(s.owning({}), "fair").assignment == made.assignment


@pytest.mark.parametrize("mode", ["fair_sticky", "sticky_fair", "fair"])
@pytest.mark.parametrize("seed", range(5))
def test_a_member_that_nobody_competes_with_and_loads_far_apart(mode, seed):
    rng = random.Random(seed)
    topics = {f"t{k:02}": 2**k for k in range(9)}
    s = Subscriptions(
        topics, {f"C{k:02}": Member(rng.sample(sorted(topics), rng.randint(1, 3))) for k in range(20)}
    )
    made = assign_partitions(s, mode)
    assert verify(s, made) == []
    assert made.balance_score == figures(s, plain_flow(s, racks_first=False))[:2][0]


S = Subscriptions({"t": 4, "u": 3}, {"a": Member(["t"], [("t", 0)]), "b": Member(["t", "u"])})


def test_more_than_the_solver_takes_is_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr(optimal, "cost_budget", lambda nodes: 0)
    with pytest.raises(TaskplaceError) as error:
        assign_partitions(S, "fair_sticky")
    assert str(error.value) == (
        "7 partitions and 2 members are more than the exact modes can take; use 'range' or 'round_robin'"
    )


def by_trying(supply: list[int], allowed: list[list[int]], base: list[int]) -> tuple[list[int], list[int]]:
    """Return the least and the greatest load of each member over all assignments of the best score."""
    who = [
        [j for j, may in enumerate(row) if may]
        for row, n in zip(allowed, supply, strict=True)
        for _ in range(n)
    ]
    loads = []
    for choice in itertools.product(*who):
        found = list(base)
        for member in choice:
            found[member] += 1
        loads.append(found)
    best = min(balance_score(np.array(found)) for found in loads)
    ties = [found for found in loads if balance_score(np.array(found)) == best]
    return [min(column) for column in zip(*ties, strict=True)], [
        max(column) for column in zip(*ties, strict=True)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_the_bounds_are_those_of_all_best_assignments(seed):
    draw = random.Random(seed)
    groups, members = draw.randint(1, 3), draw.randint(1, 3)
    supply = [draw.randint(0, 3) for _ in range(groups)]
    allowed = [[draw.randint(0, 1) for _ in range(members)] for _ in range(groups)]
    for row in allowed:
        row[draw.randrange(members)] = 1
    base = [draw.choice([0, 0, 1, 3]) for _ in range(members)]
    low, high = best_loads(np.array(supply), np.array(allowed, bool), np.array(base))
    least, most = by_trying(supply, allowed, base)
    assert (low.tolist(), high.tolist()) == (least, most)


@st.composite
def hands(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], list[list[int]], list[list[int]]]:
    """Class, topic and keeper of each partition; how many each member keeps of a class, and gets in all."""
    members, classes = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    of = draw(st.lists(st.integers(-1, classes - 1), min_size=1, max_size=14))
    topic = [draw(st.integers(0, 2)) for _ in of]
    keeper = [draw(st.integers(-1, members - 1)) if k >= 0 else -1 for k in of]
    held = Counter(zip(of, keeper, strict=True))
    keep = [[draw(st.integers(0, held[k, m])) for m in range(members)] for k in range(classes)]
    counts = [list(row) for row in keep]
    for k in range(classes):
        for _ in range(of.count(k) - sum(keep[k])):
            counts[k][draw(st.integers(0, members - 1))] += 1
    return of, topic, keeper, keep, counts


def plainly(
    of: list[int], topic: list[int], keeper: list[int], keep: list[list[int]], counts: list[list[int]]
) -> list[int]:
    goal = [-1] * len(of)
    for k, row in enumerate(keep):
        for m, number in enumerate(row):
            mine = [p for p in range(len(of)) if (of[p], keeper[p]) == (k, m)]
            while (
                len(mine) > number
            ):  # of the topic it has most of; of equal ones the later topic, the last partition
                had = Counter(topic[p] for p in mine)
                most = max(had, key=lambda t: (had[t], max(p for p in mine if topic[p] == t)))
                mine.remove(max(p for p in mine if topic[p] == most))
            for p in mine:
                goal[p] = m
    height = [sum(row[m] for row in keep) for m in range(len(keep[0]))]
    for k, row in enumerate(counts):
        places = [number - kept for number, kept in zip(row, keep[k], strict=True)]
        for p in range(len(of)):
            if of[p] == k and goal[p] < 0:
                m = min((m for m in range(len(row)) if places[m]), key=lambda m: (height[m], m))
                goal[p], places[m], height[m] = m, places[m] - 1, height[m] + 1
    return goal


@settings(max_examples=300, deadline=None)
@given(hands())
def test_cards_are_given_up_and_dealt_by_the_rules(drawn):
    of, topic, keeper, keep, counts = (np.array(part, np.int64) for part in drawn)
    assert deal(of, topic, keeper=keeper, keep=keep, counts=counts).tolist() == plainly(*drawn)


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=5, racks=True))
def test_sticky_fair_brings_back_what_nobody_keeps(s):
    made = assign_partitions(s, "sticky_fair")
    assert verify(s, made) == []
    settled = {tp: n for tp, n in claims(s).items() if tp.topic in s.members[n].topics}
    allowed = [home for home in everything(s) if settled.items() <= home.items()]
    assert levels(s, home_of(made.assignment)) == min(levels(s, home) for home in allowed)


def test_a_level_that_is_too_large_is_left_out(monkeypatch):
    rng = random.Random(3)
    parts = [(t, p) for t in "tu" for p in range(8)]
    members = {
        f"C{k}": Member(sorted(rng.sample("tu", rng.randint(1, 2))), rng.sample(parts, 7), rng.randint(0, 3))
        for k in range(5)
    }
    s = Subscriptions({"t": 8, "u": 8}, members)
    made = assign_partitions(s)
    assert levels(s, home_of(made.assignment))[3] < 0
    # Room for moves and scores, and for no more.
    monkeypatch.setattr(optimal, "cost_budget", lambda nodes: 4 * (16 + 1))
    less = assign_partitions(s)
    assert verify(s, less) == []
    assert figures(s, home_of(less.assignment)) == figures(s, home_of(made.assignment))
    assert levels(s, home_of(less.assignment))[3] > levels(s, home_of(made.assignment))[3]


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
def test_larger_groups_against_a_plain_flow(seed, priority):
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


STAY, GO = {"A": "tp2 tp3", "B": "tp0 tp1"}, {"A": "tp0 tp1", "B": "tp2 tp3"}


@pytest.mark.parametrize(
    ("name", "priority", "expected"),
    [
        ("fair_sticky", None, STAY),
        ("cooperative", None, STAY),
        ("sticky", None, GO),
        ("cooperative-sticky", None, GO),
        ("sticky", "stickiness", STAY),
        ("fair_sticky", "racks", GO),
        ("cooperative", "racks", GO),
        ("sticky_fair", "racks", STAY),  # nothing moves that may stay
    ],
)
def test_partitions_of_a_group_in_balance_move_to_their_racks_under_kafkas_names(name, priority, expected):
    members = {n: Member(["t"], [("t", int(p[2])) for p in STAY[n].split()], rack=n.lower()) for n in "AB"}
    s = Subscriptions({"t": 4}, members, {"t": [["a"], ["a"], ["b"], ["b"]]})
    made = assign_partitions(s, name, rack_priority=priority)
    both = home_of(made.assignment) | home_of(made.withheld)
    assert tables({n: [tp for tp, at in both.items() if at == n] for n in "AB"}) == expected
    assert made.rack_misses == (4 if expected is STAY else 0)
    by_document = Subscriptions.from_dict(document(s) | {"assignor": name, "rack_priority": priority})
    assert assign_partitions(by_document) == made
