"""The exact modes: against brute force, by their loads and their dealing, and at the limits of their solver."""

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
from taskplace.groups.verify import verify
from taskplace.model.flow import Network
from tests.support.groups import claims, everything, figures, home_of, subscriptions


@settings(max_examples=80, deadline=None)
@given(subscriptions(most=5))
def test_fair_sticky_has_the_best_score_and_the_fewest_moves(s: Subscriptions) -> None:
    made = assign_partitions(s)
    assert verify(s, made) == []
    best = min(figures(s, home) for home in everything(s))
    assert (made.balance_score, made.moved) == best[:2]


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=5, racks=True))
def test_racks_are_looked_at_after_balance_and_moves_and_exactly(s: Subscriptions) -> None:
    made = assign_partitions(s)
    assert verify(s, made) == []
    assert figures(s, home_of(made.assignment)) == min(figures(s, home) for home in everything(s))
    assert (made.balance_score, made.moved, made.rack_misses) == figures(s, home_of(made.assignment))


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=6, equal=True, racks=True))
def test_equal_subscriptions_are_exact_too(s: Subscriptions) -> None:
    made = assign_partitions(s)
    assert verify(s, made) == []
    assert figures(s, home_of(made.assignment)) == min(figures(s, home) for home in everything(s))


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=5, racks=True))
def test_sticky_fair_keeps_all_and_is_then_as_even_as_can_be(s: Subscriptions) -> None:
    made = assign_partitions(s, "sticky_fair")
    assert verify(s, made) == []
    settled = {tp: n for tp, n in claims(s).items() if tp.topic in s.members[n].topics}
    allowed = [home for home in everything(s) if settled.items() <= home.items()]
    score, _, missed = min(figures(s, home) for home in allowed)
    assert (made.balance_score, made.rack_misses) == (score, missed)


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=5, racks=True))
def test_fair_remembers_nothing(s: Subscriptions) -> None:
    made = assign_partitions(s, "fair")
    assert verify(s, made) == []
    assert made.balance_score == min(figures(s, home) for home in everything(s))[0]
    assert assign_partitions(s.owning({}), "fair").assignment == made.assignment


def plain_flow(s: Subscriptions) -> tuple[int, int]:
    """Return the best score and the fewest moves: every partition a node, every unit of load an arc of its own,
    at the difference of two squares.
    """
    names, owner = list(s.members), claims(s)
    pairs = [TopicPartition(t, p) for t, n in s.topics.items() for p in range(n)]
    pairs = [tp for tp in pairs if any(tp.topic in m.topics for m in s.members.values())]
    net = Network()
    node, member, sink = net.nodes(len(pairs)), net.nodes(len(names)), net.nodes(1)
    arcs = []
    for k, tp in enumerate(pairs):
        for j, name in enumerate(names):
            if tp.topic in s.members[name].topics:
                arcs.append((node[k], member[j], owner.get(tp) != name))
    tail, head, moves = (np.array(column) for column in zip(*arcs, strict=True))
    flows = net.arcs(tail, head, 1, moves)
    unit = np.arange(len(pairs))
    for j in range(len(names)):
        net.arcs(
            np.full(len(unit), member[j]), np.full(len(unit), sink[0]), 1, (2 * unit + 1) * (len(pairs) + 1)
        )
    net.supply(node, 1)
    net.supply(sink, -len(pairs))
    flow = net.solve()
    assert flow is not None
    used = flow[flows] > 0
    loads = np.bincount(head[used] - member[0], minlength=len(names))
    return balance_score(loads), len(owner) - int((~moves.astype(bool) & used).sum())


@pytest.mark.parametrize("seed", range(25))
def test_larger_groups_against_a_plain_flow(seed: int) -> None:
    rng = random.Random(seed)
    topics = {f"t{k}": rng.choice([1, 3, 10, 30]) for k in range(rng.randint(2, 9))}
    few = rng.choice([1, 2, len(topics)])
    heard = {f"C{k:02}": rng.sample(sorted(topics), rng.randint(1, few)) for k in range(rng.randint(2, 14))}
    s = Subscriptions(topics, {n: Member(t) for n, t in heard.items()})
    for _ in range(3):
        made = assign_partitions(s)
        assert verify(s, made) == []
        assert (made.balance_score, made.moved) == plain_flow(s)
        # Somebody leaves, somebody comes, somebody listens to something else, a topic grows.
        members = dict(s.owning(made.assignment).members)
        del members[rng.choice(sorted(members))]
        members[f"D{rng.randrange(100):02}"] = Member(rng.sample(sorted(topics), rng.randint(1, few)))
        changed = rng.choice(sorted(members))
        members[changed] = Member(rng.sample(sorted(topics), rng.randint(1, few)), members[changed].owned)
        topics = {t: n + (rng.random() < 0.3) * n for t, n in topics.items()}
        s = Subscriptions(topics, members)


@pytest.mark.parametrize("mode", ["fair_sticky", "sticky_fair", "fair"])
@pytest.mark.parametrize("seed", range(5))
def test_a_member_that_nobody_competes_with_and_loads_far_apart(mode: str, seed: int) -> None:
    rng = random.Random(seed)
    topics = {f"t{k:02}": 2**k for k in range(9)}
    s = Subscriptions(
        topics, {f"C{k:02}": Member(rng.sample(sorted(topics), rng.randint(1, 3))) for k in range(20)}
    )
    made = assign_partitions(s, mode)
    assert verify(s, made) == []
    assert made.balance_score == plain_flow(s)[0]


S = Subscriptions({"t": 4, "u": 3}, {"a": Member(["t"], [("t", 0)]), "b": Member(["t", "u"])})


def test_more_than_the_solver_takes_is_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_the_bounds_are_those_of_all_best_assignments(seed: int) -> None:
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


def test_an_even_split_over_several_groups_leaves_no_choice() -> None:
    low, high = best_loads(np.array([1, 3]), np.ones((2, 2), bool), np.zeros(2, int))
    assert low.tolist() == high.tolist() == [2, 2]


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
def test_cards_are_given_up_and_dealt_by_the_rules(
    drawn: tuple[list[int], list[int], list[int], list[list[int]], list[list[int]]],
) -> None:
    of, topic, keeper, keep, counts = (np.array(part, np.int64) for part in drawn)
    assert deal(of, topic, keeper=keeper, keep=keep, counts=counts).tolist() == plainly(*drawn)
