"""The flow: a network without a flow has none, and costs nothing."""

from __future__ import annotations

from taskplace.model.flow import Network


def test_a_network_without_a_flow_is_none():
    net = Network()
    a, b = net.nodes(2)
    net.arcs([a], [b], 1, 0)
    net.supply([a, b], [2, -2])
    assert net.solve() is None
    assert net.cost == 0
