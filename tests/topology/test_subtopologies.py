"""Connected parts, their numbers, their order, and the cycles that are refused."""

from __future__ import annotations

import pytest

from topology import Topology, TopologyError, violations


def parts(topo: Topology) -> list[list[str]]:
    return [[n.name for n in sub.nodes] for sub in topo.build().subtopologies]


def test_unconnected_pipelines_are_subtopologies_in_declared_order() -> None:
    topo = Topology("t")
    b, a = topo.source("b", partitions=1), topo.source("a", partitions=1)
    a.process(name="pa")
    b.process(name="pb")
    assert parts(topo) == [["b", "pb"], ["a", "pa"]]


def test_a_shared_store_connects() -> None:
    topo = Topology("t")
    topo.store("s")
    topo.source("a", partitions=2).process(name="pa", stores=["s"])
    topo.source("between", partitions=1)
    topo.source("b", partitions=3).process(name="pb", stores=["s"])
    assert parts(topo) == [["a", "pa", "b", "pb"], ["between"]]
    assert topo.build().subtopologies[0].partitions == 3


def test_a_repartition_cuts_and_its_topic_is_read_by_one_internal_source() -> None:
    topo = Topology("t")
    again = topo.source("a", key="k", partitions=2).repartition("x", name="r", partitions=5)
    again.process(name="p").repartition("y", name="q").sink("out")
    built = topo.build()
    assert parts(topo) == [["a", "r"], ["r-source", "p", "q"], ["q-source", "out"]]
    assert [sub.partitions for sub in built.subtopologies] == [2, 5, 5]
    assert [built.node(n).key for n in ("a", "r", "r-source", "p", "q-source", "out")] == [
        ("k",),
        ("x",),
        ("x",),
        ("x",),
        ("y",),
        ("y",),
    ]
    assert built.node("q").topic == built.node("q-source").topic == "q-repartition"


def test_order_runs_writers_before_readers_whatever_their_numbers() -> None:
    topo = Topology("t")
    planes = topo.source("planes", key="tailnum", partitions=4)  # declared first: subtopology 0 ...
    flights = topo.source("flights", key="origin", partitions=6)
    by_tail = flights.repartition("tailnum", name="by-tail")
    by_tail.join_table(planes, name="with-plane")  # ... but it reads what subtopology 1 writes
    built = topo.build()
    assert built.subtopology_of("with-plane").id == 0
    assert built.order == (1, 0)
    assert violations(built) == ()


def test_numbers_stay_when_parts_are_added_at_the_end() -> None:
    topo = Topology("t")
    flights = topo.source("flights", key="k", partitions=4)
    flights.repartition("x", name="r").process(name="p", stores=[{"name": "s"}])
    before = {n.name: sub.id for sub in topo.build().subtopologies for n in sub.nodes}
    topo.source("more", partitions=3).repartition("y").process()
    flights.process(name="also")  # attached to an existing part
    after = {n.name: sub.id for sub in topo.build().subtopologies for n in sub.nodes}
    assert before.items() <= after.items()


def test_sharing_a_store_across_a_repartition_is_a_cycle() -> None:
    topo = Topology("t")
    topo.store("s")
    first = topo.source("a", partitions=2).process(name="p", stores=["s"])
    first.repartition("k", name="r").process(name="q", stores=["s"])
    with pytest.raises(TopologyError) as caught:
        topo.build()
    assert caught.value.node == "r"
    assert str(caught.value) == (
        "node 'r': a cycle, its records return to subtopology 0 through r, because of store 's'; "
        "add a repartition or a separate store on one side"
    )


def test_merging_a_stream_with_its_own_repartition_is_a_cycle_with_a_remedy() -> None:
    topo = Topology("t")
    a = topo.source("a", partitions=2)
    a.merge(a.repartition("k", name="r"), name="both")
    with pytest.raises(
        TopologyError, match=r"node 'r': a cycle, .* because of node 'both'; add a repartition"
    ):
        topo.build()
    cured = Topology("t")
    a = cured.source("a", partitions=2)
    a.repartition("k", name="other").merge(a.repartition("k", name="r"), name="both")
    assert violations(cured.build()) == ()


def test_a_longer_way_round_is_named_whole() -> None:
    topo = Topology("t")
    topo.store("s")
    one = topo.source("a", partitions=2).process(name="p", stores=["s"])
    two = one.repartition("k", name="r1").process(name="q")
    two.repartition("k", name="r2").process(name="z", stores=["s"])
    with pytest.raises(
        TopologyError, match=r"return to subtopology 0 through r1 -> r2, because of store 's'"
    ):
        topo.build()


def test_a_cycle_of_nodes_names_the_way_round() -> None:
    topo = Topology.from_dict(
        {
            "name": "t",
            "sources": {"a": {"partitions": 1}},
            "nodes": {"x": {"process": ["a", "z"]}, "y": {"process": "x"}, "z": {"process": "y"}},
        }
    )
    with pytest.raises(
        TopologyError, match=r"^node 'x': a cycle, x -> y -> z -> x; remove one of these inputs$"
    ) as caught:
        topo.build()
    assert caught.value.node == "x"


def test_a_cycle_through_a_repartition_is_named_too() -> None:
    topo = Topology.from_dict(
        {
            "name": "t",
            "sources": {"a": {"partitions": 1}},
            "nodes": {"x": {"process": ["a", "r"]}, "r": {"repartition": "x", "key": "k"}},
        }
    )
    with pytest.raises(
        TopologyError, match=r"^node 'x': a cycle, x -> r -> r-source -> x; remove one of these inputs$"
    ):
        topo.build()


def test_nodes_come_in_declared_order_as_far_as_the_flow_lets_them() -> None:
    """Not level by level: what was described together stays together in descriptions, drawings and structures."""
    topo = Topology("t")
    first = topo.source("a", partitions=2).process(name="p")
    second = topo.source("b", partitions=2).process(name="q")
    first.merge(second, name="m")
    built = topo.build()
    assert [n.name for n in built.subtopologies[0].nodes] == ["a", "p", "b", "q", "m"]
    lines = [
        line.split()[1] for line in built.describe().splitlines() if line.startswith("    ") and ":" in line
    ]
    assert lines == ["a", "p", "b", "q", "m"]


def test_subtopologies_run_by_number_as_far_as_repartitions_let_them() -> None:
    topo = Topology("t")
    tables = [topo.source(name, key="k", partitions=2) for name in ("late", "plain", "early", "last")]
    tables[2].repartition("k", name="r", partitions=2).join_table(tables[0], name="j")
    built = topo.build()
    assert [sub.sources[0].name for sub in built.subtopologies] == ["late", "plain", "early", "last"]
    # 0 reads what 2 writes; level by level it would be 1, 2, 3, 0.
    assert built.order == (1, 2, 0, 3)
