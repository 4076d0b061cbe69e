"""Where a copy is, and snapshots to bring it to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from taskplace.spark.checkpoint.files import encode_records, record_batch, write_file
from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import Position, Snapshot
from taskplace.spark.state.transaction import read_meta

AT = Position(3, "a3", 200)


def peek(path: Path) -> Position | None:
    """Return the position of the copy at `path` that is certainly committed; None if it is missing or unusable."""
    meta = read_meta(path)
    return None if meta is None else meta.certain


def snapshot_of(
    root: Path,
    pieces: Iterable[tuple[str, Sequence[tuple[bytes, bytes]]]],
    at: Position = AT,
    file: str = "snapshots/a3.arrow",
    stores: Iterable[str] = (),
) -> Snapshot:
    """Write a snapshot that has just these pieces: each is a store and some entries of it."""
    pieces = list(pieces)
    names = sorted({*stores, *(store for store, _ in pieces)})
    batches = [record_batch(names.index(store), entries) for store, entries in pieces]
    data = encode_records(names, batches, {}, "lz4")
    write_file(root / file, data, sync=False)
    count = sum(len(entries) for _, entries in pieces)
    return Snapshot(at.version, at.attempt, at.offset, count, file, data.size, checksum_of(data))
