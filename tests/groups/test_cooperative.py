"""KIP-429 on top of every mode: nobody gets what another still holds; and KIP-54's listener contract."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from taskplace.groups.partitions import (
    MODES,
    Member,
    StickyListener,
    Subscriptions,
    assign_partitions,
    change,
)
from taskplace.groups.verify import verify
from tests.support.groups import claims, group, home_of, subscriptions, tables


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


pairs = st.sets(st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 4)))


def recording(**options: bool) -> tuple[StickyListener, list[tuple[str, tuple[str, int]]]]:
    calls: list[tuple[str, tuple[str, int]]] = []
    names = ("commit", "clean_up", "initialise", "position")

    def note(name: str):  # type: ignore[no-untyped-def]
        return lambda tp: calls.append((name, tp))

    return StickyListener(**{name: note(name) for name in names}, **options), calls  # type: ignore[arg-type]


@given(st.lists(pairs, max_size=5))
def test_state_is_where_the_assignment_is(assignments: list[set[tuple[str, int]]]) -> None:
    for cooperative in (False, True):
        listener, calls = recording(cooperative=cooperative)
        state: set[tuple[str, int]] = set()
        held: set[tuple[str, int]] = set()
        for new in assignments:
            calls.clear()
            listener.on_revoked(held - new if cooperative else held)
            listener.on_assigned(new - held if cooperative else new)
            lost, gained, kept = (set(part) for part in change(held, new))
            assert (lost, gained, kept) == (held - new, new - held, held & new)
            by = {name: {tp for n, tp in calls if n == name} for name in ("commit", "clean_up", "initialise")}
            assert by["clean_up"] == lost and by["initialise"] == gained
            assert by["commit"] == (lost if cooperative else held)
            state = state - by["clean_up"] | by["initialise"]
            held = new
            assert state == held == listener.assigned


def test_what_the_kip_says_of_its_second_example() -> None:
    topics = {"t0": 1, "t1": 2, "t2": 3}
    first = assign_partitions(group(topics, C0="t0", C1="t0 t1", C2="t0 t1 t2"))
    listener, calls = recording()
    listener.on_assigned(first.assignment["C1"])
    calls.clear()
    second = assign_partitions(group(topics, C1="t0 t1", C2="t0 t1 t2").owning(first.assignment))
    listener.on_revoked(first.assignment["C1"])
    listener.on_assigned(second.assignment["C1"])
    assert [tp for name, tp in calls if name == "clean_up"] == []  # nothing is lost, so nothing is cleaned up
    assert [tp for name, tp in calls if name == "initialise"] == [("t0", 0)]
    assert [tp for name, tp in calls if name == "position"] == [("t0", 0), ("t1", 0), ("t1", 1)]


def test_what_is_lost_is_cleaned_up_without_a_commit() -> None:
    listener, calls = recording()
    listener.on_assigned([("t", 0), ("t", 1)])
    calls.clear()
    listener.on_lost([("t", 1), ("t", 7)])
    assert calls == [("clean_up", ("t", 1))]
    assert listener.assigned == {("t", 0)}


def test_a_failing_callback_is_passed_on_and_tried_again() -> None:
    tries = []

    def fail_once(tp: tuple[str, int]) -> None:
        tries.append(tp)
        if len(tries) == 1:
            raise OSError("disk full")

    listener = StickyListener(initialise=fail_once)
    with pytest.raises(OSError, match="disk full"):
        listener.on_assigned([("t", 0)])
    listener.on_assigned([("t", 0)])
    assert tries == [("t", 0), ("t", 0)]
