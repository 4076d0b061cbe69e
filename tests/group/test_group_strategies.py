"""The assignors of `taskplace.partitions` in a group: sticky by what members say, in both modes."""

from __future__ import annotations

import pytest
from network import GROUP, Network

from taskplace.group import ConsumerProtocol, Mode, Strategy, Topics
from taskplace.group.strategies import NAMES
from topology import TopicPartition


def join(
    network: Network, name: str, mode: Mode, view: Topics, strategy: str = "fair_sticky", rack: str = ""
) -> None:
    racks = bool(rack)
    protocol = ConsumerProtocol(
        ["t"], fetch=lambda: view, assigners=[Strategy(strategy, racks=racks)], mode=mode, rack=rack
    )
    network.join(name, protocol)
    network.run(3)


@pytest.mark.parametrize("mode", Mode)
def test_only_what_a_lost_member_owned_moves_whoever_computes(mode: Mode) -> None:
    network = Network()
    for name in "abcd":
        join(network, name, mode, Topics({"t": 13}))
    network.settle(10)
    before = {name: set(parts) for name, parts in network.owned().items()}
    # In the mode SINGLE, d has led: the next leader knows what members say, and nothing else.
    network.leave("d")
    network.settle(10)
    after = {name: set(parts) for name, parts in network.owned().items()}
    assert network.coordinator.describe(GROUP).leader in ("", "c")
    assert all(before[name] <= after[name] for name in after)
    assert sorted(map(len, after.values())) == [4, 4, 5]


@pytest.mark.parametrize("strategy", NAMES)
def test_every_assignor_serves_a_group_in_which_all_compute(strategy: str) -> None:
    network = Network()
    for name in "abc":
        join(network, name, Mode.EVERY, Topics({"t": 9}), strategy)
    network.settle(10)
    owned = sorted(p for parts in network.owned().values() for p in parts)
    assert owned == [TopicPartition("t", p) for p in range(9)]


def test_partitions_prefer_the_rack_of_their_leader() -> None:
    view = Topics({"t": 6}, {"t": ("r1", "r2") * 3})
    network = Network()
    for name, rack in (("a", "r1"), ("b", "r2")):
        join(network, name, Mode.SINGLE, view, "fair", rack)
    network.settle(10)
    found = {name: {view.leaders["t"][p.partition] for p in parts} for name, parts in network.owned().items()}
    assert found == {"a": {"r1"}, "b": {"r2"}}
