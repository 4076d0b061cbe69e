"""KIP-429 on top of every mode: nobody gets what another still holds, and two phases are enough."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings
from taskplace.groups.partitions import MODES, Member, Subscriptions, assign_partitions
from taskplace.groups.verify import verify

from tests.support.groups import claims, home_of, subscriptions, tables


@settings(max_examples=50, deadline=None)
@given(
    subscriptions(most=10, members=5, racks=True),
    st.sampled_from([*MODES, "copartitioned"]),
    st.integers(0, 2),
)
def test_two_phases(s: Subscriptions, mode: str, replicas: int) -> None:
    s = Subscriptions(s.topics, s.members, s.racks, mode, True, replicas)
    first, eager = assign_partitions(s), assign_partitions(s, cooperative=False)
    assert verify(s, first) == []
    owner = claims(s)
    assert all(tp in first.assignment[n] for tp, n in owner.items() if tp in eager.assignment[n])
    held = {name: set(member.owned) for name, member in s.members.items()}
    for name, got in first.assignment.items():
        for other, claimed in held.items():
            assert other == name or not claimed & {tp for tp in got if owner.get(tp) != name}

    # Members let go of what is not assigned to them, and join again.
    second_question = s.owning(first.assignment, standby=first.standby, generation=9)
    second = assign_partitions(second_question)
    assert verify(second_question, second) == []
    assert second.withheld == {}
    assert first.balance_score == second.balance_score or mode == "copartitioned"
    if mode != "copartitioned":
        assert second.moved == 0
    assert eager.withheld == {}
    assert (first.moved, first.preserved) == (eager.moved, eager.preserved)
    assert home_of(first.assignment) | home_of(first.withheld) == home_of(eager.assignment)


def test_old_claims_hold_back_new_members_but_not_the_owner() -> None:
    topics, old = {"t": 2}, [("t", 0), ("t", 1)]
    members = {"A": Member(["t"], old, 5), "B": Member(["t"], old, 4)}
    kept = assign_partitions(Subscriptions(topics, members, cooperative=True), "sticky_fair")
    assert tables(kept.assignment) == {"A": "tp0 tp1", "B": ""} and not kept.followup
    # C came with nothing: it waits for A, and, if A is gone, for B, whose topics are others now.
    members |= {"B": Member([], old, 4), "C": Member(["t"])}
    for present, waits in (("ABC", 1), ("BC", 2)):
        s = Subscriptions(topics, {n: members[n] for n in present}, cooperative=True)
        made = assign_partitions(s)
        assert made.followup and made.assignment["C"] == ()
        assert len(made.withheld["C"]) == waits


def test_contradicting_claims_hold_each_other_back() -> None:
    both = {n: Member(["t"], [("t", 0)], 4) for n in "AB"}
    made = assign_partitions(Subscriptions({"t": 1}, both, cooperative=True))
    assert tables(made.assignment) == {"A": "", "B": ""} and made.followup


def test_what_nobody_holds_is_given_at_once() -> None:
    s = Subscriptions(
        {"t": 3}, {"A": Member(["t"], [("t", 0), ("t", 1)]), "B": Member(["t"])}, cooperative=True
    )
    made = assign_partitions(s)
    assert tables(made.assignment) == {"A": "tp0 tp1", "B": "tp2"}
    assert not made.followup
