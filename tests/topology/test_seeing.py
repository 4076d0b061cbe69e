"""What a topology looks like: the Kafka Streams text, the graph, the internal topics."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topology import Topology, TopologyNotReady


def flights() -> Topology:
    topo = Topology("flights")
    legs = topo.source("flights", key=["origin", "time_hour"], partitions=12)
    weather = topo.source("weather", key=["origin", "time_hour"], partitions=12)
    joined = legs.join_table(weather, name="with-weather", stores=[{"name": "weather-by-hour"}])
    by_tail = joined.repartition("tailnum", name="by-aircraft", partitions=6)
    both = by_tail.process(
        name="stats",
        stores=[
            {"name": "seen", "retention_ms": 60000},
            {"name": "delays"},
            {"name": "tmp", "logged": False},
        ],
    )
    both.sink("out", target="delays")
    both.merge(by_tail, name="all").sink("audit", target=object())
    return topo


def test_describe_is_what_kafka_streams_users_know() -> None:
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


def test_internal_topics_are_a_plan_to_print_and_compare() -> None:
    plan = flights().build().internal_topics()
    assert (
        str(plan)
        == """\
topic                      partitions  cleanup.policy  retention.ms
by-aircraft-repartition             6  delete          -1
delays-changelog                    6  compact         -1
seen-changelog                      6  compact,delete  60000
weather-by-hour-changelog          12  compact         -1"""
    )
    exists = {topic.name: topic.partitions for topic in plan}
    agreed = plan.compare(exists)
    assert not agreed
    assert str(agreed) == "internal topics are as planned"
    changes = plan.compare(
        {**exists, "seen-changelog": 5, "old-repartition": 2, "flights": 12} | {"delays-changelog": 6}
    )
    assert [(t.name, found) for t, found in changes.differ] == [("seen-changelog", 5)]
    assert changes.unneeded == ("old-repartition",)
    assert changes.create == ()


def test_internal_topics_need_known_counts() -> None:
    topo = Topology("t")
    topo.source("a").repartition("k", name="r")
    built = topo.build()
    with pytest.raises(TopologyNotReady, match="topic 'a': missing"):
        built.internal_topics()
    found = built.with_partitions({"a": 3, "r-repartition": 4})
    assert [(t.name, t.partitions) for t in found.internal_topics()] == [("r-repartition", 3)]


def test_the_graph_shows_clusters_stores_and_topics() -> None:
    dot = flights().build().to_dot()
    assert dot.count('subgraph "cluster_') == 2
    assert '"node:weather" -> "node:with-weather" [style=dashed];' in dot
    assert '"node:flights" -> "node:with-weather";' in dot
    assert '"node:by-aircraft" -> "topic:by-aircraft-repartition";' in dot
    assert '"topic:by-aircraft-repartition" -> "node:by-aircraft-source";' in dot
    assert '"store:tmp" [label="tmp", shape=cylinder, style="filled,dashed", ' in dot
    assert '"store:delays" [label="delays", shape=cylinder, style=filled, ' in dot
    assert (
        '"topic:by-aircraft-repartition" [label="by-aircraft-repartition\\n6 partitions", shape=box, ' in dot
    )
    unknown = Topology("t")
    unknown.source("a")
    assert '[label="a\\npartitions unknown", shape=plaintext]' in unknown.build().to_dot()


STATEMENT = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*")   # a quoted identifier ends at the first quote that is not escaped
        | (?P<word>[A-Za-z]+) | (?P<mark>->|[][{};=,])
    )""",
    re.VERBOSE | re.DOTALL,
)


@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip))
@example("&lt;", "\\N")
@example('"', "\\")
def test_any_name_survives_quoting(topic: str, name: str) -> None:
    topo = Topology(topic)
    topo.source(topic, partitions=1).process(name=f"{topic}{name}")
    dot = topo.build().to_dot()
    position, texts, depth = 0, [], 0
    while dot[position:].strip():
        found = STATEMENT.match(dot, position)
        assert found, f"not DOT at {dot[position : position + 40]!r}"
        position = found.end()
        if found["text"]:
            texts.append(found["text"])
        depth += {"{": 1, "}": -1}.get(found["mark"] or "", 0)
    assert depth == 0

    def shown(quoted: str) -> str:
        """What Graphviz would draw."""
        plain = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], quoted[1:-1], flags=re.DOTALL)
        return html.unescape(plain)

    expected = f"{topic}{name}".replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    assert expected in [shown(text) for text in texts]


@given(st.sampled_from([1, 2, 7]))
def test_equal_topologies_are_drawn_and_described_equally(partitions: int) -> None:
    one = flights().build().with_partitions({"flights": partitions, "weather": partitions})
    two = flights().build().with_partitions({"weather": partitions, "flights": partitions})
    assert (one.to_dot(), one.describe()) == (two.to_dot(), two.describe())
