"""State kept by a key that is cast: one key has one state, or the topology is refused before it writes anything."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.compile.sources import check_sources, hashable
from taskplace.spark.ddl import struct_type
from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin, count
from taskplace.spark.sinks import ParquetSink
from topology import Stream, Topology

STRING, INT64 = pa.string(), pa.int64()
TIMES = [datetime(2013, 1, 1, hour, tzinfo=timezone.utc) for hour in range(12)]


class Own:
    """A processor of one's own that keeps state."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def layouts(self):
        return {"s": {"key": {"k": self.kind}, "value": {"n": "int64"}}}

    def process(self, context, *inputs):
        return inputs[0]


def per_key(kind: str) -> PerKey:
    types = {"by": {"k": kind}, "state": {"n": "int64"}, "output": {"k": kind}}
    return PerKey("s", lambda key, rows, state: (state, rows), **types)


PROCESSORS = {
    "aggregate": lambda kind: Aggregate("s", by={"k": kind}, n=count()),
    "count": lambda kind: Count("s", by={"k": kind}),
    "per key": per_key,
    "deduplicate": lambda kind: Deduplicate("s", by={"k": kind}),
    "one's own": Own,
}
COUNT = PROCESSORS["count"]("int64")


def sources(*names: str, partitions: int = 4) -> list[Stream]:
    topo = Topology("t")
    return [topo.source(name, key="k", partitions=partitions) for name in names]


def keeps(stream: Stream, processor: Any = COUNT) -> Stream:
    return stream.process(processor, name="keeps")


def frame(kind: str, **more: str) -> StructType:
    """Return the schema of a data frame whose column `k` is of this type."""
    schema = struct_type({"k": kind, **more}.items())
    assert schema is not None
    return schema


def judged(stream: Stream, **frames: StructType) -> None:
    check_sources(stream.topology.build(), frames)


@pytest.mark.parametrize("make", PROCESSORS.values(), ids=PROCESSORS)
@pytest.mark.parametrize(
    ("source", "kept", "message"),
    [
        ("string", "int64", "a state key of type int64, but 'a' is partitioned by string"),
        ("timestamp", "date", r"type date32\[day\], but 'a' is partitioned by timestamp\[us, tz=UTC\]"),
        ("double", "int64", "partitioned by double"),
        ("double", "float32", "partitioned by double"),
        ("decimal(10, 2)", "float64", r"partitioned by decimal128\(10, 2\)"),
        *((source, kept, None) for source, kept in (("int", "int64"), ("long", "int32"), ("long", "string"))),
        *((source, kept, None) for source, kept in (("date", "timestamp"), ("string", "binary"))),
    ],
)
def test_a_source_is_judged_before_anything_starts(make, source, kept, message):
    (a,) = sources("a")
    if message is None:
        judged(keeps(a, make(kept)), a=frame(source))
        return
    with pytest.raises(InputError, match=rf"^node 'keeps', column 'k': .*{message}.*; use the type"):
        judged(keeps(a, make(kept)), a=frame(source))


def test_one_task_may_merge_what_it_likes():
    (a,) = sources("a", partitions=1)
    judged(keeps(a), a=frame("string"))


@pytest.mark.parametrize("side", ["a", "b"])
def test_either_side_of_a_table_join_is_judged(side):
    stream, table = sources("a", "b")
    join = TableJoin("s", by={"k": "int64"}, columns={"v": "int64"})
    joined = stream.join_table(table, join, name="keeps")
    fine, texts = ({"a": frame(kind), "b": frame(kind, v="long")} for kind in ("long", "string"))
    judged(joined, **fine)
    with pytest.raises(InputError, match=r"co-partitioned|partitioned by string"):
        judged(joined, **fine | {side: texts[side]})
    with pytest.raises(InputError, match="'a' is partitioned by string"):
        judged(joined, **texts)


@pytest.mark.parametrize(
    ("kept", "values", "kind"),
    [("int64", ["7", "07", "007", "0007"] * 3, STRING), ("date", TIMES, pa.timestamp("us", tz="UTC"))],
)
def test_a_task_judges_the_rows_that_come(world, kept, values, kind):
    """Behind a repartition the types show only there. Without this, one key had a count in each of several tasks."""
    topo = Topology("t")
    rows = topo.source("in", key="x", partitions=2).repartition("k", name="again", partitions=4)
    keeps(rows, Count("s", by={"k": kept})).sink("o", target=ParquetSink(world.folder / "out"))
    placed = world.open(topo)
    with pytest.raises(InputError, match=r"node 'keeps', column 'k': .*'again-repartition' is partitioned"):
        world.batch(placed, 0, **{"in": pa.table({"x": range(len(values)), "k": pa.array(values, kind)})})
    assert placed.journal.last_batch == -1
    assert world.sent("out") == {}


def test_a_processor_of_one_s_own_that_casts_the_key_does_not_hide_it(world):
    def as_number(context, rows):
        return rows.set_column(0, "k", rows["k"].cast(INT64))

    keys = pa.table({"k": ["7", "07", "8"]})
    (a,) = sources("a")
    with pytest.raises(InputError, match="'a' is partitioned by string"):
        world.batch(world.open(keeps(a.process(as_number)).topology), 0, a=keys)
    (a,) = sources("a")
    placed = world.open(keeps(a.process(as_number).repartition("k")).topology)
    world.batch(placed, 0, a=keys)
    assert world.stored(placed, "s") == [(7, 2), (8, 1)]


def test_merged_topics_whose_keys_were_made_one_type_behind_the_split_are_refused():
    """A processor makes both an int64, but the one was hashed as an int32, to another task."""
    one, two = sources("a", "b")
    longer = one.process(lambda context, rows: rows.cast(pa.schema([("k", INT64)])))
    merged = keeps(longer.merge(two))
    judged(merged, a=frame("long"), b=frame("long"))
    with pytest.raises(InputError, match="co-partitioned keys of different types"):
        judged(merged, a=frame("int"), b=frame("long"))


def test_a_store_that_the_topology_declares_is_judged_too():
    (a,) = sources("a")
    store = {"name": "s", "key": {"k": "int64"}, "value": {"n": "int64"}}
    kept = a.process(lambda context, rows: rows, name="keeps", stores=[store])
    with pytest.raises(InputError, match="node 'keeps', column 'k'"):
        judged(kept, a=frame("string"))


def test_a_source_without_a_key_is_spread_by_what_spark_can_hash():
    columns = [("a", "int"), ("m", "map<string,int>"), ("s", "struct<x:map<int,int>>")]
    assert hashable("in", struct_type(columns)) == ["a"]
    with pytest.raises(InputError, match=r"sources\.in: found .*expected a key"):
        hashable("in", struct_type(columns[1:]))


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
    stream.process(Count("n", by={"g": "string"}), name="n")
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
    again.process(Count("n", by={"g": "string", "h": "string"}), name="n")
    placed, rows = world.open(topo), pa.table({"k": list("123456789")})
    world.batch(placed, 0, **{"in": rows})
    for driver in (placed, world.open(topo)):
        with pytest.raises(CheckpointError, match=r"had the types null, string, found null, int64"):
            world.batch(driver, 1, **{"in": rows})
        assert driver.journal.last_batch == 0
