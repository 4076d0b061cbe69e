"""A random batch is refused before its manifest or published as it was sent, and Spark reads what is published."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.sinks import ForeachBatch, ParquetSink
from tests.support.sink_streams import TASKS, Stream, made, table

TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
INSTANT, OLD = dt.datetime(2020, 1, 1, 1, 2, 3, tzinfo=dt.timezone.utc), dt.datetime(1582, 1, 1, 1, 2, 3)
SHORT = st.lists(st.integers(0, 9), max_size=2)
#: By kinds of types, their values.
GROUPS: list[tuple[Sequence[pa.DataType], st.SearchStrategy]] = [
    ([pa.null()], st.none()),
    ([pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()], st.integers(0, 100)),
    ([pa.float16(), pa.float32(), pa.float64()], st.sampled_from([0.5, 1.0, 2.0])),
    ([pa.bool_()], st.booleans()),
    (TEXTS, st.sampled_from(["", "a", "ü"])),
    ([pa.binary(), pa.large_binary(), pa.binary(3)], st.just(b"abc")),
    ([pa.date32(), pa.date64()], st.just(dt.date(2020, 2, 29))),
    ([pa.timestamp("s"), pa.timestamp("us")], st.just(OLD)),
    ([pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "UTC")], st.just(INSTANT)),
    ([pa.duration("us")], st.just(dt.timedelta(1))),
    ([pa.decimal128(3, 1), pa.decimal256(40, 1), pa.decimal32(5, 2)], st.just(Decimal("1.5"))),
    ([pa.list_(pa.null())], st.just([])),
    ([pa.list_(pa.int32()), pa.large_list(pa.int64())], SHORT),
    ([pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())])], st.just({"a": 1})),
    ([pa.map_(pa.string(), pa.int32())], st.just([("a", 1)])),
]
VALUES = {kind: values for kinds, values in GROUPS for kind in kinds}


@st.composite
def columns(draw: st.DrawFn, kinds: Sequence[pa.DataType]) -> pa.Table:
    """Return one task's rows: columns of some types, maybe without one of them, or in another order."""
    names = draw(st.permutations("ab")) if draw(st.integers(0, 3)) == 0 else ["a", "b"]
    names = names[: 1 if draw(st.integers(0, 9)) == 0 else 2]
    count = draw(st.integers(0, 3))
    made = {}
    for name in names:
        kind = draw(st.sampled_from(kinds))
        rows = draw(st.lists(st.none() | VALUES[kind], min_size=count, max_size=count))
        made[name] = pa.array(rows, kind)
    return pa.table(made)


@st.composite
def batches(draw: st.DrawFn) -> list[list[pa.Table]]:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    return draw(st.lists(st.lists(columns(kinds), min_size=1, max_size=TASKS), min_size=1, max_size=3))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(sends=batches())
def test_a_batch_is_refused_before_its_manifest_or_is_published_as_it_was_sent(tmp_path_factory, sends):
    with pytest.MonkeyPatch.context() as patch:
        stream = Stream(made(tmp_path_factory.mktemp("world"), patch))
        for number, tables in enumerate(sends):
            try:
                stream.batch(*tables)
            except InputError as error:
                assert str(error).startswith("sinks.out"), error
                assert stream.placed.journal.last_batch == number - 1
                event("refused")
                return
            event("published")
            assert stream.placed.journal.last_batch == number
            expected = [row for rows in tables for row in rows.to_pylist()]
            path = stream.world.folder / "out" / f"batch_id={number}"
            assert path.exists() == bool(expected)
            found = pq.read_table(path).to_pylist() if expected else []
            typed = {name for name, kind in stream.schema.items() if kind != "null"} if expected else set()
            wanted = [{name: row[name] for name in typed} for row in expected]
            assert all(row[name] is None for row in expected for name in row if name not in typed)
            assert sorted(map(canonical, found)) == sorted(map(canonical, wanted))


def canonical(row: dict[str, Any]) -> str:
    def plain(value: Any) -> Any:
        if isinstance(value, dt.datetime):
            return str(value.astimezone(dt.timezone.utc) if value.tzinfo else value)
        return str(float(value)) if isinstance(value, Decimal | int | float) else str(value)

    return repr(sorted((name, plain(value)) for name, value in row.items()))


#: What Spark reads of a type that is staged as another one.
READ = {
    pa.int8(): (7, "tinyint"),
    pa.uint8(): (200, "smallint"),
    pa.uint16(): (65_000, "int"),
    pa.uint32(): (2**32 - 1, "bigint"),
    pa.uint64(): (2**64 - 1, "decimal(20,0)"),
    pa.float16(): (1.5, "float"),
    pa.float64(): (0.1, "double"),
    pa.bool_(): (True, "boolean"),
    pa.dictionary(pa.int8(), pa.large_string()): ("ü", "string"),
    pa.string_view(): ("", "string"),
    pa.binary(3): (b"abc", "binary"),
    pa.large_binary(): (b"", "binary"),
    pa.uuid(): (b"sixteen bytes...", "binary"),
    pa.date64(): (dt.date(1582, 10, 4), "date"),
    pa.timestamp("ns"): (dt.datetime(1700, 1, 1, 0, 0, 0, 1), "timestamp_ntz"),
    pa.timestamp("s", "Europe/Berlin"): (dt.datetime(2020, 1, 1, 12), "timestamp"),
    pa.decimal256(38, 2): (Decimal("1.50"), "decimal(38,2)"),
    pa.decimal128(5, -2): (Decimal(100), "decimal(7,0)"),
    pa.list_(pa.dictionary(pa.int8(), pa.string())): (["a", None], "array<string>"),
    pa.list_(pa.uint8(), 2): ([1, 2], "array<smallint>"),
    pa.struct([("a b,;{}()=", pa.uint64()), ("c", pa.list_(pa.timestamp("ns")))]): (
        {"a b,;{}()=": Decimal(1), "c": [dt.datetime(2020, 1, 1)]},
        "struct<a b,;{}()=:decimal(20,0),c:array<timestamp_ntz>>",
    ),
    pa.map_(pa.string(), pa.uint32()): ({"a": 1}, "map<string,bigint>"),
}


def as_array(value: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array([value], kind.storage_type))
    return pa.array([list(value.items()) if pa.types.is_map(kind) else value], kind)


def as_it_is(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return value.asDict()
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.spark
def test_spark_reads_what_is_published(spark, world):
    stream = Stream(world)
    columns = {f"c {i}.,;": (kind, *read) for i, (kind, read) in enumerate(READ.items())}
    rows = pa.table({name: as_array(value, kind) for name, (kind, value, _) in columns.items()})
    nothing = pa.table({name: pa.nulls(1) for name in columns})
    stream.batch(table(k=["a"]).append_column("none", pa.nulls(1)), table(none=pa.nulls(1), k=["b"]))
    published = sorted((world.folder / "out").glob("batch_id=0/*.parquet"))
    seen: list[Any] = []
    sink = ForeachBatch(lambda df, _: seen.extend((df.schema.simpleString(), *df.sort("k").collect())))
    sink.publish(spark, 0, published)
    assert seen == ["struct<k:string,none:void>", ("a", None), ("b", None)]

    stream = Stream(world, ParquetSink(world.folder / "types"), "another")
    stream.batch(rows, nothing)
    stream.batch(nothing, rows)
    df = spark.read.parquet(str(world.folder / "types"))
    kinds = {name: kind for name, (_, _, kind) in columns.items()}
    assert {name: kind for name, kind in df.dtypes if name != "batch_id"} == kinds
    found = df.drop("batch_id").collect()
    expected = [value for _, value, _ in columns.values()]
    full = [[as_it_is(value) for value in row] for row in found if row[0] is not None]
    assert full == [expected, expected]
    assert [list(row) for row in found if row[0] is None] == [[None] * len(columns)] * 2
