"""Connected parts, their numbers, their order, and the cycles that are refused."""

from __future__ import annotations

import pytest

from topology import Topology, TopologyError, violations


def parts(topo: Topology) -> list[list[str]]:
    return [[n.name for n in sub.nodes] for sub in topo.build().subtopologies]


def test_a_repartition_cuts_and_its_topic_is_read_by_one_internal_source():
    topo = Topology("t")
    again = topo.source("a", key="k", partitions=2).repartition("x", name="r", partitions=5)
    again.process(name="p").repartition("y", name="q").sink("out")
    built = topo.build()
    assert parts(topo) == [["a", "r"], ["r-source", "p", "q"], ["q-source", "out"]]
    assert [sub.partitions for sub in built.subtopologies] == [2, 5, 5]
    keys = {"a": "k", "r": "x", "r-source": "x", "p": "x", "q-source": "y", "out": "y"}
    assert {name: built.node(name).key for name in keys} == {name: (key,) for name, key in keys.items()}
    assert built.node("q").topic == built.node("q-source").topic == "q-repartition"


def test_nodes_and_subtopologies_come_in_declared_order_as_far_as_the_flow_lets_them():
    """Not level by level: what was described together stays together in descriptions, drawings and structures."""
    topo = Topology("t")
    first = topo.source("a", partitions=2).process(name="p")
    second = topo.source("b", partitions=2).process(name="q")
    first.merge(second, name="m")
    assert parts(topo) == [["a", "p", "b", "q", "m"]]
    topo = Topology("t")
    tables = [topo.source(name, key="k", partitions=2) for name in ("late", "plain", "early", "last")]
    tables[2].repartition("k", name="r", partitions=2).join_table(tables[0], name="j")
    built = topo.build()
    assert [sub.sources[0].name for sub in built.subtopologies] == ["late", "plain", "early", "last"]
    assert built.subtopology_of("j").id == 0
    # 0 reads what 2 writes; level by level it would be 1, 2, 3, 0.
    assert built.order == (1, 2, 0, 3)


def a_store_on_both_sides(topo: Topology) -> None:
    topo.store("s")
    first = topo.source("a", partitions=2).process(name="p", stores=["s"])
    first.repartition("k", name="r").process(name="q", stores=["s"])


def merged_with_its_own_repartition(topo: Topology) -> None:
    a = topo.source("a", partitions=2)
    a.merge(a.repartition("k", name="r"), name="both")


def a_longer_way(topo: Topology) -> None:
    topo.store("s")
    one = topo.source("a", partitions=2).process(name="p", stores=["s"])
    two = one.repartition("k", name="r1").process(name="q")
    two.repartition("k", name="r2").process(name="z", stores=["s"])


@pytest.mark.parametrize(
    ("describe", "node", "says"),
    [
        (
            a_store_on_both_sides,
            "r",
            "node 'r': a cycle, its records return to subtopology 0 through r, because of store 's'; "
            "add a repartition or a separate store on one side",
        ),
        (merged_with_its_own_repartition, "r", "through r, because of node 'both'; add a repartition"),
        (a_longer_way, "r1", "return to subtopology 0 through r1 -> r2, because of store 's'"),
        ({"x": {"process": ["a", "z"]}, "y": {"process": "x"}, "z": {"process": "y"}}, "x",
            "node 'x': a cycle, x -> y -> z -> x; remove one of these inputs"),
        ({"x": {"process": ["a", "r"]}, "r": {"repartition": "x", "key": "k"}}, "x",
            "node 'x': a cycle, x -> r -> r-source -> x; remove one of these inputs"),
    ],
)  # fmt: skip
def test_cycles_are_refused_with_the_way_round(describe, node, says):
    if callable(describe):
        topo = Topology("t")
        describe(topo)
    else:
        written = {"name": "t", "sources": {"a": {"partitions": 1}}, "nodes": describe}
        topo = Topology.from_dict(written)
    with pytest.raises(TopologyError) as caught:
        topo.build()
    assert says in str(caught.value) and caught.value.node == node


def test_two_repartitions_cure_a_cycle():
    topo = Topology("t")
    a = topo.source("a", partitions=2)
    a.repartition("k", name="other").merge(a.repartition("k", name="r"), name="both")
    assert violations(topo.build()) == ()
