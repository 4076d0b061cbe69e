"""What a topology looks like: the Kafka Streams text, the graph, the internal topics."""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from topology import Topology, TopologyError
from topology.describe import quoted


def flights() -> Topology:
    topo = Topology("flights")
    legs = topo.source("flights", key=["origin", "time_hour"], partitions=12)
    weather = topo.source("weather", key=["origin", "time_hour"], partitions=12)
    joined = legs.join_table(weather, name="with-weather", stores=[{"name": "weather-by-hour"}])
    by_tail = joined.repartition("tailnum", name="by-aircraft", partitions=6)
    stores = [{"name": "seen", "retention_ms": 60000}, {"name": "delays"}, {"name": "tmp", "logged": False}]
    both = by_tail.process(name="stats", stores=stores)
    both.sink("out", target="delays")
    both.merge(by_tail, name="all").sink("audit", target=object())
    return topo


def test_describe_is_what_kafka_streams_users_know():
    assert (
        flights().build().describe()
        == """\
Topologies:
   Sub-topology: 0
    Source: flights (topics: [flights])
      --> with-weather
    Source: weather (topics: [weather])
      --> with-weather
    Processor: with-weather (stores: [weather-by-hour])
      --> by-aircraft
      <-- flights, weather
    Sink: by-aircraft (topic: by-aircraft-repartition)
      <-- with-weather

  Sub-topology: 1
    Source: by-aircraft-source (topics: [by-aircraft-repartition])
      --> all, stats
    Processor: stats (stores: [delays, seen, tmp])
      --> all, out
      <-- by-aircraft-source
    Sink: out (topic: delays)
      <-- stats
    Processor: all (stores: [])
      --> audit
      <-- by-aircraft-source, stats
    Sink: audit (topic: audit)
      <-- all

"""
    )


def test_the_graph_shows_clusters_stores_and_topics():
    dot = flights().build().to_dot()
    assert dot.count('subgraph "cluster_') == 2
    for line in (
        '"node:weather" -> "node:with-weather" [style=dashed];',
        '"node:flights" -> "node:with-weather";',
        '"node:by-aircraft" -> "topic:by-aircraft-repartition";',
        '"topic:by-aircraft-repartition" -> "node:by-aircraft-source";',
        '"store:tmp" [label="tmp", shape=cylinder, style="filled,dashed", ',
        '"store:delays" [label="delays", shape=cylinder, style=filled, ',
        '"topic:by-aircraft-repartition" [label="by-aircraft-repartition\\n6 partitions", shape=box, ',
    ):
        assert line in dot
    unknown = Topology("t")
    unknown.source("a")
    assert '[label="a\\npartitions unknown", shape=plaintext]' in unknown.build().to_dot()


# Control characters, line ends, halves of characters, and what XML does not take are in no name.
UNSEEN = "\x00\x1f\n\r\t\x7f\x85\x9f\u2028\u2029\ud800\udfff\ufffe\uffff"
names = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters=UNSEEN), min_size=1).filter(
    str.strip
)


@pytest.mark.parametrize("letter", UNSEEN, ids=ascii)
@pytest.mark.parametrize(
    "call",
    [
        lambda t, name: t.source(name),
        lambda t, name: t.source("a", name=name),
        lambda t, name: t.source("a", key=["k", name]),
        lambda t, name: t.source("a").process(name=name),
        lambda t, name: t.source("a").sink(name),
        lambda t, name: t.source("a").sink("b", target=name),
        lambda t, name: t.store(name),
        lambda t, name: Topology(name),
        lambda t, name: Topology.from_dict({"name": "t", "sources": {name: None}}),
    ],
    ids=["topic", "source", "key", "processor", "sink", "target", "store", "topology", "document"],
)  # fmt: skip
def test_what_nobody_sees_is_in_no_name(call, letter):
    with pytest.raises(TopologyError) as caught:
        call(Topology("t"), f"a{letter}b")
    str(caught.value).encode("utf-8")
    assert len(str(caught.value).splitlines()) == 1


@settings(deadline=None)
@given(st.lists(names, min_size=2, max_size=6, unique=True))
@example(["&", "&amp;", "&amp;amp;", '"', '\\\\"', "\\\\", "\\\\n"])
def test_different_names_are_quoted_differently_and_end_where_they_end(found):
    texts = [quoted(name) for name in found]
    assert len(set(texts)) == len(found)
    for text in texts:
        inside = text[1:-1].replace("\\\\", "").replace('\\"', "")
        assert text[0] == text[-1] == '"'
        assert '"' not in inside and "\\" not in inside


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(deadline=None)
@given(names, names)
@example("&lt;", "\\N")
@example('"', "\\")
@example("a&b", "a&amp;b")
@example("\\n", "\\")
@example("<b>", "%1")
def test_graphviz_reads_every_name_as_it_is(one, two):
    pygraphviz = pytest.importorskip("pygraphviz")
    topo = Topology(one)
    known = {one: "source", f"{one}{two}": "box", f"{one}{two}{two}": "box"}
    step = topo.source(one, partitions=1)
    for name in list(known)[1:]:
        step = step.process(name=name)
    read = pygraphviz.AGraph(string=topo.build().to_dot())
    # Graphviz itself says what is a node, and what its label is; names that differ are different nodes.
    found = [read.get_node(node).attr["label"] for node in read.nodes() if node.startswith("node:")]
    assert len(read.edges()) == len(known)
    assert sorted(map(shown, found)) == sorted(known)
    assert len(read.subgraphs()) == 1


def shown(label: str) -> str:
    """What Graphviz draws for a label, in which a backslash starts an escape and "&" an entity."""
    return html.unescape(re.sub(r"\\(.)", r"\1", label, flags=re.DOTALL))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_picture_is_well_formed_and_shows_the_names():
    pytest.importorskip("pygraphviz")
    from taskplace.cli.topology import svg

    topo = Topology('say "&amp;" <b>')
    wanted = ["a&b", "a&amp;b", "\\N", "\\", '"', "<i>x</i>", "flüge", "{a|b}"]
    step = topo.source("t&", partitions=1)
    for name in wanted:
        step = step.process(name=name)
    drawn = ElementTree.fromstring(svg(topo.build()))
    texts = {"".join(found.itertext()) for found in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {*wanted, "t&", "1 partition"} <= texts
