"""Describing a topology: handles, options, automatic names, stores that processors declare."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import Store, Topology, TopologyError, violations


def flights_topology() -> Topology:
    topo = Topology("flights")
    flights = topo.source("flights", key=["origin", "time_hour"], partitions=12)
    weather = topo.source("weather", key=["origin", "time_hour"], partitions=12)
    topo.store("weather-by-hour", logged=True, ttl=3600)
    joined = flights.join_table(weather, "join", name="with-weather", stores=["weather-by-hour"])
    by_tail = joined.repartition(key=["tailnum"], name="by-aircraft", partitions=6)
    stats = by_tail.process("stats", name="stats", stores=["delays"], rows=10)
    topo.store("delays")
    stats.sink("out", target="parquet")
    return topo


def test_the_flights_topology_is_what_was_described():
    built = flights_topology().build()
    assert violations(built) == ()
    first, second = built.subtopologies
    assert [n.name for n in first.nodes] == ["flights", "weather", "with-weather", "by-aircraft"]
    assert [n.name for n in first.sources] == ["flights", "weather"]
    assert (first.sinks, first.repartitions_in) == ((), ())
    assert [(s.name, s.options) for s in first.stores] == [("weather-by-hour", {"ttl": 3600})]
    assert (first.partitions, second.partitions) == (12, 6)
    assert [[n.name for n in ends] for ends in (first.repartitions_out, second.repartitions_in)] == [
        ["by-aircraft"]
    ] * 2
    assert [(n.name, n.internal, n.topic) for n in second.sources] == [
        ("by-aircraft-source", True, "by-aircraft-repartition")
    ]
    assert [n.name for n in second.sinks] == ["out"]
    join, stats, writer = map(built.node, ("with-weather", "stats", "by-aircraft"))
    assert (join.kind, join.join, join.parents) == ("join", "table", ("flights", "weather"))
    assert (join.processor, join.stores, join.key) == ("join", ("weather-by-hour",), ("origin", "time_hour"))
    assert (stats.kind, stats.key, stats.options) == ("processor", ("tailnum",), {"rows": 10})
    assert (writer.kind, writer.topic, writer.partitions) == ("repartition", "by-aircraft-repartition", 6)
    assert built.node("out").target == "parquet"
    assert built.subtopology_of("stats").id == 1


class Touchy:
    """An object that may only be kept."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __repr__(self) -> str:
        raise AssertionError("printed")

    def __bool__(self) -> bool:
        raise AssertionError("asked")

    __hash__ = None


def test_opaque_objects_are_only_kept():
    thing = Touchy()
    topo = Topology("t")
    source = topo.source("a", key="k", partitions=2, schema=thing, extra=thing)
    step = source.process(thing, name="p", stores=[Store("s", option_items=(("o", thing),))], option=thing)
    step.join_stream(source, thing, name="j").sink("z", target=thing)
    built = topo.build()
    assert built.node("p").processor is built.node("p").options["option"] is thing
    assert built.node("a").schema is built.node("z").target is thing
    assert built.fingerprint() and built.describe() and built.to_dot() and repr(built) and repr(built.nodes)
    for node, other in zip(built.nodes, topo.build().nodes, strict=True):
        assert node == other and hash(node) == hash(other)
    assert hash(built.stores[0]) == hash(Store("s")) and built.stores[0] == Store("s")


def test_what_is_built_does_not_change_and_travels_by_pickle():
    topo = flights_topology()
    built = topo.build()
    before = built.fingerprint()
    topo.source("more", partitions=1).sink("more-out")
    with pytest.raises(AttributeError):
        built.node("stats").name = "x"
    built.node("stats").options["rows"] = 99
    copy = pickle.loads(pickle.dumps(built))  # noqa: S301 - made in this line
    for each in (built, copy):
        assert each.node("stats").options == {"rows": 10}
        assert (each.fingerprint(), each.tasks()) == (before, built.tasks())
    assert len(topo.build().subtopologies) == 3


def test_automatic_names_come_from_the_nearest_named_node():
    topo = Topology("t")
    flights, planes = (topo.source(name, key="k", partitions=4) for name in ("flights", "planes"))
    assert flights.process().name == "flights-process"
    second = flights.process()
    assert second.name == "flights-process-2"
    assert second.process().name == "flights-process-3", "names do not grow with the chain"
    assert second.join_table(planes).name == "flights-join-planes"
    assert second.join_stream(planes).name == "flights-join-planes-2"
    assert second.merge(planes, flights).name == "flights-merge-planes"
    assert topo.process(inputs=[planes, flights]).name == "planes-process"
    named = second.process(name="clean")
    assert named.repartition("tailnum").name == "clean-by-tailnum-source"
    assert named.repartition().name == "clean-spread-source"
    assert topo.build().node("clean-by-tailnum").topic == "clean-by-tailnum-repartition"


def test_an_automatic_name_gives_way_to_a_name_that_was_given():
    topo = Topology("t")
    topo.source("flights-process")
    flights = topo.source("flights")
    assert flights.process().name == "flights-process-2"
    topo.source("flights-by-k-source")
    assert flights.repartition("k").name == "flights-by-k-2-source", "both ends of it need a name"


@pytest.mark.parametrize(
    ("topic", "key", "name"),
    [
        ("flüge", "k", "fluge-by-k-13c26d3a"),
        ("flights", ["a/b", "c"], "flights-by-a_b-c-6a73f3c3"),
        ("航班", None, "__-spread-d91d2a0a"),
        ("x" * 300, "k", f"{'x' * 171}-"),
    ],
)
def test_automatic_names_of_repartitions_are_legal(topic, key, name):
    topo = Topology("t")
    made = topo.source(topic, partitions=2).repartition(key).name
    assert made.startswith(name) and len(made) <= 180 + len("-source")
    assert topo.build().node(made).topic == f"{made.removesuffix('-source')}-repartition"


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cn"]), min_size=1).filter(str.strip)
)
def test_every_topic_and_key_has_a_repartition(text):
    topo = Topology("t")
    source = topo.source(text, partitions=2)
    again = [source.repartition([text, f"{text}k"]), source.repartition(text), source.repartition(text)]
    assert len({stream.name for stream in again}) == 3
    assert violations(topo.build()) == ()


def test_names_that_would_look_alike_stay_two_in_any_order():
    def made(*topics):
        topo = Topology("t")
        return {topic: topo.source(topic, partitions=1).repartition("k").name for topic in topics}

    alike = ("a b", "a/b", "a_b", "ä", "a", "x" * 300 + "a", "x" * 300 + "b")
    assert made(*alike) == made(*reversed(alike)), "no number that hangs on who was first"
    assert len(set(made(*alike).values())) == len(alike)


class Lays:
    """A processor that declares a store."""

    def __init__(self, **layout: Any) -> None:
        self._layout = layout

    def layouts(self) -> dict[str, Any]:
        return {"s": {"key": {"k": "string"}, **self._layout}}


@pytest.mark.parametrize(
    ("declared", "first", "second", "says"),
    [
        (None, {"logged": False}, {"logged": True}, "with logged False elsewhere, here with True"),
        (None, {"logged": False}, {}, "with logged False elsewhere, here with True"),
        (None, {}, {"retention_ms": 5}, "without retention_ms elsewhere, here with 5"),
        (None, {"retention_ms": 5}, {"retention_ms": 6}, "with retention_ms 5 elsewhere, here with 6"),
        (None, {"ttl": 5}, {}, "with ttl 5 elsewhere, here without"),
        (None, {}, {"ttl": 5}, "without ttl elsewhere, here with 5"),
        (None, {"ttl": None}, {}, "with ttl None elsewhere, here without"),
        ({"logged": False}, {}, {"logged": True}, "with logged False elsewhere, here with True"),
        ({}, {}, {"logged": False}, "with logged True elsewhere, here with False"),
        ({}, {}, {"retention_ms": 5}, "without retention_ms elsewhere, here with 5"),
        ({"key": {"k": "string"}}, {}, {"key": {"k": "long"}}, "with key .*string.* elsewhere, here with .*long.*"),
        ({"key": {"k": "string"}}, {}, {"ttl": 3}, "without ttl elsewhere, here with 3"),
        ({"logged": False, "retention_ms": 5}, {}, {"ttl": 3}, "without ttl elsewhere, here with 3"),
    ],
)  # fmt: skip
def test_processors_that_share_a_store_declare_it_alike(declared, first, second, says):
    topo = Topology("t")
    if declared is not None:
        topo.store("s", **declared)
    source = topo.source("a", key="k", partitions=1)
    source.process(Lays(**first), name="p")
    with pytest.raises(TopologyError, match=rf"^node 'q': store 's' is declared {says}$"):
        source.process(Lays(**second), name="q")
    topo.source("b", partitions=2).process(Lays(**first), name="q")
    built = topo.build()
    assert [node.stores for node in built.nodes] == [(), ("s",), (), ("s",)]
    assert len(built.subtopologies) == 1, "a shared store connects"
    kept, store = declared or first, built.stores[0]
    assert (store.logged, store.retention_ms) == (kept.get("logged", True), kept.get("retention_ms"))


def test_two_equal_stores_are_two_declarations():
    topo = Topology("t")
    source = topo.source("a", partitions=1)
    kept = topo.store("s")
    source.process(name="p", stores=kept)
    source.process(name="q", stores=[kept])
    with pytest.raises(TopologyError, match="store 's': declared twice"):
        source.process(name="r", stores=[Store("s")])
    assert topo.build().stores == (kept,)
