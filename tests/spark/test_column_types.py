"""Types of columns: which one holds the values of two others, as what they are staged, and how they are written."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from taskplace.errors import InputError
from taskplace.spark.casts import INTEGERS, common, converted
from taskplace.spark.types import Unreadable, of_spark, parse, readable, text
from taskplace.spark.worker.program import Operator, Program
from topology import TaskId

FLAT = [
    *(pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32()),
    *(pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(9, 2)),
]
NAMES = st.text("ab `:,<>", min_size=1, max_size=3)
STAGED = st.recursive(
    st.sampled_from(FLAT),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.builds(pa.map_, st.sampled_from(FLAT), inner),
        st.dictionaries(NAMES, inner, min_size=1, max_size=2).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
    ),
    max_leaves=4,
)


@given(STAGED)
def test_a_type_is_written_so_that_it_is_read_back(kind):
    assert parse(text(kind)).equals(kind)
    assert readable(kind).equals(kind)
    assert common(kind, kind, grow=False) is kind


@given(st.sampled_from(list(INTEGERS)), st.sampled_from(list(INTEGERS)))
def test_the_common_type_of_integers_holds_the_ends_of_both(one, other):
    found = common(one, other)
    assert found == common(other, one)
    if found is None:
        assert pa.uint64() in (one, other)
        return
    for kind in (one, other):
        ends = pa.chunked_array([pa.array([*INTEGERS[kind], None], kind)])
        assert converted(ends, found).to_pylist() == ends.to_pylist()
    assert (common(one, other, grow=False) is None) == (found != one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int32(), pa.float64()),
        (pa.int64(), pa.decimal128(20, 0)),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.string(), pa.binary()),
        (pa.bool_(), pa.int8()),
        (pa.decimal256(76, 0), pa.decimal128(2, 1)),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())])),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.int64(), pa.int64())),
    ],
)
def test_types_of_other_kinds_have_none_in_common(one, other):
    assert common(one, other) is None
    assert common(other, one) is None


MERGE = (
    Operator("a", "source", topic="A"),
    Operator("b", "source", topic="B"),
    Operator("all", "merge", ("a", "b")),
    Operator("out", "sink", ("all",)),
)


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


def test_a_merge_of_integers_and_floats_is_refused():
    with pytest.raises(InputError, match=r"all, column 'n': found 'double from b, int64 from a'.*pandas"):
        merged(pa.table({"n": [1]}), pa.table({"n": [1.0, None]}))


OF_SPARK = [
    *(
        "DayTimeIntervalType",
        "VariantType",
        "NullType",
        "TimeType",
        "LongType",
        "TimestampType",
        "TimestampNTZType",
    ),
    *("DateType", "BinaryType", "BooleanType", "ByteType", "FloatType"),
]


@pytest.mark.parametrize(
    "kind",
    [
        *(getattr(spark, name)() for name in OF_SPARK),
        *(
            spark.GeometryType(4326),
            spark.GeographyType("ANY"),
            spark.StringType("UTF8_LCASE"),
            spark.StructType([]),
        ),
        *(spark.DecimalType(9, 2), spark.ArrayType(spark.TimeType(0)), spark.DayTimeIntervalType(1, 1)),
        spark.MapType(spark.StringType(), spark.StructType([spark.StructField("v", spark.VariantType())])),
    ],
    ids=str,
)
def test_a_type_of_spark_is_what_a_task_gets(kind):
    assert of_spark(kind.simpleString()).equals(to_arrow_type(kind, timezone="UTC"))


@pytest.mark.parametrize("name", ["variant", "geometry", "geography"])
def test_the_encoding_of_a_value_of_spark_is_no_struct(name):
    kind = getattr(spark, f"{name.capitalize()}Type")(*([] if name == "variant" else ["ANY"]))
    for nested in (kind, spark.ArrayType(kind), spark.StructType([spark.StructField("v", kind)])):
        for found in (to_arrow_type(nested, timezone="UTC"), of_spark(nested.simpleString())):
            with pytest.raises(Unreadable, match=f"^a {name} would be stored as a struct of its encoding"):
                readable(found)
