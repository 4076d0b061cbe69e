"""Stores with large entries: what is removed and read at once is bounded by bytes too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pytest

from taskplace.spark.messages import Change, History
from taskplace.spark.state import store as module
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.store import Store, StoreSchema

SCHEMA = StoreSchema.of(
    "s",
    {"key": {"k": "int64"}, "value": {"v": "binary", "at": "timestamp"}, "time": "at", "retention_ms": 1000},
)
FOREVER, GONE = 0, 10**12


class Task:
    """One store's copy, and its history; every batch is committed. `reads`: the bytes of values of each read."""

    def __init__(self, path) -> None:
        self.path, self.history = path, History()
        self.reads: list[int] = []

    def batch(self, watermark: int | None, **limits: int) -> tuple[list[int], bool]:
        """Remove what has expired; return the keys that went, and whether there are more."""
        with self.store(watermark) as store:
            store.expire(**limits)
            self.commit(store)
            return store.gone["k"].to_pylist(), store.expiring

    def put(self, *sizes: int) -> None:
        rows = {
            "k": range(len(sizes)),
            "v": pa.array([bytes(size) for size in sizes], pa.binary()),
            # Each is due by itself, one after the other.
            "at": pa.array([10**7 * k for k in range(len(sizes))], pa.timestamp("us", tz="UTC")),
        }
        with self.store(None) as store:
            store.put_many(pa.table(rows))
            self.commit(store)

    @contextmanager
    def store(self, watermark: int | None) -> Iterator[Store]:
        with Copy(self.path, SCHEMA.databases) as copy:
            copy.bring_to(self.history, self.path)
            get_many = copy.get_many

            def counted(store: str, keys: Sequence[bytes]) -> list[bytes | None]:
                values = get_many(store, keys)
                if store == SCHEMA.database:
                    self.reads.append(sum(map(len, filter(None, values))))
                return values

            copy.get_many = counted  # type: ignore[method-assign]
            yield Store(SCHEMA, copy, watermark)

    def commit(self, store: Store) -> None:
        batch = len(self.history.changes)
        self.history = History(
            (*self.history.changes, Change(batch, f"a{batch}", self.history.end.attempt, 0, 0))
        )
        store._copy.commit(store.changes(), self.history.end)


@pytest.fixture
def task(tmp_path) -> Task:
    return Task(tmp_path)


@pytest.mark.parametrize(
    ("sizes", "limits", "went"),
    [
        ([1000] * 10, [(9, 3500)] * 4, [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]),
        ([10, 5000, 5000, 10, 10], [(9, 100)] * 4, [[0], [1], [2], [3, 4]]),  # one at least, however large
        ([10] * 6, [(2, 10**6), (2, 50), (3, 10**6)], [[0, 1], [2], [3, 4, 5]]),
    ],
)
def test_removal_is_bounded_by_entries_and_bytes_and_all_goes_in_the_end(task, sizes, limits, went):
    task.put(*sizes)
    for number, (limit, limit_bytes) in enumerate(limits):
        last = number == len(limits) - 1
        assert task.batch(GONE, limit=limit, limit_bytes=limit_bytes) == (went[number], not last)
    assert task.batch(GONE) == ([], False)


def test_what_makes_up_the_bytes_exactly_still_goes(task):
    task.put(*[100] * 6)
    with task.store(None) as store:
        sizes = {len(key) + len(value) for key, value in store._copy.scan(SCHEMA.database)}
    (size,) = sizes
    assert task.batch(GONE, limit_bytes=2 * size) == ([0, 1], True)
    assert task.batch(GONE, limit_bytes=3 * size - 1) == ([2, 3], True)
    assert task.batch(GONE, limit_bytes=2 * size) == ([4, 5], False)


def test_little_is_read_ahead_of_large_entries(task, monkeypatch):
    monkeypatch.setattr(module, "SCAN_BYTES", 4000)
    task.put(*[1000] * 40)
    task.reads.clear()
    task.batch(GONE, limit_bytes=10_000)
    assert max(task.reads[:6]) < 5000
    assert sum(task.reads) < 15_000 + 10_000, "what is removed, read once, and what was read ahead"


@pytest.mark.parametrize("written", [False, True])
def test_a_scan_is_in_pieces_of_so_many_bytes(task, monkeypatch, written):
    monkeypatch.setattr(module, "SCAN_BYTES", 3500)
    sizes = [1000, 1000, 1000, 1000, 9000, 10, 10]
    task.put(*sizes)
    with task.store(FOREVER) as store:
        if written:  # in this batch
            store.put_many(pa.concat_tables(store.scan()))
        pieces = [sorted(map(len, table["v"].to_pylist())) for table in store.scan()]
    assert sorted(size for piece in pieces for size in piece) == sorted(sizes)
    assert all(sum(piece) <= 3500 or len(piece) == 1 for piece in pieces)
    assert len(pieces) > 2


def test_what_expires_is_decoded_in_pieces_and_is_seen_whole(task, monkeypatch):
    monkeypatch.setattr(module, "SCAN_BYTES", 2500)
    decoded = []
    table = Store._table
    monkeypatch.setattr(
        Store, "_table", lambda self, entries: decoded.append(len(entries)) or table(self, entries)
    )
    task.put(*[1000] * 7)
    assert task.batch(GONE) == (list(range(7)), False)
    assert decoded == [2, 2, 2, 1]
