"""A read by key finds the key, whatever has split the rows: Spark's hash, a partition column, or both after another."""

from __future__ import annotations

import pyarrow as pa
import pytest

from taskplace.spark.processors import Count, TableJoin
from taskplace.spark.worker.hashing import partition_of, partitions_of
from topology import Topology

KEYS = [f"N{number}" for number in range(60)]
BY, PARTITIONS = {"k": "string"}, 4


def rows(partitioner: str = "murmur2") -> pa.Table:
    """Return a row for each key, with the partition that a producer gives it."""
    numbers = partitions_of(pa.array([key.encode() for key in KEYS]), partitioner, PARTITIONS)
    by_hash = partition_of([pa.array(KEYS)], PARTITIONS)
    assert (numbers != by_hash).any()  # otherwise the wrong task would not be noticed
    return pa.table({"k": KEYS, "v": range(len(KEYS)), "partition": pa.array(numbers, pa.int32())})


def source(topo: Topology, name: str, partitioner: str = "murmur2"):
    column = {"partition_column": "partition", "key_partitioner": partitioner}
    return topo.source(name, key="k", partitions=PARTITIONS, **column)


def asked(placed, monkeypatch) -> set[int]:
    """Return how many tasks the reads of the known keys have asked."""
    reader, numbers = placed.store("n"), set()
    ask = reader._ask

    def counting(wanted, files=None):
        numbers.add(len(wanted))
        return ask(wanted, files)

    monkeypatch.setattr(reader, "_ask", counting)
    found = [reader.get({"k": key}) for key in KEYS]
    assert found == [{"count": 1}] * len(KEYS)
    numbers.discard(0)  # nothing is left to ask
    return numbers


@pytest.mark.parametrize("partitioner", ["murmur2", "consistent", "fnv1a"])
def test_a_store_behind_a_topic_asks_all_tasks_with_any_partitioner(world, monkeypatch, partitioner):
    topo = Topology("t")
    source(topo, "in", partitioner).process(Count("n", by=BY), name="count")
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": rows(partitioner)})
    assert asked(placed, monkeypatch) == {PARTITIONS}
    assert placed.store("n").get({"k": "unknown"}) is None


def test_a_store_behind_a_repartition_asks_the_task_of_sparks_hash(world, monkeypatch):
    topo = Topology("t")
    again = source(topo, "in").repartition(key="k", name="again", partitions=PARTITIONS)
    again.process(Count("n", by=BY), name="count")
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": rows()})
    assert asked(placed, monkeypatch) == {1}
    assert placed.store("n").get({"k": "unknown"}) is None


def test_the_store_of_a_join_finds_its_keys(world):
    topo = Topology("t")
    join = TableJoin("j", by=BY, columns={"v": "int64"})
    source(topo, "stream").join_table(source(topo, "table"), join, name="joined")
    placed = world.open(topo)
    world.batch(placed, 0, stream=rows().drop_columns("v").slice(0, 1), table=rows())
    found = placed.store("j").get_many(pa.table({"k": KEYS}))["value"].to_pylist()
    assert [value["v"] for value in found] == list(range(len(KEYS)))


def test_a_join_with_a_topic_of_sparks_hash_finds_its_keys_behind_a_repartition(world):
    topo = Topology("t")
    again = source(topo, "stream").repartition(key="k", name="again", partitions=PARTITIONS)
    table = topo.source("table", key="k", partitions=PARTITIONS)
    again.join_table(table, TableJoin("j", by=BY, columns={"v": "int64"}), name="joined")
    placed = world.open(topo)
    world.batch(placed, 0, stream=rows().drop_columns("v"), table=rows())
    found = placed.store("j").get_many(pa.table({"k": KEYS}))["value"].to_pylist()
    assert [value["v"] for value in found] == list(range(len(KEYS)))
