"""The exact modes against brute force, and against a plain flow where brute force is too slow."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from taskplace.groups.partitions import Member, Subscriptions, TopicPartition, assign_partitions
from taskplace.groups.sticky import balance_score
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
