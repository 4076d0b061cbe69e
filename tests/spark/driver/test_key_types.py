"""Keys of topics that feed one state have one type, over all tasks, batches and drivers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.compile.infer import infer
from taskplace.spark.compile.keys import KeyTypes, alike
from taskplace.spark.processors import Count, Deduplicate, TableJoin
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from topology import Topology

BY = {"k": "int64"}
TYPES = {"a": pa.int64(), "b": pa.int64()}


def as_declared(topic: str) -> Any:
    """Return a processor that gives the key of a topic the type in `TYPES`."""
    return lambda context, rows: rows.set_column(0, "k", rows["k"].cast(TYPES[topic]))


def two_topics(world: World, how: str) -> Topology:
    """Return a topology in which the rows of two internal topics feed one state."""
    topo = Topology("t")
    a, b = (
        topo.source(name, key="i", partitions=2)
        .process(as_declared(name), name=f"cast-{name}")
        .repartition(key="k", name=f"{name}-by-k", partitions=4)
        for name in "ab"
    )
    if how == "a merge":
        out = a.merge(b).process(Count("n", by=BY), name="n")
    elif how == "a join":
        out = a.join_table(b, TableJoin("n", by=BY, columns={"w": "int64"}), name="n")
    else:
        topo.store("n")
        out, _ = (one.process(Deduplicate("n", by=BY), stores=["n"]) for one in (a, b))
    out.sink("o", target=ParquetSink(world.folder / "out"))
    return topo


def keys(*values: int, column: str = "v") -> pa.Table:
    numbers = pa.array(values, pa.int64())
    return pa.table({"k": numbers, "i": numbers, column: numbers})


HOW = pytest.mark.parametrize("how", ["a merge", "a join", "a shared store"])


@HOW
@pytest.mark.parametrize("other", [pa.string(), pa.float64(), pa.int32()], ids=str)
def test_types_that_differ_between_tasks_and_batches_are_refused_before_the_commit(
    world, monkeypatch, how, other
):
    monkeypatch.setitem(TYPES, "b", other)
    placed = world.open(two_topics(world, how))
    world.batch(placed, 0, a=keys(1, 2, 3), b=keys(column="w"))
    with pytest.raises(InputError, match=r"co-partitioned keys .* \(a-.*: int64; b-.*cast the keys"):
        world.batch(placed, 1, a=keys(), b=keys(7, column="w"))
    assert placed.journal.last_batch == 0
    again = world.open(two_topics(world, how))  # another driver goes by the manifest
    with pytest.raises(InputError, match="co-partitioned keys of different types"):
        world.batch(again, 1, a=keys(), b=keys(7, column="w"))
    monkeypatch.setitem(TYPES, "b", pa.int64())
    world.batch(again, 1, a=keys(), b=keys(7, column="w"))


@HOW
def test_equal_types_go_on(world, how):
    placed = world.open(two_topics(world, how))
    world.batch(placed, 0, a=keys(1, 2, 3), b=keys(column="w"))
    world.batch(placed, 1, a=keys(), b=keys(1, column="w"))
    assert placed.journal.last_batch == 1


def test_a_key_of_only_nulls_has_no_type_yet(world):
    built = two_topics(world, "a merge").build()
    check = KeyTypes(built, alike(built, infer(built)))
    topics = {"a-by-k-repartition": ["int64"], "b-by-k-repartition": ["null"]}
    check(topics)
    with pytest.raises(InputError):
        check(topics | {"b-by-k-repartition": ["double"]})


def test_topics_of_one_task_and_of_separate_states_may_differ():
    topo = Topology("t")
    for name, partitions in (("a", 4), ("b", 4), ("c", 1), ("d", 1)):
        stream = topo.source(name, key="k", partitions=partitions)
        if name == "c":
            alone = stream
        elif name == "d":
            alone.merge(stream).process(Count("one", by=BY), name="one")
        else:
            stream.process(Count(f"n-{name}", by=BY), name=f"n-{name}")
    assert alike(topo.build(), infer(topo.build())) == ()
