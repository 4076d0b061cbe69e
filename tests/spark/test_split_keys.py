"""State kept by a key that is cast: one key has one state, or the topology is refused before it writes anything."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.compile import sources
from taskplace.spark.ddl import struct_type
from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin, count
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from topology import Topology

STRING, INT64 = pa.string(), pa.int64()
TIMES = [datetime(2013, 1, 1, hour, tzinfo=UTC) for hour in range(12)]


class Own:
    """A processor of one's own that keeps state."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def layouts(self):
        return {"s": {"key": {"k": self.kind}, "value": {"n": "int64"}}}

    def process(self, context, *inputs):
        return inputs[0]


def per_key(kind: str) -> PerKey:
    return PerKey(
        "s", lambda key, rows, state: (state, rows), by={"k": kind}, state={"n": "int64"}, output={"k": kind}
    )


PROCESSORS = {
    "aggregate": lambda kind: Aggregate("s", by={"k": kind}, n=count()),
    "count": lambda kind: Count("s", by={"k": kind}),
    "per key": per_key,
    "deduplicate": lambda kind: Deduplicate("s", by={"k": kind}),
    "one's own": Own,
}


def over_one_source(processor: Any, partitions: int = 4) -> Topology:
    topo = Topology("t")
    topo.source("in", key="k", partitions=partitions).process(processor, name="keeps").sink(
        "o", target=Nowhere()
    )
    return topo


class Nowhere:
    def publish(self, spark, batch_id, files):
        pass


def frame(kind: DataType, **more: DataType) -> Any:
    """Stands for a data frame whose column `k` is of this type."""
    schema = StructType()
    for name, field in {"k": kind, **more}.items():
        schema = schema.add(name, field)
    return schema


@pytest.mark.parametrize("make", PROCESSORS.values(), ids=PROCESSORS)
@pytest.mark.parametrize(
    ("source", "kept", "message"),
    [
        (StringType(), "int64", "a state key of type int64, but 'in' is partitioned by string"),
        (
            TimestampType(),
            "date",
            r"a state key of type date32\[day\], but 'in' is partitioned by timestamp\[us, tz=UTC\]",
        ),
        (DoubleType(), "int64", "partitioned by double"),
        (DoubleType(), "float32", "partitioned by double"),
        (DecimalType(10, 2), "float64", r"partitioned by decimal128\(10, 2\)"),
        (IntegerType(), "int64", None),
        (LongType(), "int32", None),
        (LongType(), "string", None),
        (DateType(), "timestamp", None),
        (TimestampType(), "timestamp", None),
        (StringType(), "binary", None),
    ],
)
def test_a_source_is_judged_before_anything_starts(make, source, kept, message):
    built = over_one_source(make(kept)).build()
    if message is None:
        sources.check_sources(built, {"in": frame(source)})
        return
    with pytest.raises(
        InputError, match=rf"^node 'keeps', column 'k': found .*{message}.*; use the type .*repartition"
    ):
        sources.check_sources(built, {"in": frame(source)})


def test_one_task_may_merge_what_it_likes():
    built = over_one_source(Count("s", by={"k": "int64"}), partitions=1).build()
    sources.check_sources(built, {"in": frame(StringType())})


@pytest.mark.parametrize("side", ["stream", "table"])
def test_either_side_of_a_table_join_is_judged(side):
    topo = Topology("t")
    stream, table = (topo.source(name, key="k", partitions=4) for name in ("stream", "table"))
    stream.join_table(table, TableJoin("s", by={"k": "int64"}, columns={"v": "int64"}), name="keeps").sink(
        "o", target=Nowhere()
    )
    built = topo.build()
    frames = {"stream": frame(LongType()), "table": frame(LongType(), v=LongType())}
    sources.check_sources(built, frames)
    with pytest.raises(InputError, match=r"co-partitioned|partitioned by string"):
        sources.check_sources(
            built, frames | {side: frame(StringType(), **({"v": LongType()} if side == "table" else {}))}
        )
    both = {"stream": frame(StringType()), "table": frame(StringType(), v=LongType())}
    with pytest.raises(InputError, match="'stream' is partitioned by string"):
        sources.check_sources(built, both)


def batches(world: World, topo: Topology, rows: pa.Table) -> Any:
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": rows})
    return placed


@pytest.mark.parametrize(
    ("kept", "values", "kind"),
    [("int64", ["7", "07", "007", "0007"] * 3, STRING), ("date", TIMES, pa.timestamp("us", tz="UTC"))],
)
def test_a_task_judges_the_rows_that_come(world, kept, values, kind):
    """Behind a repartition the types show only there. Without this, one key had a count in each of several tasks."""
    topo = Topology("t")
    rows = topo.source("in", key="x", partitions=2).repartition("k", name="again", partitions=4)
    rows.process(Count("s", by={"k": kept}), name="keeps").sink("o", target=ParquetSink(world.folder / "out"))
    table = pa.table({"x": pa.array(range(len(values)), INT64), "k": pa.array(values, kind)})
    placed = world.open(topo)
    with pytest.raises(
        InputError, match=r"node 'keeps', column 'k': found .*'again-repartition' is partitioned by"
    ):
        world.batch(placed, 0, **{"in": table})
    assert placed.journal.last_batch == -1
    assert world.sent("out") == {}


def test_a_processor_of_one_s_own_that_casts_the_key_does_not_hide_it(world):
    def as_number(context, rows):
        return rows.set_column(rows.schema.get_field_index("k"), "k", rows["k"].cast(INT64))

    topo = Topology("t")
    cast = topo.source("in", key="k", partitions=4).process(as_number)
    cast.process(Count("s", by={"k": "int64"}), name="keeps").sink("o", target=Nowhere())
    with pytest.raises(InputError, match="'in' is partitioned by string"):
        batches(world, topo, pa.table({"k": ["7", "07"]}))
    again = Topology("t")
    cast = again.source("in", key="k", partitions=4).process(as_number).repartition("k")
    cast.process(Count("s", by={"k": "int64"}), name="keeps").sink("o", target=Nowhere())
    placed = batches(world, again, pa.table({"k": ["7", "07", "8"]}))
    assert world.stored(placed, "s") == [(7, 2), (8, 1)]


def test_merged_topics_whose_keys_were_made_one_type_behind_the_split_are_refused():
    """A processor makes both an int64, but the one was hashed as an int32, to another task."""
    topo = Topology("t")
    one, two = (topo.source(name, key="k", partitions=4) for name in ("a", "b"))
    longer = one.process(lambda context, rows: rows.cast(pa.schema([("k", INT64)])))
    longer.merge(two).process(Count("s", by={"k": "int64"}), name="keeps").sink("o", target=Nowhere())
    sources.check_sources(topo.build(), {"a": frame(LongType()), "b": frame(LongType())})
    with pytest.raises(InputError, match="co-partitioned keys of different types"):
        sources.check_sources(topo.build(), {"a": frame(IntegerType()), "b": frame(LongType())})


def test_a_store_that_the_topology_declares_is_judged_too():
    topo = Topology("t")
    store = {"name": "s", "key": {"k": "int64"}, "value": {"n": "int64"}}
    kept = topo.source("in", key="k", partitions=4).process(
        lambda context, rows: rows, name="keeps", stores=[store]
    )
    kept.sink("o", target=Nowhere())
    with pytest.raises(InputError, match="node 'keeps', column 'k'"):
        sources.check_sources(topo.build(), {"in": frame(StringType())})


def test_a_source_without_a_key_is_spread_by_what_spark_can_hash():
    columns = [("a", "int"), ("m", "map<string,int>"), ("s", "struct<x:map<int,int>>")]
    assert sources.hashable("in", struct_type(columns)) == ["a"]
    with pytest.raises(InputError, match=r"sources\.in: found .*expected a key"):
        sources.hashable("in", struct_type(columns[1:]))


@pytest.mark.parametrize("typed", [(False, True, False), (True, False, True)])
@pytest.mark.parametrize("merged", [False, True])
def test_a_batch_whose_keys_are_nulls_without_a_type_goes_on(world, typed, merged):
    def regrouped(context, rows):
        text = rows["typed"][0].as_py()
        return rows.append_column("g", pa.array(["x", None], STRING) if text else pa.nulls(2))

    def grouped(context, rows):
        return rows.append_column("g", pa.array([None, "x"], STRING))

    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1)
    stream = source.process(regrouped, name="r").repartition(key="g", name="by-g", partitions=4)
    if merged:
        other = source.process(grouped, name="s").repartition(key="g", name="by-g-too", partitions=4)
        stream = stream.merge(other, name="m")
    stream.process(Count("n", by={"g": "string"}), name="n").sink(
        "o", target=ParquetSink(world.folder / "out")
    )
    for batch, text in enumerate(typed):
        placed = world.open(topo)
        world.batch(placed, batch, **{"in": pa.table({"k": ["a", "b"], "typed": [text, text]})})
    texts = sum(typed)
    nulls = texts + 2 * (3 - texts)
    assert world.stored(placed, "n") == [("x", texts + 3 * merged), (None, nulls + 3 * merged)]


def test_a_key_s_column_is_bound_though_another_one_has_no_type_yet(world):
    def regrouped(context, rows):
        kind = STRING if context.batch_id == 0 else INT64
        return rows.append_column("g", pa.nulls(rows.num_rows)).append_column("h", rows["k"].cast(kind))

    topo = Topology("t")
    stream = topo.source("in", key="k", partitions=2).process(regrouped, name="r")
    again = stream.repartition(key=["g", "h"], name="by-g", partitions=8)
    counted = again.process(Count("n", by={"g": "string", "h": "string"}), name="n")
    counted.sink("o", target=ParquetSink(world.folder / "out"))
    placed, rows = world.open(topo), pa.table({"k": list("123456789")})
    world.batch(placed, 0, **{"in": rows})
    for driver in (placed, world.open(topo)):
        with pytest.raises(CheckpointError, match=r"had the types null, string, found null, int64"):
            world.batch(driver, 1, **{"in": rows})
        assert driver.journal.last_batch == 0
