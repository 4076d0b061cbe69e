"""A read-only view of a copy at its last committed point; attempts may write to the copy meanwhile.

LMDB gives each reader a snapshot, so neither side waits. The copy may be one uncommitted batch ahead; the view undoes
that batch in memory, with the copy's undo record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import lmdb

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.files import decode_records
from taskplace.spark.messages import History, Position
from taskplace.spark.state import environment as warm
from taskplace.spark.state.environment import (
    DATA,
    MAX_STORES,
    META,
    POSITION,
    UNDO,
    Txn,
    check_length,
    decode_meta,
)
from taskplace.spark.state.keys import restore_all, verified
from taskplace.spark.state.transaction import get_values


class View:
    """One store of a copy, read-only, at `position`: the newest point of `history` that the copy has.

    A copy that this process keeps open is read as it is, and stays open. Use as a context manager.
    Errors: `CheckpointError` if the copy is missing, unusable or not in the history.
    """

    def __init__(self, path: Path, store: str, history: History) -> None:
        if not (path / DATA).exists():
            raise CheckpointError(f"{path.name}: no copy on this executor")
        with ExitStack() as opened:
            try:
                self._env, begin, databases = _opened(opened, path, store)
            except lmdb.Error as error:
                raise CheckpointError(f"{path.name}: the copy cannot be read ({error})") from None
            try:
                check_length(self._env, path / DATA)
                self._env.reader_check()  # clears the slots of readers that were killed
                self._txn = opened.enter_context(begin())
                self._read(path, store, history, databases)
            except lmdb.Error as error:
                raise CheckpointError(f"{path.name}: the copy is damaged ({error})") from None
            self._close = opened.pop_all()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *error: Any) -> None:
        self._close.__exit__(*error)

    def _read(
        self, path: Path, store: str, history: History, databases: Mapping[bytes, lmdb._Database]
    ) -> None:
        """Find the position of the view, what it undoes, and the database of its store."""

        def database(name: bytes) -> lmdb._Database:
            return databases.get(name) or self._env.open_db(name, txn=self._txn, create=False)

        meta_db = database(META)
        self.position, undone = self._committed(meta_db, history, path.name, store)
        self._overlay = self._undo(meta_db, store) if undone else {}
        try:
            self._db = database(store.encode())
        except lmdb.NotFoundError:
            raise CheckpointError(f"{path.name}: the copy has no store {store!r}") from None

    def _committed(self, meta_db: Any, history: History, copy: str, store: str) -> tuple[Position, bool]:
        raw = self._txn.get(POSITION, db=meta_db)
        meta = decode_meta(raw) if raw is not None else None
        if meta is None or meta.restoring is not None or store in meta.skipped:
            raise CheckpointError(f"{copy}: no usable copy")
        points = {change.attempt for change in history.changes}
        points |= {snapshot.attempt for snapshot in history.snapshots}
        if history.changes:
            points.add(history.changes[0].base)
        at, undo = meta.at, meta.undo
        if at.attempt in points:
            return at, False
        if undo is not None and undo.attempt in points:
            return undo, True
        raise CheckpointError(f"{copy}: the copy is at {at}, which is not in its history")

    def _undo(self, meta_db: Any, store: str) -> dict[bytes, bytes | None]:
        record = self._txn.get(UNDO, db=meta_db)
        if record is None:
            raise CheckpointError(f"{self.position}: the copy has no undo record")
        undone: dict[bytes, bytes | None] = {}
        for name, entries in decode_records(verified(UNDO, record)):
            if name == store:
                undone.update(entries)
        return undone

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for a missing key. O(keys x log size).

        Errors: `CheckpointError` if an entry is damaged; so does `scan`.
        """
        found = get_values(self._txn, self._db, [key for key in keys if key not in self._overlay])
        return [self._overlay[key] if key in self._overlay else found[key] for key in keys]

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all (key, value). No order."""
        for key, value in self._overlay.items():
            if value is not None:
                yield key, value
        with self._txn.cursor(db=self._db) as cursor:
            for key, value in restore_all(cursor.iternext(), self._txn.stat(db=self._db)["entries"]):
                if key not in self._overlay:
                    yield key, value


def _opened(
    opened: ExitStack, path: Path, store: str
) -> tuple[lmdb.Environment, Callable[[], Txn], Mapping[bytes, lmdb._Database]]:
    """Return the environment of a copy, how to begin a transaction, and those of its databases that are open.

    It is the one that this process keeps open, because LMDB must not open a file twice in a process.
    """
    with suppress(lmdb.Error):  # its file is damaged: it is closed, and the copy is opened as any other one
        kept = opened.enter_context(warm.WARM.borrow(path))
        if kept is not None and store.encode() in kept.databases:
            return kept.lmdb, kept.begin, kept.databases
    opened.close()
    warm.WARM.drop(path)  # it lacks the store, which the copy may have
    env = opened.enter_context(lmdb.open(str(path), readonly=True, max_dbs=MAX_STORES + 1))
    return env, env.begin, {}
