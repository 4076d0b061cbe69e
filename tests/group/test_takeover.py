"""A coordinator that takes a group over waits for the sessions of members that it has not heard of."""

from __future__ import annotations

import pytest
from taskplace.groups.membership import ConsumerProtocol, Mode, Topics

from tests.support.network import Network

TOPICS = Topics({"t": 6})


def protocol(mode: Mode) -> ConsumerProtocol:
    return ConsumerProtocol(["t"], fetch=lambda: TOPICS, mode=mode)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("seed", range(20))
def test_a_newcomer_that_leaves_again_does_not_end_the_wait(mode: Mode, seed: int) -> None:
    """`Network.check` looks after every event that no partition has two owners."""
    network = Network(seed)
    for name in ("a", "b"):
        network.join(name, protocol(mode))
    network.settle()
    assert all(network.owned()[name] for name in ("a", "b"))
    network.replace_coordinator(remembers=True)
    for name in ("c", "d", "e"):
        network.join(name, protocol(mode))
    network.leave("d")
    network.run(0.01)
    network.leave("e")
    network.settle()
    assert sorted(network.members) == ["a", "b", "c"]
    assert sum(map(len, network.owned().values())) == 6
