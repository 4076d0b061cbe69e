"""Values at the limits of what the assignors take, and just beyond them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taskplace.errors import InputError, InvalidPlan
from taskplace.groups import subscriptions
from taskplace.groups.partitions import assign_partitions, check_complete
from taskplace.groups.subscriptions import Member, Subscriptions
from taskplace.groups.verify import verify
from topology.node import TopicPartition

ONE = {"C0": Member(["t"])}


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        ("", "subscriptions", ""),
        (7, "subscriptions", 7),
        ('{"topics": ', "subscriptions:1:12", "Expecting value"),
        ('{\n"topics": {},}', "subscriptions:2:14", None),
    ],
)
def test_a_text_that_is_no_document_names_its_place(text: Any, path: str, found: object) -> None:
    with pytest.raises(InputError) as caught:
        Subscriptions.from_json(text)
    assert caught.value.path == path
    assert found is None or caught.value.found == found


def test_as_many_partitions_as_allowed_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_PARTITIONS", 10)
    assert Subscriptions({"t": 4, "u": 6}, ONE).topics == {"t": 4, "u": 6}
    with pytest.raises(InputError, match=r"^topics: found 11, expected at most 10 partitions in all"):
        Subscriptions({"t": 5, "u": 6}, ONE)
    with pytest.raises(
        InputError, match=r"^topics\.t: found 11, expected an integer of at least 0, at most 10"
    ):
        Subscriptions.from_dict({"topics": {"t": 11}, "members": {"C0": {}}})


def test_all_that_a_member_says_goes_round() -> None:
    member = Member(["t"], [("t", 1)], 3, "r", "i", standby=[("t", 0)], url="http://c0")
    made = Subscriptions({"t": 2}, {"C0": member})
    written = made.to_dict()["members"]["C0"]
    assert written == {
        "topics": ["t"],
        "owned": [["t", 1]],
        "generation": 3,
        "rack": "r",
        "instance_id": "i",
        "url": "http://c0",
        "standby": [["t", 0]],
    }
    assert Subscriptions.from_dict(made.to_dict()) == made


@pytest.mark.parametrize("mode", ["fair_sticky", "copartitioned", "range"])
@pytest.mark.parametrize("partition", [-1, 2**63 - 1, 1])
def test_owned_partitions_that_do_not_exist_are_ignored(mode: str, partition: int) -> None:
    member = (
        Member(["t"], [("t", partition), ("t", 0), ("gone", 0)])
        if partition >= 0
        else Member(["t"], [("t", 0)])
    )
    made = assign_partitions(Subscriptions({"t": 1}, {"C0": member}), mode)
    assert [tuple(pair) for pair in made.assignment["C0"]] == [("t", 0)]


@pytest.mark.parametrize("partition", ["x", None, 2**63, -(2**63) - 1])
def test_an_owned_partition_that_is_no_number_is_named(partition: object) -> None:
    """In a member that was made of topic partitions, which are not looked at one by one."""
    right, wrong = TopicPartition("t", 0), TopicPartition("t", partition)  # type: ignore[arg-type]
    s = Subscriptions({"t": 1}, {"C0": Member(["t"], [right, wrong])})
    with pytest.raises(InputError, match=r"^owned") as caught:
        assign_partitions(s)
    assert caught.value.found == wrong


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ([0, 0, -1], None),
        ([0, 1, -1], r"^1 partitions go to members that do not subscribe, e\.g\. t\[1\] to C1$"),
        ([1, 1, -1], r"^2 partitions .* e\.g\. t\[0\] to C1$"),
        ([-1, 0, -1], r"^1 partitions .* e\.g\. t\[0\] to nobody$"),
        ([0, 0, 0], r"^1 partitions .* e\.g\. u\[0\] to C0$"),
    ],
)
def test_each_partition_goes_to_a_subscriber(goal: list[int], message: str | None) -> None:
    columns = Subscriptions({"t": 2, "u": 1}, {"C0": Member(["t"]), "C1": Member([])}).columns
    if message is None:
        check_complete(columns, np.array(goal))
        return
    with pytest.raises(InvalidPlan, match=message):
        check_complete(columns, np.array(goal))


def test_a_follower_has_to_subscribe() -> None:
    s = Subscriptions({"t": 1, "u": 1}, {"A": Member(["t", "u"]), "B": Member(["t"])})
    made = assign_partitions(s, "copartitioned")
    pairs = dict(made.standby)
    (u0,) = (tp for held in made.assignment.values() for tp in held if tp.topic == "u")
    broken = replace(made, standby={**pairs, "B": (u0,)})
    assert ("subscribed", "B follows u[0]") in [tuple(v) for v in verify(s, broken)]


def test_what_a_document_leaves_out_has_the_defaults_of_the_code() -> None:
    read = Subscriptions.from_dict({"topics": {"t": 1, "u": {"partitions": 2}}, "members": {"C0": {}}})
    assert read == Subscriptions({"t": 1, "u": 2}, {"C0": Member([])})
    member = read.members["C0"]
    assert (member.topics, member.owned, member.standby, member.generation) == ((), (), (), -1)
    assert (member.rack, member.instance_id, member.url) == (None, None, None)
    assert (read.assignor, read.cooperative, read.replicas, read.seed) == ("fair_sticky", False, 0, 0)
    assert (read.rack_priority, read.global_topics, read.racks) == (None, (), {})
