"""Automatic names are legal and stay apart; topics that would be one are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import Topology, TopologyError, violations


# -- automatic names ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("topic", "key", "name"),
    [
        ("flüge", "k", "fluge-by-k-13c26d3a"),
        ("flights", "origin airport", "flights-by-origin_airport-e4216460"),
        ("flights", ["a/b", "c"], "flights-by-a_b-c-6a73f3c3"),
        ("航班", None, "__-spread-d91d2a0a"),
    ],
)
def test_automatic_names_of_repartitions_are_legal(topic: str, key: Any, name: str) -> None:
    topo = Topology("t")
    assert topo.source(topic, partitions=2).repartition(key).name == f"{name}-source"
    assert topo.build().node(name).topic == f"{name}-repartition"


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cn"]), min_size=1).filter(str.strip)
)
def test_every_topic_and_key_has_a_repartition(text: str) -> None:
    topo = Topology("t")
    source = topo.source(text, partitions=2)
    again = [source.repartition([text, f"{text}k"]), source.repartition(text), source.repartition(text)]
    assert len({stream.name for stream in again}) == 3
    assert violations(topo.build()) == ()


def test_names_that_would_look_alike_stay_two_in_any_order() -> None:
    def made(*topics: str) -> dict[str, str]:
        topo = Topology("t")
        return {topic: topo.source(topic, partitions=1).repartition("k").name for topic in topics}

    alike = ("a b", "a/b", "a_b", "ä", "a")
    assert made(*alike) == made(*reversed(alike)), "no number that hangs on who was first"
    assert len(set(made(*alike).values())) == 5
    assert made("a_b") == {"a_b": "a_b-by-k-source"}, "what is legal stays as it is"


def test_long_names_end_in_a_hash() -> None:
    one, two = (Topology("t").source("x" * 300 + end).repartition("k").name for end in "ab")
    assert one != two
    assert len(one) == len(two) == 180 + len("-source")


def test_the_second_input_is_in_the_name_of_a_join_and_of_a_merge_alone() -> None:
    topo = Topology("t")
    a, b, c = (topo.source(name, key="k", partitions=1) for name in "abc")
    assert a.merge(b, c).name == "a-merge-b"
    assert a.join_table(b).name == a.join_stream(b).name.removesuffix("-2") == "a-join-b"
    assert topo.process(inputs=[a, b]).name == "a-process"


def test_an_automatic_name_gives_way_to_a_name_that_was_given() -> None:
    topo = Topology("t")
    topo.source("flights-process")
    flights = topo.source("flights")
    assert flights.process().name == "flights-process-2"
    topo.source("flights-by-k-source")
    assert flights.repartition("k").name == "flights-by-k-2-source", "both ends of it need a name"


# -- topics that would be one -----------------------------------------------------------------------------------
def changelog_is_input(topo: Topology) -> None:
    topo.source("delays-changelog").process(name="p", stores=[{"name": "delays"}])


def stores_collide(topo: Topology) -> None:
    topo.source("a").process(name="p", stores=[{"name": "a.b"}, {"name": "a_b"}])


def repartition_collides(topo: Topology) -> None:
    topo.source("r_1-repartition")
    topo.source("a").repartition("k", name="r.1")


def repartitions_collide(topo: Topology) -> None:
    source = topo.source("a")
    source.repartition("k", name="r.1")
    source.repartition("k", name="r_1")


@pytest.mark.parametrize(
    ("describe", "node", "message"),
    [
        (
            changelog_is_input,
            "delays",
            "store 'delays': its topic 'delays-changelog' and 'delays-changelog' of source",
        ),
        (
            stores_collide,
            "a_b",
            "store 'a_b': its topic 'a_b-changelog' and 'a.b-changelog' of store 'a.b' are the same to Kafka",
        ),
        (
            repartition_collides,
            "r.1",
            "repartition 'r.1': its topic 'r.1-repartition' and 'r_1-repartition' of source",
        ),
        (
            repartitions_collide,
            "r_1",
            "repartition 'r_1': its topic 'r_1-repartition' and 'r.1-repartition' of repartition 'r.1'",
        ),
    ],
)
def test_topics_that_would_be_one_are_refused(
    describe: Callable[[Topology], None], node: str, message: str
) -> None:
    topo = Topology("t")
    describe(topo)
    with pytest.raises(TopologyError) as caught:
        topo.build()
    assert message in str(caught.value)
    assert caught.value.node == node


def test_topics_from_outside_and_stores_without_a_changelog_collide_with_nothing() -> None:
    topo = Topology("t")
    topo.source("a.b").merge(topo.source("a_b"), topo.source("s-changelog")).process(
        name="p", stores=[{"name": "s", "logged": False}, {"name": "a.b"}, {"name": "a_b", "logged": False}]
    )
    assert violations(topo.build()) == ()


def test_a_sink_has_a_directory_of_its_name() -> None:
    for longest in ("x" * 255, "\u00fc" * 42, "/" * 85):
        topo = Topology("t")
        rows = topo.source("in")
        rows.sink(longest)
        with pytest.raises(TopologyError, match=r"found a sink's name of 25[68] bytes, expected at most 255"):
            rows.sink(longest + longest[0])
        with pytest.raises(TopologyError, match="bytes, expected at most 255"):
            rows.process(name="p" * 254).sink()  # an automatic name
