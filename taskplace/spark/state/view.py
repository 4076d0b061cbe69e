"""Reads a copy from outside: a store at the copy's last committed point, or only its position.

Attempts may write to the copy meanwhile: LMDB gives each reader a snapshot, so neither side waits. The copy may be one
uncommitted batch ahead; a view undoes that batch in memory, with the copy's undo record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import lmdb

from taskplace.errors import CheckpointError
from taskplace.spark.messages import History, Meta, Position
from taskplace.spark.state import environment
from taskplace.spark.state.environment import DATA, META, Environment, ReadOnly
from taskplace.spark.state.transaction import Transaction


class View:
    """One store of a copy, read-only, at `position`: the newest point of `history` that the copy has.

    A copy that this process keeps open is read as it is, and stays open. Use as a context manager.
    Errors: `CheckpointError` if the copy is missing, unusable or not in the history.
    """

    def __init__(self, path: Path, store: str, history: History) -> None:
        if not (path / DATA).exists():
            raise CheckpointError(f"{path.name}: no copy on this executor")
        self._copy, self._store = path.name, store
        with ExitStack() as opened:
            try:
                self._txn = opened.enter_context(_reading(path, store))
                self.position, self._overlay = self._committed(history)
            except lmdb.NotFoundError:
                raise CheckpointError(f"{path.name}: the copy has no store {store!r}") from None
            except lmdb.Error as error:
                raise CheckpointError(f"{path.name}: the copy cannot be read ({error})") from None
            self._close = opened.pop_all()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *error: Any) -> None:
        self._close.__exit__(*error)

    def _committed(self, history: History) -> tuple[Position, Mapping[bytes, bytes | None]]:
        """Return the newest committed position, and the entries that differ there from those of the copy."""
        meta = self._txn.recorded()
        if meta is None or meta.restoring is not None or self._store in meta.skipped:
            raise CheckpointError(f"{self._copy}: no usable copy")
        points = {change.attempt for change in history.changes}
        points |= {snapshot.attempt for snapshot in history.snapshots}
        if history.changes:
            points.add(history.changes[0].base)
        if meta.at.attempt in points:
            return meta.at, {}
        if meta.undo is None or meta.undo.attempt not in points:
            raise CheckpointError(f"{self._copy}: the copy is at {meta.at}, which is not in its history")
        records = self._txn.undo()
        if records is None:
            raise CheckpointError(f"{meta.undo}: the copy has no undo record")
        undone: dict[bytes, bytes | None] = {}
        for number in range(len(records)):
            store, keys, values = records.columns(number)
            if store == self._store:
                undone.update(zip(keys, values, strict=True))
        return meta.undo, undone

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for a missing key. O(keys x log size).

        Errors: `CheckpointError` if an entry is damaged; so does `scan`.
        """
        found = self._txn.get(self._store, [key for key in keys if key not in self._overlay])
        return [self._overlay[key] if key in self._overlay else found[key] for key in keys]

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all (key, value). No order."""
        for key, value in self._overlay.items():
            if value is not None:
                yield key, value
        yield from (entry for entry in self._txn.scan(self._store) if entry[0] not in self._overlay)


def read_meta(path: Path) -> Meta | None:
    """Return the metadata of the copy at `path`, None if it is missing, incomplete or unusable. Changes nothing."""
    if not (path / DATA).exists():
        return None
    try:
        with _reading(path) as txn:
            meta = txn.recorded()
    except lmdb.Error:
        return None
    return None if meta is None or meta.restoring is not None else meta


@contextmanager
def _reading(path: Path, *stores: str) -> Iterator[Transaction]:
    """Read a copy. LMDB must not open a file twice in a process, so an environment that is kept open is used."""
    names = (META, *(store.encode() for store in stores))
    with ExitStack() as opened:
        kept: Environment | ReadOnly | None = None
        with suppress(
            lmdb.Error
        ):  # its file is damaged: it is closed, and the copy is opened as any other one
            kept = opened.enter_context(environment.WARM.borrow(path))
        if kept is None or not kept.databases.keys() >= set(names):
            opened.close()
            environment.WARM.drop(path)  # it lacks the store, which the copy may have
            kept = opened.enter_context(ReadOnly(path, names))
        yield opened.enter_context(Transaction(kept))
