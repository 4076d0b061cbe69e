"""Consistent hashing: spread, agreement, redundancy, and few moves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from taskplace.errors import InputError
from taskplace.groups.membership import ConsistentHash, ConsumerMetadata, ProtocolError, RoundRobin
from taskplace.groups.metadata import Subscription
from tests.support.consumers import consumer
from tests.support.network import Network
from topology import TopicPartition


def owners(assigner: ConsistentHash, names: Sequence[str], count: int) -> dict[str, list[TopicPartition]]:
    return assigner.shares({"t": count}, [ConsumerMetadata(n, ("t",), None) for n in names]).active


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
