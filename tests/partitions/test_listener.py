"""The listener contract of KIP-54."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from taskplace.groups.partitions import StickyListener, assign_partitions, change

from tests.support.groups import group

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
