"""The question and the answer as values and as JSON: round trips, schemas, one clear error for bad input."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskplace
from taskplace.errors import InputError
from taskplace.groups.partitions import (
    NAMES,
    Member,
    PartitionAssignment,
    Subscriptions,
    TopicPartition,
    assign_partitions,
)
from taskplace.groups.subscriptions import RACK_PRIORITIES
from taskplace.groups.verify import verify
from taskplace.model.schema import schema
from tests.support.groups import subscriptions


@settings(max_examples=30, deadline=None)
@given(
    subscriptions(most=8, racks=True),
    st.sampled_from(NAMES),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from([None, *RACK_PRIORITIES]),
)
def test_round_trips_fit_the_schemas(
    s: Subscriptions, name: str, cooperative: bool, replicas: int, priority: str | None
) -> None:
    s = Subscriptions(s.topics, s.members, s.racks, name, cooperative, replicas, 3, priority)
    document = json.loads(json.dumps(s.to_dict()))
    jsonschema.Draft202012Validator(schema("subscriptions")).validate(document)
    assert Subscriptions.from_dict(document).to_dict() == s.to_dict()
    made = taskplace.assign_partitions(document)
    answer = json.loads(made.to_json())
    jsonschema.Draft202012Validator(schema("partition_assignment")).validate(answer)
    assert answer == made.to_dict() and set(answer) - {"schema"} == set(
        PartitionAssignment.__dataclass_fields__
    )


GOOD: dict[str, Any] = {"topics": {"t": 2}, "members": {"C0": {"topics": ["t"], "owned": [["t", 0]]}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": {}}, "members: found 'no member', expected at least one"),
        ({"topics": {"t": -1}}, "topics.t: found -1, expected an integer of at least 0"),
        ({"topics": {"t": True}}, "topics.t: found true, expected an integer of at least 0"),
        ({"topics": {"t": {"racks": []}}}, "topics.t.partitions: found nothing"),
        ({"topics": {"t": {"partitions": 1, "rack": []}}}, "did you mean 'racks'?"),
        ({"topics": {"t": {"partitions": 2, "racks": [["a"]]}}}, "one for each of the 2 partitions"),
        ({"topics": {"t": {"partitions": 1, "racks": [[1]]}}}, "topics.t.racks[0]: found 1"),
        ({"topics": ["t"]}, "topics: found ['t'], expected an object"),
        ({"members": {"C0": {"topics": "t"}}}, "members.C0.topics: found 't', expected a list"),
        ({"members": {"C0": {"owned": [["t"]]}}}, "members.C0.owned[0]: found ['t'], expected a topic and a"),
        ({"members": {"C0": {"owned": [["t", "0"]]}}}, "members.C0.owned[0]: found '0', expected an integer"),
        ({"members": {"C0": {"owned": [["t", -1]]}}}, "members.C0.owned[0]: found -1"),
        ({"members": {"C0": {"generation": -2}}}, "members.C0.generation: found -2"),
        ({"members": {"C0": {"rack": ""}}}, "members.C0.rack: found ''"),
        (
            {"members": {"C0": {"instance_id": "i"}, "C1": {}, "C2": {"instance_id": "i"}}},
            "members.C2.instance_id: found \"i, also that of member 'C0'\", expected another id: a group fences",
        ),
        ({"replicas": -1}, "replicas: found -1"),
        ({"members": {"C0": {"url": ""}}}, "members.C0.url: found '', expected a non-empty string"),
        ({"members": {"C0": {"url": 80}}}, "members.C0.url: found 80"),
        ({"global_topics": "t"}, "global_topics: found 't', expected a list"),
        ({"global_topics": [1]}, "global_topics[0]: found 1, expected a non-empty string"),
        ({"schema": "taskplace.problem/1"}, "schema: found 'taskplace.problem/1'"),
        ({"asignor": "fair"}, "did you mean 'assignor'?"),
        (
            {"rack_priority": "racs"},
            "rack_priority: found 'racs', expected one of stickiness, racks; did you mean",
        ),
        ({"assignor": "stiky"}, "assignor: found 'stiky', expected one of fair_sticky, "),
    ],
)
def test_bad_input_is_one_error_with_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        taskplace.assign_partitions({**GOOD, **change})
    assert message in str(error.value)
    document = {**GOOD, **change}
    if not re.search("one for each|instance_id", message) and change != {
        "members": {}
    }:  # what a schema cannot say
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(schema("subscriptions")).validate(document)


def test_a_global_topic_has_to_exist() -> None:
    with pytest.raises(InputError) as error:
        taskplace.assign_partitions({**GOOD, "topics": {"codes": 1}, "global_topics": ["code"]})
    assert "global_topics[0]: found 'code', expected a topic with a partition count" in str(error.value)
    assert "did you mean 'codes'?" in str(error.value)


def test_racks_are_of_topics_that_exist() -> None:
    with pytest.raises(InputError) as error:
        Subscriptions({"codes": 1}, {"C0": Member(["codes"])}, {"code": [["a"]]})
    assert "racks.code: found 'code', expected a topic with a partition count" in str(error.value)
    assert "did you mean 'codes'?" in str(error.value)


@given(st.sets(st.sampled_from(["t", "u", "v"])), st.sampled_from([None, "http://a:6066/"]))
def test_global_topics_and_urls_go_round(everywhere: set[str], url: str | None) -> None:
    topics = {"t": 1, "u": 2, "v": 0}
    members = {"a": Member(["t"], url=url), "b": Member(["u"])}
    s = Subscriptions(topics, members, global_topics=[*everywhere, *everywhere])
    document = json.loads(json.dumps(s.to_dict()))
    jsonschema.Draft202012Validator(schema("subscriptions")).validate(document)
    back = Subscriptions.from_dict(document)
    assert back == s and back.global_topics == tuple(sorted(everywhere))
    for mode in ("fair_sticky", "copartitioned"):
        made = assign_partitions(back, mode)
        assert made.urls == ({"a": url} if url else {})
        jsonschema.Draft202012Validator(schema("partition_assignment")).validate(json.loads(made.to_json()))
    asked_again = s.owning(made.assignment)
    assert (asked_again.global_topics, asked_again.urls) == (s.global_topics, s.urls)


def test_typed_values_are_judged_too() -> None:
    for make in (
        lambda: Subscriptions({"t": 1.5}, {"A": Member(["t"])}),  # type: ignore[dict-item]
        lambda: Subscriptions({"t": 1}, {"A": {"topics": ["t"]}}),  # type: ignore[dict-item]
        lambda: Subscriptions({"t": 1}, {"A": Member(["t"])}, {"u": [["a"]]}),
        lambda: Member("t0"),
        lambda: Member(["t"], url=""),
        lambda: Member(["t"], url=80),  # type: ignore[arg-type]
        lambda: Subscriptions({"t": 1}, {"A": Member(["t"])}, global_topics="t"),
        lambda: Subscriptions({"t": 1}, {"A": Member(["t"])}, global_topics=3),  # type: ignore[arg-type]
        lambda: Subscriptions({"t": 1}, {"A": Member(["t"], [("t", None)])}),  # type: ignore[list-item]
        lambda: assign_partitions(
            Subscriptions({"t": 1}, {"A": Member(["t"], [TopicPartition("t", "0x")])})  # type: ignore[arg-type]
        ),
        lambda: assign_partitions(Subscriptions({"t": 1}, {"A": Member(["t"])}), "robin"),
    ):
        with pytest.raises(InputError):
            make()


def test_names_of_kafka_mean_the_same() -> None:
    for name, mode in (("sticky", "fair_sticky"), ("roundrobin", "round_robin")):
        assert assign_partitions(GOOD, name) == assign_partitions(GOOD, mode)
    assert assign_partitions(GOOD, "cooperative-sticky") == assign_partitions(GOOD, cooperative=True)


def test_verification_sees_what_is_wrong() -> None:
    s = Subscriptions.from_dict(
        {
            "topics": {"t": 2, "u": 1},
            "members": {"A": {"topics": ["t"], "owned": [["t", 0]]}, "B": {"topics": ["t"]}},
        }
    )
    right = assign_partitions(s)
    assert verify(s, right) == []
    t0, t1, u0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

    def broken(assignment: dict[str, tuple[TopicPartition, ...]], **other: Any) -> set[str]:
        fields = {"unassigned": ("u",), "preserved": 1, **other}
        return {v.invariant for v in verify(s, PartitionAssignment(assignment, "fair_sticky", **fields))}

    assert broken({"A": (t0,), "B": (t1,)}) == set()
    assert broken({"A": (t0,), "B": ()}, balance_score=1) == {"complete"}
    assert broken({"A": (t0,), "B": (t0, t1)}, balance_score=0) == {"balanced", "complete", "figures"}
    assert broken({"A": (t0,), "B": (t1, u0)}, balance_score=1) == {"complete", "subscribed"}
    assert broken({"A": (t0, t1), "B": ()}, balance_score=2) == {"balanced"}
    assert broken({"A": (t1,), "B": (t0,)}) == {"figures"}
    assert broken({"A": (t0,), "B": (t1,)}, unassigned=()) == {"unassigned"}
    assert broken({"B": (t0,)}, withheld={"A": (t1,)}, preserved=0, moved=1) == {"apart"}
    assert broken({"A": (t0,), "B": (t1,)}, standby={"A": (t0,)}) == {"standby"}
    level = {"A": (t0, t1), "B": ()}
    assert {v.invariant for v in verify(s, PartitionAssignment(level, "range", ("u",), 2, 0, 1))} == {
        "ranges"
    }
    pair = Subscriptions({"t": 2, "v": 2}, {n: Member(["t", "v"]) for n in "AB"})
    crossed = {"A": (t0, TopicPartition("v", 1)), "B": (t1, TopicPartition("v", 0))}
    assert {v.invariant for v in verify(pair, PartitionAssignment(crossed, "range"))} == {"ranges"}
    kept = PartitionAssignment({"A": (t1,), "B": (t0,)}, "sticky_fair", ("u",), moved=1)
    assert {v.invariant for v in verify(s, kept)} == {"kept"}
