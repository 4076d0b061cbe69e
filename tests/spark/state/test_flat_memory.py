"""Snapshots are written, restored and read in as much memory as a piece takes, however large the copy is."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import (
    Change,
    FollowReport,
    FollowRequest,
    History,
    Position,
    Question,
    Snapshot,
)
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.files import encode_records, record_batch, write_file
from taskplace.spark.state.rows import RowCodec
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.worker import follow, identity, lookup
from taskplace.spark.worker.lookup import answer
from topology import TaskId

PIECE = 64 << 10
SCHEMA = StoreSchema.of("s", {"key": {"k": "int64"}, "value": {"v": "binary"}})


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(follow, "SNAPSHOT_BYTES", PIECE)
    monkeypatch.setattr(lookup, "SCAN_BYTES", PIECE)
    me = identity.owner_of(psutil.Process())
    monkeypatch.setattr(identity, "executor", lambda: ("1", me))
    monkeypatch.setattr(identity, "home", lambda root, app: root)


@pytest.fixture
def peak() -> Iterator[Callable[[Callable[[], object]], int]]:
    """Return the bytes, Python's and Arrow's, that a function had at most."""
    default = pa.default_memory_pool()

    def of(function: Callable[[], object]) -> int:
        pool = pa.proxy_memory_pool(default)
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            function()
            return tracemalloc.get_traced_memory()[1] + pool.max_memory()
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(default)

    yield of


def filled(folder: Path, rows: int) -> History:
    random = np.random.default_rng(rows)
    keys = RowCodec(SCHEMA.key).encode(pa.table({"k": pa.array(range(rows), pa.int64())}))
    values = [random.bytes(1_000) for _ in range(rows)]
    data = dict(zip(keys, RowCodec(SCHEMA.value).encode(pa.table({"v": values})), strict=True))
    with Copy(folder / "0_0", ["s"]) as copy:
        copy.growing(
            lambda: (copy.bring_to(History(), folder), copy.commit({"s": data}, Position(0, "a", rows)))
        )
    return History((Change(0, "a", "", rows, rows),))


def snapshot_of(folder: Path, history: History) -> Snapshot:
    orders = FollowRequest("", str(folder), str(folder), "app", {0: ["s"]}, {0: ["s"]})
    done = FollowReport("executor-1", here=True)
    follow._snapshot(folder / "0_0", TaskId(0, 0), history, folder, orders, done)
    assert not done.errors
    return done.snapshots[TaskId(0, 0)]


def restore(folder: Path, made: Snapshot) -> None:
    with Copy(folder / "restored", ["s"]) as copy:
        copy.growing(lambda: copy.bring_to(History((), (made,)), folder))
        assert copy.count("s") == made.records
        copy.commit_unchanged()


def read(folder: Path, history: History) -> None:
    found = answer(SCHEMA, Question(TaskId(0, 0), history, str(folder), "app", None, str(folder / "read")))
    assert found.file, found.error


def test_memory_does_not_grow_with_the_copy(tmp_path, peak):
    found: dict[str, list[int]] = {"snapshot": [], "restore": [], "read": []}
    for rows in (100, 1_500, 12_000):  # the first one loads what is loaded once
        folder = tmp_path / str(rows)
        history = filled(folder, rows)
        made: list[Snapshot] = []
        found["snapshot"].append(peak(lambda f=folder, h=history, m=made: m.append(snapshot_of(f, h))))
        found["restore"].append(peak(lambda f=folder, m=made: restore(f, m[0])))
        found["read"].append(peak(lambda f=folder, h=history: read(f, h)))
    for step, (_, some, many) in found.items():
        assert many < 1.5 * some + (1 << 20), (step, found)


def test_a_snapshot_that_was_made_as_one_piece_is_restored(tmp_path):
    entries = [(b"%04d" % i, b"v" * 100) for i in range(3_000)]
    data = encode_records(["s"], [record_batch(0, entries)], {}, "lz4")
    write_file(tmp_path / "old.arrow", data, sync=False)
    made = Snapshot(3, "a", 3_000, 3_000, "old.arrow", data.size, checksum_of(data))
    restore(tmp_path, made)


def test_nothing_is_left_of_a_snapshot_that_could_not_be_written(tmp_path, monkeypatch):
    history = filled(tmp_path, 500)
    monkeypatch.setattr(follow, "record_batch", lambda *_: 1 / 0)
    orders = FollowRequest("", str(tmp_path), str(tmp_path), "app", {0: ["s"]}, {0: ["s"]})
    done = FollowReport("executor-1", here=True)
    follow._snapshot(tmp_path / "0_0", TaskId(0, 0), history, tmp_path, orders, done)
    assert "ZeroDivisionError" in done.errors[TaskId(0, 0)]
    assert list((tmp_path / "snapshots").rglob("*.*")) == []
