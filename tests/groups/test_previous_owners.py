"""Claims of older generations: no claim on a partition, but the first place to bring it back to when it has to go."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.groups import sticky as optimal
from taskplace.groups.partitions import Member, Subscriptions, TopicPartition, assign_partitions
from taskplace.groups.verify import verify
from tests.support.groups import claims, everything, figures, home_of, levels, previous, subscriptions, tables


@settings(max_examples=60, deadline=None)
@given(subscriptions(most=5))
def test_previous_owners_are_the_last_level_and_exact(s: Subscriptions) -> None:
    made = assign_partitions(s)
    assert verify(s, made) == []
    assert levels(s, home_of(made.assignment)) == min(levels(s, home) for home in everything(s))


@settings(max_examples=60, deadline=None)
@given(subscriptions(most=5, racks=True))
def test_they_come_after_racks(s: Subscriptions) -> None:
    made = assign_partitions(s)
    assert levels(s, home_of(made.assignment)) == min(levels(s, home) for home in everything(s))


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=6, equal=True, members=4))
def test_equal_subscriptions_are_exact_too(s: Subscriptions) -> None:
    made = assign_partitions(s)
    assert levels(s, home_of(made.assignment)) == min(levels(s, home) for home in everything(s))


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=5, racks=True))
def test_sticky_fair_brings_back_what_nobody_keeps(s: Subscriptions) -> None:
    made = assign_partitions(s, "sticky_fair")
    assert verify(s, made) == []
    settled = {tp: n for tp, n in claims(s).items() if tp.topic in s.members[n].topics}
    allowed = [home for home in everything(s) if settled.items() <= home.items()]
    assert levels(s, home_of(made.assignment)) == min(levels(s, home) for home in allowed)


@settings(max_examples=60, deadline=None)
@given(subscriptions(most=10, members=5, racks=True), st.sampled_from(["stickiness", "racks"]))
def test_asking_again_changes_nothing(s: Subscriptions, first: str) -> None:
    for mode in ("fair_sticky", "sticky_fair"):
        made = assign_partitions(s, mode, rack_priority=first)
        again = assign_partitions(s.owning(made.assignment, generation=9), mode, rack_priority=first)
        assert (again.assignment, again.moved) == (made.assignment, 0)


@settings(max_examples=60, deadline=None)
@given(subscriptions(most=8))
def test_previous_owners_are_found(s: Subscriptions) -> None:
    c = s.columns
    found = {}
    for p, name in enumerate(c.previous.tolist()):
        if name >= 0:
            t = int(c.topic[p])
            found[c.topics[t], p - int(c.start[t])] = c.members[name]
    assert found == previous(s)


def test_fair_remembers_no_previous_owner_either() -> None:
    s = Subscriptions(
        {"t": 1}, {"A": Member(["t"]), "B": Member(["t"], [("t", 0)], 1), "C": Member([], [("t", 0)], 2)}
    )
    assert tables(assign_partitions(s, "fair").assignment) == {"A": "tp0", "B": "", "C": ""}
    assert tables(assign_partitions(s).assignment) == {"A": "", "B": "tp0", "C": ""}


def test_whom_an_older_claim_loses_to() -> None:
    def owner(**members: Member) -> tuple[str, int]:
        made = assign_partitions(Subscriptions({"t": 1, "u": 1}, members))
        return home_of(made.assignment)[TopicPartition("t", 0)], made.moved

    mine = [("t", 0)]
    free = Member(["t"])
    old = Member(["t"], mine, 4)
    # A newer claim: it stays where it is. So do claims that nobody newer makes, of whatever generation.
    assert owner(A=free, B=old, C=Member(["t"], mine, 5)) == ("C", 0)
    assert owner(A=free, B=old, C=Member(["t"], [], 5)) == ("B", 0)
    # The newer claimant has unsubscribed: the partition has to go, and goes back.
    assert owner(A=free, B=old, C=Member(["u"], mine, 5)) == ("B", 1)
    # Two newest claims contradict each other: it was nobody's, and goes back.
    assert owner(A=free, B=old, C=Member(["t"], mine, 5), D=Member(["t"], mine, 5)) == ("B", 0)
    # So do two older ones; and one that cannot have it does not stand before one that can.
    assert owner(A=free, B=old, C=old, D=Member(["u"], mine, 5)) == ("A", 1)
    assert owner(A=free, B=Member(["t"], mine, 3), C=Member(["u"], mine, 4), D=Member(["u"], mine, 5)) == (
        "B",
        1,
    )


def test_a_group_that_comes_back_finds_its_partitions_again() -> None:
    # A, B and C had two each; B alone took all; A and C come back with what they remember.
    parts = [("t", p) for p in range(6)]
    members = {
        "A": Member(["t"], parts[0:2], 1),
        "B": Member(["t"], parts, 2),
        "C": Member(["t"], parts[4:6], 1),
    }
    made = assign_partitions(Subscriptions({"t": 6}, members))
    assert tables(made.assignment) == {"A": "tp0 tp1", "B": "tp2 tp3", "C": "tp4 tp5"}
    assert (made.balance_score, made.moved) == (0, 4)


def test_they_never_cost_a_move_or_a_rack() -> None:
    parts = [("t", p) for p in range(2)]
    # Nothing has to move, so nothing goes back.
    kept = {"A": Member(["t"], parts[:1], 2), "B": Member(["t"], parts[1:], 2), "C": Member(["t"], parts, 1)}
    assert assign_partitions(Subscriptions({"t": 2}, kept)).moved == 0
    # What is free goes to the rack of its replicas, though another had it before.
    near = {
        "A": Member(["t"], rack="a"),
        "B": Member(["t"], parts[:1], 1, "b"),
        "C": Member([], parts[:1], 2),
    }
    made = assign_partitions(Subscriptions({"t": 1}, near, {"t": [["a"]]}))
    assert tables(made.assignment)["A"] == "tp0"


def test_a_level_that_is_too_large_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
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
