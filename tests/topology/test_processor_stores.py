"""A processor that declares its stores need not have them named again."""

import pytest

from topology import Store, Topology, TopologyError


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


class Lays:
    def __init__(self, **layout):
        self._layout = layout

    def layouts(self):
        return {"s": {"key": {"k": "string"}, **self._layout}}


@pytest.mark.parametrize(
    ("one", "two", "says"),
    [
        ({"logged": False}, {"logged": True}, "with logged False elsewhere, here with True"),
        ({"logged": True}, {"logged": False}, "with logged True elsewhere, here with False"),
        ({"logged": False}, {}, "with logged False elsewhere, here with True"),
        ({"retention_ms": 5}, {}, "with retention_ms 5 elsewhere, here without"),
        ({}, {"retention_ms": 5}, "without retention_ms elsewhere, here with 5"),
        ({"retention_ms": 5}, {"retention_ms": 6}, "with retention_ms 5 elsewhere, here with 6"),
        ({"ttl": 5}, {}, "with ttl 5 elsewhere, here without"),
        ({}, {"ttl": 5}, "without ttl elsewhere, here with 5"),
        ({"ttl": None}, {}, "with ttl None elsewhere, here without"),
    ],
)
def test_processors_that_share_a_store_declare_it_alike(one, two, says):
    topo = Topology("t")
    source = topo.source("a", key="k", partitions=1)
    source.process(Lays(**one), name="p")
    with pytest.raises(TopologyError, match=rf"^node 'q': store 's' is declared {says}$"):
        source.process(Lays(**two), name="q")
    source.process(Lays(**one), name="q")
    assert [node.stores for node in topo.build().nodes] == [(), ("s",), ("s",)]


@pytest.mark.parametrize(
    ("declared", "layout", "says"),
    [
        ({"logged": False}, {"logged": True}, "with logged False elsewhere, here with True"),
        ({}, {"logged": False}, "with logged True elsewhere, here with False"),
        ({}, {"retention_ms": 5}, "without retention_ms elsewhere, here with 5"),
        ({"ttl": 3}, {}, "without key elsewhere, here with .*"),
        ({"key": {"k": "long"}}, {}, "with key .*long.* elsewhere, here with .*string.*"),
    ],
)
def test_a_declaration_and_a_processor_that_say_otherwise(declared, layout, says):
    topo = Topology("t")
    topo.store("s", **declared)
    with pytest.raises(TopologyError, match=rf"^node 'p': store 's' is declared {says}$"):
        topo.source("a").process(Lays(**layout), name="p")


def test_a_declaration_counts_for_what_processors_leave_open():
    topo = Topology("t")
    topo.store("s", logged=False, retention_ms=5)
    source = topo.source("a")
    source.process(Lays(), name="p")
    source.process(Lays(), name="q")
    with pytest.raises(
        TopologyError, match=r"node 'r': store 's' is declared without ttl elsewhere, here with 3"
    ):
        source.process(Lays(ttl=3), name="r")
    assert [(s.logged, s.retention_ms) for s in topo.build().stores] == [(False, 5)]


@pytest.mark.parametrize(
    ("layouts", "says"),
    [
        (5, "found 5, expected a mapping of stores to their layouts"),
        (None, "found nothing, expected a mapping"),
        (["s"], r"found \['s'\], expected a mapping"),
        ({"s": 5}, "found 5 for store 's', expected a mapping"),
        ({5: {}}, "store name: found 5, expected 1 to 200 letters"),
        ({"a/b": {}}, "store name: found 'a/b', expected 1 to 200 letters"),
        ({"s": {"logged": "no"}}, "store 's'.logged: found 'no', expected true or false"),
        ({"s": {3: 4}}, "found the field 3, expected strings as field names"),
    ],
)
def test_layouts_that_are_none_are_an_error_that_names_the_node(layouts, says):
    class Bad:
        def layouts(self):
            return layouts

    topo = Topology("t")
    with pytest.raises(TopologyError, match=rf"^node 'p', layouts\(\): {says}") as caught:
        topo.source("a").process(Bad(), name="p")
    assert caught.value.node is not None
    topo.store("s")  # nothing of the refused call is left


def test_two_equal_stores_are_two_declarations():
    topo = Topology("t")
    source = topo.source("a")
    source.process(name="p", stores=[Store("s")])
    with pytest.raises(TopologyError, match="store 's': declared twice"):
        source.process(name="q", stores=[Store("s", option_items=(("ttl", 2),))])
