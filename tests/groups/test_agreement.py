"""Every member assigns for itself: members that see the same topics compute the same bytes, others do not assign."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from taskplace.errors import InputError
from taskplace.groups.membership import (
    Assignment,
    Code,
    ConsistentHash,
    ConsumerProtocol,
    MemberSettings,
    Mode,
    PartitionAssigner,
    Round,
    RoundRobin,
    Topics,
)
from taskplace.groups.metadata import Subscription
from tests.support.consumers import consumer, numbers
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
