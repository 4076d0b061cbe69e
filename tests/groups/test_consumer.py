"""Consumers in a group: agreement in the mode EVERY, a leader in the mode SINGLE, members that are broken or old."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from msgspec import msgpack, structs

from taskplace.errors import InputError
from taskplace.groups.consumer import ConsumerProtocol
from taskplace.groups.member import MemberSettings, MemberState, TryAgain
from taskplace.groups.messages import Code, Joined, Mode
from taskplace.groups.metadata import Assignment, Subscription, Topics
from taskplace.groups.partitions import PartitionAssignment
from taskplace.groups.strategies import ConsistentHash, PartitionAssigner, RoundRobin
from taskplace.groups.subscriptions import Member as Metadata
from tests.support.consumers import Odd, consumer, numbers
from tests.support.network import GROUP, Network
from topology import TopicPartition

counts = st.dictionaries(st.sampled_from("tuvw"), st.integers(0, 9), min_size=1)
members = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.sets(st.sampled_from("tuvw"), min_size=1).map(sorted),
    min_size=1,
    max_size=6,
)


@given(counts, members, st.sampled_from([RoundRobin(), ConsistentHash(), ConsistentHash(owners=2)]))
def test_all_members_compute_the_same_bytes(
    view: dict[str, int], wanted: dict[str, list[str]], assigner: PartitionAssigner
) -> None:
    protocols = {n: consumer(view, topics, assigners=[assigner]) for n, topics in wanted.items()}
    offered = {name: p.offers()[0].metadata for name, p in protocols.items()}
    whole = []
    for name, protocol in protocols.items():
        # Each from its own view and its own decoding, in whatever order the list came.
        listed = dict(sorted(offered.items(), reverse=len(name) % 2 == 0))
        said = {n: Subscription.decode(data) for n, data in listed.items()}
        every = protocol._assign(assigner, said)
        whole.append({n: tuple(sorted(parts)) for n, parts in every.assignment.items()})
        own = protocol.accept(Joined("g", name, 1, name=name, protocol=assigner.name, members=listed))
        assert own == whole[0][name]
    assert all(found == whole[0] for found in whole)


def test_members_that_see_different_topics_take_nothing_refresh_and_agree() -> None:
    old, new = {"t": 2}, {"t": 3}
    seen_by_b = dict(old)
    network = Network()
    network.join("a", consumer(new))
    network.join("b", consumer(seen_by_b))
    network.run(4)
    assert len(network.coordinator.groups[GROUP].seats) == 2
    assert numbers(network) == {}
    seen_by_b["t"] = 3  # what b finds when it looks again
    network.settle(20)
    assert numbers(network) == {"a": [0, 2], "b": [1]}


@pytest.mark.parametrize("stale", ["a", "c", "e"])
def test_one_member_that_stays_behind_gives_up_alone(stale: str) -> None:
    network = Network()
    for name in "abcde":
        network.join(name, consumer({"t": 4 if name == stale else 9}))
    network.run(150)
    assert set(network.failures()) == {stale}
    assert "see different topics" in str(network.failures()[stale].error)
    assert sorted(p for parts in numbers(network).values() for p in parts) == list(range(9))
    assert network.names == tuple(n for n in "abcde" if n != stale)


def test_the_others_go_on_without_a_member_that_stays_behind_and_does_not_give_up() -> None:
    patient = MemberSettings(
        session_timeout_ms=10_000, heartbeat_interval_ms=1_000, max_poll_interval_ms=20_000,
        metadata_max_retries=10**6,
    )  # fmt: skip
    network = Network()
    for name in "abd":
        network.join(name, consumer({"t": 9}))
    network.join("c", consumer({"t": 4}), patient)
    network.run(200)
    assert not network.failures()
    assert numbers(network) == {"a": [0, 3, 6], "b": [1, 4, 7], "d": [2, 5, 8]}
    generation = network.group.generation
    network.run(60)
    assert network.group.generation == generation  # in peace


def test_members_with_different_subscriptions_settle_a_lasting_disagreement_too() -> None:
    network = Network()
    for name, count, topics in (("a", 4, ["t"]), ("b", 4, ["t", "u"]), ("c", 4, ["u"]), ("d", 7, ["t", "v"])):
        network.join(name, consumer({"t": count, "u": 2, "v": 1}, topics))
    network.run(400)
    assert set(network.failures()) == {"d"}
    owned = sorted(p for parts in network.owned().values() for p in parts)
    assert owned == [TopicPartition("t", p) for p in range(4)] + [TopicPartition("u", p) for p in range(2)]


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(0, 2**16))
def test_whatever_members_see_and_however_long_no_partition_has_two_owners(
    data: st.DataObject, seed: int
) -> None:
    network = Network(seed)  # it checks after every event
    for name in "abcde"[: data.draw(st.integers(2, 5))]:
        topics = data.draw(st.sampled_from((["t"], ["t"], ["t", "u"], ["u"])))
        seen = {"t": data.draw(st.sampled_from((3, 3, 5))), "u": data.draw(st.sampled_from((2, 2, 4)))}
        retries = data.draw(st.sampled_from((1, 10, 10**6)))
        member = MemberSettings(
            session_timeout_ms=6_000, heartbeat_interval_ms=1_000, max_poll_interval_ms=6_000,
            metadata_max_retries=retries,
        )  # fmt: skip
        network.join(name, consumer(seen, topics), member)
        network.run(data.draw(st.sampled_from((0.0, 0.3, 15.0))))
    network.run(60)
    left = set(network.members) - set(network.failures())
    assert left, network.tail()


def test_the_text_s_example_of_sub_groups() -> None:
    """A and B are subscribed to foo, C to foo and bar: C is dormant; then B changes too, and A is."""
    view = {"foo": 4, "bar": 2}
    network = Network()
    for name, topics in (("A", ["foo"]), ("B", ["foo"]), ("C", ["foo", "bar"])):
        network.join(name, consumer(view, topics, hashed=True))
    network.settle(10)
    assert {name for name, m in network.members.items() if m.protocol.dormant} == {"C"}
    assert {p.topic for parts in network.owned().values() for p in parts} == {"foo"}
    network.leave("B")
    network.join("B2", consumer(view, ["foo", "bar"], hashed=True))
    network.settle(10)
    assert {name for name, m in network.members.items() if m.protocol.dormant} == {"A"}
    assert sorted(p for parts in network.owned().values() for p in parts) == [
        *(TopicPartition("bar", p) for p in range(2)),
        *(TopicPartition("foo", p) for p in range(4)),
    ]


def test_a_hash_and_a_list_do_not_mix() -> None:
    network = Network()
    network.join("a", consumer({"t": 1}))
    network.run(1)
    network.join("b", consumer({"t": 1}, hashed=True))
    network.run(5)
    assert "found round-robin+hashed 0, expected one of round-robin 0" in str(network.failures()["b"].error)
    with pytest.raises(InputError, match="hashed"):
        consumer({"t": 1}, hashed=True, mode=Mode.SINGLE)
    with pytest.raises(InputError, match="either topics or a pattern"):
        ConsumerProtocol(fetch=lambda: Topics({}))


class First(PartitionAssigner):
    """Everything to whom has the most processors; not deterministic on purpose."""

    name = "first"

    def __init__(self, cpus: int) -> None:
        self.cpus = cpus

    def metadata(self) -> Any:
        return {"cpus": self.cpus}

    def assign(self, topics: Topics, consumers: Mapping[str, Metadata]) -> PartitionAssignment:
        best = max(consumers, key=lambda name: consumers[name].metadata["cpus"])
        parts = [TopicPartition(t, p) for t, n in topics.partitions.items() for p in range(n)]
        return PartitionAssignment({name: parts if name == best else [] for name in consumers})


def test_the_leader_s_strategy_and_the_leader_s_view_count() -> None:
    network = Network()
    network.join("a", consumer({"t": 99}, assigners=[First(8)], mode=Mode.SINGLE))
    network.run(1)
    network.join("b", consumer({"t": 3}, assigners=[First(2)], mode=Mode.SINGLE))
    network.settle(10)
    assert network.leader == "b"
    assert numbers(network) == {"a": [0, 1, 2], "b": []}


def test_what_the_leader_cannot_read_is_forwarded_with_the_name_of_who_said_it() -> None:
    network = Network()

    class Odd(ConsumerProtocol):
        def _metadata(self, *_: Any) -> bytes:
            return b"odd"

    network.join("b", consumer({"t": 1}, mode=Mode.SINGLE))
    network.run(2)
    odd = Odd(["t"], fetch=lambda: Topics({"t": 1}), mode=Mode.SINGLE)
    odd.newest = 0  # so that it does not lead
    network.join("odd", odd)
    network.run(5)
    assert set(network.failures()) == {"b", "odd"}
    assert "members['odd']: found b'odd'" in str(network.failures()["b"].error)


def test_metadata_of_a_newer_version_is_answered_with_the_highest_known_one() -> None:
    """Version probing: an old leader, a new member; the member says it again in the leader's version."""
    network = Network()
    old, new = consumer({"t": 4}, mode=Mode.SINGLE), consumer({"t": 4}, mode=Mode.SINGLE, rack="r1")
    old.newest = 0
    member = network.join("old", old)
    network.settle(10)
    network.join("new", new)
    network.settle(10)
    assert network.leader == "new"  # the newest leads, so that nobody is probed
    asked = Joined("g", "old", 1, generation=9, name="old", members={"new": new.offers()[0].metadata})
    probe = old.lead(asked)["new"]
    assert Assignment.decode(probe) == Assignment(newest=0, probe=True)
    with pytest.raises(TryAgain, match="the leader reads versions up to 0"):
        new.accept(Joined("g", "new", 1, generation=9, name="new", state=probe))
    assert new.offers()[0].metadata[1] == 0
    readable = structs.replace(asked, members={"new": new.offers()[0].metadata})
    assert Assignment.decode(old.lead(readable)["new"]).partitions == {"t": (0, 1, 2, 3)}
    new.accept(Joined("g", "new", 1, generation=9, name="new", state=Assignment().encode()))
    assert new.offers()[0].metadata[1] == 1  # the next leader reads more: a rack, no standbys
    assert member.state is MemberState.STABLE


class Broken(RoundRobin):
    """A strategy of one's own, with a mistake in it."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def metadata(self) -> Any:
        if self.where == "metadata":
            raise KeyError("no such thing")
        return None

    def assign(self, *more: Any) -> PartitionAssignment:
        if self.where == "assign":
            raise ZeroDivisionError("shares of nobody")
        return super().assign(*more)


@pytest.mark.parametrize(("where", "what"), [("assign", "shares of nobody"), ("metadata", "no such thing")])
def test_an_exception_of_a_strategy_ends_that_membership_and_gives_its_place_away(
    where: str, what: str
) -> None:
    network = Network()
    network.join("a", consumer({"t": 4}))
    network.join("b", consumer({"t": 4}, assigners=[Broken(where)]))
    network.settle(10)
    assert list(network.failures()) == ["b"] and what in str(network.failures()["b"].error)
    assert numbers(network) == {"a": [0, 1, 2, 3]}
    assert network.names == ("a",)


@pytest.mark.parametrize("mode", Mode)
def test_topics_that_cannot_be_fetched_are_asked_for_again_with_a_back_off(mode: Mode) -> None:
    network = Network()
    asked: list[float] = []

    def fetch() -> Topics:
        asked.append(network.now)
        if network.now < 5:
            raise ConnectionError("no broker")
        return Topics({"t": 4})

    network.join("b", ConsumerProtocol(["t"], fetch=fetch, mode=mode))
    network.join("a", consumer({"t": 4}, mode=mode))
    network.settle(30)
    assert sum(map(len, numbers(network).values())) == 4 and len(network.owned()) == 2
    assert len(asked) < 20
    gaps = [b - a for a, b in itertools.pairwise(asked)]
    assert mode is Mode.SINGLE or gaps[1] > gaps[0] > 0.05


def test_topics_that_can_never_be_fetched_end_the_membership_with_the_reason() -> None:
    network = Network()

    def fetch() -> Topics:
        raise ConnectionError("no broker")

    network.join("b", ConsumerProtocol(["t"], fetch=fetch))
    network.run(120)
    assert "no broker" in str(network.failures()["b"].error)
    assert network.failures()["b"].error.code is Code.TOPICS_UNAVAILABLE  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "says",
    [b"", b"\xff" * 9, msgpack.encode((99, 99, b"")), Subscription(pattern="(a").encode(version=0),
     Subscription(("t",), strategy=b"{").encode(), Subscription(("t",), generation=2**60).encode()],
    ids=["nothing", "noise", "newer", "pattern", "strategy", "generation"],
)  # fmt: skip
def test_a_member_that_cannot_be_read_is_left_out_by_all_and_named(
    says: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network()
    for name in "ac":
        network.join(name, consumer({"t": 4}))
    odd = Odd(["t"], fetch=lambda: Topics({"t": 4}))
    odd.says = says
    network.join("b", odd)
    network.settle(20)
    assert list(network.failures()) == ["b"]
    assert "members['b']: found" in str(network.failures()["b"].error)
    assert "a member is ignored because its metadata is invalid: members['b']: found" in caplog.text
    assert numbers(network) == {"a": [0, 2], "c": [1, 3]}


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("pattern", {"pattern": "(a"}),
        ("subscription", {}),
        ("hashed", {"topics": ["t"], "hashed": True, "mode": Mode.SINGLE}),
    ],
)
def test_what_an_application_says_wrongly_is_refused_where_it_says_it(
    path: str, more: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=f"^{path}: found"):
        ConsumerProtocol(**more, fetch=lambda: Topics({}))
