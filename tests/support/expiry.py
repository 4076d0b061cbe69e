"""Rows with an event time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa

from taskplace.spark.messages import History
from taskplace.spark.processors.base import Context, call, layouts
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.expiry import SECOND
from taskplace.spark.state.store import Store, StoreSchema

TTL = 100  # seconds


def at(second: int | None) -> datetime | None:
    return None if second is None else datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=second)


def micros(second: int) -> int:
    return int(at(second).timestamp()) * SECOND


def table(rows: list[tuple[str, int, int | None]]) -> pa.Table:
    columns = pa.schema([("k", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    return pa.Table.from_pylist([{"k": k, "n": n, "at": at(t)} for k, n, t in rows], schema=columns)


class Task:
    """One store's copy and its history. Every batch is committed with a changelog file."""

    def __init__(self, folder: Path, committed, schemas) -> None:
        self.folder, self.committed, self.schemas = folder, committed, schemas
        self.databases = [name for schema in schemas for name in schema.databases]
        self.history = History()

    def copy(self, name: str = "active") -> Copy:
        return Copy(self.folder / name, self.databases)

    def batch(self, watermark: int | None, work, *, limit: int = 50_000, now: int | None = None):
        """Run a batch, with what the runtime does at its end. `now`: the batch's own watermark, if it differs."""
        with self.copy() as copy:
            copy.bring_to(self.history, self.folder)
            stores = {
                s.name: Store(
                    s,
                    copy,
                    None if watermark is None else micros(watermark),
                    None if now is None else micros(now),
                )
                for s in self.schemas
            }
            result = work(stores)
            for store in stores.values():
                store.expire(limit, by_slot=True)
            changes = {}
            for store in stores.values():
                changes |= store.changes()
            if changes:
                self.history = self.committed(self.history, self.folder, changes, len(self.history.changes))
                copy.commit(changes, self.history.end)
            else:
                copy.commit_unchanged()
        return result

    def stored(self, copy_name: str = "active") -> dict[str, int]:
        """Return the number of entries in each database of a copy, including expired ones."""
        with self.copy(copy_name) as copy:
            copy.bring_to(self.history, self.folder)
            return {name: copy.count(name) for name in self.databases}


class Runs:
    """Runs one processor, batch by batch, with watermarks."""

    def __init__(self, folder: Path, committed, processor) -> None:
        self.processor = processor
        schemas = [StoreSchema.of(name, layout) for name, layout in layouts(processor).items()]
        self.task = Task(folder, committed, schemas)

    def batch(self, watermark: int | None, *inputs: pa.Table) -> tuple[list[dict], int]:
        def work(stores):
            out = call(self.processor, Context("0_0", 0, 0, stores), *inputs)
            return out.to_pylist(), sum(store.late for store in stores.values())

        return self.task.batch(watermark, work)
