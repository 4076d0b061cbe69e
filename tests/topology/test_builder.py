"""Describing a topology: handles, names, inline stores, and the errors that name the node."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from topology import Node, Store, Topology, TopologyError, violations


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


def test_the_flights_topology_is_what_was_described() -> None:
    built = flights_topology().build()
    assert violations(built) == ()
    assert built.name == "flights"
    first, second = built.subtopologies
    assert [n.name for n in first.nodes] == ["flights", "weather", "with-weather", "by-aircraft"]
    assert [n.name for n in first.sources] == ["flights", "weather"]
    assert first.sinks == ()
    assert [(s.name, s.options) for s in first.stores] == [("weather-by-hour", {"ttl": 3600})]
    assert (first.partitions, second.partitions) == (12, 6)
    assert [n.name for n in first.repartitions_out] == ["by-aircraft"]
    assert first.repartitions_in == ()
    assert [n.name for n in second.repartitions_in] == ["by-aircraft"]
    assert [(n.name, n.internal, n.topic) for n in second.sources] == [
        ("by-aircraft-source", True, "by-aircraft-repartition")
    ]
    assert [n.name for n in second.sinks] == ["out"]
    assert built.order == (0, 1)
    assert built.copartition_groups == (("flights", "weather"),)


def test_nodes_keep_what_was_given() -> None:
    built = flights_topology().build()
    join = built.node("with-weather")
    assert (join.kind, join.join, join.parents) == ("join", "table", ("flights", "weather"))
    assert (join.processor, join.stores, join.key) == ("join", ("weather-by-hour",), ("origin", "time_hour"))
    stats = built.node("stats")
    assert (stats.kind, stats.key, stats.options) == ("processor", ("tailnum",), {"rows": 10})
    assert built.node("out").target == "parquet"
    writer = built.node("by-aircraft")
    assert (writer.kind, writer.topic, writer.key, writer.partitions) == (
        "repartition",
        "by-aircraft-repartition",
        ("tailnum",),
        6,
    )
    assert built.subtopology_of("stats").id == 1


class Touchy:
    """An object that may only be kept."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __repr__(self) -> str:
        raise AssertionError("printed")

    def __bool__(self) -> bool:
        raise AssertionError("asked")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Store("s", option_items=(("o", Touchy()),)),
        lambda: Node("n", "processor", option_items=(("o", Touchy()),)),
        lambda: Node("n", "processor", processor=Touchy(), schema=Touchy()),
        lambda: Node("n", "sink", target=Touchy()),
    ],
)
def test_what_is_opaque_is_no_part_of_what_a_store_or_node_equals(make: Callable[[], Store | Node]) -> None:
    one, other = make(), make()
    assert one == other and hash(one) == hash(other) and repr(one) == repr(other)


def test_opaque_objects_are_only_kept() -> None:
    thing = Touchy()
    topo = Topology("t")
    source = topo.source("a", key="k", partitions=2, schema=thing, extra=thing)
    step = source.process(thing, name="p", stores=[Store("s", option_items=(("o", thing),))], option=thing)
    step.join_stream(source, thing, name="j").sink("z", target=thing)
    built = topo.build()
    assert built.node("p").processor is thing
    assert built.node("p").options["option"] is thing
    assert built.node("a").schema is thing
    assert built.node("z").target is thing
    assert built.node("p") == built.node("p")
    assert built.fingerprint() and built.describe() and built.to_dot() and repr(built) and repr(built.nodes)


def test_what_is_built_does_not_change() -> None:
    topo = flights_topology()
    built = topo.build()
    before = built.fingerprint()
    topo.source("more", partitions=1).sink("more-out")
    with pytest.raises(AttributeError):
        built.name = "x"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        built.node("stats").name = "x"  # type: ignore[misc]
    built.node("stats").options["rows"] = 99
    assert built.node("stats").options == {"rows": 10}
    assert built.fingerprint() == before
    assert len(topo.build().subtopologies) == 3


def test_a_built_topology_travels_by_pickle() -> None:
    built = flights_topology().build()
    copy = pickle.loads(pickle.dumps(built))  # noqa: S301 - made in this line
    assert copy.fingerprint() == built.fingerprint()
    assert copy.tasks() == built.tasks()
    assert copy.node("stats").options == {"rows": 10}


def test_automatic_names_say_where_they_come_from() -> None:
    topo = Topology("t")
    flights = topo.source("flights", key="k", partitions=4)
    planes = topo.source("planes", key="k", partitions=4)
    assert flights.process().name == "flights-process"
    second = flights.process()
    assert second.name == "flights-process-2"
    assert second.process().name == "flights-process-3", "names do not grow with the chain"
    assert second.join_table(planes).name == "flights-join-planes"
    assert second.merge(planes).name == "flights-merge-planes"
    named = second.process(name="clean")
    by_tail = named.repartition("tailnum")
    assert by_tail.name == "clean-by-tailnum-source"
    assert by_tail.process().name == "clean-process"
    assert named.repartition().name == "clean-spread-source"
    assert topo.build().node("clean-by-tailnum").topic == "clean-by-tailnum-repartition"


def test_unrelated_nodes_leave_automatic_names_alone() -> None:
    def names(*, before: bool) -> set[str]:
        topo = Topology("t")
        if before:
            topo.source("other", partitions=1).process().process().sink()
        topo.source("flights", partitions=4).process().process().sink()
        return {n.name for n in topo.build().nodes if n.name.startswith("flights")}

    assert names(before=True) == names(before=False)


def test_a_handle_is_used_twice_and_stores_are_shared() -> None:
    topo = Topology("t")
    store = topo.store("s")
    source = topo.source("a", partitions=3)
    source.process(name="one", stores=[store])
    source.process(name="two", stores="s")
    built = topo.build()
    assert len(built.subtopologies) == 1
    assert [s.name for s in built.subtopologies[0].stores] == ["s"]


def test_a_processor_may_read_several_streams() -> None:
    topo = Topology("t")
    one, two = topo.source("a", key="k", partitions=3), topo.source("b", key="k", partitions=5)
    topo.process("P", inputs=[one, two], name="both")
    built = topo.build()
    assert built.node("both").parents == ("a", "b")
    assert built.copartition_groups == ()
    assert built.subtopologies[0].partitions == 5


def _duplicate(topo: Topology) -> None:
    topo.source("a").process(name="p")
    topo.source("b").process(name="p")


def _unknown_store(topo: Topology) -> None:
    topo.store("delays")
    topo.source("a").process(name="q", stores=["delays"])
    topo.source("b").process(name="p", stores=["delay"])


def _foreign(topo: Topology) -> None:
    topo.source("a").merge(Topology("other").source("p"))


CASES: list[tuple[Callable[[Topology], object], str, str]] = [
    (_duplicate, "p", "node 'p': the name is used twice, by a processor and by a processor"),
    (_unknown_store, "p", "node 'p': unknown store 'delay'; did you mean 'delays'?"),
    (_foreign, "p", "node 'p': belongs to topology 'other', not to 't'"),
    (lambda t: t.process("P", inputs=[], name="p"), "p", "node 'p': a processor without input"),
    (lambda t: (t.source("p"), t.source("p", name="x")), "x", "topic 'p' is already read by node 'p'"),
    (lambda t: (t.store("p"), t.store("p")), "p", "store 'p': declared twice"),
    (lambda t: (t.store("p"), t.source("a")), "p", "store 'p': no node uses it"),
    (lambda t: t.store("p", logged="no"), "p", "store 'p'.logged: found 'no', expected true or false"),
    (lambda t: t.store("p", retention_ms=0), "p", "store 'p'.retention_ms: found 0, expected a whole number"),
    (lambda t: t.store("../p"), "../p", "store name: found '../p', expected 1 to 200 letters"),
    (lambda t: t.source("p", partitions=0), "p", "source 'p'.partitions: found 0, expected a whole number"),
    (lambda t: t.source("p", partitions="12"), "p", "source 'p'.partitions: found '12', expected a whole"),
    (
        lambda t: t.source("a").repartition("k", name="p", partitions=-1),
        "p",
        "repartition 'p'.partitions: found",
    ),
    (
        lambda t: t.source("a").repartition("k", name="p q"),
        "p q",
        "repartition name: found 'p q', expected 1 to",
    ),
]


@pytest.mark.parametrize(("describe", "node", "message"), CASES, ids=[c[2] for c in CASES])
def test_one_error_that_names_the_node(
    describe: Callable[[Topology], object], node: str, message: str
) -> None:
    topo = Topology("t")
    with pytest.raises(TopologyError) as caught:
        describe(topo)
        topo.build()
    assert message in str(caught.value)
    assert caught.value.node == node
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("describe", "message"),
    [
        (lambda t: None, "topology: found no nodes"),
        (lambda t: t.source(""), "source topic: found ''"),
        (lambda t: t.source("a", key=[1]), "source 'a'.key: found [1], expected a list of column names"),
        (lambda t: t.source("a", key=["k", "k"]), "expected each column once"),
        (lambda t: t.source("a").process(name="p", stores=["s", "s"]), "expected each store once"),
        (lambda t: t.source("a").process(name="p", stores=[3]), "found 3, expected the name of a store"),
        (lambda t: t.source("a").process(name="p", stores=[{}]), "expected a store with a 'name'"),
        (lambda t: t.source("a").merge("b"), "found 'b' as an input, expected a stream"),
        (lambda t: (s := t.source("a")).merge(s, name="m"), "node 'm': found inputs ['a', 'a']"),
        (lambda t: t.source("a").merge(name="m"), "node 'm': a merge of one stream"),
    ],
)
def test_bad_values_say_what_was_found(describe: Callable[[Topology], object], message: str) -> None:
    topo = Topology("t")
    with pytest.raises(TopologyError) as caught:
        describe(topo)
        topo.build()
    assert message in str(caught.value)


def test_unknown_node_names_the_nearest() -> None:
    with pytest.raises(TopologyError, match=r"unknown node 'stat'; did you mean 'stats'\?"):
        flights_topology().build().node("stat")


def test_a_node_that_refers_to_nothing_is_refused() -> None:
    from topology.graph import split

    with pytest.raises(TopologyError, match=r"node 'b': unknown input 'aa'; did you mean 'aaa'\?"):
        split([Node("aaa", "source", topic="aaa"), Node("b", "processor", ("aa",))], [])
