"""The answer: where a partition is, KIP-429's two phases on top of every mode, and KIP-54's listener contract."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.groups.assignment import PartitionAssignment
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


def fleet() -> Subscriptions:
    members = {f"w{k}": Member(list(TOPICS), url=f"http://w{k}:6066" if k else None) for k in range(3)}
    return Subscriptions(TOPICS, members, assignor="copartitioned", replicas=1)


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


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=8), st.sampled_from(["fair_sticky", "range", "copartitioned"]), st.booleans())
def test_every_partition_has_one_holder_or_is_withheld_and_the_document_alone_says_so(s, mode, cooperative):
    made = assign_partitions(s, mode, cooperative=cooperative)
    told = PartitionAssignment.from_dict(json.loads(made.to_json()))
    assert told.to_json() == made.to_json()
    home, later = home_of(made.assignment), home_of(made.withheld)
    for topic in {tp.topic for tp in (*home, *later)}:
        located = made.of_topic(topic)
        assert told.of_topic(topic) == located and len(located) == s.topics[topic]
        for p, found in enumerate(located):
            assert found.partition == (topic, p) and found.active == home.get(found.partition)
            assert (found.active is None) == (found.partition in later)
            following = (n for n, held in sorted(made.standby.items()) if found.partition in held)
            assert found.standby == tuple(following)


def test_a_gap_of_a_written_document_is_on_nobody_and_what_is_not_assigned_has_no_holder():
    written = {
        "assignment": {"a": [["t", 3], ["t", 0]]},
        "withheld": {"b": [["t", 5]]},
        "standby": {"b": [["t", 1]]},
    }
    made = PartitionAssignment.from_dict(written)
    assert [found.active for found in made.of_topic("t")] == ["a", None, None, "a", None, None]
    assert made.of("t", 1).standby == ("b",)
    assert made.of_key("t", b"k", lambda key, count: count - 3).active == "a"
    for topic, partition, path in (("tt", 0, "topic"), ("t", 6, "t.partition"), ("t", -1, "t.partition")):
        with pytest.raises(InputError) as error:
            made.of(topic, partition)
        assert error.value.path == path


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
    again = s.owning(first.assignment, standby=first.standby, generation=9)
    second = assign_partitions(again)
    assert verify(again, second) == []
    assert second.withheld == eager.withheld == {}
    if mode != "copartitioned":
        assert second.moved == 0 and first.balance_score == second.balance_score
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


def recording(**options: bool) -> tuple[StickyListener, dict[str, list[tuple[str, int]]]]:
    calls: dict[str, list[tuple[str, int]]] = {
        n: [] for n in ("commit", "clean_up", "initialise", "position")
    }
    return StickyListener(**{name: calls[name].append for name in calls}, **options), calls


@given(st.lists(pairs, max_size=5), st.booleans())
def test_state_is_where_the_assignment_is(assignments, cooperative):
    listener, calls = recording(cooperative=cooperative)
    held: set[tuple[str, int]] = set()
    for new in assignments:
        for each in calls.values():
            each.clear()
        listener.on_revoked(held - new if cooperative else held)
        listener.on_assigned(new - held if cooperative else new)
        assert set(calls["clean_up"]) == held - new and set(calls["initialise"]) == new - held
        assert set(calls["commit"]) == (held - new if cooperative else held)
        assert set(calls["position"]) == (new - held if cooperative else new)
        held = new
        assert held == listener.assigned


def test_what_is_lost_is_cleaned_up_without_a_commit():
    listener, calls = recording()
    listener.on_assigned([("t", 0), ("t", 1)])
    listener.on_lost([("t", 1), ("t", 7)])
    assert calls["clean_up"] == [("t", 1)] and calls["commit"] == []
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
