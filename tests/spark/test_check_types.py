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
    build(topo, topo.source("in", key="k", partitions=2))
    built = topo.build()
    check_sources(built, {"in": schema(ddl)} | {topic: schema(other) for topic, other in more.items()})
    programs(built)


def refused(build, match: str, ddl: str = COLUMNS, **more: str) -> None:
    with pytest.raises(InputError, match=match):
        check(build, ddl, **more)


def processed(processor):
    return lambda topo, rows: rows.process(processor, name="p")


def per_key(**given) -> PerKey:
    return PerKey("s", lambda k, r, s: (s, r), **{"by": BY, "state": {"v": "long"}, "output": BY, **given})


@pytest.mark.parametrize(
    ("processor", "match"),
    [
        ({"s": sum_("tags")}, r"^node 'p', Aggregate\('s'\)\.s: found \"'tags', list<.*expected double"),
        ({"s": sum_("who", "int64")}, r"\.s: found \"'who', struct"),
        ({"s": sum_("at", "int64")}, r"\.s: found \"'at', timestamp.*a number has no unit of time"),
        ({"s": max_("tags")}, r"\.s: found \"'tags', list"),
        ({"s": min_("attrs", "string")}, r"\.s: found \"'attrs', map"),
        ({"s": max_("day", "int64")}, r"\.s: found \"'day', date32"),
        ({"s": avg("tags")}, r"\.s_sum: found \"'tags', list"),
        ({"s": first("who")}, r"\.s: found \"'who', struct"),
        ({"s": sum_("flag", "decimal(9, 2)")}, r"\.s: found \"'flag', bool"),
        (Deduplicate("s", by=BY | {"tags": "string"}), r"Deduplicate\('s'\)\.by\.tags: found 'list<"),
        (Count("s", by=BY | {"at": "int64"}), r"\.by\.at: found 'timestamp.*a number has no unit of time"),
        (Count("s", by=BY, window=Tumbling("tags", "1 hour")), r"window\.column: found \"'tags', list<"),
        (per_key(by=BY | {"who": "int64"}), r"PerKey\('s'\)\.by\.who: found 'struct"),
    ],
)
def test_types_that_a_processor_does_not_take(processor, match):
    made = Aggregate("s", by=BY, **processor) if isinstance(processor, dict) else processor
    refused(processed(made), match)


@pytest.mark.parametrize(
    "aggregates",
    [
        {"s": sum_("n", "decimal(9, 2)"), "m": max_("n", "decimal(5, 0)")},
        {"a": avg("price", "decimal(18, 2)")},
        {"s": sum_("k"), "b": max_("raw", "binary"), "t": max_("at", "timestamp"), "d": min_("day", "date")},
        {"c": count("tags"), "f": first("at"), "x": max_("x", "float32"), "f2": max_("flag", "bool")},
    ],
)
def test_aggregates_that_are_let_through(aggregates):
    check(processed(Aggregate("s", by=BY, **aggregates)))


def joined(**options):
    def build(topo, rows):
        table = topo.source("table", key="k", partitions=2)
        rows.join_table(table, TableJoin("j", by=BY, **{"columns": {"v": "long"}, **options}), name="j")

    return build


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"deleted": "v"}, r"^node 'j', TableJoin\('j'\)\.deleted: found \"'v', int64\""),
        ({"deleted": "gonne"}, r"^node 'j', deleted: found \"no column 'gonne'\".*did you mean 'gone'"),
        ({"order_by": ["list"]}, r"TableJoin\('j'\)\.order_by\.list: found 'list<.*can be compared"),
        ({"order_by": ["seen"], "columns": {"seen": "date"}}, r"\.order_by\.seen: .*expected timestamp"),
        ({"columns": {"list": "string"}}, r"TableJoin\('j'\)\.columns\.list: found 'list<"),
        ({"columns": {"seen": "long"}}, r"TableJoin\('j'\)\.columns\.seen: found 'timestamp"),
    ],
)
def test_tables(options, match):
    table = "k string, v long, gone boolean, list array<int>, seen timestamp"
    refused(joined(**options), match, table=table)
    fine = {"v": "decimal(9, 0)", "seen": "timestamp"}
    check(joined(deleted="gone", order_by=["seen", "v"], columns=fine), table=table)


# -- sinks and merges --------------------------------------------------------------------------------------------


def summed(**schema):
    def build(topo, rows):
        sums = Aggregate("s", by=BY, n=sum_("n", "int64"), x=max_("x"))
        rows.process(sums, name="p").sink("out", schema={"k": "string", **schema})

    return build


def test_a_declared_sink_takes_rows_that_fit():
    refused(summed(n="int32", x="double"), r"^sinks\.out\.schema\.n: found 'int64', expected int32")
    refused(summed(n="int64", x="int64"), r"^sinks\.out\.schema\.x: found 'double'")
    refused(summed(n="int64", y="double"), r"^sinks\.out\.schema: found \"no column 'x'\"")
    check(summed(x="double", n="int64"))
    check(summed(x="double", n="double"))  # it takes integers
    check(lambda topo, rows: rows.sink("out", target=ForeachBatch(print)))


def test_a_column_that_the_target_keeps_for_itself(tmp_path):
    target, match = ParquetSink(tmp_path), r"^sinks\.out: found \"a column 'Batch_ID'"
    refused(lambda topo, rows: rows.sink("out", target=target), match, "k string, Batch_ID long")


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
    def behind(topo, rows):
        rows.process(Deduplicate("s", by=BY), name="p").repartition("k", name="r").sink("out")

    ddl, match = f"k string, x {kind}", rf"^sinks\.out\.x: found '{says}"
    refused(lambda topo, rows: rows.sink("out"), match, ddl)
    refused(behind, match, ddl)
    check(lambda topo, rows: rows.process(Count("s", by=BY), name="p").sink("out"), ddl)  # not passed on


def test_columns_that_never_get_a_type():
    lists, match = "k string, x array<void>", r"^sinks\.out\.x: found 'list<null>', expected a typed"
    refused(lambda topo, rows: rows.sink("out"), match, lists)
    check(lambda topo, rows: rows.sink("out", schema={"k": "string", "x": "list<int>"}), lists)
    check(lambda topo, rows: rows.sink("out"), "k string, x void")
    only, match = per_key(output={"x": "null"}), r"^sinks\.out: .*only nulls without a type in \['x'"
    refused(lambda topo, rows: rows.process(only).sink("out"), match)
    took = per_key(output=BY | {"took": pa.duration("us")})
    refused(lambda topo, rows: rows.process(took).sink("out"), r"^sinks\.out\.took: found 'duration\[us\]'")


def test_a_type_that_only_spark_has_is_judged_by_processors():
    match = r"^node 'p', Aggregate\('s'\)\.m: found \"'x', struct<"
    refused(processed(Aggregate("s", by=BY, m=max_("x", "int64"))), match, "k string, x variant")
    match = r"^node 'p', Aggregate\('s'\)\.by\.x: found 'struct<>'"
    refused(processed(Count("s", by={"x": "string"})), match, "k string, x struct<>")


def test_merges_of_unlike_columns():
    def build(topo, rows):
        rows.merge(topo.source("more", key="k", partitions=2), name="m").sink("out")

    ddl, match = "k string, n long", r"^node 'm': found \"columns \['k', 'other'\] from more, \['k', 'n'\]"
    refused(build, match, ddl, more="k string, other long")
    match = r"^node 'm', column 'n': found 'double from more, int64 from in'"
    refused(build, match, ddl, more="k string, n double")
    check(build, ddl, more="n int, k string")


# -- repartitions, and processors of one's own -------------------------------------------------------------------


def test_keys_of_repartitions():
    def build(key, kind):
        counted = Count("s", by={key: kind})
        return lambda topo, rows: rows.repartition(key, name="r", partitions=2).process(counted, name="p")

    refused(build("tags", "string"), r"^node 'r', key: found \"'tags', list<string>\", expected a key of")
    refused(build("price", "decimal(12, 2)"), r"^node 'r', key: found \"'price', decimal\(12, 2\)\"")
    match = r"^node 'p', column 'at': found \"a state key of type date32\[day\], but 'r-repart"
    refused(build("at", "date"), match)
    check(build("at", "timestamp"))


def test_what_a_processor_of_ones_own_hides_is_left_to_the_tasks():
    counted = Count("s", by=BY | {"tags": "string"})
    check(lambda topo, rows: rows.process(lambda context, rows: rows).process(counted, name="p"))


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
    match = r"^node 'p', Strict\.n: found 'string', expected int64"
    refused(processed(Strict()), match, "k string, n string")
    check(processed(Other()), "k string, n string")


def test_integers_as_decimals_of_fewer_digits():
    rows = pa.table({"x": pa.array([1234567, -5, None], pa.int64())})
    codec = RowCodec(arrow_schema({"x": "decimal(9, 2)"}))
    assert list(map(str, codec.canonical(rows)["x"].to_pylist())) == ["1234567.00", "-5.00", "None"]
    with pytest.raises(InputError, match=r"x: found 'int64', expected decimal128\(9, 2\) \(Decimal value"):
        codec.encode(pa.table({"x": [12345678]}))
    assert cast(pa.array([2**64 - 1], pa.uint64()), pa.decimal128(38, 18)).to_pylist()[0] == 2**64 - 1
    check(processed(Count("s", by=BY | {"n": "decimal(9,2)"})))
