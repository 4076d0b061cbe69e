"""The form of a processor, what a program does with it, and a store's table view."""

from __future__ import annotations

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.messages import Change, History, Position
from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin, Tumbling, count
from taskplace.spark.processors.base import Context, call, layouts
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.store import Store, StoreSchema
from taskplace.spark.worker.program import Operator, Program
from topology import TaskId

CONTEXT = Context("0_1", 1, 7, {})
ROWS = pa.table({"n": [1, 2, 3]})


class Doubling:
    def process(self, context, rows):
        return rows.set_column(0, "n", pa.array([2 * n for n in rows["n"].to_pylist()]))


def test_an_object_or_a_function():
    assert call(Doubling(), CONTEXT, ROWS)["n"].to_pylist() == [2, 4, 6]
    assert call(lambda context, rows: rows.slice(context.batch_id - 5), CONTEXT, ROWS)["n"].to_pylist() == [3]
    assert call(lambda context, rows: rows.to_batches()[0], CONTEXT, ROWS).equals(ROWS), (
        "a batch is taken as a table"
    )
    assert layouts(Doubling()) == layouts(len) == {}


@pytest.mark.parametrize("wrong", [None, [{"n": 1}], {"n": [1]}])
def test_anything_but_a_table_is_refused(wrong):
    with pytest.raises(
        InputError, match=rf"function\.process: found '{type(wrong).__name__}', expected a pyarrow"
    ):
        call(lambda context, rows: wrong, CONTEXT, ROWS)


def test_a_store_it_is_not_connected_to_is_named():
    with pytest.raises(InputError, match=r"task 0_1, store: found 'x', expected one of "):
        CONTEXT.store("x")


# -- programs


def test_a_program_runs_its_operators_in_order():
    program = Program(
        0,
        (
            Operator("a", "source", topic="A"),
            Operator("b", "source", topic="B"),
            Operator("double", "processor", ("a",), processor=Doubling()),
            Operator("all", "merge", ("double", "b")),
            Operator("out", "sink", ("all",)),
            Operator("raw", "sink", ("a",)),
            Operator("on", "repartition", ("all",), topic="T", key=("n",), partitions=2),
        ),
        {},
    )
    outputs = program.run(TaskId(0, 0), 0, {"A": ROWS, "B": pa.table({"n": [9]})}, {})
    assert {name: rows["n"].to_pylist() for name, rows in outputs.sinks.items()} == {
        "out": [2, 4, 6, 9],
        "raw": [1, 2, 3],
    }
    assert outputs.topics["T"]["n"].to_pylist() == [2, 4, 6, 9]
    assert not program.stateful


def test_a_processor_sees_its_own_stores_only(tmp_path):
    seen = []

    def look(context, rows):
        seen.append((context.task, context.partition, context.batch_id, sorted(context.stores)))
        return rows

    operators = (
        Operator("a", "source", topic="A"),
        Operator("look", "processor", ("a",), ("s",), processor=look),
    )
    with Copy(tmp_path / "copy", SCHEMA.databases) as copy:
        copy.bring_to(History(), tmp_path)
        stores = {name: Store(SCHEMA, copy) for name in ("s", "other")}
        Program(3, operators, {}).run(TaskId(3, 1), 7, {"A": ROWS}, stores)
    assert seen == [("3_1", 1, 7, ["s"])]


# -- stores

SCHEMA = StoreSchema.of("s", {"key": {"k": "int64"}, "value": {"v": "string", "w": "int32"}})


def rows(*entries: tuple) -> pa.Table:
    schema = pa.schema([*SCHEMA.key, *SCHEMA.value])
    return pa.Table.from_pylist(
        [dict(zip(schema.names, entry, strict=True)) for entry in entries], schema=schema
    )


def keys(*numbers: int | None) -> pa.Table:
    return pa.table({"k": pa.array(numbers, pa.int64())})


def scanned(store: Store) -> list[tuple]:
    return sorted((tuple(row.values()) for table in store.scan() for row in table.to_pylist()), key=repr)


@pytest.fixture
def store(tmp_path):
    with Copy(tmp_path, ["s"]) as copy:
        copy.bring_to(History(), tmp_path)
        filled = Store(SCHEMA, copy)
        filled.put_many(rows((1, "a", 10), (2, None, 20), (None, "n", 0)))
        copy.commit({"s": filled.writes}, Position(0, "a", 0))
        copy.bring_to(History((Change(0, "a", "", 0, 0),)), tmp_path)
        yield Store(SCHEMA, copy)


def test_reads(store):
    values, found = store.get_many(keys(2, 5, 1, None, 2))
    assert found.tolist() == [True, False, True, True, True]
    assert values["v"].to_pylist() == [None, None, "a", "n", None]
    assert values["w"].to_pylist() == [20, None, 10, 0, 20]
    assert store.contains_many(keys(5, 1)).tolist() == [False, True]
    assert store.get_many(keys())[0].schema == SCHEMA.value
    assert store.get_many(keys())[1].tolist() == []
    assert scanned(store) == [(1, "a", 10), (2, None, 20), (None, "n", 0)]


def test_reads_see_this_batchs_writes(store):
    store.put_many(rows((1, "b", 11), (3, "c", 30), (3, "d", 31)))
    store.delete_many(keys(2, 77))
    values, found = store.get_many(keys(1, 2, 3, None, 77))
    assert found.tolist() == [True, False, True, True, False]
    assert values["v"].to_pylist() == ["b", None, "d", "n", None], "the last row of a key wins"
    assert scanned(store) == [(1, "b", 11), (3, "d", 31), (None, "n", 0)]
    store.put_many(rows((2, "again", 1)))
    assert store.contains_many(keys(2)).tolist() == [True]


@pytest.mark.parametrize("before", [False, True])
def test_a_scan_has_the_store_as_it_was_when_it_began(store, monkeypatch, before):
    monkeypatch.setattr("taskplace.spark.state.store.SCAN_ROWS", 1)
    if before:
        store.put_many(rows((3, "before", 30)))
    was = scanned(store)
    scan, seen = store.scan(), []
    store.put_many(rows((1, "meanwhile", 0), (4, "meanwhile", 0)))
    for number, table in enumerate(scan):
        seen += [tuple(row.values()) for row in table.to_pylist()]
        store.put_many(rows((2, "meanwhile", number), (3, "meanwhile", number), (None, "meanwhile", 0)))
        store.delete_many(keys(1))
    assert sorted(seen, key=repr) == was
    assert {value for _, value, _ in scanned(store)} == {"meanwhile"}, "a new scan has the writes"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value": {"v": "int64"}}, r"stores\.s\.key: found nothing, expected columns"),
        ({"key": {}, "value": {"v": "int64"}}, r"stores\.s\.key: found \{\}, expected columns"),
        (
            {"key": {"k": "int64"}, "value": {"v": "integr"}},
            r"stores\.s\.value\.v: found 'integr', expected an Arrow",
        ),
        (
            {"key": {"k": pa.list_(pa.int64())}, "value": {"v": "int64"}},
            r"stores\.s\.key\.k: found 'list<.*flat type",
        ),
        (
            {"key": {"k": "int64"}, "value": {"k": "int64"}},
            r"stores\.s: found \['k'\], expected no column in both",
        ),
    ],
)
def test_a_layout_that_cannot_be_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        StoreSchema.of("s", options)


COLUMNS = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize(
    "make",
    [
        lambda by: Count("s", by=by),
        lambda by: Aggregate("s", by=by, n=count()),
        lambda by: Aggregate("s", by=by, window=Tumbling("seen", "1 hour"), n=count()),
        lambda by: Deduplicate("s", by=by),
        lambda by: PerKey("s", lambda key, rows, state: (None, []), by=by, state={"n": "int64"}, output=by),
        lambda by: TableJoin("s", by=by, columns={"n": "int64"}),
    ],
)
def test_columns_may_be_given_as_a_schema(make):
    def schema(by):
        return StoreSchema.of("s", make(by).layouts()["s"])

    assert schema(COLUMNS) == schema({"k": "string", "at": "timestamp"})
    with pytest.raises(InputError, match=r"\.(by|on): .*each column name once"):
        make(pa.schema([("k", pa.string()), ("k", pa.string())]))
