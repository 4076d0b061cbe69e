"""What the tests of Kafka's sticky assignors expect: as facts, and of groups that change, claim and lag behind."""

from __future__ import annotations

import itertools
import random

import pytest

from taskplace.groups.partitions import (
    Member,
    PartitionAssignment,
    Subscriptions,
    TopicPartition,
    assign_partitions,
)
from tests.support.assignments import verify
from tests.support.groups import figures, group, home_of, tables, text
from tests.support.kafka_sticky import FACTS, KINDS, Fact, ask, home, told


def test_claimed_twice_means_nobody_gets_it_before_both_let_go() -> None:
    _, made = ask(FACTS["claimed twice in one generation: to a third"], "cooperative-sticky")
    assert tables(made.assignment) == {"A": "tp1", "B": "tp2", "C": ""}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("generations", list(itertools.permutations((1, 2, 3))))
def test_one_partition_claimed_in_three_generations(generations: tuple[int, ...], kind: str) -> None:
    owned = {"A": "tp0 tp2", "B": "tp1 tp2 tp3", "C": "tp2 tp4 tp5"}
    members = {n: told("t", owned[n], g) for n, g in zip("ABC", generations, strict=True)}
    _, made = ask(Fact({"t": 6, "u": 1}, {**members, "D": told("u", "up0", 2)}, {}), kind)
    assert sorted(map(len, home_count(made).values())) == [1, 2, 2, 2]
    assert min(map(len, made.assignment.values())) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_topics_stay_spread_as_members_come_and_go(kind: str) -> None:
    topics = {"t": 12, "u": 12}
    members: dict[str, Member] = {"A": told("t u")}
    for present, share in (("A", 12), ("AB", 6), ("ABCD", 3), ("CD", 6)):
        members = {n: members.get(n, told("t u")) for n in present}
        s = Subscriptions(topics, members)
        made = assign_partitions(s, kind)
        if made.followup:
            made = assign_partitions(s.owning(made.assignment, generation=1), kind)
        assert not made.followup
        for held in made.assignment.values():
            assert [sum(tp.topic == t for tp in held) for t in "tu"] == [share, share]
        members = dict(s.owning(made.assignment, generation=1).members)


def test_a_topic_comes_and_another_goes() -> None:
    first = assign_partitions(group({"t": 3}, A="t", B="t"))
    both = group({"t": 3, "u": 3}, A="t u", B="t u").owning(first.assignment, generation=1)
    second = assign_partitions(both)
    assert all(set(first.assignment[n]) <= set(second.assignment[n]) for n in "AB")
    assert [len(held) for held in second.assignment.values()] == [3, 3]
    third = assign_partitions(group({"u": 3}, A="u", B="u").owning(second.assignment, generation=2))
    assert all(set(third.assignment[n]) <= set(second.assignment[n]) for n in "AB")
    assert sorted(len(held) for held in third.assignment.values()) == [1, 2]


def test_round_robin_does_badly_here() -> None:
    topics = {f"t{k}": k % 2 + 1 for k in range(1, 6)}
    some, every = "t1 t3 t5", "t1 t2 t3 t4 t5"
    s = group(topics, A=every, B=some, C=some, D=every)
    assert assign_partitions(s).balance_score == 0
    assert assign_partitions(s, "round_robin").balance_score > 0


def test_one_of_nineteen_leaves() -> None:
    topics = {f"t{k:02}": k for k in range(1, 20)}
    s = Subscriptions(topics, {f"C{k:02}": Member(sorted(topics)[:k]) for k in range(1, 20)})
    made = assign_partitions(s)
    assert verify(s, made) == []
    rest = dict(s.owning(made.assignment, generation=1).members)
    del rest["C10"]
    left = Subscriptions(topics, rest)
    after = assign_partitions(left)
    assert verify(left, after) == []
    assert no_swaps(left, after)


def test_a_tenth_member_comes() -> None:
    s = group({"t": 20}, **{f"C{k:02}": "t" for k in range(9)})
    held = s.owning(assign_partitions(s).assignment, generation=1).members
    made = assign_partitions(Subscriptions({"t": 20}, {**held, "C09": Member(["t"])}))
    assert (made.moved, made.balance_score) == (2, 0)


def test_the_leader_leaves_and_everybody_keeps_what_it_has() -> None:
    s = group({"t": 3}, A="t", B="t", C="t", D="t")
    made = assign_partitions(s)
    assert max(map(len, made.assignment.values())) == 1
    rest = {n: m for n, m in s.owning(made.assignment, generation=1).members.items() if n != "A"}
    after = assign_partitions(Subscriptions({"t": 3}, rest))
    assert [len(held) for held in after.assignment.values()] == [1, 1, 1] and after.moved == 0


def test_the_only_topic_is_deleted() -> None:
    made = assign_partitions(Subscriptions({}, {"C": told("t", "tp0 tp1 tp2")}))
    assert made.assignment == {"C": ()}


def test_a_chain_of_moves() -> None:
    topics = {f"t{k}": 1 for k in range(1, 7)}
    members = {
        "A": told("t1 t2", "t1p0"),
        "B": told("t1 t2 t3 t4", "t2p0 t3p0"),
        "C": told("t2 t3 t4 t5 t6", "t4p0 t5p0 t6p0"),
    }
    _, made = ask(Fact(topics, members, {}), "sticky")
    assert (made.balance_score, made.moved) == (0, 2)


def no_swaps(s: Subscriptions, made: PartitionAssignment) -> bool:
    """Return whether no two members exchange partitions of one topic."""
    after = home_of(made.assignment)
    moves = {
        (tp[0], name, after[TopicPartition(*tp)])
        for name, m in s.members.items()
        for tp in m.owned
        if after.get(TopicPartition(*tp), name) != name
    }
    return not any((topic, to, name) in moves for topic, name, to in moves)


@pytest.mark.parametrize("seed", range(10))
def test_random_subscriptions_that_change(seed: int) -> None:
    rng = random.Random(seed)
    topics = {f"t{k:02}": k + 1 for k in range(rng.randint(10, 20))}

    def heard() -> list[str]:
        return rng.sample(sorted(topics), rng.randint(1, len(topics)))

    names = [f"C{k:02}" for k in range(rng.randint(20, 40))]
    s = Subscriptions(topics, {n: Member(heard()) for n in names})
    made = assign_partitions(s)
    assert verify(s, made) == []
    later = Subscriptions(topics, {n: Member(heard(), made.assignment[n], 1) for n in names})
    after = assign_partitions(later)
    assert verify(later, after) == []
    assert no_swaps(later, after)


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_that_was_away_a_generation(kind: str) -> None:
    # A leaves, B and C share; then A leaves for good and B, of a newer generation, meets C that was away.
    t = {"t": 6}
    first = assign_partitions(group(t, A="t", B="t", C="t"))
    second = assign_partitions(
        Subscriptions(t, {n: Member(["t"], first.assignment[n], 1) for n in "AB"}), kind
    )
    assert all(set(first.assignment[n]) <= set(second.assignment[n]) for n in "AB")
    s = Subscriptions(
        t, {"B": Member(["t"], second.assignment["B"], 2), "C": Member(["t"], first.assignment["C"], 1)}
    )
    third = assign_partitions(s, kind)
    assert verify(s, third) == []
    assert {n: len(held) for n, held in home_count(third).items()} == {"B": 3, "C": 3}
    # B keeps what it took over from C. What A took over from C is claimed by nobody newer, so it is C's.
    assert third.moved == 0 and set(second.assignment["B"]) == set(home_count(third)["B"])
    assert set(first.assignment["C"]) - set(second.assignment["B"]) <= set(home_count(third)["C"])


def test_generations_where_one_member_hears_less() -> None:
    topics = {"t": 6, "u": 6}
    first = assign_partitions(group(topics, A="t u", B="t", C="t u")).assignment
    assert [len(held) for held in first.values()] == [4, 4, 4]
    members = {"A": Member(["t", "u"], first["A"], 1), "B": Member(["t"], first["B"], 1)}
    second = assign_partitions(Subscriptions(topics, members)).assignment
    assert [len(held) for held in second.values()] == [6, 6] and set(first["B"]) <= set(second["B"])
    members = {"B": Member(["t"], second["B"], 2), "C": Member(["t", "u"], first["C"], 1)}
    third = assign_partitions(Subscriptions(topics, members)).assignment
    assert [len(held) for held in third.values()] == [6, 6]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heard", [("t u v", "t u v"), ("t", "t u")])
def test_two_members_come_back_to_one_that_had_all(heard: tuple[str, str], kind: str) -> None:
    topics = {"t": 4, "u": 4, "v": 4}
    first = assign_partitions(group(topics, A=heard[0], B="t u v", C=heard[1])).assignment
    alone = assign_partitions(Subscriptions(topics, {"B": Member(list(topics), first["B"], 1)})).assignment[
        "B"
    ]
    assert len(alone) == 12
    members = {
        "A": Member(heard[0].split(), first["A"], 1),
        "B": Member(list(topics), alone, 2),
        "C": Member(heard[1].split(), first["C"], 1),
    }
    third = home_count(assign_partitions(Subscriptions(topics, members), kind))
    assert {n: set(held) for n, held in third.items()} == {n: set(held) for n, held in first.items()}


def home_count(made: PartitionAssignment) -> dict[str, list[TopicPartition]]:
    both = home_of(made.assignment) | home_of(made.withheld)
    return {n: [tp for tp, at in both.items() if at == n] for n in made.assignment}


@pytest.mark.parametrize("kind", KINDS)
def test_conflicting_generations_of_three(kind: str) -> None:
    members = {
        "A": told("t u v", "tp0 tp1 tp2 up2 up3 vp0", 1),
        "B": told("t u v", "tp0 tp1 up0 up1 up2 up3", 2),
        "C": told("t u v", "tp2 tp3 vp0 vp1 vp2 vp3", 2),
    }
    s, made = ask(Fact({"t": 4, "u": 4, "v": 4}, members, {}), kind)
    held = home_count(made)
    assert {n: len(h) for n, h in held.items()} == {"A": 4, "B": 4, "C": 4}
    assert set(held["B"]) <= set(s.members["B"].owned) and set(held["C"]) <= set(s.members["C"].owned)
    assert set(held["A"]) <= set(s.members["A"].owned)  # it had all of these before


EQUALLY_GOOD = {
    "more members have the ceiling than there are ceilings": Fact(
        {"t": 2, "u": 2},
        {"A": told("t u", "tp0 up0"), "B": told("t u", "tp1 up1"), "C": told("t u")},
        {"A": "tp0", "B": "tp1 up1", "C": "up0"},
        "up0",
    ),
    "two of four go": Fact(
        {"t": 3, "u": 4},
        {"C": told("t u", "tp2 up3"), "D": told("t u", "up2")},
        {"C": "tp2 up3 tp0 up1", "D": "up2 tp1 up0"},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FACTS)
def test_the_answer_is_theirs(name: str, kind: str) -> None:
    fact = FACTS[name]
    _, made = ask(fact, kind)
    assert home_of(made.assignment) | home_of(made.withheld) == home(fact.expected)
    waits = text(tp for held in made.withheld.values() for tp in held)
    assert waits == (fact.waits if kind == "cooperative-sticky" else "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EQUALLY_GOOD)
def test_the_answer_is_as_good_as_theirs(name: str, kind: str) -> None:
    fact = EQUALLY_GOOD[name]
    s, made = ask(fact, kind)
    found = home_of(made.assignment) | home_of(made.withheld)
    assert figures(s, found)[:2] == figures(s, home(fact.expected))[:2]
    withheld = sum(map(len, made.withheld.values()))
    assert withheld == (len(fact.waits.split()) if kind == "cooperative-sticky" else 0)
