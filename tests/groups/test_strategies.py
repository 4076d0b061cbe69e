"""The assignors of `taskplace.groups.partitions` in a group: sticky by what members say, in both modes."""

from __future__ import annotations

import pytest

from taskplace.errors import InputError
from taskplace.groups.membership import ConsumerProtocol, Mode, Strategy, Topics
from taskplace.groups.strategies import NAMES
from tests.support.network import GROUP, Network
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


def copies(network: Network) -> dict[str, set[TopicPartition]]:
    return {name: set(m.protocol.standby) for name, m in network.members.items()}


@pytest.mark.parametrize("mode", Mode)
def test_standbys_travel_and_a_lost_member_s_partitions_go_to_their_holders(mode: Mode) -> None:
    network = Network()
    view = Topics({"t": 9, "u": 9})
    for name in "abc":
        strategy = Strategy("copartitioned", replicas=1, seed=3)
        network.join(name, ConsumerProtocol(["t", "u"], fetch=lambda: view, assigners=[strategy], mode=mode))
        network.run(3)
    network.settle(10)
    for name in "abc":  # say what was given out, so that the next to assign knows
        network.rejoin(name)
    network.settle(20)
    before, followed = {n: set(parts) for n, parts in network.owned().items()}, copies(network)
    everything = {TopicPartition(t, p) for t in "tu" for p in range(9)}
    assert set().union(*followed.values()) == everything and sum(map(len, followed.values())) == 18
    assert all(not before[n] & followed[n] for n in "abc")
    network.leave("c")
    network.settle(20)
    after = network.owned()
    for name in "ab":
        assert set(after[name]) - before[name] <= followed[name]
    assert set(after["a"]) | set(after["b"]) == everything
    assert not network.failures()


def test_standbys_that_cannot_be_placed_are_a_warning_with_counts(caplog: pytest.LogCaptureFixture) -> None:
    network = Network()
    protocol = ConsumerProtocol(
        ["t"], fetch=lambda: Topics({"t": 4}), assigners=[Strategy("copartitioned", replicas=2)]
    )
    network.join("a", protocol)
    network.settle(10)
    assert "4 of 4 partitions get 0 of the 2 configured standbys" in caplog.text
    assert protocol.standby == () and not protocol.followup


def test_a_member_that_cannot_read_standbys_gets_its_partitions_all_the_same() -> None:
    network = Network()
    view = Topics({"t": 6})
    for name, newest in (("old", 1), ("new", 2)):
        strategy = Strategy("copartitioned", replicas=1)
        network.join(
            name,
            ConsumerProtocol(
                ["t"], fetch=lambda: view, assigners=[strategy], mode=Mode.SINGLE, newest=newest
            ),
        )
        network.run(3)
    network.settle(10)
    assert network.coordinator.describe(GROUP).leader == "new"
    assert {name: len(parts) for name, parts in network.owned().items()} == {"old": 3, "new": 3}
    assert {name: len(parts) for name, parts in copies(network).items()} == {"old": 0, "new": 3}


def test_replicas_belong_to_copartitioned_and_differing_ones_do_not_mix() -> None:
    with pytest.raises(InputError, match=r"replicas: found .*'fair'.*expected the assignor 'copartitioned'"):
        Strategy("fair", replicas=1)
    with pytest.raises(InputError, match="replicas: found 4611686018427387904"):
        Strategy("copartitioned", replicas=2**62)
    names = {Strategy("copartitioned", replicas=r, seed=s).name for r, s in ((0, 0), (1, 0), (1, 1), (2, 0))}
    assert len(names) == 4 and "copartitioned" in names
