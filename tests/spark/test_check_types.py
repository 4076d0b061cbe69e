"""Types that no batch could take are refused at the start, with the words of the first batch; others pass."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from taskplace.errors import InputError
from taskplace.spark import ForeachBatch, ParquetSink
from taskplace.spark.casts import cast
from taskplace.spark.compile.programs import programs
from taskplace.spark.compile.sources import check_sources
from taskplace.spark.ddl import struct_type, written_columns
from taskplace.spark.processors import (
    Aggregate,
    Count,
    Deduplicate,
    PerKey,
    TableJoin,
    Tumbling,
    avg,
    count,
    first,
    max_,
    min_,
    sum_,
)
from taskplace.spark.processors.facts import Facts
from taskplace.spark.state.rows import RowCodec
from taskplace.spark.types import arrow_schema
from topology import Topology

COLUMNS = (
    "k string, n long, x double, flag boolean, at timestamp, day date, raw binary, price decimal(12, 2), "
    "tags array<string>, who struct<a: int>, attrs map<string, int>"
)
BY = {"k": "string"}


#: Types that are read by Spark alone.
RARE = {
    "interval day to second": spark.DayTimeIntervalType(),
    "time(6)": spark.TimeType(),
    "array<time(6)>": spark.ArrayType(spark.TimeType()),
    "variant": spark.VariantType(),
    "map<string, struct<v: variant>>": spark.MapType(
        spark.StringType(), spark.StructType().add("v", spark.VariantType())
    ),
    "geometry(4326)": spark.GeometryType(4326),
}


def schema(ddl: str = COLUMNS) -> spark.StructType:
    first, _, rest = ddl.partition(", x ")
    if rest in RARE:
        return schema(first).add("x", RARE[rest])
    found = struct_type(written_columns(ddl))
    assert found is not None
    return found


def check(build, ddl: str = COLUMNS, **more: str) -> None:
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=2)
    build(topo, rows)
    built = topo.build()
    schemas = {"in": schema(ddl)} | {topic: schema(other) for topic, other in more.items()}
    check_sources(built, schemas)
    programs(built)


def refused(build, match: str, ddl: str = COLUMNS, **more: str) -> None:
    with pytest.raises(InputError, match=match):
        check(build, ddl, **more)


def processed(processor):
    return lambda topo, rows: rows.process(processor, name="p")


@pytest.mark.parametrize(
    ("aggregates", "match"),
    [
        ({"s": sum_("tags")}, r"^node 'p', Aggregate\('s'\)\.s: found \"'tags', list<.*expected double"),
        ({"s": sum_("who", "int64")}, r"Aggregate\('s'\)\.s: found \"'who', struct"),
        (
            {"s": sum_("at", "int64")},
            r"Aggregate\('s'\)\.s: found \"'at', timestamp.*a number has no unit of time",
        ),
        ({"s": max_("tags")}, r"\.s: found \"'tags', list"),
        ({"s": min_("attrs", "string")}, r"\.s: found \"'attrs', map"),
        ({"s": max_("day", "int64")}, r"\.s: found \"'day', date32"),
        ({"s": avg("tags")}, r"\.s_sum: found \"'tags', list"),
        ({"s": first("who")}, r"\.s: found \"'who', struct"),
        ({"s": sum_("flag", "decimal(9, 2)")}, r"\.s: found \"'flag', bool"),
    ],
)
def test_aggregates_of_types_that_they_do_not_take(aggregates, match):
    refused(processed(Aggregate("s", by=BY, **aggregates)), match)


@pytest.mark.parametrize(
    "aggregates",
    [
        {
            "s": sum_("n", "decimal(9, 2)"),
            "m": max_("n", "decimal(5, 0)"),
            "a": avg("price", "decimal(18, 2)"),
        },
        {"s": sum_("k"), "b": max_("raw", "binary"), "t": max_("at", "timestamp"), "d": min_("day", "date")},
        {"c": count("tags"), "f": first("at"), "x": max_("x", "float32"), "f2": max_("flag", "bool")},
    ],
)
def test_aggregates_that_are_let_through(aggregates):
    check(processed(Aggregate("s", by=BY, **aggregates)))


@pytest.mark.parametrize(
    ("processor", "match"),
    [
        (Deduplicate("s", by=BY | {"tags": "string"}), r"Deduplicate\('s'\)\.by\.tags: found 'list<"),
        (
            Count("s", by=BY | {"at": "int64"}),
            r"Aggregate\('s'\)\.by\.at: found 'timestamp.*a number has no unit of time",
        ),
        (
            Count("s", by=BY, window=Tumbling("tags", "1 hour")),
            r"window\.column: found \"'tags', list<string>\"",
        ),
        (
            PerKey("s", lambda k, r, s: (s, r), by=BY | {"who": "int64"}, state={"v": "long"}, output=BY),
            r"PerKey\('s'\)\.by\.who: found 'struct",
        ),
    ],
)
def test_keys_that_cannot_be_cast(processor, match):
    refused(processed(processor), match)


def joined(**options):
    def build(topo, rows):
        table = topo.source("table", key="k", partitions=2)
        columns = options.pop("columns", {"v": "long"})
        rows.join_table(table, TableJoin("j", by=BY, columns=columns, **options), name="j")

    return build


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"deleted": "v"},
            r"^node 'j', TableJoin\('j'\)\.deleted: found \"'v', int64\", expected a boolean column",
        ),
        ({"deleted": "gonne"}, r"^node 'j', deleted: found \"no column 'gonne'\".*did you mean 'gone'"),
        ({"order_by": ["list"]}, r"TableJoin\('j'\)\.order_by\.list: found 'list<.*can be compared"),
        (
            {"order_by": ["seen"], "columns": {"seen": "date"}},
            r"TableJoin\('j'\)\.order_by\.seen: found 'timestamp.*, kept as date32.*expected timestamp",
        ),
        ({"columns": {"list": "string"}}, r"TableJoin\('j'\)\.columns\.list: found 'list<"),
        ({"columns": {"seen": "long"}}, r"TableJoin\('j'\)\.columns\.seen: found 'timestamp"),
    ],
)
def test_tables(options, match):
    refused(joined(**options), match, table="k string, v long, gone boolean, list array<int>, seen timestamp")


def test_a_table_that_is_let_through():
    fine = joined(deleted="gone", order_by=["seen", "v"], columns={"v": "decimal(9, 0)", "seen": "timestamp"})
    check(fine, table="k string, v long, gone boolean, seen timestamp")


# -- sinks and merges --------------------------------------------------------------------------------------------


def summed(**sink):
    def build(topo, rows):
        rows.process(Aggregate("s", by=BY, n=sum_("n", "int64"), x=max_("x")), name="p").sink("out", **sink)

    return build


@pytest.mark.parametrize(
    ("sink", "match"),
    [
        (
            {"schema": {"k": "string", "n": "int32", "x": "double"}},
            r"^sinks\.out\.schema\.n: found 'int64', expected int32",
        ),
        ({"schema": {"k": "string", "n": "int64", "x": "int64"}}, r"^sinks\.out\.schema\.x: found 'double'"),
        (
            {"schema": {"k": "string", "n": "int64", "y": "double"}},
            r"^sinks\.out\.schema: found \"no column 'x'\"",
        ),
    ],
)
def test_a_declared_sink_that_rows_never_fit(sink, match):
    refused(summed(**sink), match)


def test_sinks_that_are_let_through(tmp_path):
    check(summed(schema={"x": "double", "k": "string", "n": "int64"}))
    check(summed(schema={"x": "double", "k": "string", "n": "double"}), COLUMNS)  # it takes integers
    check(lambda topo, rows: rows.sink("out", target=ForeachBatch(print)))


def test_a_column_that_the_target_keeps_for_itself(tmp_path):
    def build(topo, rows):
        rows.sink("out", target=ParquetSink(tmp_path))

    refused(build, r"^sinks\.out: found \"a column 'Batch_ID'", "k string, Batch_ID long")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("interval day to second", r"duration\[us\]"),
        ("time(6)", r"time64\[ns\]"),
        ("struct<>", r"struct<>"),
        ("array<time(6)>", r"list<.*time64\[ns\]>"),
        ("variant", r".*; a variant would be stored as a struct of its encoding: cast it to string"),
        ("map<string, struct<v: variant>>", r".*; a variant would be stored"),
        ("geometry(4326)", r".*; a geometry would be stored .*: use ST_AsBinary"),
    ],
)
def test_a_column_that_no_sink_can_store(kind, says):
    ddl = f"k string, x {kind}"
    refused(lambda topo, rows: rows.sink("out"), rf"^sinks\.out\.x: found '{says}", ddl)
    refused(  # behind nodes that pass it on
        lambda topo, rows: (
            rows.process(Deduplicate("s", by=BY), name="p").repartition("k", name="r").sink("out")
        ),
        rf"^sinks\.out\.x: found '{says}",
        ddl,
    )
    check(
        lambda topo, rows: rows.process(Count("s", by=BY), name="p").sink("out"), ddl
    )  # it is not passed on


def test_columns_that_never_get_a_type():
    refused(
        lambda topo, rows: rows.sink("out"),
        r"^sinks\.out\.x: found 'list<null>', expected a typed",
        "k string, x array<void>",
    )

    def only(topo, rows):
        rows.process(
            PerKey("s", lambda k, r, s: (s, r), by=BY, state={"v": "long"}, output={"x": "null"})
        ).sink("out")

    refused(only, r"^sinks\.out: found .*only nulls without a type in \['x'\]")
    check(lambda topo, rows: rows.sink("out"), "k string, x void")
    check(
        lambda topo, rows: rows.sink("out", schema={"k": "string", "x": "list<int>"}),
        "k string, x array<void>",
    )


def test_a_type_that_only_spark_has_is_judged_by_processors():
    refused(
        lambda topo, rows: rows.process(Aggregate("s", by=BY, m=max_("x", "int64")), name="p"),
        r"^node 'p', Aggregate\('s'\)\.m: found \"'x', struct<",
        "k string, x variant",
    )
    refused(
        lambda topo, rows: rows.process(Count("s", by={"x": "string"}), name="p"),
        r"^node 'p', Aggregate\('s'\)\.by\.x: found 'struct<>'",
        "k string, x struct<>",
    )


def test_what_spark_cannot_read():
    output = BY | {"took": pa.duration("us")}
    per_key = PerKey("s", lambda k, r, s: (s, r), by=BY, state={"v": "long"}, output=output)
    refused(
        lambda topo, rows: rows.process(per_key, name="p").sink("out"),
        r"^sinks\.out\.took: found 'duration\[us\]'",
    )


def test_merges_of_unlike_columns():
    def build(topo, rows):
        rows.merge(topo.source("more", key="k", partitions=2), name="m").sink("out")

    refused(build, r"^node 'm': found \"columns \['k', 'other'\] from more, \['k', 'n'\] from in\"", "k string, n long",
            more="k string, other long")  # fmt: skip
    refused(build, r"^node 'm', column 'n': found 'double from more, int64 from in'", "k string, n long",
            more="k string, n double")  # fmt: skip
    check(build, "k string, n long", more="n int, k string")


# -- repartitions ------------------------------------------------------------------------------------------------


def test_keys_of_repartitions():
    def build(key, by):
        return lambda topo, rows: rows.repartition(key, name="r", partitions=2).process(
            Count("s", by=by), name="p"
        )

    refused(
        build("tags", {"tags": "string"}),
        r"^node 'r', key: found \"'tags', list<string>\", expected a key of type",
    )
    refused(
        build("price", {"price": "decimal(12, 2)"}), r"^node 'r', key: found \"'price', decimal\(12, 2\)\""
    )
    refused(
        build("at", {"at": "date"}),
        r"^node 'p', column 'at': found \"a state key of type date32\[day\], but 'r-repart",
    )
    check(build("at", {"at": "timestamp"}))


def test_what_a_processor_of_ones_own_hides_is_left_to_the_tasks():
    def build(topo, rows):
        rows.process(lambda context, rows: rows, name="own").process(
            Count("s", by={"k": "string", "tags": "string"}), name="p"
        )

    check(build)


def test_a_processor_of_ones_own_may_judge_its_types():
    class Strict:
        def infer(self, inputs):
            if (row := inputs[0].nulls()) is not None and not pa.types.is_int64(kind := row["n"].type):
                raise InputError("Strict.n", found=str(kind), expected="int64")
            return Facts()

        def process(self, context, rows):
            return rows

    class Other(Strict):
        def process(self, context, rows):
            return rows

    check(processed(Strict()))
    refused(
        processed(Strict()), r"^node 'p', Strict\.n: found 'string', expected int64", "k string, n string"
    )
    check(processed(Other()), "k string, n string")


# -- casts -------------------------------------------------------------------------------------------------------


def test_integers_as_decimals_of_fewer_digits():
    rows = pa.table({"x": pa.array([1234567, -5, None], pa.int64())})
    codec = RowCodec(arrow_schema({"x": "decimal(9, 2)"}))
    assert list(map(str, codec.canonical(rows)["x"].to_pylist())) == ["1234567.00", "-5.00", "None"]
    with pytest.raises(
        InputError, match=r"x: found 'int64', expected decimal128\(9, 2\) \(Decimal value does not fit"
    ):
        codec.encode(pa.table({"x": [12345678]}))
    assert cast(pa.array([2**64 - 1], pa.uint64()), pa.decimal128(38, 18)).to_pylist()[0] == 2**64 - 1
    check(processed(Count("s", by=BY | {"n": "decimal(9,2)"})))
