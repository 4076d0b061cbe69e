"""State that is kept by key behind topics that spread one key over several tasks is refused at the start."""

from __future__ import annotations

import pytest

from taskplace.spark.compile.infer import infer
from taskplace.spark.processors import Aggregate, Count, Deduplicate, TableJoin, count
from topology import Topology, TopologyError

BY = {"k": "string"}


def processors() -> list[object]:
    return [Count("s", by=BY), Aggregate("s", by=BY, n=count()), Deduplicate("s", by=BY)]


@pytest.mark.parametrize("between", [None, lambda context, rows: rows], ids=["directly", "behind a function"])
@pytest.mark.parametrize("processor", processors(), ids=["count", "aggregate", "deduplicate"])
def test_rows_without_a_key(processor, between):
    """Each row goes to any task, so every task would count a part of a key's rows."""
    topo = Topology("t")
    rows = topo.source("rows", partitions=4)
    (rows if between is None else rows.process(between)).process(processor, name="node")
    with pytest.raises(
        TopologyError, match=r"^node 'node': keeps .* 'rows' are .* without a key.* by \(k\)$"
    ):
        infer(topo.build())


def test_a_repartition_without_a_key():
    topo = Topology("t")
    rows = topo.source("rows", key="k", partitions=4).repartition(partitions=3, name="spread")
    rows.process(Count("s", by=BY), name="node")
    with pytest.raises(TopologyError, match="without a key"):
        infer(topo.build())


def test_one_task_needs_no_key():
    topo = Topology("t")
    topo.source("rows", partitions=1).process(Count("s", by=BY))
    infer(topo.build())


def test_a_merge_of_rows_with_and_without_a_key():
    topo = Topology("t")
    keyed, other = topo.source("a", key="k", partitions=4), topo.source("b", partitions=4)
    keyed.merge(other).process(Count("s", by=BY))
    with pytest.raises(TopologyError, match="'b' are partitioned without a key"):
        infer(topo.build())


@pytest.mark.parametrize("keyless", ["a", "b"])
def test_of_nodes_that_share_a_store_the_one_whose_rows_have_no_key_is_named(keyless):
    topo = Topology("t")
    topo.store("seen")
    for name in ("a", "b"):
        rows = topo.source(name, key=None if name == keyless else "k", partitions=4)
        rows.process(Deduplicate("seen", by=BY), stores=["seen"], name=f"node-{name}")
    says = f"node 'node-{keyless}': keeps state by key, but the rows of '{keyless}' are partitioned without"
    with pytest.raises(TopologyError, match=says) as caught:
        infer(topo.build())
    assert caught.value.node == f"node-{keyless}"


@pytest.mark.parametrize(
    "function", [None, lambda context, rows: rows], ids=["directly", "behind a function"]
)
def test_a_table_with_another_number_of_partitions(function):
    topo = Topology("t")
    stream, table = topo.source("in", key="k", partitions=4), topo.source("tab", key="k", partitions=3)
    table = table if function is None else table.process(function)
    topo.process(TableJoin("s", by=BY, columns={"c": "string"}), inputs=[stream, table], name="node")
    with pytest.raises(TopologyError, match=r"different numbers of partitions \('in' has 4, 'tab' has 3\)"):
        infer(topo.build())


@pytest.mark.parametrize(
    ("key", "partitions", "says"),
    [
        ("k", 3, "different numbers of partitions"),
        (["k", "o"], 4, r"share a store .* partitioned by \(k\) and \(k, o\)"),
        ("k", 4, None),
    ],
)
def test_a_store_that_two_nodes_share(key, partitions, says):
    topo = Topology("t")
    topo.store("seen")
    for name, columns, number in (("a", "k", 4), ("b", key, partitions)):
        rows = topo.source(name, key=columns, partitions=number)
        rows.process(
            Deduplicate("seen", by={"k": "string", "o": "string"}), stores=["seen"], name=f"node-{name}"
        )
    if says is None:
        infer(topo.build())
        return
    with pytest.raises(TopologyError, match=says) as caught:
        infer(topo.build())
    assert caught.value.node == "node-b"
