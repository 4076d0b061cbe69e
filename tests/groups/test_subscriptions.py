"""The question and the answer as values and as JSON: round trips, schemas, one clear error for bad input."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskplace
from taskplace.errors import InputError
from taskplace.groups.partitions import (
    NAMES,
    PartitionAssignment,
    Subscriptions,
    assign_partitions,
)
from taskplace.model.schema import schema
from tests.support.groups import document, subscriptions


@settings(max_examples=30, deadline=None)
@given(
    subscriptions(most=8, racks=True),
    st.sampled_from(NAMES),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from([None, "stickiness", "racks"]),
)
def test_round_trips_fit_the_schemas(
    s: Subscriptions, name: str, cooperative: bool, replicas: int, priority: str | None
) -> None:
    s = Subscriptions(s.topics, s.members, s.racks, name, cooperative, replicas, 3, priority)  # type: ignore[arg-type]
    asked = document(s)
    jsonschema.Draft202012Validator(schema("subscriptions")).validate(asked)
    assert Subscriptions.from_dict(asked) == s
    made = taskplace.assign_partitions(asked)
    answer = json.loads(made.to_json())
    jsonschema.Draft202012Validator(schema("partition_assignment")).validate(answer)
    assert answer == made.to_dict() and set(answer) - {"schema"} == set(PartitionAssignment.__struct_fields__)


GOOD: dict[str, Any] = {"topics": {"t": 2}, "members": {"C0": {"topics": ["t"], "owned": [["t", 0]]}}}


def test_names_of_kafka_mean_the_same() -> None:
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
def test_bad_input_is_one_error_with_its_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as error:
        taskplace.assign_partitions({**GOOD, **change})
    assert error.value.path == path


def test_a_rack_priority_is_checked_where_it_is_given() -> None:
    with pytest.raises(
        InputError, match="rack_priority: found 'rack', expected one of stickiness, racks; did you"
    ):
        assign_partitions(GOOD, rack_priority="rack")  # type: ignore[arg-type]
