"""Consumers and their strategies: agreement in the mode EVERY, a leader in SINGLE, members that are broken or old."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from msgspec import msgpack, structs

from taskplace.errors import InputError
from taskplace.groups.consumer import ConsumerProtocol
from taskplace.groups.member import MemberSettings, MemberState, TryAgain
from taskplace.groups.messages import Code, Joined, Mode, ProtocolError
from taskplace.groups.metadata import Assignment, Subscription, Topics
from taskplace.groups.partitions import PartitionAssignment
from taskplace.groups.strategies import NAMES, ConsistentHash, PartitionAssigner, RoundRobin, Strategy
from taskplace.groups.subscriptions import Member as Metadata
from tests.support.network import GROUP, Network
from topology import TopicPartition


def consumer(view: dict[str, int], topics: Sequence[str] = ("t",), **more: Any) -> ConsumerProtocol:
    return ConsumerProtocol(topics, fetch=lambda: Topics(dict(view)), **more)


def network_of(*protocols: ConsumerProtocol, exclusive: bool = True) -> Network:
    """Return a settled network of members a, b, c and so on, which join one after the other."""
    network = Network(exclusive=exclusive)
    for name, protocol in zip("abcdef", protocols, strict=False):
        network.join(name, protocol)
        network.run(3)
    network.settle(10)
    return network


def numbers(network: Network) -> dict[str, list[int]]:
    return {name: [p.partition for p in parts] for name, parts in sorted(network.owned().items())}


def partitions(network: Network) -> list[TopicPartition]:
    return sorted(p for parts in network.owned().values() for p in parts)


def all_of(**counts: int) -> list[TopicPartition]:
    return [TopicPartition(t, p) for t, n in counts.items() for p in range(n)]


counts = st.dictionaries(st.sampled_from("tuvw"), st.integers(0, 9), min_size=1)
members = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.sets(st.sampled_from("tuvw"), min_size=1).map(sorted),
    min_size=1,
    max_size=6,
)


@given(counts, members, st.sampled_from([RoundRobin(), ConsistentHash(), ConsistentHash(owners=2)]))
def test_all_members_compute_the_same_bytes(view, wanted, assigner):
    protocols = {n: consumer(view, topics, assigners=[assigner]) for n, topics in wanted.items()}
    offered = {name: p.offers()[0].metadata for name, p in protocols.items()}
    whole = []
    for name, protocol in protocols.items():
        # Each from its own view and its own decoding, in whatever order the list came.
        listed = dict(sorted(offered.items(), reverse=len(name) % 2 == 0))
        every = protocol._assign(assigner, {n: Subscription.decode(data) for n, data in listed.items()})
        whole.append({n: tuple(sorted(parts)) for n, parts in every.assignment.items()})
        own = protocol.accept(Joined("g", name, 1, name=name, protocol=assigner.name, members=listed))
        assert own == whole[0][name]
    assert all(found == whole[0] for found in whole)


def test_members_that_see_different_topics_take_nothing_refresh_and_agree():
    seen_by_b = {"t": 2}
    network = Network()
    network.join("a", consumer({"t": 3}))
    network.join("b", consumer(seen_by_b))
    network.run(4)
    assert len(network.coordinator.groups[GROUP].seats) == 2
    assert numbers(network) == {}
    seen_by_b["t"] = 3  # what b finds when it looks again
    network.settle(20)
    assert numbers(network) == {"a": [0, 2], "b": [1]}


@pytest.mark.parametrize("stale", ["a", "c", "e"])
def test_one_member_that_stays_behind_gives_up_alone(stale):
    network = Network()
    for name in "abcde":
        network.join(name, consumer({"t": 4 if name == stale else 9}))
    network.run(150)
    assert set(network.failures()) == {stale}
    assert "see different topics" in str(network.failures()[stale].error)
    assert partitions(network) == all_of(t=9)
    assert network.names == tuple(n for n in "abcde" if n != stale)


def impatient(seconds: int, retries: int) -> MemberSettings:
    return MemberSettings(
        session_timeout_ms=seconds * 1_000, heartbeat_interval_ms=1_000, max_poll_interval_ms=20_000,
        metadata_max_retries=retries,
    )  # fmt: skip


def test_the_others_go_on_without_a_member_that_stays_behind_and_does_not_give_up():
    network = Network()
    for name in "abd":
        network.join(name, consumer({"t": 9}))
    network.join("c", consumer({"t": 4}), impatient(10, 10**6))
    network.run(200)
    assert not network.failures()
    assert numbers(network) == {"a": [0, 3, 6], "b": [1, 4, 7], "d": [2, 5, 8]}
    generation = network.group.generation
    network.run(60)
    assert network.group.generation == generation  # in peace


def test_members_with_different_subscriptions_settle_a_lasting_disagreement_too():
    network = Network()
    for name, count, topics in (("a", 4, ["t"]), ("b", 4, ["t", "u"]), ("c", 4, ["u"]), ("d", 7, ["t", "v"])):
        network.join(name, consumer({"t": count, "u": 2, "v": 1}, topics))
    network.run(400)
    assert set(network.failures()) == {"d"}
    assert partitions(network) == all_of(t=4, u=2)


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(0, 2**16))
def test_whatever_members_see_and_however_long_no_partition_has_two_owners(data, seed):
    network = Network(seed)  # it checks after every event
    for name in "abcde"[: data.draw(st.integers(2, 5))]:
        topics = data.draw(st.sampled_from((["t"], ["t"], ["t", "u"], ["u"])))
        seen = {"t": data.draw(st.sampled_from((3, 3, 5))), "u": data.draw(st.sampled_from((2, 2, 4)))}
        network.join(name, consumer(seen, topics), impatient(6, data.draw(st.sampled_from((1, 10, 10**6)))))
        network.run(data.draw(st.sampled_from((0.0, 0.3, 15.0))))
    network.run(60)
    assert set(network.members) - set(network.failures()), network.tail()


def test_the_text_s_example_of_sub_groups():
    """A and B are subscribed to foo, C to foo and bar: C is dormant; then B changes too, and A is."""
    view, both = {"foo": 4, "bar": 2}, ["foo", "bar"]

    def dormant():
        return {name for name, m in network.members.items() if m.protocol.dormant}

    network = Network()
    for name, topics in (("A", ["foo"]), ("B", ["foo"]), ("C", both)):
        network.join(name, consumer(view, topics, hashed=True))
    network.settle(10)
    assert dormant() == {"C"} and partitions(network) == all_of(foo=4)
    network.leave("B")
    network.join("B2", consumer(view, both, hashed=True))
    network.settle(10)
    assert dormant() == {"A"} and partitions(network) == all_of(bar=2, foo=4)


class First(PartitionAssigner):
    """Everything to whom has the most processors; not deterministic on purpose."""

    name = "first"

    def __init__(self, cpus: int) -> None:
        self.cpus = cpus

    def metadata(self) -> Any:
        return {"cpus": self.cpus}

    def assign(self, topics: Topics, consumers: Mapping[str, Metadata]) -> PartitionAssignment:
        best = max(consumers, key=lambda name: consumers[name].metadata["cpus"])
        return PartitionAssignment({n: all_of(**topics.partitions) if n == best else [] for n in consumers})


def test_the_leader_s_strategy_and_the_leader_s_view_count():
    led = [consumer({"t": n}, assigners=[First(k)], mode=Mode.SINGLE) for n, k in ((99, 8), (3, 2))]
    network = network_of(*led)
    assert network.leader == "b"
    assert numbers(network) == {"a": [0, 1, 2], "b": []}


class Odd(ConsumerProtocol):
    """A consumer with metadata that no member can read."""

    says = b""

    def _metadata(self, *_: Any) -> bytes:
        return self.says


def test_what_the_leader_cannot_read_is_forwarded_with_the_name_of_who_said_it():
    network = Network()
    network.join("b", consumer({"t": 1}, mode=Mode.SINGLE))
    network.run(2)
    odd = Odd(["t"], fetch=lambda: Topics({"t": 1}), mode=Mode.SINGLE)
    odd.says, odd.newest = b"odd", 0  # so that it does not lead
    network.join("odd", odd)
    network.run(5)
    assert set(network.failures()) == {"b", "odd"}
    assert "members['odd']: found b'odd'" in str(network.failures()["b"].error)


def test_metadata_of_a_newer_version_is_answered_with_the_highest_known_one():
    """Version probing: an old leader, a new member; the member says it again in the leader's version."""
    old, new = consumer({"t": 4}, mode=Mode.SINGLE), consumer({"t": 4}, mode=Mode.SINGLE, rack="r1")
    old.newest = 0
    network = network_of(old, new)
    assert network.leader == "b"  # the newest leads, so that nobody is probed
    asked = Joined("g", "a", 1, generation=9, name="a", members={"b": new.offers()[0].metadata})
    probe = old.lead(asked)["b"]
    assert Assignment.decode(probe) == Assignment(newest=0, probe=True)
    with pytest.raises(TryAgain, match="the leader reads versions up to 0"):
        new.accept(Joined("g", "b", 1, generation=9, name="b", state=probe))
    assert new.offers()[0].metadata[1] == 0
    readable = structs.replace(asked, members={"b": new.offers()[0].metadata})
    assert Assignment.decode(old.lead(readable)["b"]).partitions == {"t": (0, 1, 2, 3)}
    new.accept(Joined("g", "b", 1, generation=9, name="b", state=Assignment().encode()))
    assert new.offers()[0].metadata[1] == 1  # the next leader reads more: a rack, no standbys
    assert network.members["a"].state is MemberState.STABLE


class Broken(RoundRobin):
    """A strategy of one's own, with a mistake in it."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def metadata(self) -> Any:
        if self.where == "metadata":
            raise KeyError("no such thing")

    def assign(self, *more: Any) -> PartitionAssignment:
        if self.where == "assign":
            raise ZeroDivisionError("shares of nobody")
        return super().assign(*more)


@pytest.mark.parametrize(("where", "what"), [("assign", "shares of nobody"), ("metadata", "no such thing")])
def test_an_exception_of_a_strategy_ends_that_membership_and_gives_its_place_away(where, what):
    network = network_of(consumer({"t": 4}), consumer({"t": 4}, assigners=[Broken(where)]))
    assert list(network.failures()) == ["b"] and what in str(network.failures()["b"].error)
    assert numbers(network) == {"a": [0, 1, 2, 3]}
    assert network.names == ("a",)


@pytest.mark.parametrize("mode", Mode)
def test_topics_that_cannot_be_fetched_are_asked_for_again_with_a_back_off(mode):
    network = Network()
    asked: list[float] = []

    def fetch():
        asked.append(network.now)
        if network.now < 5 or len(network.members) == 1:
            raise ConnectionError("no broker")
        return Topics({"t": 4})

    network.join("b", ConsumerProtocol(["t"], fetch=fetch, mode=mode))
    network.join("a", consumer({"t": 4}, mode=mode))
    network.settle(30)
    assert partitions(network) == all_of(t=4) and len(network.owned()) == 2
    assert len(asked) < 20
    gaps = [b - a for a, b in itertools.pairwise(asked)]
    assert mode is Mode.SINGLE or gaps[1] > gaps[0] > 0.05
    # If they can never be fetched, that ends the membership, with the reason.
    network = Network()
    network.join("b", ConsumerProtocol(["t"], fetch=fetch, mode=mode))
    network.run(120)
    assert "no broker" in str(network.failures()["b"].error)
    assert network.failures()["b"].error.code is Code.TOPICS_UNAVAILABLE


@pytest.mark.parametrize(
    "says",
    [b"", b"\xff" * 9, msgpack.encode((99, 99, b"")), Subscription(pattern="(a").encode(version=0),
     Subscription(("t",), strategy=b"{").encode(), Subscription(("t",), generation=2**60).encode()],
    ids=["nothing", "noise", "newer", "pattern", "strategy", "generation"],
)  # fmt: skip
def test_a_member_that_cannot_be_read_is_left_out_by_all_and_named(says, caplog):
    odd = Odd(["t"], fetch=lambda: Topics({"t": 4}))
    odd.says = says
    network = network_of(consumer({"t": 4}), odd, consumer({"t": 4}))
    assert list(network.failures()) == ["b"]
    assert "members['b']: found" in str(network.failures()["b"].error)
    assert "a member is ignored because its metadata is invalid: members['b']: found" in caplog.text
    assert numbers(network) == {"a": [0, 2], "c": [1, 3]}


@pytest.mark.parametrize(
    ("path", "make"),
    [
        ("pattern", lambda: ConsumerProtocol(pattern="(a", fetch=None)),
        ("subscription", lambda: ConsumerProtocol(fetch=None)),
        ("hashed", lambda: ConsumerProtocol(["t"], fetch=None, hashed=True, mode=Mode.SINGLE)),
        ("replicas", lambda: Strategy("fair", replicas=1)),
        ("consistent-hash", lambda: ConsistentHash(owners=0)),
    ],
)
def test_what_an_application_says_wrongly_is_refused_where_it_says_it(path, make):
    with pytest.raises(InputError, match=f"^{path}: found"):
        make()


# ------------------------------------------------------------------------------------------------- strategies


@pytest.mark.parametrize("mode", Mode)
def test_only_what_a_lost_member_owned_moves_whoever_computes(mode):
    network = network_of(
        *(consumer({"t": 13}, assigners=[Strategy("fair_sticky")], mode=mode) for _ in "abcd")
    )
    before = {name: set(parts) for name, parts in network.owned().items()}
    # In the mode SINGLE, d has led: the next leader knows what members say, and nothing else.
    network.leave("d")
    network.settle(10)
    after = {name: set(parts) for name, parts in network.owned().items()}
    assert network.leader in ("", "c")
    assert all(before[name] <= after[name] for name in after)
    assert sorted(map(len, after.values())) == [4, 4, 5]


@pytest.mark.parametrize("strategy", NAMES)
def test_every_assignor_serves_a_group_in_which_all_compute(strategy):
    network = network_of(*(consumer({"t": 9}, assigners=[Strategy(strategy)]) for _ in "abc"))
    assert partitions(network) == all_of(t=9)


def test_partitions_prefer_the_rack_of_their_leader():
    view = Topics({"t": 6}, {"t": ("r1", "r2") * 3})
    fair = [Strategy("fair", racks=True)]
    network = network_of(
        *(
            ConsumerProtocol(["t"], fetch=lambda: view, assigners=fair, mode=Mode.SINGLE, rack=rack)
            for rack in ("r1", "r2")
        )
    )
    found = {name: {view.leaders["t"][p.partition] for p in parts} for name, parts in network.owned().items()}
    assert found == {"a": {"r1"}, "b": {"r2"}}


def copies(network: Network) -> dict[str, set[TopicPartition]]:
    return {name: set(m.protocol.standby) for name, m in network.members.items()}


@pytest.mark.parametrize("mode", Mode)
def test_standbys_travel_and_a_lost_member_s_partitions_go_to_their_holders(mode):
    strategy = [Strategy("copartitioned", replicas=1, seed=3)]
    network = network_of(*(consumer({"t": 9, "u": 9}, "tu", assigners=strategy, mode=mode) for _ in "abc"))
    for name in "abc":  # say what was given out, so that the next to assign knows
        network.rejoin(name)
    network.settle(20)
    before, followed = {n: set(parts) for n, parts in network.owned().items()}, copies(network)
    assert sorted(tp for held in followed.values() for tp in held) == all_of(t=9, u=9)
    assert all(not before[n] & followed[n] for n in "abc")
    network.leave("c")
    network.settle(20)
    assert all(set(parts) - before[name] <= followed[name] for name, parts in network.owned().items())
    assert partitions(network) == all_of(t=9, u=9)
    assert not network.failures()


def test_a_member_that_cannot_read_standbys_gets_its_partitions_all_the_same():
    strategy = [Strategy("copartitioned", replicas=1)]
    old, new = (consumer({"t": 6}, assigners=strategy, mode=Mode.SINGLE) for _ in "ab")
    old.newest = 1
    network = network_of(old, new)
    assert network.leader == "b"
    assert {name: len(parts) for name, parts in network.owned().items()} == {"a": 3, "b": 3}
    assert {name: len(parts) for name, parts in copies(network).items()} == {"a": 0, "b": 3}


def test_hashes_and_lists_and_differing_replicas_and_seeds_do_not_mix():
    assert consumer({"t": 1}, hashed=True).offers()[0].name == "round-robin+hashed"
    names = {Strategy("copartitioned", replicas=r, seed=s).name for r, s in ((0, 0), (1, 0), (1, 1), (2, 0))}
    assert len(names) == 4 and "copartitioned" in names


def owners(assigner: ConsistentHash, names: Sequence[str], count: int) -> dict[str, list[TopicPartition]]:
    made = assigner.assign(Topics({"t": count}), {n: Metadata(["t"]) for n in names})
    return {name: list(held) for name, held in made.assignment.items()}


@settings(max_examples=50)
@given(
    st.integers(1, 12),
    st.integers(0, 60),
    st.integers(0, 20),
    st.integers(1, 4),
    st.sampled_from([0, 0.1, 0.25, 1]),
)
def test_spread_agreement_and_redundancy(n, count, more, r, slack):
    names = [f"m{k}" for k in range(n)]
    assigner = ConsistentHash(owners=r, slack=slack, points=16)
    few, many = owners(assigner, names, count), owners(assigner, list(reversed(names)), count + more)
    each = min(r, n)
    for name in names:
        assert many[name][: len(few[name])] == few[name]
        assert len(few[name]) <= each * math.ceil((1 + slack) * count / n + 1e-9)
        assert len(set(few[name])) == len(few[name])
    assert Counter(p for parts in few.values() for p in parts) == dict.fromkeys(all_of(t=count), each)


def test_few_partitions_move_when_a_member_comes():
    names = [f"m{k}" for k in range(10)]
    before, after = (owners(ConsistentHash(), some, 1_000) for some in (names, [*names, "new"]))
    owner = {p: n for n, parts in before.items() for p in parts}
    moved = sum(owner[p] != n for n, parts in after.items() for p in parts)
    # All but the newcomer's share is what limits push on; dealing anew would move 900 and more.
    assert len(after["new"]) <= moved < 400


def test_consistent_hashing_needs_no_agreement():
    network = network_of(*(consumer({"t": count}, assigners=[ConsistentHash()]) for count in (8, 12, 10)))
    assert not network.failures()
    owned = partitions(network)
    assert len(owned) == len(set(owned)) and set(all_of(t=8)) <= set(owned)


def test_each_partition_goes_to_n_owners_and_too_few_members_are_named():
    twice = [ConsistentHash(owners=2)]
    network = network_of(*(consumer({"t": 6}, assigners=twice) for _ in "abc"), exclusive=False)
    assert Counter(partitions(network)) == dict.fromkeys(all_of(t=6), 2)
    made = ConsistentHash(owners=3).assign(Topics({"t": 6}), {n: Metadata(["t"]) for n in "ab"})
    assert made.warnings[0].startswith("6 partitions got fewer than 3 owners")


def test_a_strategy_s_metadata_that_is_no_json_is_a_protocol_error():
    with pytest.raises(ProtocolError, match="expected JSON"):
        RoundRobin().decode(b"{")
