"""KIP-429 on top of every mode: nobody gets what another still holds, and two phases are enough."""

from __future__ import annotations

import hypothesis.strategies as st
from groups import home_of, subscriptions, tables
from hypothesis import given, settings

from taskplace.partitions import Member, Subscriptions, assign_partitions
from taskplace.partitions.assignors import MODES
from taskplace.partitions.verify import verify


@settings(max_examples=50, deadline=None)
@given(
    subscriptions(most=10, members=5, racks=True),
    st.sampled_from([*MODES, "copartitioned"]),
    st.integers(0, 2),
)
def test_two_phases(s: Subscriptions, mode: str, replicas: int) -> None:
    s = Subscriptions(s.topics, s.members, s.racks, mode, True, replicas)
    first = assign_partitions(s)
    assert verify(s, first) == []
    held = {name: set(member.owned) for name, member in s.members.items()}
    for name, got in first.assignment.items():
        for other, claimed in held.items():
            assert other == name or not claimed & set(got)

    # Members let go of what is not assigned to them, and join again.
    second_question = s.owning(first.assignment, standby=first.standby, generation=9)
    second = assign_partitions(second_question)
    assert verify(second_question, second) == []
    assert second.withheld == {}
    assert first.balance_score == second.balance_score or mode == "copartitioned"
    if mode != "copartitioned":
        assert second.moved == 0
    eager = assign_partitions(s, cooperative=False)
    assert eager.withheld == {}
    assert (first.moved, first.preserved) == (eager.moved, eager.preserved)
    assert home_of(first.assignment) | home_of(first.withheld) == home_of(eager.assignment)


def test_a_partition_waits_for_its_owner_even_if_the_claim_is_old() -> None:
    s = Subscriptions(
        {"t": 2},
        {"A": Member(["t"], [("t", 0), ("t", 1)], 5), "B": Member(["t"], [("t", 1)], 4), "C": Member(["t"])},
        assignor="cooperative",
    )
    first = assign_partitions(s)
    assert first.followup and first.balance_score == 2
    # B's old claim on t[1] does not count, but B may be working on it still: whoever gets it has to wait.
    kept = {tp for held in first.assignment.values() for tp in held}
    assert ("t", 1) not in kept
    assert sum(map(len, first.withheld.values())) == 2 - len(kept)


def test_what_nobody_holds_is_given_at_once() -> None:
    s = Subscriptions(
        {"t": 3}, {"A": Member(["t"], [("t", 0), ("t", 1)]), "B": Member(["t"])}, cooperative=True
    )
    made = assign_partitions(s)
    assert tables(made.assignment) == {"A": "tp0 tp1", "B": "tp2"}
    assert not made.followup
