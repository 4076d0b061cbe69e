"""Types of columns: how they are written, as what they are staged, and which one holds the values of two others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from taskplace.errors import InputError
from taskplace.spark.casts import common, converted
from taskplace.spark.ddl import struct_type, written_columns
from taskplace.spark.types import TypeTextError, Unreadable, arrow_schema, parse, readable, text
from taskplace.spark.worker.program import Operator, Program
from topology import TaskId

FLAT = [
    *(pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32()),
    *(pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(9, 2)),
]
INTEGERS = [pa.type_for_alias(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
NAMES = st.text("ab `:,<>", min_size=1, max_size=3)


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.dictionaries(NAMES, inner, min_size=1, max_size=2)
    structs = fields.map(lambda fields: pa.struct(list(fields.items())))
    return st.one_of(inner.map(pa.list_), st.builds(pa.map_, st.sampled_from(FLAT), inner), structs)


@given(st.recursive(st.sampled_from(FLAT), nested, max_leaves=4))
def test_a_type_is_written_so_that_it_is_read_back(kind):
    assert parse(text(kind)).equals(kind)
    assert readable(kind).equals(kind)
    assert common(kind, kind, grow=False) is kind


# -- written types ---------------------------------------------------------------------------------------------------


def test_types_are_nested_as_deep_as_the_limit() -> None:
    assert str(parse("array<" * 100 + "int" + ">" * 100)).count("list<") == 100
    with pytest.raises(TypeTextError, match=r"^found 'types nested too deeply', expected at most 100"):
        parse("array<" * 101 + "int" + ">" * 101)
    assert len(parse(f"struct<{', '.join(f'c{i}: array<int>' for i in range(200))}>")) == 200


@pytest.mark.parametrize(
    ("written", "place", "found", "expected"),
    [
        ("decimal(0)", "", "0 digits", "a decimal of 1 to 38 digits"),
        ("decimal(39)", "", "39 digits", "a decimal of 1 to 38 digits"),
        ("decimal(2, 3)", "", "a scale of 3 with a precision of 2", "a scale of 0 to 2"),
        ("decimal(x)", "", "x", "a whole number behind 'decimal('"),
        ("decimal(1234567890)", "", "1234567890", "a whole number behind 'decimal('"),
        ("list<int>>", "", ">", "nothing more behind 'list<int>'"),
        ("list(int)", "", "(", "'<' behind 'list'"),
        ("list<int", "", "the end of the type", "'>' behind 'list<int'"),
        ("map<int>", "", ">", "',' behind 'map<int'"),
        ("struct<a: int b>", "a", "b", "',' or '>' behind 'struct<a: int'"),
        ("struct<a: map<int, x>>", "a.value", "x", "a type"),
        ("", "", "the end of the type", "a type"),
        (f"struct<{'a' * 52}: >", "a" * 52, ">", f"a type behind 'struct<{'a' * 52}:'"),
        (f"struct<{'a' * 53}: >", "a" * 53, ">", f"a type behind '...truct<{'a' * 53}:'"),
    ],
)
def test_an_error_names_the_place_and_what_was_expected(written, place, found, expected) -> None:
    with pytest.raises(TypeTextError) as caught:
        parse(written)
    error = caught.value
    assert (".".join(error.place), error.found, error.expected) == (place, found, expected)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("decimal(38, 38)", pa.decimal128(38, 38)),
        (str(pa.decimal128(20, 2)), pa.decimal128(20, 2)),
        ("numeric(9)", pa.decimal128(9, 0)),
        ("struct<`a``b`: int, c date NOT NULL>", pa.struct([("a`b", pa.int32()), ("c", pa.date32())])),
        ("timestamp[ms, tz=Europe/Berlin]", pa.timestamp("ms", "Europe/Berlin")),
        ("time64[us]", pa.time64("us")),
        ("DOUBLE", pa.float64()),
    ],
)
def test_types_that_are_read(written: str, kind: pa.DataType) -> None:
    assert parse(written) == kind


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("integer64", "x: found .*; did you mean 'integer'"),
        ("strin", "x: found .*; did you mean 'string'"),
        ("interval", "x: found "),
        ("list<", r"x\.element: found 'the end of the type', expected a type behind 'list<'"),
        (5, r"x: found .*'decimal\(9, 2\)'"),
    ],
)
def test_the_types_of_a_store_name_the_nearest(kind, message):
    with pytest.raises(InputError, match=rf"^s\.{message}"):
        arrow_schema({"x": kind}, "s")


# -- Spark's schemas -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "simple"),
    [
        ("BIGINT", "bigint"),
        ("integer not null", "int"),
        ("dec", "decimal(10,0)"),
        ("NUMERIC(5)", "decimal(5,0)"),
        ("decimal( 38 , 9 )", "decimal(38,9)"),
        ("char(3)", "string"),
        ("array<array<smallint>>", "array<array<smallint>>"),
        ("struct<`a b`: int not null, c struct<d: date>>", "struct<a b:int,c:struct<d:date>>"),
        ("map<tinyint, timestamp_ntz>", "map<tinyint,timestamp_ntz>"),
        ("timestamp", "timestamp"),
        ("void", "void"),
        *((rare, None) for rare in ("", "inty", "array<int", "geometry(4326)")),
        ("timestamp without time zone", None),
        *((rare, None) for rare in ("interval day to second", "array<variant>", "string collate UTF8_LCASE")),
    ],
)
def test_types_of_spark(written, simple):
    """What is not known makes the schema unknown."""
    found = struct_type([("id", "long"), ("x", written)])
    assert (found and found.simpleString()) == (simple and f"struct<id:bigint,x:{simple}>")


def test_what_a_timestamp_is_depends_on_the_session():
    for setting, kind in (("TIMESTAMP_LTZ", spark.TimestampType), ("timestamp_ntz", spark.TimestampNTZType)):
        found = struct_type([("x", "timestamp")], setting)
        assert found is not None
        assert isinstance(found["x"].dataType, kind)


def test_written_columns():
    columns = [("a", "interval day to second"), ("b", "time(6) NOT NULL"), ("c", "variant COMMENT 'a, b'")]
    assert written_columns(", ".join(map(" ".join, columns))) == columns
    for ddl in ("", "id", "id long,", "id long name string", "a-b long", "id long) x int", "1"):
        with pytest.raises(TypeTextError):
            written_columns(ddl)


@pytest.mark.parametrize("name", ["variant", "geometry", "geography"])
def test_the_encoding_of_a_value_of_spark_is_no_struct(name):
    kind = getattr(spark, f"{name.capitalize()}Type")(*([] if name == "variant" else ["ANY"]))
    for whole in (kind, spark.ArrayType(kind), spark.StructType([spark.StructField("v", kind)])):
        with pytest.raises(Unreadable, match=f"^a {name} would be stored as a struct of its encoding"):
            readable(to_arrow_type(whole, timezone="UTC"))


# -- common types ----------------------------------------------------------------------------------------------------


@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS))
def test_the_common_type_of_integers_holds_the_ends_of_both(one, other):
    found = common(one, other)
    assert found == common(other, one)
    if found is None:
        assert pa.uint64() in (one, other)
        return
    for kind in (one, other):
        limits = np.iinfo(kind.to_pandas_dtype())
        ends = pa.chunked_array([pa.array([limits.min, limits.max, None], kind)])
        assert converted(ends, found).to_pylist() == ends.to_pylist()
    assert (common(one, other, grow=False) is None) == (found != one)


A_NULL, A_DATE = (
    pa.struct([("a", a), ("b", b)]) for a, b in ((pa.int8(), pa.null()), (pa.int16(), pa.date32()))
)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int32(), pa.float64(), None),
        (pa.int64(), pa.decimal128(20, 0), None),
        (pa.date32(), pa.timestamp("us"), None),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.string(), pa.binary(), None),
        (pa.bool_(), pa.int8(), None),
        (pa.decimal256(76, 0), pa.decimal128(2, 1), None),
        (pa.list_(pa.int64()), pa.int64(), None),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())]), None),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.int64(), pa.int64()), None),
        (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal256(76, 38)),
        (pa.decimal128(10, 2), pa.decimal128(12, 6), pa.decimal128(14, 6)),
        (pa.float16(), pa.float64(), pa.float64()),
        (pa.date32(), pa.date64(), pa.date32()),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("s", "Asia/Tokyo"), pa.timestamp("ms", "Asia/Tokyo")),
        (pa.time32("s"), pa.time64("us"), pa.time64("us")),
        (pa.duration("s"), pa.duration("ns"), pa.duration("ns")),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string_view(), pa.string()),
        (A_NULL, pa.struct([("b", pa.date32()), ("a", pa.int16())]), A_DATE),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
    ],
    ids=str,
)
def test_common_types(one, other, both):
    assert common(one, other) == both
    if not pa.types.is_struct(one):  # its fields have the order of the first
        assert common(other, one) == both


LISTS = [pa.large_list(pa.large_string()), pa.list_(pa.dictionary(pa.int8(), pa.string()))]


@pytest.mark.parametrize("kind", LISTS, ids=str)
def test_nested_values_are_converted_with_their_nulls(kind):
    column = pa.chunked_array([pa.array([["a"], None, ["b"]], pa.list_(pa.string())).cast(kind).slice(1)])
    assert converted(column, pa.list_(pa.string())).to_pylist() == [None, ["b"]]
    rows = pa.chunked_array([pa.array([{"a": 1, "b": "x"}, None, {"b": "y", "a": None}])]).slice(1)
    wider = pa.struct([("b", pa.string()), ("a", pa.decimal128(20, 0))])
    assert converted(rows, wider).to_pylist() == [None, {"b": "y", "a": None}]


SOURCES = Operator("a", "source", topic="A"), Operator("b", "source", topic="B")
MERGE = (*SOURCES, Operator("all", "merge", ("a", "b")), Operator("out", "sink", ("all",)))


def merged(one: pa.Table, other: pa.Table) -> pa.Table:
    return Program(0, MERGE, {}).run(TaskId(0, 0), 0, {"A": one, "B": other}, {}).sinks["out"]


def test_a_merge_takes_what_one_type_holds():
    one = pa.table({"n": pa.array([1], pa.int32()), "x": pa.nulls(1)})
    other = pa.table({"x": ["b"], "n": [2**40]})
    assert merged(one, other).to_pylist() == [{"n": 1, "x": None}, {"n": 2**40, "x": "b"}]
    assert merged(one, other).schema.types == [pa.int64(), pa.string()]
    nothing = pa.table({"other": pa.array([], pa.float64())})
    assert merged(nothing, other).equals(other)
    assert merged(other, nothing).equals(other)
    with pytest.raises(InputError, match=r"all, column 'n': found 'double from b, int64 from a'.*pandas"):
        merged(pa.table({"n": [1]}), pa.table({"n": [1.0, None]}))
