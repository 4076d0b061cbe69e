"""Values and sizes at the limits of what state takes, and damage that only a direct call shows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from unittest.mock import MagicMock

import lmdb
import numpy as np
import pyarrow as pa
import pytest

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.messages import Change, History, Position
from taskplace.spark.state import directories, expiry
from taskplace.spark.state import rows as rows_module
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.directories import PROBE, check_commits, check_copies
from taskplace.spark.state.environment import META, UNDO
from taskplace.spark.state.expiry import SECOND
from taskplace.spark.state.keys import DamagedEntry, restore_all, store_entry
from taskplace.spark.state.rows import RowCodec
from taskplace.spark.state.store import Store, StoreSchema
from taskplace.spark.types import arrow_schema, parse
from taskplace.spark.values import table_of

# ------------------------------------------------------------------------------------------- types and values


@pytest.mark.parametrize(
    ("name", "kind"),
    [("LONG", pa.int64()), ("Int", pa.int32()), ("TinyInt", pa.int8()), ("DATE", pa.date32())],
)
def test_names_of_types_are_read_in_any_case(name: str, kind: pa.DataType) -> None:
    assert parse(name) == kind


@pytest.mark.parametrize("columns", [["id"], "id", None, 5])
def test_columns_without_types_are_refused(columns: Any) -> None:
    with pytest.raises(InputError, match=r"^s\.key: found .*, expected columns with their types, such as"):
        arrow_schema(columns, "s.key")


class Price(Decimal):
    """A decimal of another class."""


@pytest.mark.parametrize(
    ("kind", "value", "held"),
    [(pa.decimal128(9, 2), Price("1.50"), Decimal("1.50")), (pa.json_(), '{"a": 1}', '{"a": 1}')],
    ids=str,
)
def test_a_value_of_another_class_is_held(kind: pa.DataType, value: Any, held: Any) -> None:
    assert table_of([{"x": value}], pa.schema([("x", kind)]), "state")["x"].to_pylist() == [held]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.duration("ms"), np.timedelta64(5, "ms")),
        (pa.list_(pa.int64()), "12"),
        (pa.list_(pa.int64()), b"12"),
        (pa.list_(pa.uint8()), bytearray(b"12")),
        (pa.list_(pa.list_(pa.uint8())), memoryview(b"12")),
        (pa.list_(pa.int64()), 12),
        (pa.uuid(), "x"),
        (pa.bool8(), 1.5),
    ],
    ids=lambda part: str(part) if isinstance(part, pa.DataType) else type(part).__name__,
)
def test_a_value_that_is_none_of_the_type_is_refused_itself(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(InputError, match=r"^state\.x: found ") as caught:
        table_of([{"x": value}], pa.schema([("x", kind)]), "state")
    assert caught.value.found is value


# ------------------------------------------------------------------------------------------- times


TTL = 100 * SECOND
SCHEMA = StoreSchema.of(
    "s", {"key": {"k": "int64"}, "value": {"at": "timestamp"}, "time": "at", "retention_ms": TTL // 1000}
)


@pytest.mark.parametrize(("late_by", "gone"), [(-1, []), (0, [7]), (1, [7])])
@pytest.mark.parametrize("by_slot", [True, False])
def test_an_entry_of_this_batch_is_removed_when_it_expires_or_by_slot_when_its_slot_ends(
    tmp_path, late_by: int, gone: list[int], by_slot: bool
) -> None:
    due = int(expiry.due(np.array([0]), TTL)[0]) if by_slot else 0
    with Copy(tmp_path / "c", SCHEMA.databases) as copy:
        copy.bring_to(History(), tmp_path)
        store = Store(SCHEMA, copy, None, now=due + TTL + late_by)
        store.put_many(pa.table({"k": [7], "at": pa.array([0], pa.timestamp("us", tz="UTC"))}))
        store.expire(by_slot=by_slot)
        assert store.gone["k"].to_pylist() == gone


# ------------------------------------------------------------------------------------------- rows and entries


def test_values_that_no_array_holds_are_refused(monkeypatch) -> None:
    codec = RowCodec(arrow_schema({"a": "string"}), "stores.s.value")
    rows = codec.encode(pa.table({"a": ["x" * 60, "y" * 40]}))
    monkeypatch.setattr(rows_module, "LARGEST", 100)
    assert codec.decode(rows)["a"].to_pylist() == ["x" * 60, "y" * 40]
    monkeypatch.setattr(rows_module, "LARGEST", 99)
    with pytest.raises(CheckpointError, match=r"^stores\.s\.value\.a: found values of 100 bytes, .* 99"):
        codec.decode(rows)


ENTRIES = [store_entry(key, b"v") for key in (b"a", b"b", b"c")]


@pytest.mark.parametrize(
    ("entries", "count", "message"),
    [
        (ENTRIES, 2, "found 3 entries, where 2 were stored"),
        (ENTRIES, 4, "found 3 entries, where 4 were stored"),
        ([], 1, "found 0 entries, where 1 were stored"),
        ([ENTRIES[1], ENTRIES[0]], 2, "^an entry with a key of 1 byte is out of order$"),
        ([ENTRIES[1], ENTRIES[1]], 2, "^an entry with a key of 1 byte is out of order$"),
    ],
)
def test_entries_that_are_lost_or_out_of_order_are_told(entries, count: int, message: str) -> None:
    with pytest.raises(DamagedEntry, match=message):
        list(restore_all(entries, count))


# ------------------------------------------------------------------------------------------- copies


def test_an_undo_record_that_is_gone_is_told(tmp_path) -> None:
    with Copy(tmp_path / "0_0", ["s"]) as copy:
        copy.bring_to(History(), tmp_path)
        copy.commit({"s": {b"k": b"v"}}, Position(0, "lost", 1))
        with copy._env.begin(write=True) as txn:
            assert txn.delete(UNDO, db=copy._env.databases[META])
        with pytest.raises(CheckpointError, match="no undo record at"):
            copy.bring_to(History(), tmp_path)
        copy._end()


def test_a_store_that_a_copy_does_not_have_is_named(tmp_path) -> None:
    with Copy(tmp_path / "0_0", ["s"]) as copy:
        copy.bring_to(History(), tmp_path)
        with pytest.raises(CheckpointError, match=r"^0_0: found a store 't', the topology has \['s'\]$"):
            copy.get_many("t", [b"k"])
        copy.commit_unchanged()


@pytest.mark.parametrize(("faults", "ends"), [(0, True), (1, True), (2, False)])
def test_a_copy_is_made_anew_once(tmp_path, faults: int, ends: bool) -> None:
    done = []

    def work() -> str:
        done.append(copy.position())
        if len(done) <= faults:
            raise lmdb.CorruptedError("page 7")
        return "done"

    history = History((Change(0, "a", "", 1, 0),))
    with Copy(tmp_path / "0_0", ["s"]) as copy:
        copy.bring_to(History(), tmp_path)
        copy.commit({"s": {b"k": b"v"}}, history.end)
        if ends:
            assert copy.growing(work) == "done"
        else:
            with pytest.raises(lmdb.CorruptedError):
                copy.growing(work)
    assert [at.version for at in done] == [0, -1][: faults + 1]


# ------------------------------------------------------------------------------------------- directories


def test_a_file_system_that_reads_other_data_than_was_written_is_refused(tmp_path, monkeypatch) -> None:
    environment = MagicMock()
    environment.begin().__enter__().get.return_value = b"other"
    monkeypatch.setattr(directories, "Environment", lambda *_: environment)
    with pytest.raises(InputError, match=r"write and read .*the data read differs from the data written"):
        check_copies(tmp_path, "state_dir")


@pytest.mark.parametrize(("age", "stays"), [(3599.0, True), (3600.0, True), (3601.0, False)])
def test_a_trial_counts_as_abandoned_after_an_hour(tmp_path, monkeypatch, age: float, stays: bool) -> None:
    left = tmp_path / f"{PROBE}left"
    left.mkdir()
    began = left.stat().st_mtime
    monkeypatch.setattr(directories.time, "time", lambda: began + age)
    check_commits(tmp_path, "checkpoint")
    assert left.exists() is stays
