"""The three examples of KIP-54, step by step: sizes, balance score and preserved partitions of each.

The KIP's table is compared literally where no other assignment is as balanced and as sticky. Where others are, what is
compared is what they have in common.
"""

from __future__ import annotations

import pytest

from taskplace.groups.partitions import PartitionAssignment, Subscriptions, assign_partitions
from tests.support.assignments import verify
from tests.support.groups import everything, figures, group, tables


def after(made: PartitionAssignment, topics: dict[str, int], **members: str) -> Subscriptions:
    """Return the subscriptions of these members, each owning what it got before."""
    return group(topics, **members).owning(made.assignment)


def verified(s: Subscriptions) -> PartitionAssignment:
    made = assign_partitions(s)
    assert verify(s, made) == []
    return made


def sizes(made: PartitionAssignment) -> list[int]:
    return [len(held) for held in made.assignment.values()]


def optima(s: Subscriptions) -> int:
    """Return how many assignments are the best ones, by balance score and moves."""
    found = [figures(s, home)[:2] for home in everything(s)]
    return found.count(min(found))


def test_equal_subscriptions_one_member_leaves():
    topics, all_four = dict.fromkeys(("t0", "t1", "t2", "t3"), 2), "t0 t1 t2 t3"
    first = group(topics, C0=all_four, C1=all_four, C2=all_four)
    made = verified(first)
    # Any assignment of sizes 3, 3, 2 is as good; dealt out in turn, it is the KIP's table all the same.
    assert sizes(made) == [3, 3, 2]
    assert made.balance_score == 2
    table = {"C0": "t0p0 t1p1 t3p0", "C1": "t0p1 t2p0 t3p1", "C2": "t1p0 t2p1"}
    assert tables(made.assignment) == tables(assign_partitions(first, "round_robin").assignment) == table

    second = after(made, topics, C0=all_four, C2=all_four)
    made = verified(second)
    # C1's three can be split in three ways: one to C0, two to C2.
    assert optima(second) == 3
    assert sizes(made) == [4, 4]
    assert (made.balance_score, made.preserved, made.moved) == (0, 5, 0)
    in_turn = assign_partitions(second, "round_robin")
    assert tables(in_turn.assignment) == {"C0": "t0p0 t1p0 t2p0 t3p0", "C2": "t0p1 t1p1 t2p1 t3p1"}
    assert in_turn.preserved == 3


def test_different_subscriptions_one_member_leaves():
    topics = {"t0": 1, "t1": 2, "t2": 3}
    first = group(topics, C0="t0", C1="t0 t1", C2="t0 t1 t2")
    made = verified(first)
    assert optima(first) == 1
    assert tables(made.assignment) == {"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}
    assert made.balance_score == 4
    in_turn = assign_partitions(first, "round_robin")
    assert tables(in_turn.assignment) == {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"}
    assert in_turn.balance_score == 6

    second = after(made, topics, C1="t0 t1", C2="t0 t1 t2")
    made = verified(second)
    assert optima(second) == 1
    assert tables(made.assignment) == {"C1": "t0p0 t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}
    assert (made.balance_score, made.preserved, made.moved) == (0, 5, 0)

    # Round robin goes on from its own first step there, and keeps three.
    second = after(in_turn, topics, C1="t0 t1", C2="t0 t1 t2")
    in_turn = assign_partitions(second, "round_robin")
    assert tables(in_turn.assignment) == {"C1": "t0p0 t1p1", "C2": "t1p0 t2p0 t2p1 t2p2"}
    assert (in_turn.balance_score, in_turn.preserved) == (2, 3)


def test_a_member_comes():
    topics, both = {"t0": 2, "t1": 2}, "t0 t1"
    first = group(topics, C0=both, C1=both)
    for mode in ("fair_sticky", "range", "round_robin"):
        made = assign_partitions(first, mode)
        # Any two and two would be as good; all three modes make the KIP's table.
        assert tables(made.assignment) == {"C0": "t0p0 t1p0", "C1": "t0p1 t1p1"}, mode
        assert made.balance_score == 0

    second = after(made, topics, C0=both, C1=both, C2=both)
    ranged = assign_partitions(second, "range")
    assert tables(ranged.assignment) == {"C0": "t0p0 t1p0", "C1": "t0p1 t1p1", "C2": ""}
    assert ranged.balance_score == 4
    in_turn = assign_partitions(second, "round_robin")
    assert tables(in_turn.assignment) == {"C0": "t0p0 t1p1", "C1": "t0p1", "C2": "t1p0"}

    made = verified(second)
    # Whichever of the four goes to C2: one moves, three stay. The KIP says "something like this".
    assert optima(second) == 4
    assert sorted(sizes(made)) == [1, 1, 2] and sizes(made)[2] == 1
    assert (made.balance_score, made.preserved, made.moved) == (2, 3, 1)


@pytest.mark.parametrize("mode", ["fair_sticky", "sticky_fair", "cooperative"])
def test_a_new_leader_is_as_sticky_with_the_join_metadata_alone(mode):
    topics = {"t0": 5, "t1": 4}
    made = assign_partitions(group(topics, A="t0 t1", B="t0", C="t0 t1"))
    joins = {
        name: {"topics": ["t0", "t1"] if name != "B" else ["t0"], "owned": [list(tp) for tp in held]}
        for name, held in made.assignment.items()
    }
    again = assign_partitions({"topics": topics, "members": joins}, mode)
    assert again.assignment == made.assignment
    assert (again.moved, again.preserved) == (0, 9)


def test_the_second_alternative_keeps_all_where_the_kip_would_move():
    s = group({"t0": 4}, C0="t0", C1="t0", C2="t0").owning({"C0": [("t0", p) for p in range(4)]})
    kept = assign_partitions(s, "sticky_fair")
    assert sizes(kept) == [4, 0, 0] and kept.moved == 0
    assert sorted(sizes(assign_partitions(s))) == [1, 1, 2]
    assert sizes(assign_partitions(Subscriptions({"t0": 9}, s.members), "sticky_fair")) == [4, 3, 2]
