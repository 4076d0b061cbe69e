"""The question as a value and as JSON, and what holds of all modes: order means nothing, at rest nothing changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import jsonschema
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

import taskplace
from taskplace.errors import InputError
from taskplace.groups.partitions import (
    MODES,
    NAMES,
    Member,
    PartitionAssignment,
    Subscriptions,
    assign_partitions,
)
from taskplace.model.schema import schema
from tests.support.assignments import verify
from tests.support.groups import claims, document, group, previous, racks_matter, subscriptions, tables

priorities = st.sampled_from([None, "stickiness", "racks"])
modes = st.sampled_from([*MODES, "copartitioned"])
GOOD: dict[str, Any] = {"topics": {"t": 2}, "members": {"C0": {"topics": ["t"], "owned": [["t", 0]]}}}


@settings(max_examples=30, deadline=None)
@given(
    subscriptions(most=8, racks=True),
    st.sampled_from(NAMES),
    st.booleans(),
    st.integers(0, 2),
    priorities,
)
def test_round_trips_fit_the_schemas(s, name, cooperative, replicas, priority):
    s = Subscriptions(s.topics, s.members, s.racks, name, cooperative, replicas, 3, priority)
    asked = document(s)
    jsonschema.Draft202012Validator(schema("subscriptions")).validate(asked)
    assert Subscriptions.from_dict(asked) == s
    made = taskplace.assign_partitions(asked)
    answer = json.loads(made.to_json())
    jsonschema.Draft202012Validator(schema("partition_assignment")).validate(answer)
    assert answer == made.to_dict() and set(answer) - {"schema"} == set(PartitionAssignment.__struct_fields__)


def test_names_of_kafka_mean_the_same():
    for name, mode in (("sticky", "fair_sticky"), ("roundrobin", "round_robin")):
        assert assign_partitions(GOOD, name) == assign_partitions(GOOD, mode)
    assert assign_partitions(GOOD, "cooperative-sticky") == assign_partitions(GOOD, cooperative=True)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"members": {}}, "members"),
        ({"topics": {"t": -1}}, "subscriptions.topics.t.partitions"),
        ({"topics": {"t": True}}, "subscriptions.topics.t.partitions"),
        ({"topics": {"t": {"racks": []}}}, "subscriptions.topics.t.partitions"),
        ({"topics": {"t": {"partitions": 1, "rack": []}}}, "subscriptions.topics.t.rack"),
        ({"topics": {"t": {"partitions": 2, "racks": [["a"]]}}}, "topics.t.racks"),
        ({"topics": {"t": {"partitions": 1, "racks": [[1]]}}}, "subscriptions.topics.t.racks[0][0]"),
        ({"topics": ["t"]}, "subscriptions.topics"),
        ({"racks": {"t": [["a"]]}}, "subscriptions.racks"),
        ({"topics": {"t": 6_000_000, "u": 6_000_000}}, "topics"),
        ({"members": {"C0": {"topics": "t"}}}, "subscriptions.members.C0.topics"),
        ({"members": {"C0": {"owned": [["t"]]}}}, "subscriptions.members.C0.owned"),
        ({"members": {"C0": {"owned": [["t", "0"]]}}}, "subscriptions.members.C0.owned"),
        ({"members": {"C0": {"generation": -2}}}, "subscriptions.members.C0.generation"),
        ({"members": {"C0": {"url": 80}}}, "subscriptions.members.C0.url"),
        ({"members": {"C0": {"instance_id": "i"}, "C1": {"instance_id": "i"}}}, "members.C1.instance_id"),
        ({"replicas": -1}, "subscriptions.replicas"),
        ({"global_topics": "t"}, "subscriptions.global_topics"),
        ({"global_topics": ["code"]}, "topics"),
        ({"schema": "taskplace.problem/1"}, "subscriptions.schema"),
        ({"asignor": "fair"}, "subscriptions.asignor"),
        ({"rack_priority": "racs"}, "subscriptions.rack_priority"),
        ({"assignor": "stiky"}, "assignor"),
        ({"assignor": "\ud800"}, "subscriptions"),
    ],
)
def test_bad_input_is_one_error_with_its_path(change, path):
    with pytest.raises(InputError) as error:
        taskplace.assign_partitions({**GOOD, **change})
    assert error.value.path == path


def test_a_rack_priority_is_checked_where_it_is_given():
    with pytest.raises(
        InputError, match="rack_priority: found 'rack', expected one of stickiness, racks; did you"
    ):
        assign_partitions(GOOD, rack_priority="rack")


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=12, members=6, topics=5, racks=True), modes, st.randoms(use_true_random=False))
def test_the_order_of_the_input_means_nothing(s, mode, rng):
    asked = document(s)

    def shuffled(value):
        if isinstance(value, dict):
            items = [(k, shuffled(v)) for k, v in value.items()]
            rng.shuffle(items)
            return dict(items)
        return value

    mixed = shuffled(asked)
    for member in mixed["members"].values():
        rng.shuffle(member["topics"])
        rng.shuffle(member["owned"])
    made = assign_partitions(s, mode).to_json()
    assert assign_partitions(mixed, mode).to_json() == assign_partitions(asked, mode).to_json() == made


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=12, members=6, topics=5, racks=True), modes, priorities)
def test_nothing_moves_when_nothing_changes(s, mode, priority):
    s = replace(s, rack_priority=priority)
    made = assign_partitions(s, mode)
    assert verify(s, made) == []
    for _ in range(2 if made.followup else 1):  # copartitioned: first a standby, then the move
        s = s.owning(made.assignment, standby=made.standby, generation=7)
        before, made = made, assign_partitions(s, mode)
        assert verify(s, made) == []
    s = s.owning(made.assignment, standby=made.standby, generation=8)
    again = assign_partitions(s, mode)
    assert (again.assignment, again.standby) == (made.assignment, made.standby)
    assert again.moved == 0 and not again.followup
    assert mode == "copartitioned" or made.assignment == before.assignment


@settings(max_examples=60, deadline=None)
@given(subscriptions(most=8, racks=True))
def test_columns_have_the_owners_the_previous_owners_and_whether_racks_matter(s):
    c = s.columns
    pairs = [(c.topics[t], p - int(c.start[t])) for p, t in enumerate(c.topic.tolist())]
    for found, expected in ((c.owner, claims(s)), (c.previous, previous(s))):
        assert {pairs[p]: c.members[k] for p, k in enumerate(found.tolist()) if k >= 0} == expected
    assert c.racks_matter == racks_matter(s)


def test_topics_without_subscribers_and_subscriptions_without_topics():
    made = assign_partitions(group({"t0": 2, "lonely": 3, "empty": 0}, C0="t0 tomorrow"))
    assert made.unassigned == ("empty", "lonely")
    assert tables(made.assignment) == {"C0": "t0p0 t0p1"}
    assert "1 topics have subscribers but do not exist: tomorrow" in made.warnings[0]
    nothing = assign_partitions(group({}, C0="", C1="later"))
    assert (nothing.assignment, nothing.balance_score) == ({"C0": (), "C1": ()}, 0)


@pytest.mark.parametrize("mode", ["fair_sticky", "sticky_fair"])
def test_what_is_owned_and_gone_is_dropped_and_who_unsubscribes_loses_what_it_had(mode):
    s = Subscriptions({"t": 1}, {"A": Member(["t"], [("t", 0), ("t", 5), ("gone", 0), ("t", 2**63 - 1)])})
    made = assign_partitions(s, mode)
    assert (made.preserved, made.moved, tables(made.assignment)) == (1, 0, {"A": "tp0"})
    s = Subscriptions({"t": 2, "u": 1}, {"A": Member(["u"], [("t", 0), ("u", 0)]), "B": Member(["t"])})
    made = assign_partitions(s, mode)
    assert (made.preserved, made.moved, tables(made.assignment)) == (1, 1, {"A": "up0", "B": "tp0 tp1"})


def test_the_same_bytes_in_another_process():
    code = (
        "import hashlib, random; from taskplace.groups.partitions import *; rng = random.Random(1);"
        "T = {f't{k}': rng.randint(1, 9) for k in range(6)};"
        "s = Subscriptions(T, {f'C{k}': Member(set(rng.sample(sorted(T), 3))) for k in range(7)}, replicas=1);"
        f"made = [assign_partitions(s, mode).to_json() for mode in {[*MODES, 'copartitioned']!r}];"
        "print(hashlib.sha256(''.join(made).encode()).hexdigest())"
    )
    command = [sys.executable, "-c", code]
    made = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(made) == 1


def test_what_an_assignor_does_not_read_is_a_warning():
    s = group({"t": 2}, a="t", b="t")
    asked = {**document(s), "global_topics": ["t"], "replicas": 1}
    [warning] = assign_partitions(asked, "sticky").warnings
    assert warning.startswith("global_topics and replicas: the assignor 'sticky' places no standbys")
    assert assign_partitions(asked, "copartitioned").warnings == assign_partitions(s, "sticky").warnings == ()
