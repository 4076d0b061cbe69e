"""A committed batch can be published: rows that do not fit their sink are refused in the task, before the manifest."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.placed import Placed
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from tests.support.sink_streams import KEYS, TASKS, Stream, table
from topology import Topology

pytestmark = pytest.mark.usefixtures("frames_with_a_session")


UNION = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
MAPS = [pa.map_(pa.string(), kind) for kind in (pa.int32(), pa.int64())]


def through_pandas(rows: pa.Table) -> pa.Table:
    return pa.Table.from_pandas(rows.to_pandas(), preserve_index=False)


# ------------------------------------------------------------------------------------------- refused
def test_a_null_that_makes_floats_of_integers_in_one_task_of_the_first_batch_is_refused(world):
    stream = Stream(world)
    tables = table(k=["a"], n=[7]), table(k=["b", "c"], n=[7, None])
    says = (
        r"sinks.out, column 'n': found 'double from task 0_1, int64 from task 0_0', .*pd.Int64Dtype.*declare"
    )
    stream.refused(*map(through_pandas, tables), match=says)
    stream.batch(*tables)
    assert stream.sent() == {0: [("a", 7), ("b", 7), ("c", None)]}


def test_a_null_that_makes_floats_of_integers_in_a_later_batch_is_refused(world):
    stream = Stream(world)
    stream.batch(table(n=[7]))
    for _ in range(2):
        says = r"sinks.out.n: found 'double', expected int64, as in its first batch; .*pd.Int64Dtype.*"
        stream.refused(through_pandas(table(n=[7, None])), match=says)
        stream.open()
    stream.batch(table(n=[7, None]))
    assert stream.sent() == {0: [(7,)], 1: [(7,), (None,)]}


def test_a_column_that_comes_twice_is_refused(world):
    rows = pa.table([["a"], ["b"]], names=["k", "k"])
    Stream(world).refused(rows, match=r"^node 'p': found \"columns \['k', 'k'\]\", expected each column name")


def test_a_column_that_one_task_lacks_is_refused(world):
    stream = Stream(world)
    rows, fewer = table(k=["a"], n=[7]), table(k=["b"])
    match = r"sinks.out: found \"columns \['k'\] from task 0_1, \['k', 'n'\] from task 0_0"
    stream.refused(rows, fewer, match=match)
    stream.batch(rows)
    stream.refused(rows, fewer, match=r"sinks.out: found \"columns \['k'\]\", expected the columns of")
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
    untyped = {batch: [("a",), ("b",)] for batch in (0, 1)}
    assert stream.sent() == {**untyped, 2: [("a", None), ("b", 1), ("c", 2**40)], 3: [("a", None)]}


def test_tables_without_rows_say_nothing(world):
    stream = Stream(world)
    stream.batch(table(n=([], pa.float64())), table(other=([], pa.string())))
    stream.batch(table(n=[1]), table(n=([], pa.float64())))
    stream.batch(table(n=([], pa.null())), pa.table({}))
    assert stream.sent() == {1: [(1,)]}


# -- Declared schemas of sinks: they count from the start, and may change where rows can


def test_a_declared_schema_counts_from_the_start(world):
    stream = Stream(world, schema={"n": "int64", "f": "double"})
    stream.refused(table(n=[1.0], f=[1.0]), match="sinks.out.n: found 'double', expected int64, as declared")
    wide = table(n=[1], f=[2**53 + 1])
    stream.refused(wide, match="sinks.out.f: found 'int64 .*expected values that fit double")
    stream.batch(table(f=[3], n=([1], pa.int8())), table(n=[2], f=[0.5]), table(n=pa.nulls(1), f=pa.nulls(1)))
    assert stream.sent() == {0: [(1, 3.0), (2, 0.5), (None, None)]}


def test_a_declared_float_takes_each_integer_that_it_holds(world):
    stream = Stream(world, schema={"f": "double", "g": "float"})
    for wrong, kind in ((2**60 + 1, "int64"), (2**64 - 1, "uint64")):
        wide = table(f=([wrong, 0], getattr(pa, kind)()), g=[0, 0])
        stream.refused(wide, match=f"sinks.out.f: found '{kind} .{wrong} is not a value of double.*")
    stream.refused(table(f=[1], g=[2**24 + 1]), match="sinks.out.g: .*16777217 is not a value of float")
    large = table(f=[2**60, -(2**53) - 2], g=[2**25, None])
    stream.batch(large, table(f=([2**63, 3], pa.uint64()), g=[1, 2]))
    assert stream.sent() == {0: [(-(2.0**53) - 2, None), (2.0**60, 2.0**25), (3.0, 2.0), (2.0**63, 1.0)]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"n": "int46"}, r"sinks\.out\.schema\.n: found 'int46'"),
        ({"n": pa.time64("us")}, r"sinks\.out\.schema\.n: found 'time64\[us\]'.*Spark cannot read time64"),
        ({"n": "null"}, r"sinks\.out\.schema\.n: found 'null'"),
        ({"n": "int64", "N": "int64"}, "treats as one name"),
        ({}, "columns: none"),
        ("n long", r"sinks\.out\.schema: found 'n long'"),
    ],
)
def test_a_schema_that_is_none_is_refused_at_the_start(world, schema, says):
    with pytest.raises(InputError, match=says):
        Stream(world, schema=schema)


def test_a_schema_changes_when_another_is_declared(world, caplog):
    stream = Stream(world)
    stream.batch(table(k=["a"], n=([1], pa.int32())))
    wider = table(k=["a"], n=[2**40], m=["x"])
    stream.open()
    stream.refused(wider, match="or declare the sink's schema")
    with caplog.at_level(logging.WARNING):
        stream.open(schema={"m": "string", "n": "int64", "k": "string"})
    assert "the schema of sink 'out' changes from {'k': 'string', 'n': 'int32'} to {'m': " in caplog.text
    stream.batch(wider)
    stream.refused(table(k=["a"], n=[1]), match="columns")
    stream.sink = {}
    stream.open()
    stream.batch(wider)
    assert stream.sent() == {0: [("a", 1)], 1: [("x", 2**40, "a")], 2: [("x", 2**40, "a")]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"k": "string"}, "column 'n' is not in it"),
        ({"k": "string", "n": "double"}, "column 'n' is int64, which double does not hold"),
        ({"k": "string", "n": "int32"}, "column 'n' is int64, which int32 does not hold"),
    ],
)
def test_a_schema_that_cannot_become_the_declared_one_is_refused_at_the_start(world, schema, says):
    stream = Stream(world)
    before = stream.placed
    stream.batch(table(k=["a"], n=[1]))
    with pytest.raises(CheckpointError, match=f"{says}.*another name"):
        stream.open(schema=schema)
    stream.placed = before  # which nobody has stopped
    stream.batch(table(k=["a"], n=[1]))


# -- Writers of a repartition: types of which one holds the other's values are one, others are refused


def relayed(world: World, tables: Sequence[pa.Table], key: str | None = "k") -> Placed:
    """Return a stream whose tasks send these tables through a repartition, and into a merge with themselves."""
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=TASKS)
    sent = source.process(lambda context, rows: tables[context.partition], name="p")
    relay = sent.repartition(key=key, name="relay", partitions=2)
    relay.process(lambda context, rows: rows, name="q").sink("out", target=ParquetSink(world.folder / "out"))
    return world.open(topo)


def everywhere() -> dict[str, pa.Table]:
    return {"in": pa.table({"k": KEYS})}


def test_writers_of_a_repartition_may_have_other_types_of_the_same_values(world):
    tables = [
        table(k=["a"], n=([1], pa.int32()), d=["x"]),
        table(n=[2**40], k=["b"], d=pa.array(["y"]).dictionary_encode()),
        table(k=["c"], n=pa.nulls(1), d=pa.nulls(1)),
    ]
    world.batch(relayed(world, tables), 0, **everywhere())
    assert world.sent("out") == {0: [("a", 1, "x"), ("b", 2**40, "y"), ("c", None, None)]}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (table(k=["b", "c"], n=[1.0, None]), r"'n': found 'double from task 0_1, int64 from task 0_0'"),
        (table(k=["b"]), r"columns \['k'\] from task 0_1"),
    ],
)
def test_writers_of_a_repartition_that_disagree_are_refused(world, other, says):
    placed = relayed(world, [table(k=["a"], n=[1]), other, table(k=[], n=[])])
    with pytest.raises(InputError, match=rf"repartition 'relay-repartition'.*{says}"):
        world.batch(placed, 0, **everywhere())
    assert placed.journal.last_batch == -1


def test_a_key_without_a_type_goes_where_nulls_go(world):
    tables = [table(k=["a"], n=[1]), table(k=pa.nulls(1), n=[2]), table(k=([None], pa.string()), n=[3])]
    placed = relayed(world, tables)
    world.batch(placed, 0, **everywhere())
    assert placed.journal.identity["keys"]["relay-repartition"] == ["string"]
    tables[:] = [table(k=pa.nulls(1), n=[1]) for _ in range(3)]
    world.batch(placed, 1, **everywhere())
    assert [len(rows) for rows in world.sent("out").values()] == [3, 3]
