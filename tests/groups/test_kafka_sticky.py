"""What the tests of Kafka's sticky assignors expect: case by case, with racks, and of groups that change.

With racks, theirs is a heuristic, so ours may be better.
"""

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
from tests.support.groups import counts, figures, group, home_of, levels, named, parts, table, text

Home = dict[TopicPartition, str]
KINDS = pytest.mark.parametrize("kind", ["sticky", "cooperative-sticky"])
CASES = {case[0]: case[1:] for case in table("sticky")}


def told(topics: str, owned: str = "", generation: int = 1) -> Member:
    return Member(topics.split(), parts(owned), generation)


def home(assignment: dict[str, str]) -> Home:
    return {TopicPartition(*pair): name for name, held in assignment.items() for pair in parts(held)}


def meant(made: PartitionAssignment) -> Home:
    """Return the assignment with what is withheld."""
    return home_of(made.assignment) | home_of(made.withheld)


def held(made: PartitionAssignment) -> dict[str, set[TopicPartition]]:
    return {name: {tp for tp, at in meant(made).items() if at == name} for name in made.assignment}


def sizes(made: PartitionAssignment) -> list[int]:
    return [len(tps) for tps in held(made).values()]


def ask(
    topics: dict[str, int], members: dict[str, Member], kind: str
) -> tuple[Subscriptions, PartitionAssignment]:
    s = Subscriptions(topics, members, assignor=kind)
    made = assign_partitions(s)
    assert verify(s, made) == []
    return s, made


@KINDS
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_theirs_or_as_good(name, kind):
    topics, members, expected, waits = CASES[name]
    asked = {}
    for words, said in named(members).items():
        member, _, generation = words.partition("@")
        heard, _, owned = said.partition("/")
        asked[member] = told(heard, owned, int(generation or 1))
    s, made = ask(counts(topics), asked, kind)
    revoked = text(tp for tps in made.withheld.values() for tp in tps)
    expected_revoked = waits if kind == "cooperative-sticky" else ""
    if "(as good)" in name:
        assert figures(s, meant(made))[:2] == figures(s, home(named(expected)))[:2]
        assert len(revoked.split()) == len(expected_revoked.split())
    else:
        assert meant(made) == home(named(expected))
        assert revoked == expected_revoked


TOPICS = {"t": 6, "u": 7, "v": 2}
RACKED = [(*case, owned) for *case, owned in table("sticky_racks")]
AT_REST = [(*case[:-1], case[4]) for case in RACKED if not case[-1]]  # each owns what Kafka's answer gives it


@KINDS
@pytest.mark.parametrize("case", [*RACKED, *AT_REST], ids=lambda case: "-".join(case[1:4]))
def test_balance_racks_and_moves_are_at_least_as_good(case, kind):
    """Replica r of the k-th partition in all is on broker k + r."""
    heard, replicas, brokers, racks, answer, misses, owned = case
    on, numbers = {}, itertools.count()
    for topic, count in TOPICS.items():
        first = itertools.islice(numbers, count)
        spread = [{brokers[(k + r) % len(brokers)] for r in range(int(replicas))} for k in first]
        on[topic] = [sorted(of - {"-"}) for of in spread]
    owns = owned.split(";") if owned else [""] * 3
    members = {
        f"C{k}": Member(mine.split(), parts(had), rack=None if rack == "-" else rack)
        for k, (mine, had, rack) in enumerate(zip(heard.split(";"), owns, racks, strict=True))
    }
    s = Subscriptions(TOPICS, members, on, kind)
    made = assign_partitions(s)
    assert verify(s, made) == []
    theirs = home({f"C{k}": cell for k, cell in enumerate(answer.split(";"))})
    if misses:
        assert levels(s, theirs)[2] == int(misses)  # the table is read right
        assert made.rack_misses <= int(misses)
    assert levels(s, meant(made), racks_first=True) <= levels(s, theirs, racks_first=True)
    if owned == answer and levels(s, meant(made)) == levels(s, theirs):
        assert meant(made) == theirs


def test_partitions_that_change_racks_wait_for_their_owners():
    members = {
        "A": Member(["t"], [("t", 0), ("t", 1)], rack="a"),
        "B": Member(["t"], [("t", 2), ("t", 3)], rack="b"),
    }
    racks = {"t": [["a"], ["b"], ["a"], ["b"]]}
    made = assign_partitions(Subscriptions({"t": 4}, members, racks, "cooperative-sticky"))
    assert made.withheld == {"A": (("t", 2),), "B": (("t", 1),)} and made.rack_misses == 0


@KINDS
@pytest.mark.parametrize("generations", list(itertools.permutations((1, 2, 3))))
def test_one_partition_claimed_in_three_generations(generations, kind):
    owned = {"A": "tp0 tp2", "B": "tp1 tp2 tp3", "C": "tp2 tp4 tp5"}
    members = {n: told("t", owned[n], g) for n, g in zip("ABC", generations, strict=True)}
    _, made = ask({"t": 6, "u": 1}, {**members, "D": told("u", "up0", 2)}, kind)
    assert sorted(sizes(made)) == [1, 2, 2, 2]
    assert min(map(len, made.assignment.values())) == 1


@KINDS
def test_conflicting_generations_of_three(kind):
    members = {
        "A": told("t u v", "tp0 tp1 tp2 up2 up3 vp0", 1),
        "B": told("t u v", "tp0 tp1 up0 up1 up2 up3", 2),
        "C": told("t u v", "tp2 tp3 vp0 vp1 vp2 vp3", 2),
    }
    s, made = ask({"t": 4, "u": 4, "v": 4}, members, kind)
    assert sizes(made) == [4, 4, 4]
    assert all(tps <= set(s.members[name].owned) for name, tps in held(made).items())


@KINDS
def test_topics_stay_spread_as_members_come_and_go(kind):
    topics = {"t": 12, "u": 12}
    members = {"A": told("t u")}
    for present, share in (("A", 12), ("AB", 6), ("ABCD", 3), ("CD", 6)):
        s = Subscriptions(topics, {n: members.get(n, told("t u")) for n in present})
        made = assign_partitions(s, kind)
        if made.followup:
            made = assign_partitions(s.owning(made.assignment, generation=1), kind)
        assert not made.followup
        for tps in made.assignment.values():
            assert [sum(tp.topic == t for tp in tps) for t in "tu"] == [share, share]
        members = dict(s.owning(made.assignment, generation=1).members)


def test_a_topic_comes_and_another_goes():
    first = assign_partitions(group({"t": 3}, A="t", B="t"))
    second = assign_partitions(
        group({"t": 3, "u": 3}, A="t u", B="t u").owning(first.assignment, generation=1)
    )
    assert all(held(first)[n] <= held(second)[n] for n in "AB") and sizes(second) == [3, 3]
    third = assign_partitions(group({"u": 3}, A="u", B="u").owning(second.assignment, generation=2))
    assert all(held(third)[n] <= held(second)[n] for n in "AB") and sorted(sizes(third)) == [1, 2]


def test_round_robin_does_badly_here():
    topics = {f"t{k}": k % 2 + 1 for k in range(1, 6)}
    some, every = "t1 t3 t5", "t1 t2 t3 t4 t5"
    s = group(topics, A=every, B=some, C=some, D=every)
    assert assign_partitions(s).balance_score == 0 < assign_partitions(s, "round_robin").balance_score


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


def test_one_of_nineteen_leaves():
    topics = {f"t{k:02}": k for k in range(1, 20)}
    s, made = ask(topics, {f"C{k:02}": Member(sorted(topics)[:k]) for k in range(1, 20)}, "fair_sticky")
    rest = {n: m for n, m in s.owning(made.assignment, generation=1).members.items() if n != "C10"}
    assert no_swaps(*ask(topics, rest, "fair_sticky"))


@pytest.mark.parametrize("seed", range(10))
def test_random_subscriptions_that_change(seed):
    rng = random.Random(seed)
    topics = {f"t{k:02}": k + 1 for k in range(rng.randint(10, 20))}

    def heard():
        return rng.sample(sorted(topics), rng.randint(1, len(topics)))

    names = [f"C{k:02}" for k in range(rng.randint(20, 40))]
    _, made = ask(topics, {n: Member(heard()) for n in names}, "fair_sticky")
    assert no_swaps(*ask(topics, {n: Member(heard(), made.assignment[n], 1) for n in names}, "fair_sticky"))


def test_a_tenth_member_comes_and_one_of_four_leaves():
    s = group({"t": 20}, **{f"C{k:02}": "t" for k in range(9)})
    had = s.owning(assign_partitions(s).assignment, generation=1).members
    made = assign_partitions(Subscriptions({"t": 20}, {**had, "C09": Member(["t"])}))
    assert (made.moved, made.balance_score) == (2, 0)
    s = group({"t": 3}, A="t", B="t", C="t", D="t")
    had = s.owning(assign_partitions(s).assignment, generation=1).members
    made = assign_partitions(Subscriptions({"t": 3}, {n: had[n] for n in "BCD"}))  # A has led
    assert sizes(made) == [1, 1, 1] and made.moved == 0


def test_a_chain_of_moves():
    members = {
        "A": told("t1 t2", "t1p0"),
        "B": told("t1 t2 t3 t4", "t2p0 t3p0"),
        "C": told("t2 t3 t4 t5 t6", "t4p0 t5p0 t6p0"),
    }
    _, made = ask({f"t{k}": 1 for k in range(1, 7)}, members, "sticky")
    assert (made.balance_score, made.moved) == (0, 2)


@KINDS
def test_a_member_that_was_away_a_generation(kind):
    # C is away, A and B share; then A leaves for good and B, of a newer generation, meets C.
    t = {"t": 6}
    first = assign_partitions(group(t, A="t", B="t", C="t")).assignment
    second = assign_partitions(
        Subscriptions(t, {n: Member(["t"], first[n], 1) for n in "AB"}), kind
    ).assignment
    assert all(set(first[n]) <= set(second[n]) for n in "AB")
    _, third = ask(t, {"B": Member(["t"], second["B"], 2), "C": Member(["t"], first["C"], 1)}, kind)
    # B keeps what it took over from C. What A took over from C is claimed by nobody newer, so it is C's.
    assert third.moved == 0 and sizes(third) == [3, 3] and held(third)["B"] == set(second["B"])
    assert set(first["C"]) - set(second["B"]) <= held(third)["C"]


def test_generations_where_one_member_hears_less():
    topics = {"t": 6, "u": 6}
    first = assign_partitions(group(topics, A="t u", B="t", C="t u"))
    had = first.assignment
    members = {"A": Member(["t", "u"], had["A"], 1), "B": Member(["t"], had["B"], 1)}
    second = assign_partitions(Subscriptions(topics, members))
    members = {"B": Member(["t"], second.assignment["B"], 2), "C": Member(["t", "u"], had["C"], 1)}
    third = assign_partitions(Subscriptions(topics, members))
    assert [sizes(each) for each in (first, second, third)] == [[4, 4, 4], [6, 6], [6, 6]]
    assert held(first)["B"] <= held(second)["B"]


@KINDS
@pytest.mark.parametrize("heard", [("t u v", "t u v"), ("t", "t u")])
def test_two_members_come_back_to_one_that_had_all(heard, kind):
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
    third = held(assign_partitions(Subscriptions(topics, members), kind))
    assert third == {n: set(tps) for n, tps in first.items()}
