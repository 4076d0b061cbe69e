"""Who holds a partition, active and standby, and where: for whoever has to pass a request on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.groups.partitioner import partition_for_key
from taskplace.groups.partitions import (
    Holders,
    Location,
    Member,
    Subscriptions,
    TopicPartition,
    assign_partitions,
)
from tests.support.groups import home_of, subscriptions

TOPICS = {"orders": 6, "users": 6, "clicks": 4}


def fleet(**other: object) -> Subscriptions:
    members = {f"w{k}": Member(list(TOPICS), url=f"http://w{k}:6066" if k else None) for k in range(3)}
    return Subscriptions(TOPICS, members, assignor="copartitioned", replicas=1, **other)  # type: ignore[arg-type]


def test_a_key_leads_to_the_member_that_has_its_partition_and_to_its_url() -> None:
    s = fleet()
    made = assign_partitions(s)
    home = home_of(made.assignment)
    seen = set()
    for key in (f"customer {k}".encode() for k in range(40)):
        found = made.holders.of_key("orders", key, partition_for_key)
        tp = TopicPartition("orders", partition_for_key(key, 6))
        assert (found.partition, found.active) == (tp, home[tp])
        assert found.url == s.members[home[tp]].url
        assert found.standby == tuple(n for n, held in made.standby.items() if tp in held)
        assert found.standby_urls == tuple(s.members[n].url for n in found.standby)
        # Topics of one group are kept apart by nothing: the same key, the same member.
        assert made.holders.of_key("users", key, partition_for_key).active == found.active
        seen.add(found.active)
    assert seen == set(s.members)


def test_every_member_answers_for_all_others_from_the_document_alone() -> None:
    made = assign_partitions(fleet())
    told = Holders.from_dict(json.loads(made.to_json()))
    assert told.topics == made.holders.topics == dict(sorted(TOPICS.items()))
    for topic, count in TOPICS.items():
        assert told.of_topic(topic) == made.holders.of_topic(topic)
        assert [found.partition.partition for found in told.of_topic(topic)] == list(range(count))


@settings(max_examples=40, deadline=None)
@given(subscriptions(most=8), st.sampled_from(["fair_sticky", "range", "copartitioned"]), st.booleans())
def test_every_assigned_partition_has_one_holder_and_withheld_ones_none(
    s: Subscriptions, mode: str, cooperative: bool
) -> None:
    made = assign_partitions(s, mode, cooperative=cooperative)
    home, later = home_of(made.assignment), home_of(made.withheld)
    for topic in made.holders.topics:
        for found in made.holders.of_topic(topic):
            assert found.active == home.get(found.partition)
            assert (found.active is None) == (found.partition in later)
    assert sum(made.holders.topics.values()) == len(home) + len(later)


def test_a_withheld_partition_is_on_nobody_and_its_next_member_follows_it() -> None:
    s = Subscriptions(
        {"t": 2}, {"a": Member(["t"], [("t", 0), ("t", 1)]), "b": Member(["t"], url="http://b")}
    )
    made = assign_partitions(s, "copartitioned", cooperative=True)
    (tp,) = made.withheld["b"]
    assert made.holders.of(*tp) == Location(tp, None, ("b",), None, ("http://b",))


@pytest.mark.parametrize(
    ("topic", "partition", "message"),
    [
        ("order", 0, "topic: found 'order', expected an assigned topic; did you mean 'orders'?"),
        ("orders", 6, "orders.partition: found 6, expected an integer of at least 0, at most 5"),
        ("orders", -1, "orders.partition: found -1"),
    ],
)
def test_what_is_not_assigned_has_no_holder(topic: str, partition: int, message: str) -> None:
    holders = assign_partitions(fleet()).holders
    with pytest.raises(InputError) as error:
        holders.of(topic, partition)
    assert message in str(error.value)
    with pytest.raises(InputError):
        holders.of_key(topic, b"k", lambda key, partitions: partition)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"schema": "taskplace.plan/1"}, "schema: found 'taskplace.plan/1'"),
        ({"assignment": []}, "assignment: found [], expected an object"),
        ({"assignment": {"a": [["t"]]}}, "assignment.a[0]: found ['t'], expected a topic and a partition"),
        ({"standby": {"a": "t"}}, "standby.a: found 't', expected a list"),
        ({"urls": {"a": 80}}, "urls.a: found 80"),
        (
            {"assignment": {"a": [["t", 0]], "b": [["t", 0]]}},
            "assignment: found 't[0] on a and on b', expected each partition on one member",
        ),
    ],
)
def test_a_bad_document_is_one_error_with_its_path(document: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        Holders.from_dict(document)
    assert message in str(error.value)


@pytest.mark.parametrize("document", [{}, {"asignment": {"a": [["t", 0]]}}, {"standby": {"a": [["t", 0]]}}])
def test_a_document_without_an_assignment_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"^assignment: found nothing") as error:
        Holders.from_dict(document)
    assert ("did you mean 'asignment'?" in str(error.value)) == ("asignment" in document)


@pytest.mark.parametrize("chosen", ["x", None, 0.5, "0"])
def test_a_function_that_gives_no_partition_is_one_error(chosen: object) -> None:
    with pytest.raises(InputError, match="partition_for: found"):
        Holders({"a": [("t", 0)]}).of_key("t", b"k", lambda key, partitions: chosen)  # type: ignore[arg-type,return-value]


def test_a_standby_that_is_told_twice_is_one() -> None:
    assert Holders({"a": [("t", 0)]}, {"b": [("t", 0), ("t", 0)]}).of("t", 0).standby == ("b",)
