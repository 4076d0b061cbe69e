"""Joined topics: groups, keys, and equal partition counts."""

from __future__ import annotations

import pytest

from topology import Topology, TopologyError


def test_unequal_counts_are_one_error_that_lists_all() -> None:
    topo = Topology("t")
    a = topo.source("flights", key="k", partitions=12)
    b = topo.source("weather", key="k", partitions=8)
    c = topo.source("planes", key="k", partitions=12)
    a.join_table(b, name="with-weather").join_table(c, name="with-plane")
    with pytest.raises(TopologyError) as caught:
        topo.build()
    assert str(caught.value) == (
        "nodes 'with-weather', 'with-plane': joined topics need equal partition counts, found flights=12, "
        "weather=8, planes=12; create the topics with equal counts, or repartition one side"
    )
    assert caught.value.node == "with-weather"


def test_groups_that_share_a_topic_are_one() -> None:
    topo = Topology("t")
    a, b, c, d = (topo.source(n, key="k", partitions=3) for n in "abcd")
    b.join_stream(c, name="bc")
    a.join_stream(b, name="ab")
    d.process()
    assert topo.build().copartition_groups == (("a", "b", "c"),)


def test_a_join_behind_processors_and_merges_groups_all_topics_behind_it() -> None:
    topo = Topology("t")
    a, b, c = (topo.source(n, key="k", partitions=3) for n in "abc")
    a.process().merge(b.process()).process().join_table(c.process(), name="j")
    assert topo.build().copartition_groups == (("a", "b", "c"),)


def test_a_merge_groups_nothing() -> None:
    topo = Topology("t")
    a, b = topo.source("a", key="k", partitions=3), topo.source("b", key="k", partitions=7)
    a.merge(b, name="m")
    built = topo.build()
    assert built.copartition_groups == ()
    assert built.node("m").key == ("k",)
    assert built.subtopologies[0].partitions == 7


def test_a_self_join_needs_no_partner_topic() -> None:
    topo = Topology("t")
    a = topo.source("a", key="k", partitions=3)
    a.join_stream(a, name="pairs")
    built = topo.build()
    assert built.node("pairs").parents == ("a", "a")
    assert built.copartition_groups == ()


def test_a_repartition_takes_its_groups_count() -> None:
    topo = Topology("t")
    by_tail = topo.source("flights", key="origin", partitions=12).repartition("tailnum", name="by-tail")
    by_tail.join_table(topo.source("planes", key="tailnum", partitions=5), name="j")
    built = topo.build()
    assert built.partitions == {"flights": 12, "by-tail-repartition": 5, "planes": 5}
    assert built.node("by-tail").partitions == built.node("by-tail-source").partitions == 5
    assert built.copartition_groups == (("by-tail-repartition", "planes"),)


def test_two_open_repartitions_that_meet_take_the_larger_writers_count() -> None:
    topo = Topology("t")
    a = topo.source("a", partitions=3).repartition("k", name="ra")
    b = topo.source("b", partitions=7).repartition("k", name="rb")
    a.join_stream(b, name="j")
    assert topo.build().partitions == {"a": 3, "ra-repartition": 7, "b": 7, "rb-repartition": 7}


def test_an_open_repartition_takes_a_declared_ones_count() -> None:
    topo = Topology("t")
    a = topo.source("a", partitions=3).repartition("k", name="ra")
    b = topo.source("b", partitions=7).repartition("k", name="rb", partitions=2)
    a.join_stream(b, name="j")
    assert topo.build().partitions["ra-repartition"] == 2


def test_a_chain_of_open_repartitions_takes_the_first_count() -> None:
    topo = Topology("t")
    topo.source("a", partitions=6).repartition("k", name="r").repartition("l", name="q")
    assert topo.build().partitions == {"a": 6, "r-repartition": 6, "q-repartition": 6}


@pytest.mark.parametrize("external", [True, False])
def test_a_declared_repartition_that_does_not_fit_is_an_error(external: bool) -> None:
    topo = Topology("t")
    a = topo.source("a", partitions=3).repartition("k", name="ra", partitions=4)
    b = topo.source("b", key="k", partitions=5)
    a.join_stream(b if external else b.repartition("k", name="rb", partitions=5), name="j")
    other = "b=5" if external else "rb-repartition=5"
    with pytest.raises(
        TopologyError,
        match=f"node 'j': .* found ra-repartition=4, {other}; set the count of the group on the repartition",
    ):
        topo.build()


def test_a_join_needs_keys() -> None:
    topo = Topology("t")
    topo.source("a", key="k", partitions=3).join_table(topo.source("b", partitions=3), name="j")
    with pytest.raises(
        TopologyError, match=r"node 'j': cannot join 'b', which has no \(common\) key; declare"
    ):
        topo.build()


def test_a_join_after_a_merge_of_other_keys_has_no_common_key() -> None:
    topo = Topology("t")
    a, b = topo.source("a", key="k", partitions=3), topo.source("b", key="l", partitions=3)
    a.merge(b, name="m").join_table(a, name="j")
    with pytest.raises(TopologyError, match=r"node 'j': cannot join 'm', which has no \(common\) key"):
        topo.build()


def test_joined_keys_need_as_many_columns() -> None:
    topo = Topology("t")
    a, b = topo.source("a", key=["k", "l"], partitions=3), topo.source("b", key="k", partitions=3)
    a.join_table(b, name="j")
    with pytest.raises(
        TopologyError, match=r"node 'j': cannot join 'a' by \(k, l\) with 'b' by \(k\); repartition"
    ):
        topo.build()


def test_joined_key_columns_may_have_other_names() -> None:
    topo = Topology("t")
    a, b = topo.source("a", key="tail", partitions=3), topo.source("b", key="tailnum", partitions=3)
    a.join_table(b, name="j")
    assert topo.build().node("j").key == ("tail",)


@pytest.mark.parametrize("join", ["join_table", "join_stream"])
@pytest.mark.parametrize("behind", ["source", "repartition", "process"])
def test_joined_keys_need_their_columns_in_one_order(join: str, behind: str) -> None:
    """A hash of several columns depends on their order: equal keys would lie in different partitions."""
    topo = Topology("t")
    a = topo.source("a", key=["origin", "hour"], partitions=3)
    b = topo.source("b", key=["hour", "origin"], partitions=3)
    if behind == "repartition":
        b = topo.source("c", partitions=2).repartition(["hour", "origin"], name="again", partitions=3)
    elif behind == "process":
        b = b.process(name="again")
    getattr(a, join)(b, name="j")
    with pytest.raises(TopologyError) as caught:
        topo.build()
    assert caught.value.node == "j"
    assert str(caught.value) == (
        f"node 'j': cannot join 'a' by (origin, hour) with {b.name!r} by (hour, origin): equal keys would lie in "
        "different partitions; declare the columns in the same order, or repartition one of them"
    )


def test_joined_keys_in_one_order_or_with_other_names_are_taken() -> None:
    topo = Topology("t")
    a = topo.source("a", key=["origin", "hour"], partitions=3)
    same, other = (
        topo.source(n, key=k, partitions=3) for n, k in (("b", ("origin", "hour")), ("c", ["at", "time"]))
    )
    a.join_table(same).join_table(other)
    assert topo.build().copartition_groups == (("a", "b", "c"),)
