"""Keys of internal topics, through a whole `Placed` without Spark: one type for all batches and tasks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.compile import sources
from taskplace.spark.processors import Count, TableJoin
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from tests.support.word_counts import INT16, INT32, INT64, STRING
from topology import Topology


# ------------------------------------------------------------------------- keys of internal topics
def by_g(world: World, processor: Any) -> Topology:
    topo = Topology("t")
    again = topo.source("in", key="k", partitions=2).process(processor, name="p")
    again = again.repartition(key="g", name="by-g", partitions=4)
    again.process(Count("n", by={"g": "int64"}), name="n").sink("o", target=ParquetSink(world.folder / "out"))
    return topo


def as_it_is(context, rows):
    return rows


def through_pandas(context, rows):
    """Whole numbers among which there is a null become floats."""
    return pa.Table.from_pandas(rows.to_pandas(), preserve_index=False)


def groups(values: list[int | None], kind: pa.DataType, keys: str | None = None) -> pa.Table:
    names = list(keys or map(str, range(len(values))))
    return pa.table({"k": pa.array(names, STRING), "g": pa.array(values, kind)})


def test_a_repartition_s_key_that_another_driver_finds_of_another_type_is_refused(world):
    some = list(range(8))
    world.batch(world.open(by_g(world, as_it_is)), 0, **{"in": groups(some, INT32)})
    other = world.open(by_g(world, as_it_is))
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"'by-g-repartition' had the types int32, found int64"):
            world.batch(other, 1, **{"in": groups(some, INT64)})
        assert other.journal.last_batch == 0
    world.batch(other, 1, **{"in": groups(some, INT32)})
    world.batch(world.open(by_g(world, as_it_is)), 2, **{"in": groups(some[:3], INT32)})
    groups_of = {0: some, 1: some, 2: some[:3]}
    assert world.sent("out") == {batch: [(g, batch + 1) for g in found] for batch, found in groups_of.items()}


@pytest.mark.parametrize(
    ("keys", "values"), [("aa", [7, None]), ("ab", [7, None])], ids=["one task", "of two tasks, one"]
)
def test_a_key_that_becomes_a_float_among_nulls_is_refused(world, keys, values):
    placed = world.open(by_g(world, through_pandas))
    world.batch(placed, 0, **{"in": groups([7, 7, 7, 7], INT64, "abcd")})
    with pytest.raises(CheckpointError, match=r"topic 'by-g-repartition' had the types int64, found double"):
        world.batch(placed, 1, **{"in": groups(values, INT64, keys)})
    assert placed.journal.last_batch == 0
    world.batch(placed, 1, **{"in": groups([7], INT64, "a")})
    assert world.sent("out") == {0: [(7, 4)], 1: [(7, 5)]}


def test_a_first_batch_whose_tasks_do_not_agree_on_the_type_of_a_key_is_refused(world):
    placed = world.open(by_g(world, through_pandas))
    with pytest.raises(CheckpointError, match=r"topic 'by-g-repartition' had the types (int64|double)"):
        world.batch(placed, 0, **{"in": groups([7, None], INT64, "ab")})
    assert placed.journal.last_batch == -1
    assert world.sent("out") == {}


def test_a_small_number_that_grows_is_hashed_as_before_and_goes_on(world):
    some = list(range(-4, 4))
    for batch, kind in enumerate((INT16, INT32, pa.int8(), INT16)):
        world.batch(world.open(by_g(world, as_it_is)), batch, **{"in": groups(some, kind)})
    some.sort(key=repr)
    assert world.sent("out") == {batch: [(g, batch + 1) for g in some] for batch in range(4)}


def test_a_batch_without_rows_says_nothing_of_the_types_of_keys(world):
    placed = world.open(by_g(world, as_it_is))
    world.batch(placed, 0, **{"in": groups([], pa.float64())})
    world.batch(placed, 1, **{"in": groups([1, 2], INT32)})
    world.batch(placed, 2, **{"in": groups([], pa.float64())})
    world.batch(placed, 3, **{"in": groups([2], INT32)})
    assert world.sent("out") == {1: [(1, 1), (2, 1)], 3: [(2, 2)]}


def test_a_repartitioned_side_of_a_join_may_be_empty_and_then_of_any_type(world):
    def upper(context, rows):
        frame = rows.to_pandas()  # a column of nothing is of doubles, or of objects
        frame["n"] = frame["k"].str.upper() if len(frame) else frame["k"]
        return pa.Table.from_pandas(frame, preserve_index=False)

    topo = Topology("t")
    flights = topo.source("flights", key="id", partitions=2)
    planes, join = topo.source("planes", key="k", partitions=2), {"by": {"k": "string"}}
    again = flights.process(upper, name="upper").repartition(key="k", name="by-k", partitions=2)
    joined = again.join_table(planes, TableJoin("p", **join, columns={"seats": "int64"}), name="j")
    joined.sink("o", target=ParquetSink(world.folder / "out"))
    placed = world.open(topo)

    def batch(number: int, ids: str, keys: str, table: dict[str, int]) -> None:
        left = {"id": pa.array(list(ids), STRING), "k": pa.array(list(keys), STRING)}
        right = {"k": pa.array(list(table), STRING), "seats": pa.array(list(table.values()), INT64)}
        world.batch(placed, number, flights=pa.table(left), planes=pa.table(right))

    batch(0, "12", "ab", {"a": 5})
    batch(1, "", "", {"b": 6, "a": 7})
    batch(2, "", "", {})
    batch(3, "34", "ab", {})
    first, last = [("1", "a", "A", 5), ("2", "b", "B", None)], [("3", "a", "A", 7), ("4", "b", "B", 6)]
    assert world.sent("out") == {0: first, 3: last}


# ------------------------------------------------------------------------- what sources may be keyed by
def test_collated_keys_are_refused():
    topo = Topology("t")
    source = topo.source("in", key=["n", "k"], partitions=2)
    source.process(Count("c", by={"n": "int32", "k": "string"})).sink("o")
    built, collated = topo.build(), StringType("UTF8_LCASE")
    with pytest.raises(InputError, match=r"^sources\.in: found .a key of int, string collate UTF8_LCASE"):
        sources.check_sources(built, {"in": StructType().add("n", IntegerType()).add("k", collated)})
    keys = StructType().add("n", IntegerType()).add("k", StringType())
    sources.check_sources(built, {"in": keys.add("other", collated)})
