"""The answer: where a partition is, KIP-429's two phases on top of every mode, and KIP-54's listener contract."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.groups.assignment import Location, PartitionAssignment
from taskplace.groups.partitioner import partition_for_key
from taskplace.groups.partitions import (
    MODES,
    Member,
    StickyListener,
    Subscriptions,
    TopicPartition,
    assign_partitions,
)
from tests.support.assignments import verify
from tests.support.groups import claims, home_of, subscriptions, tables

TOPICS = {"orders": 6, "users": 6, "clicks": 4}


def fleet(**other: object) -> Subscriptions:
    members = {f"w{k}": Member(list(TOPICS), url=f"http://w{k}:6066" if k else None) for k in range(3)}
    return Subscriptions(TOPICS, members, assignor="copartitioned", replicas=1, **other)


def test_a_key_leads_to_the_member_that_has_its_partition_and_to_its_url():
    s = fleet()
    made = assign_partitions(s)
    home = home_of(made.assignment)
    seen = set()
    for key in (f"customer {k}".encode() for k in range(40)):
        found = made.of_key("orders", key, partition_for_key)
        tp = TopicPartition("orders", partition_for_key(key, 6))
        assert (found.partition, found.active) == (tp, home[tp])
        assert found.url == s.members[home[tp]].url
        assert found.standby == tuple(n for n, held in made.standby.items() if tp in held)
        assert found.standby_urls == tuple(s.members[n].url for n in found.standby)
        # Topics of one group are kept apart by nothing: the same key, the same member.
        assert made.of_key("users", key, partition_for_key).active == found.active
        seen.add(found.active)
    assert seen == set(s.members)


def test_every_member_answers_for_all_others_from_the_document_alone():
    made = assign_partitions(fleet())
    told = PartitionAssignment.from_dict(json.loads(made.to_json()))
    assert told.to_json() == made.to_json()
    for topic, count in TOPICS.items():
        assert told.of_topic(topic) == made.of_topic(topic)
        assert [found.partition.partition for found in told.of_topic(topic)] == list(range(count))


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=8), st.sampled_from(["fair_sticky", "range", "copartitioned"]), st.booleans())
def test_every_assigned_partition_has_one_holder_and_withheld_ones_none(s, mode, cooperative):
    made = assign_partitions(s, mode, cooperative=cooperative)
    home, later = home_of(made.assignment), home_of(made.withheld)
    topics = {tp.topic for tp in (*home, *later)}
    for found in (found for topic in topics for found in made.of_topic(topic)):
        assert found.active == home.get(found.partition)
        assert (found.active is None) == (found.partition in later)
    assert sum(len(made.of_topic(topic)) for topic in topics) == len(home) + len(later)


def test_a_withheld_partition_is_on_nobody_and_its_next_member_follows_it():
    s = Subscriptions(
        {"t": 2}, {"a": Member(["t"], [("t", 0), ("t", 1)]), "b": Member(["t"], url="http://b")}
    )
    made = assign_partitions(s, "copartitioned", cooperative=True)
    (tp,) = made.withheld["b"]
    assert made.of(*tp) == Location(tp, None, ("b",), None, ("http://b",))


def test_what_is_not_assigned_has_no_holder():
    made = assign_partitions(fleet())
    for topic, partition, message in (
        ("order", 0, "topic: found 'order', expected an assigned topic; did you mean 'orders'?"),
        ("orders", 6, "orders.partition: found 6"),
        ("orders", -1, "orders.partition: found -1"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            made.of(topic, partition)


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"schema": "taskplace.plan/1"}, "assignment.schema"),
        ({"assignment": []}, "assignment.assignment"),
        ({"assignment": {"a": [["t"]]}}, "assignment.assignment.a"),
        ({"standby": {"a": "t"}}, "assignment.standby.a"),
        ({"urls": {"a": 80}}, "assignment.urls.a"),
        ({"assignment": None}, "assignment.assignment"),
        ({"asignment": {}}, "assignment.asignment"),
    ],
)
def test_a_bad_document_is_one_error_with_its_path(wrong, path):
    with pytest.raises(InputError) as error:
        PartitionAssignment.from_dict({"assignment": {}, **wrong})
    assert error.value.path == path


@settings(max_examples=50, deadline=None)
@given(
    subscriptions(most=10, members=5, racks=True),
    st.sampled_from([*MODES, "copartitioned"]),
    st.integers(0, 2),
)
def test_two_phases(s, mode, replicas):
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


def test_old_claims_hold_back_new_members_but_not_the_owner():
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


pairs = st.sets(st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 4)))


def recording(**options: bool) -> tuple[StickyListener, list[tuple[str, tuple[str, int]]]]:
    calls: list[tuple[str, tuple[str, int]]] = []
    names = ("commit", "clean_up", "initialise", "position")

    def note(name: str):
        return lambda tp: calls.append((name, tp))

    return StickyListener(**{name: note(name) for name in names}, **options), calls


@given(st.lists(pairs, max_size=5))
def test_state_is_where_the_assignment_is(assignments):
    for cooperative in (False, True):
        listener, calls = recording(cooperative=cooperative)
        state: set[tuple[str, int]] = set()
        held: set[tuple[str, int]] = set()
        for new in assignments:
            calls.clear()
            listener.on_revoked(held - new if cooperative else held)
            listener.on_assigned(new - held if cooperative else new)
            lost, gained = held - new, new - held
            by = {name: {tp for n, tp in calls if n == name} for name in ("commit", "clean_up", "initialise")}
            assert by["clean_up"] == lost and by["initialise"] == gained
            assert by["commit"] == (lost if cooperative else held)
            state = state - by["clean_up"] | by["initialise"]
            held = new
            assert state == held == listener.assigned


def test_what_is_lost_is_cleaned_up_without_a_commit():
    listener, calls = recording()
    listener.on_assigned([("t", 0), ("t", 1)])
    calls.clear()
    listener.on_lost([("t", 1), ("t", 7)])
    assert calls == [("clean_up", ("t", 1))]
    assert listener.assigned == {("t", 0)}


def test_a_failing_callback_is_passed_on_and_tried_again():
    tries = []

    def fail_once(tp):
        tries.append(tp)
        if len(tries) == 1:
            raise OSError("disk full")

    listener = StickyListener(initialise=fail_once)
    with pytest.raises(OSError, match="disk full"):
        listener.on_assigned([("t", 0)])
    listener.on_assigned([("t", 0)])
    assert tries == [("t", 0), ("t", 0)]
