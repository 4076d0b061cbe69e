"""A committed batch can be published: rows that do not fit their sink are refused in the task, before the manifest."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.codec import seal, sealed
from taskplace.spark.driver.versions import read_manifest
from taskplace.spark.placed import Placed
from taskplace.spark.sinks import ForeachBatch, ParquetSink
from taskplace.spark.worker.hashing import partition_of
from tests.support.placed_without_spark import Frame, World
from topology import Topology

TASKS = 3
#: A key of each partition.
KEYS = [next(k for k in "abcdefghijkl" if partition_of([pa.array([k])], TASKS)[0] == p) for p in range(TASKS)]
Tables = Mapping[int, pa.Table]


@pytest.fixture
def world(tmp_path, monkeypatch):
    return made(tmp_path, monkeypatch)


def made(folder, monkeypatch) -> World:
    world = World(folder, monkeypatch)
    monkeypatch.setattr(Frame, "sparkSession", world.spark)
    return world


class Stream:
    """A stream whose tasks send what they are told; `batch` runs the next one."""

    def __init__(self, world: World, target: Any = None, checkpoint: str = "checkpoint", **sink: Any) -> None:
        self.world, self.target, self.sink = world, target, sink
        self.checkpoint = checkpoint
        self.number = 0
        self.sends: Tables = {}
        self.placed = self.open()

    def open(self, **sink: Any) -> Placed:
        """Make another driver, maybe with other options of the sink."""
        self.sink = sink or self.sink
        topo = Topology("t")
        rows = topo.source("in", key="k", partitions=TASKS).process(self._send, name="p")
        rows.sink("out", target=self.target or ParquetSink(self.world.folder / "out"), **self.sink)
        self.placed = self.world.open(topo, checkpoint=self.checkpoint)
        return self.placed

    def _send(self, context: Any, rows: pa.Table) -> pa.Table:
        return self.sends.get(context.partition, pa.table({}))

    def batch(self, *sends: pa.Table) -> None:
        self.sends = dict(enumerate(sends))
        rows = pa.table({"k": pa.array(KEYS[: len(sends)], pa.string())})
        self.world.batch(self.placed, self.number, **{"in": rows})
        self.number += 1

    def refused(self, *sends: pa.Table, match: str, error: type[Exception] = InputError) -> None:
        """The batch is refused before its manifest, again and again, and leaves nothing behind."""
        for _ in range(2):
            with pytest.raises(error, match=match):
                self.batch(*sends)
            assert self.placed.journal.last_batch == self.number - 1

    def sent(self) -> dict[int, list[tuple]]:
        return self.world.sent("out")

    @property
    def schema(self) -> dict[str, str]:
        return dict(self.placed.journal.last.identity["schemas"]["out"])


def table(**columns: Any) -> pa.Table:
    return pa.table(
        {name: pa.array(*value) if isinstance(value, tuple) else value for name, value in columns.items()}
    )


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
            match=r"sinks.out.n: found 'double', expected int64, as its first batch was; .*pd.Int64Dtype.*"
            r"another name",
        )
        stream.open()
    stream.batch(table(n=[7, None]))
    assert stream.sent() == {0: [(7,)], 1: [(7,), (None,)]}


def test_a_column_that_one_task_lacks_is_refused(world):
    stream = Stream(world)
    rows, fewer = table(k=["a"], n=[7]), table(k=["b"])
    stream.refused(
        rows, fewer, match=r"sinks.out: found \"columns \['k'\] from task 0_1, \['k', 'n'\] from task 0_0"
    )
    stream.batch(rows)
    stream.refused(
        rows, fewer, match=r"sinks.out: found \"columns \['k'\]\", expected the columns of the sink"
    )
    more = table(k=["a"], n=[7], m=["x"])
    stream.refused(more, match=r"schema=\{'k': 'string', 'n': 'int64', 'm': 'string'\}")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (table(x=([1], pa.time32("s"))), "Spark reads no time32"),
        (table(x=([1], pa.time64("us"))), "Spark reads no time64"),
        (table(x=([1], pa.duration("us"))), "Spark reads no duration"),
        (table(x=([(1, 2, 3)], pa.month_day_nano_interval())), "Spark reads no month_day_nano_interval"),
        (table(x=([{}], pa.struct([]))), "a struct's fields: none"),
        (table(x=([{"a": {}}], pa.struct([("a", pa.struct([]))]))), "a struct's fields: none"),
        (table(x=([Decimal(1)], pa.decimal256(39, 2))), "at most 38 digits"),
        (table(x=([1001], pa.timestamp("ns"))), "would lose data.*dt.floor"),
        (table(x=([2**60], pa.timestamp("s"))), "out of bounds"),
        (pa.table([[1], [2]], names=["x", "x"]), "a column 'x' beside a column 'x'"),
        (pa.table([[1], [2]], names=["x", "X"]), "a column 'X' beside a column 'x'"),
        (table(x=[1]).select([]), "columns: none"),
        (table(x=pa.nulls(2)), "nothing but nulls"),
        (table(k=["a"], Batch_ID=[1]), "a column 'Batch_ID' beside the sink's own"),
        (table(x=([[]], pa.list_(pa.null()))), r"list<null>.*declare it"),
        (table(x=pa.StructArray.from_arrays([[1], [2]], names=["a", "A"])), "'a' and 'A'"),
        (
            table(x=pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])),
            "Spark reads no sparse_union",
        ),
    ],
)
def test_what_spark_cannot_read_is_refused(world, rows, says):
    Stream(world).refused(rows, match=rf"sink(s\.| ')out.*{says}")


# ---------------------------------------------------------------------------------------- made to fit


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
        (
            ([{"a": 1, "b": "x"}], pa.struct([("a", pa.int32()), ("b", pa.string())])),
            ([{"b": "y", "a": 2**40}], pa.struct([("b", pa.string()), ("a", pa.int64())])),
            "struct<a: int64, b: string>",
        ),
        (
            ([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
            ([[]], pa.map_(pa.string(), pa.int64())),
            "map<string, int64>",
        ),
    ],
)
def test_types_of_which_one_holds_the_other_s_values_are_one(world, some, others, staged, turned):
    stream = Stream(world)
    one, other = table(k=["a"], x=some), table(x=others, k=["b"])
    stream.batch(*((other, one) if turned else (one, other)))
    rows = pq.read_table(world.folder / "out" / "batch_id=0").to_pylist()
    assert sorted(rows, key=lambda row: row["k"]) == [
        {"k": "a", "x": some[0][0]},
        {"k": "b", "x": others[0][0]},
    ]
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


# ------------------------------------------------------------------------------------------- declared


def test_a_declared_schema_counts_from_the_start(world):
    stream = Stream(world, schema={"n": "int64", "f": "double"})
    stream.refused(
        table(n=[1.0], f=[1.0]), match="sinks.out.n: found 'double', expected int64, as it was declared"
    )
    stream.refused(
        table(n=[1], f=[2**53 + 1]), match="sinks.out.f: found 'int64 .*expected values that double holds"
    )
    stream.batch(table(f=[3], n=([1], pa.int8())), table(n=[2], f=[0.5]), table(n=pa.nulls(1), f=pa.nulls(1)))
    assert stream.sent() == {0: [(1, 3.0), (2, 0.5), (None, None)]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"n": "int46"}, r"sinks\.out\.schema\.n: found 'int46'"),
        ({"n": pa.time64("us")}, r"sinks\.out\.schema\.n: found 'time64\[us\]'.*Spark reads no time64"),
        ({"n": "null"}, r"sinks\.out\.schema\.n: found 'null'"),
        ({"n": "int64", "N": "int64"}, "one name to Spark"),
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
    stream.refused(wider, match=r"schema=\{'k': 'string', 'n': 'int64', 'm': 'string'\}")
    with caplog.at_level(logging.WARNING):
        stream.open(schema={"m": "string", "n": "int64", "k": "string"})
    assert "sink 'out': its schema was {'k': 'string', 'n': 'int32'}, is {'m': " in caplog.text
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


# ----------------------------------------------------------------------------------- older checkpoints


class Broken:
    """A target that takes nothing: a batch stays committed, and pending."""

    def publish(self, spark, batch_id, files):
        raise OSError("no space")


def older(world: World, *sends: pa.Table) -> Stream:
    """Return a stream with a pending batch as it was made before sinks had schemas: each task staged what it had."""
    stream = Stream(world, Broken())
    with pytest.raises(OSError, match="no space") as failed:
        stream.batch(*[table(n=[1]) for _ in sends])
    assert "batch 0 is committed, and stays to be published until the target of sink 'out' takes it" in str(
        failed.value.__notes__
    )
    checkpoint = world.folder / "checkpoint"
    path = checkpoint / "manifests" / f"{0:010d}.json"
    manifest = read_manifest(path)
    files = []
    for file, rows in zip(manifest.sinks["out"], sends, strict=True):
        pq.write_table(rows, checkpoint / file.file)
        data = (checkpoint / file.file).read_bytes()
        files.append(replace(file, rows=rows.num_rows, size=len(data), checksum=seal(data)))
    identity = {name: value for name, value in manifest.identity.items() if name != "schemas"}
    path.write_bytes(sealed(replace(manifest, identity=identity, sinks={"out": tuple(files)})))
    stream.target = None
    stream.number = 0
    return stream


def again(stream: Stream, **sink: Any) -> None:
    """Start anew, which publishes the last batch once more."""
    stream.number = 0
    stream.open(**sink)
    stream.batch()


def test_a_pending_batch_of_an_older_checkpoint_is_made_one(world):
    stream = older(
        world, table(n=([1], pa.int32()), x=pa.nulls(1)), table(x=["b"], n=[2**40]), table(n=([3], pa.int8()))
    )
    again(stream)
    assert stream.sent() == {0: [(1, None), (2**40, "b"), (3, None)]}
    again(stream)
    stream.batch(table(n=[4], x=["c"]))
    assert stream.schema == {"n": "int64", "x": "string"}


def test_a_pending_batch_whose_types_do_not_fit_is_published_as_is_declared(world):
    stream = older(world, table(n=[1]), table(n=[2.0, None]), table(n=[3]))
    for _ in range(2):
        with pytest.raises(
            CheckpointError,
            match=r"batch 0 is committed.*sink 'out', column 'n': found int64 and double.*schema=",
        ):
            again(stream)
    again(stream, schema={"n": "int64"})
    assert sorted(stream.sent()[0], key=repr) == [(1,), (2,), (3,), (None,)]
    stream.batch(table(n=[4]))


def test_a_pending_batch_can_always_be_published_as_text(world):
    stream = older(world, table(n=[2**60 + 1]), table(n=[2.5]), table(n=[[{"a": 1}]], m=["x"]))
    with pytest.raises(CheckpointError, match=r"has columns .'m'.*leaves out"):
        again(stream, schema={"n": "double"})
    with pytest.raises(CheckpointError, match="as 'string' everything"):
        again(stream, schema={"n": "double", "m": "string"})
    again(stream, schema={"n": "string", "m": "string"})
    assert sorted(stream.sent()[0]) == [(str(2**60 + 1), None), ("2.5", None), ('[{"a": 1}]', "x")]


def test_a_pending_batch_with_a_column_twice_is_published_with_both(world):
    twice = pa.table([[1], [2]], names=["x", "X"])
    stream = older(world, twice, twice)
    again(stream)
    assert stream.sent() == {0: [(1, 2), (1, 2)]}


def test_a_batch_that_was_published_already_is_left_as_it_is(world):
    stream = older(world, table(n=[1]), table(n=[2.5]))
    (world.folder / "out" / "batch_id=0").mkdir(parents=True)
    for number, values in enumerate(([1], [2.5])):
        pq.write_table(table(n=values), world.folder / "out" / "batch_id=0" / f"{number}.parquet")
    (world.folder / "out" / ".checkpoint").write_text(stream.placed.journal.declaration.id)
    again(stream)


# --------------------------------------------------------------------------------- between subtopologies


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
        (
            table(k=["b", "c"], n=[1.0, None]),
            r"column 'n': found 'double from task 0_1, int64 from task 0_0'.*pandas",
        ),
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


# ------------------------------------------------------------------------------------------ whatever comes

VALUES: dict[pa.DataType, Callable[[], st.SearchStrategy]] = {
    pa.null(): st.none,
    **{
        kind: (lambda: st.integers(0, 100))
        for kind in (pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64())
    },
    **{
        kind: (lambda: st.sampled_from([0.5, 1.0, 2.0]))
        for kind in (pa.float16(), pa.float32(), pa.float64())
    },
    pa.bool_(): st.booleans,
    **{
        kind: (lambda: st.sampled_from(["", "a", "ü"]))
        for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
    },
    **{kind: (lambda: st.just(b"abc")) for kind in (pa.binary(), pa.large_binary(), pa.binary(3))},
    **{kind: (lambda: st.just(dt.date(2020, 2, 29))) for kind in (pa.date32(), pa.date64())},
    **{
        kind: (lambda: st.just(dt.datetime(1582, 1, 1, 1, 2, 3)))
        for kind in (pa.timestamp("s"), pa.timestamp("us"))
    },
    **{
        kind: (lambda: st.just(dt.datetime(2020, 1, 1, 1, 2, 3, tzinfo=dt.UTC)))
        for kind in (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "UTC"))
    },
    pa.duration("us"): lambda: st.just(dt.timedelta(1)),
    **{
        kind: (lambda: st.just(Decimal("1.5")))
        for kind in (pa.decimal128(3, 1), pa.decimal256(40, 1), pa.decimal32(5, 2))
    },
    pa.list_(pa.null()): lambda: st.just([]),
    pa.list_(pa.int32()): lambda: st.lists(st.integers(0, 9), max_size=2),
    pa.large_list(pa.int64()): lambda: st.lists(st.integers(0, 9), max_size=2),
    pa.struct([("a", pa.int32())]): lambda: st.just({"a": 1}),
    pa.struct([("a", pa.int64())]): lambda: st.just({"a": 2}),
    pa.map_(pa.string(), pa.int32()): lambda: st.just([("a", 1)]),
}


@st.composite
def columns(draw: st.DrawFn, kinds: Sequence[pa.DataType]) -> pa.Table:
    """Return one task's rows: columns of some types, maybe without one of them, or in another order."""
    names = draw(st.permutations("ab")) if draw(st.integers(0, 3)) == 0 else ["a", "b"]
    names = names[: 1 if draw(st.integers(0, 9)) == 0 else 2]
    count = draw(st.integers(0, 3))
    made = {}
    for name in names:
        kind = draw(st.sampled_from(kinds))
        rows = draw(st.lists(st.none() | VALUES[kind](), min_size=count, max_size=count))
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
            return str(value.astimezone(dt.UTC) if value.tzinfo else value)
        return str(float(value)) if isinstance(value, Decimal | int | float) else str(value)

    return repr(sorted((name, plain(value)) for name, value in row.items()))


# ------------------------------------------------------------------------------------------ Spark itself

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
    return (
        value.asDict()
        if hasattr(value, "asDict")
        else bytes(value)
        if isinstance(value, bytearray)
        else value
    )


@pytest.mark.spark
def test_spark_reads_what_is_published(spark, world):
    stream = Stream(world)
    columns = {f"c {i}.,;": (kind, *read) for i, (kind, read) in enumerate(READ.items())}
    rows = pa.table({name: as_array(value, kind) for name, (kind, value, _) in columns.items()})
    nothing = pa.table({name: pa.nulls(1) for name in columns})
    stream.batch(table(k=["a"]).append_column("none", pa.nulls(1)), table(none=pa.nulls(1), k=["b"]))
    published = sorted((world.folder / "out").glob("batch_id=0/*"))
    seen: list[Any] = []
    ForeachBatch(lambda df, _: seen.extend((df.schema.simpleString(), *df.sort("k").collect()))).publish(
        spark, 0, published
    )
    assert seen == ["struct<k:string,none:void>", ("a", None), ("b", None)]

    stream = Stream(world, ParquetSink(world.folder / "types"), "another")
    stream.batch(rows, nothing)
    stream.batch(nothing, rows)
    df = spark.read.parquet(str(world.folder / "types"))
    assert {name: kind for name, kind in df.dtypes if name != "batch_id"} == {
        name: kind for name, (_, _, kind) in columns.items()
    }
    found = df.drop("batch_id").collect()
    expected = [value for _, value, _ in columns.values()]
    full = [[as_it_is(value) for value in row] for row in found if row[0] is not None]
    assert full == [expected, expected]
    assert [list(row) for row in found if row[0] is None] == [[None] * len(columns)] * 2
