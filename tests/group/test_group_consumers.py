"""Consumers in groups: both modes, agreement on topics, hashed subscriptions, version probing, consistent hashing."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from network import GROUP, Network

from taskplace.errors import InputError
from taskplace.group import (
    Assignment,
    Code,
    ConsistentHash,
    ConsumerMetadata,
    ConsumerProtocol,
    MemberSettings,
    Mode,
    PartitionAssigner,
    ProtocolError,
    Round,
    RoundRobin,
    Topics,
    always,
)
from taskplace.group.subscription import NEWEST, Subscription
from taskplace.group.wire import Writer
from topology import TopicPartition


def consumer(view: Topics | dict[str, int], topics: Sequence[str] = ("t",), **more: Any) -> ConsumerProtocol:
    seen = view if isinstance(view, Topics) else None
    return ConsumerProtocol(
        () if more.get("pattern") else topics, fetch=lambda: seen or Topics(dict(view)), **more
    )  # type: ignore[arg-type]


def numbers(network: Network) -> dict[str, list[int]]:
    return {name: [p.partition for p in parts] for name, parts in sorted(network.owned().items())}


# ------------------------------------------------------------------------------------- every member for itself

counts = st.dictionaries(st.sampled_from("tuvw"), st.integers(0, 9), min_size=1)
members = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.sets(st.sampled_from("tuvw"), min_size=1).map(sorted),
    min_size=1,
    max_size=6,
)


@given(counts, members, st.sampled_from([RoundRobin(), ConsistentHash(), ConsistentHash(owners=2)]))
def test_all_members_compute_the_same_bytes(
    view: dict[str, int], wanted: dict[str, list[str]], assigner: PartitionAssigner[None]
) -> None:
    protocols = {n: consumer(view, topics, assigners=[assigner]) for n, topics in wanted.items()}
    offered = {name: p.offers()[0].metadata for name, p in protocols.items()}
    whole = []
    for name, protocol in protocols.items():
        # Each from its own view and its own decoding, in whatever order the list came.
        listed = dict(sorted(offered.items(), reverse=len(name) % 2 == 0))
        said = {n: Subscription.decode(data) for n, data in listed.items()}
        every = protocol._assign(assigner, said)
        whole.append({n: Assignment(tuple(sorted(parts))).encode() for n, parts in every.active.items()})
        own = protocol.accept(Round("g", 1, name, assigner.name, 0, members=listed))
        assert Assignment(own).encode() == whole[0][name]
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


def test_lasting_disagreement_ends_in_an_error_for_each() -> None:
    network = Network()
    network.join("a", consumer({"t": 2}))
    network.join("b", consumer({"t": 3}))
    network.run(0.5)
    started = network.coordinator.describe(GROUP).generation
    network.run(120)
    codes = {name: failed.error.code for name, failed in network.failures().items()}  # type: ignore[attr-defined]
    # One gives up, by the tie-break, and leaves the other one to itself, with its own view.
    assert list(codes.values()) == [Code.METADATA_DISAGREEMENT]
    assert len(network.owned()) == 1 and numbers(network)
    assert network.coordinator.describe(GROUP).generation - started < 40


@pytest.mark.parametrize("stale", ["a", "c", "e"])
def test_one_member_that_stays_behind_gives_up_alone(stale: str) -> None:
    network = Network()
    for name in "abcde":
        network.join(name, consumer({"t": 4 if name == stale else 9}))
    network.run(150)
    assert set(network.failures()) == {stale}
    assert "see different topics" in str(network.failures()[stale].error)
    assert sorted(p for parts in numbers(network).values() for p in parts) == list(range(9))
    assert network.coordinator.describe(GROUP).members == tuple(n for n in "abcde" if n != stale)


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
    generation = network.coordinator.describe(GROUP).generation
    network.run(60)
    assert network.coordinator.describe(GROUP).generation == generation  # in peace


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


class Broken(RoundRobin):
    """A strategy of one's own, with a mistake in it."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def metadata(self) -> Any:
        if self.where == "metadata":
            raise KeyError("no such thing")
        return None

    def assign(self, consumer: str, *more: Any) -> list[TopicPartition]:
        if self.where == "assign":
            raise ZeroDivisionError("shares of nobody")
        return super().assign(consumer, *more)


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
    assert network.coordinator.describe(GROUP).members == ("a",)


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


class Odd(ConsumerProtocol):
    """A consumer whose metadata nobody can read."""

    says = b""

    def _said(self, *_: Any) -> bytes:
        return self.says


@pytest.mark.parametrize(
    "says",
    [b"", b"\xff" * 9, Writer().uint(99).uint(99).take(), Subscription(pattern="(a").encode(version=0),
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
    assert "members['b']." in str(network.failures()["b"].error)
    assert "left out, as it cannot be read: members['b']." in caplog.text
    assert numbers(network) == {"a": [0, 2], "c": [1, 3]}


@pytest.mark.parametrize(
    ("path", "more"),
    [("pattern", {"pattern": "(a"}), ("pattern", {"pattern": "a{" + "9" * 5_000 + "}"}),
     ("pattern", {"pattern": "(?=a)"}), (r"topics\[0\]", {"topics": ["\ud800"]}), ("topics", {"topics": "t"}),
     ("rack", {"topics": ["t"], "rack": "\udfff"}), ("pattern", {"pattern": "\udc00"})],
)  # fmt: skip
def test_what_an_application_says_wrongly_is_refused_where_it_says_it(
    path: str, more: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=f"^{path}: found"):
        ConsumerProtocol(**more, fetch=lambda: Topics({}))
    with pytest.raises(InputError, match="surrogates"):
        Topics({"\ud800": 1})
    with pytest.raises(InputError, match="partitions in all"):
        Topics({"t": 2**31 - 1})


def test_a_pattern_covers_all_topics_in_its_hash() -> None:
    a, b = Topics({"orders": 2, "other": 1}), Topics({"orders": 2, "other": 4})
    by_list = [consumer(view, ["orders"]).offers()[0].metadata for view in (a, b)]
    assert by_list[0] == by_list[1]
    by_pattern = [consumer(view, pattern="ord.*").offers()[0].metadata for view in (a, b)]
    assert by_pattern[0] != by_pattern[1]
    network = Network()
    for name in "ab":
        network.join(name, consumer(a, pattern="o.*"))
    network.settle(10)
    assert sum(len(parts) for parts in network.owned().values()) == 3


def test_racks_of_leaders_are_in_the_hash_of_strategies_that_look_at_them() -> None:
    class Near(RoundRobin):
        name = "near"
        looks_at_leaders = True

    here, there = (Topics({"t": 2}, {"t": racks}) for racks in (("r1", "r2"), ("r1", "r1")))
    assert here.hash(["t"]) == there.hash(["t"])
    assert here.hash(["t"], leaders=True) != there.hash(["t"], leaders=True)
    seen = [
        Subscription.decode(consumer(v, assigners=[Near()], rack="r1").offers()[0].metadata)
        for v in (here, there)
    ]
    assert seen[0].metadata_hash != seen[1].metadata_hash and seen[0].rack == "r1"


def test_differing_subscriptions_agree_as_long_as_the_views_do() -> None:
    view = {"t": 4, "u": 2, "v": 9}
    network = Network()
    for name, topics in (("a", ["t"]), ("b", ["t", "u"]), ("c", ["u"])):
        network.join(name, consumer(view, topics))
    network.settle(10)
    owned = sorted(p for parts in network.owned().values() for p in parts)
    assert owned == [TopicPartition("t", p) for p in range(4)] + [TopicPartition("u", p) for p in range(2)]


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


# --------------------------------------------------------------------------------------- one for all


class First(PartitionAssigner[Any]):
    """Everything to whom has the most processors; not deterministic on purpose."""

    name = "first"

    def __init__(self, cpus: int) -> None:
        self.cpus = cpus
        self.calls = 0

    def metadata(self) -> Any:
        return {"cpus": self.cpus}

    def assign(
        self,
        consumer: str,
        partitions_per_topic: Mapping[str, int],
        consumers: Sequence[ConsumerMetadata[Any]],
    ) -> list[TopicPartition]:
        best = max(consumers, key=lambda c: c.metadata["cpus"]).name
        parts = [TopicPartition(t, p) for t, n in partitions_per_topic.items() for p in range(n)]
        return parts if consumer == best else []


def test_the_leader_s_strategy_and_the_leader_s_view_count() -> None:
    network = Network()
    network.join("a", consumer({"t": 99}, assigners=[First(8)], mode=Mode.SINGLE))
    network.run(1)
    network.join("b", consumer({"t": 3}, assigners=[First(2)], mode=Mode.SINGLE))
    network.settle(10)
    assert network.coordinator.describe(GROUP).leader == "b"
    assert numbers(network) == {"a": [0, 1, 2], "b": []}


def test_strategies_change_by_configuration_alone() -> None:
    network = Network()
    network.join("a", consumer({"t": 4}, mode=Mode.SINGLE))
    network.join("b", consumer({"t": 4}, assigners=[ConsistentHash()], mode=Mode.SINGLE))
    network.settle(10)
    assert not network.failures() and sum(map(len, network.owned().values())) == 4


def test_what_the_leader_cannot_read_is_forwarded_with_the_name_of_who_said_it() -> None:
    network = Network()

    class Odd(ConsumerProtocol):
        def _said(self, *_: Any) -> bytes:
            return Writer().uint(0).uint(0).uint(9).take()

    network.join("b", consumer({"t": 1}, mode=Mode.SINGLE))
    network.run(2)
    network.join("odd", Odd(["t"], fetch=lambda: Topics({"t": 1}), mode=Mode.SINGLE, newest=0))
    network.run(5)
    assert set(network.failures()) == {"b", "odd"}
    assert "members['odd'].subscription" in str(network.failures()["b"].error)


def test_metadata_of_a_newer_version_is_answered_with_the_highest_known_one() -> None:
    """Version probing: an old leader, a new member; the member says it again in the leader's version."""
    network = Network()
    network.coordinator = type(network.coordinator)(network.settings, leader_rule=always("old"))
    network.join("old", consumer({"t": 4}, mode=Mode.SINGLE, newest=0))
    network.settle(10)
    network.join("new", consumer({"t": 4}, mode=Mode.SINGLE, rack="r1"))
    network.settle(10)
    assert numbers(network) == {"new": [0, 2], "old": [1, 3]}
    said = network.members["new"].protocol.offers()[0].metadata
    assert said[0] == 0 and said[1] == NEWEST
    # The old one is upgraded: what the new ones have to say is heard again, at the latest with their next join.
    network.leave("old")
    network.join("other", consumer({"t": 4}, mode=Mode.SINGLE))
    network.settle(10)
    assert network.members["new"].protocol.offers()[0].metadata[0] == 1  # a rack, no standbys


def test_by_default_the_newest_leads_so_that_nobody_is_probed() -> None:
    network = Network()
    network.join("new", consumer({"t": 4}, mode=Mode.SINGLE))
    network.join("old", consumer({"t": 4}, mode=Mode.SINGLE, newest=0))
    network.settle(10)
    assert network.coordinator.describe(GROUP).leader == "new"


# ----------------------------------------------------------------------------------- consistent hashing


def owners(assigner: ConsistentHash, names: Sequence[str], count: int) -> dict[str, list[TopicPartition]]:
    return assigner.assign_all({"t": count}, [ConsumerMetadata(n, ("t",), None) for n in names])


@settings(max_examples=50)
@given(
    st.integers(1, 12),
    st.integers(0, 60),
    st.integers(0, 20),
    st.integers(1, 4),
    st.sampled_from([0, 0.1, 0.25, 1]),
)
def test_spread_agreement_and_redundancy(n: int, count: int, more: int, r: int, slack: float) -> None:
    names = [f"m{k}" for k in range(n)]
    assigner = ConsistentHash(owners=r, slack=slack, points=16)
    few, many = owners(assigner, names, count), owners(assigner, list(reversed(names)), count + more)
    each = min(r, n)
    for name in names:
        assert many[name][: len(few[name])] == few[name]
        assert len(few[name]) <= each * math.ceil((1 + slack) * count / n + 1e-9)
        assert len(set(few[name])) == len(few[name])
    owned = Counter(p for parts in few.values() for p in parts)
    assert owned == {TopicPartition("t", p): each for p in range(count)}


def test_few_partitions_move_when_a_member_comes() -> None:
    names = [f"m{k}" for k in range(10)]
    before, after = (owners(ConsistentHash(), some, 1_000) for some in (names, [*names, "new"]))
    owner = {p: n for n, parts in before.items() for p in parts}
    moved = sum(owner[p] != n for n, parts in after.items() for p in parts)
    print(f"{moved} of 1000 moved, {len(after['new'])} of them to the new one")
    # All but the newcomer's share is what limits push on; dealing anew would move 900 and more.
    assert len(after["new"]) <= moved < 400


def test_consistent_hashing_needs_no_agreement() -> None:
    network = Network()
    for name, count in (("a", 8), ("b", 12), ("c", 10)):
        network.join(name, consumer({"t": count}, assigners=[ConsistentHash()]))
    network.settle(10)
    assert not network.failures()
    owned = [p.partition for parts in network.owned().values() for p in parts]
    assert len(owned) == len(set(owned)) and set(range(8)) <= set(owned)


def test_each_partition_goes_to_n_owners_and_too_few_members_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = Network(exclusive=False)
    for name in "abc":
        network.join(name, consumer({"t": 6}, assigners=[ConsistentHash(owners=2)]))
    network.settle(10)
    counted = Counter(p for parts in network.owned().values() for p in parts)
    assert set(counted.values()) == {2} and len(counted) == 6
    caplog.clear()
    owners(ConsistentHash(owners=3), ["a", "b"], 6)
    assert "6 partitions got fewer than 3 owners" in caplog.text


def test_a_strategy_s_metadata_that_is_no_json_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="expected JSON"):
        RoundRobin().decode(b"{")
    with pytest.raises(InputError, match="owners and points"):
        ConsistentHash(owners=0)
    with pytest.raises(ProtocolError, match="pattern"):
        Subscription.decode(Subscription(pattern="(").encode())
