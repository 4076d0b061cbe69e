"""A processor that declares its stores need not have them named again."""

import pytest

from topology import Topology, TopologyError


class Keeps:
    def __init__(self, store, kind="int64"):
        self._store, self._kind = store, kind

    def layouts(self):
        return {self._store: {"key": {"id": "string"}, "value": {"n": self._kind}}}


def test_declared_and_connected():
    topo = Topology("t")
    topo.source("s", partitions=2).process(Keeps("counts"), name="count")
    built = topo.build()
    assert built.node("count").stores == ("counts",)
    assert built.stores[0].options["value"] == {"n": "int64"}


def test_an_explicit_declaration_stays():
    topo = Topology("t")
    topo.store("counts", logged=False)
    topo.source("s", partitions=2).process(Keeps("counts"), name="count", stores=["counts"])
    built = topo.build()
    assert built.node("count").stores == ("counts",)
    assert not built.stores[0].logged


def test_sharing_joins_subtopologies_and_needs_one_layout():
    topo = Topology("t")
    topo.source("a", partitions=2).process(Keeps("counts"), name="one")
    topo.source("b", partitions=2).process(Keeps("counts"), name="two")
    assert len(topo.build().subtopologies) == 1
    with pytest.raises(
        TopologyError, match=r"'counts' is declared with value .*int64.* elsewhere, here with .*string"
    ):
        topo.source("c", partitions=2).process(Keeps("counts", "string"), name="three")
