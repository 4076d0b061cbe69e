"""A committed batch can be published: rows that do not fit their sink are refused in the task, before the manifest."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.sink_streams import Stream, table

pytestmark = pytest.mark.usefixtures("frames_with_a_session")


UNION = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
MAPS = [pa.map_(pa.string(), kind) for kind in (pa.int32(), pa.int64())]


def through_pandas(rows: pa.Table) -> pa.Table:
    return pa.Table.from_pandas(rows.to_pandas(), preserve_index=False)


# ------------------------------------------------------------------------------------------- refused
def test_a_null_that_makes_floats_of_integers_in_one_task_of_the_first_batch_is_refused(world):
    stream = Stream(world)
    stream.refused(
        through_pandas(table(k=["a"], n=[7])),
        through_pandas(table(k=["b", "c"], n=[7, None])),
        match=r"sinks.out, column 'n': found 'double from task 0_1, int64 from task 0_0', .*pd.Int64Dtype.*declare",
    )
    stream.batch(table(k=["a"], n=[7]), table(k=["b", "c"], n=[7, None]))
    assert stream.sent() == {0: [("a", 7), ("b", 7), ("c", None)]}


def test_a_null_that_makes_floats_of_integers_in_a_later_batch_is_refused(world):
    stream = Stream(world)
    stream.batch(table(n=[7]))
    for _ in range(2):
        stream.refused(
            through_pandas(table(n=[7, None])),
            match=r"sinks.out.n: found 'double', expected int64, as in its first batch; .*pd.Int64Dtype.*"
            r"another name",
        )
        stream.open()
    stream.batch(table(n=[7, None]))
    assert stream.sent() == {0: [(7,)], 1: [(7,), (None,)]}


def test_a_column_that_comes_twice_is_refused(world):
    rows = pa.table([["a"], ["b"]], names=["k", "k"])
    Stream(world).refused(
        rows, match=r"^node 'p': found \"columns \['k', 'k'\]\", expected each column name once"
    )


def test_a_column_that_one_task_lacks_is_refused(world):
    stream = Stream(world)
    rows, fewer = table(k=["a"], n=[7]), table(k=["b"])
    match = r"sinks.out: found \"columns \['k'\] from task 0_1, \['k', 'n'\] from task 0_0"
    stream.refused(rows, fewer, match=match)
    stream.batch(rows)
    stream.refused(
        rows, fewer, match=r"sinks.out: found \"columns \['k'\]\", expected the columns of the sink"
    )
    more = table(k=["a"], n=[7], m=["x"])
    stream.refused(more, match="or declare the sink's schema")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (table(x=([1], pa.time32("s"))), "Spark cannot read time32"),
        (table(x=([1], pa.time64("us"))), "Spark cannot read time64"),
        (table(x=([1], pa.duration("us"))), "Spark cannot read duration"),
        (table(x=([(1, 2, 3)], pa.month_day_nano_interval())), "Spark cannot read month_day_nano_interval"),
        (table(x=([{}], pa.struct([]))), "a struct's fields: none"),
        (table(x=([{"a": {}}], pa.struct([("a", pa.struct([]))]))), "a struct's fields: none"),
        (table(x=([Decimal(1)], pa.decimal256(39, 2))), "at most 38 digits"),
        (table(x=([1001], pa.timestamp("ns"))), "would lose data.*dt.floor"),
        (table(x=([2**60], pa.timestamp("s"))), "out of bounds"),
        (pa.table([[1], [2]], names=["x", "X"]), "a column 'X' beside a column 'x'"),
        (table(x=[1]).select([]), "columns: none"),
        (table(x=pa.nulls(2)), "only nulls without a type"),
        (table(k=["a"], Batch_ID=[1]), "a column 'Batch_ID' beside the sink's own"),
        (table(x=([[]], pa.list_(pa.null()))), r"list<null>.*declare the type"),
        (table(x=pa.StructArray.from_arrays([[1], [2]], names=["a", "A"])), "'a' and 'A'"),
        (table(x=UNION), "Spark cannot read sparse_union"),
    ],
)
def test_what_spark_cannot_read_is_refused(world, rows, says):
    Stream(world).refused(rows, match=rf"sink(s\.| ')out.*{says}")


# ---------------------------------------------------------------------------------------- made to fit
A_B, B_A = (
    pa.struct([("a", pa.int32()), ("b", pa.string())]),
    pa.struct([("b", pa.string()), ("a", pa.int64())]),
)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("some", "others", "staged"),
    [
        (([1], pa.int32()), ([2**40], pa.int64()), "int64"),
        (([1], pa.uint8()), ([-1], pa.int8()), "int16"),
        (([1.5], pa.float32()), ([2.5], pa.float64()), "double"),
        ((["a"], pa.string()), (["b"], pa.large_string()), "string"),
        ((["a"], pa.string()), (["b"], pa.string_view()), "string"),
        ((["a"], pa.string()), (["b"], pa.dictionary(pa.int8(), pa.string())), "string"),
        (([None], pa.null()), (["b"], pa.string()), "string"),
        (([Decimal("1.5")], pa.decimal128(3, 1)), ([Decimal("10.25")], pa.decimal64(5, 2)), "decimal(5, 2)"),
        (([dt.datetime(2020, 1, 1)], pa.timestamp("ns")), ([None], pa.timestamp("s")), "timestamp_ntz"),
        (([dt.date(2020, 1, 1)], pa.date32()), ([dt.date(2020, 1, 2)], pa.date64()), "date"),
        (([[]], pa.list_(pa.null())), ([[1]], pa.list_(pa.int16())), "list<int16>"),
        (([{"a": 1, "b": "x"}], A_B), ([{"b": "y", "a": 2**40}], B_A), "struct<a: int64, b: string>"),
        (([[("a", 1)]], MAPS[0]), ([[]], MAPS[1]), "map<string, int64>"),
    ],
)
def test_types_of_which_one_holds_the_other_s_values_are_one(world, some, others, staged, turned):
    stream = Stream(world)
    one, other = table(k=["a"], x=some), table(x=others, k=["b"])
    stream.batch(*((other, one) if turned else (one, other)))
    rows = pq.read_table(world.folder / "out" / "batch_id=0").to_pylist()
    assert {row["k"]: row["x"] for row in rows} == {"a": some[0][0], "b": others[0][0]}
    if not turned:
        assert stream.schema == {"k": "string", "x": staged}


def test_a_column_without_a_type_takes_the_first_that_comes(world):
    stream = Stream(world)
    for _ in range(2):
        stream.batch(table(k=["a"], x=pa.nulls(1)), table(k=["b"], x=pa.nulls(1)))
    assert stream.schema == {"k": "string", "x": "null"}
    stream.open()
    stream.batch(
        table(k=["a"], x=pa.nulls(1)), table(k=["b"], x=([1], pa.int32())), table(k=["c"], x=[2**40])
    )
    assert stream.schema == {"k": "string", "x": "int64"}
    stream.batch(table(x=pa.nulls(1), k=["a"]))
    stream.refused(table(k=["a"], x=["text"]), match="sinks.out.x: found 'string', expected int64")
    assert stream.sent() == {
        0: [("a",), ("b",)],
        1: [("a",), ("b",)],
        2: [("a", None), ("b", 1), ("c", 2**40)],
        3: [("a", None)],
    }


def test_tables_without_rows_say_nothing(world):
    stream = Stream(world)
    stream.batch(table(n=([], pa.float64())), table(other=([], pa.string())))
    stream.batch(table(n=[1]), table(n=([], pa.float64())))
    stream.batch(table(n=([], pa.null())), pa.table({}))
    assert stream.sent() == {1: [(1,)]}
