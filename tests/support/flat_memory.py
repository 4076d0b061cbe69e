"""Measures, in a process of its own, what memory it takes to write a snapshot, restore it and read it.

    python -m tests.support.flat_memory FOLDER      prints {"snapshot": [bytes, ...], "restore": ..., "read": ...}

Not inside a test's process: other threads run there, and buffers of Arrow may outlive the pool that counts them.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

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
from taskplace.spark.state.rows import RowCodec
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.worker import follow, identity, lookup
from taskplace.spark.worker.lookup import answer
from topology import TaskId

PIECE = 64 << 10
SCHEMA = StoreSchema.of("s", {"key": {"k": "int64"}, "value": {"v": "binary"}})
POOLS: list[pa.MemoryPool] = []  # kept to the end: a buffer may live longer than its measurement


def peak(function: Callable[[], object]) -> int:
    """Return the bytes, Python's and Arrow's, that a function had at most."""
    default = pa.default_memory_pool()
    POOLS.append(pa.proxy_memory_pool(default))
    pa.set_memory_pool(POOLS[-1])
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1] + POOLS[-1].max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(default)


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
    work = follow.FollowWork(orders, follow.Budget(None), identity.executor()[1], folder, done)
    work.snapshot(TaskId(0, 0), history)
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


def peaks(root: Path) -> dict[str, list[int]]:
    """Return the peaks of each step, for copies of three sizes. The first one loads what is loaded once."""
    found: dict[str, list[int]] = {"snapshot": [], "restore": [], "read": []}
    for rows in (100, 1_500, 12_000):
        folder = root / str(rows)
        history = filled(folder, rows)
        made: list[Snapshot] = []
        found["snapshot"].append(peak(lambda f=folder, h=history, m=made: m.append(snapshot_of(f, h))))
        found["restore"].append(peak(lambda f=folder, m=made: restore(f, m[0])))
        found["read"].append(peak(lambda f=folder, h=history: read(f, h)))
    return found


if __name__ == "__main__":
    me = identity.owner_of(psutil.Process())
    follow.SNAPSHOT_BYTES = lookup.SCAN_BYTES = PIECE
    identity.executor = lambda: ("1", me)
    identity.home = lambda root, app: root
    print(json.dumps(peaks(Path(sys.argv[1]))))
