"""One transaction on a copy: its stores, its metadata and its undo record, as the transaction sees and changes them.

All changes of a transaction appear together, or not at all: a killed process leaves the copy as it was before.

A `View` reads a copy from outside: a store at the copy's last committed point. Attempts may write to the copy
meanwhile: LMDB gives each reader a snapshot, so neither side waits. The copy may be one uncommitted batch ahead; a view
undoes that batch in memory, with the copy's undo record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import lmdb
from msgspec.structs import replace

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.files import RecordFile
from taskplace.spark.messages import History, Meta, Position
from taskplace.spark.state import environment
from taskplace.spark.state.environment import (
    DATA,
    META,
    POSITION,
    UNDO,
    Environment,
    ReadOnly,
    Txn,
    decode_meta,
    encode_meta,
)
from taskplace.spark.state.keys import (
    checked,
    physical,
    physical_all,
    restore_all,
    restore_columns,
    store_all,
    verified,
)


def get_values(txn: Txn, db: lmdb._Database, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
    """Return the value of each key, None for a missing key. O(keys x log size).

    Errors: `DamagedEntry` for an entry that has changed since it was written.
    """
    found: dict[bytes, bytes | None] = dict.fromkeys(keys)
    stored = physical_all([*found])
    # Not `getmulti`: it would return a tuple and one more key for each.
    raw = list(map(partial(txn.get, db=db), stored))
    if None in raw:
        stored = [key for key, value in zip(stored, raw, strict=True) if value is not None]
    there = [value for value in raw if value is not None]
    found.update(zip(*restore_columns(stored, there), strict=True))
    return found


class Transaction:
    """A transaction on the current state of an environment. End it with `commit` or `abort`.

    As a context manager it is aborted at the end, for transactions that only read.
    Errors: `DamagedEntry` for an entry or a record that has changed since it was written; `CheckpointError` for a store
    that is not open.
    """

    def __init__(self, env: Environment | ReadOnly, *, write: bool = False) -> None:
        self._path, self._dbs = env.path, env.databases
        self._txn = env.begin(write=write)
        self.ended = False

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def commit(self) -> None:
        """Make the changes visible, and end the transaction."""
        self._txn.commit()
        self.ended = True

    def abort(self) -> None:
        """End the transaction without its changes. Does nothing if it has ended."""
        self._txn.abort()
        self.ended = True

    # -- metadata

    def recorded(self) -> Meta | None:
        """Return the copy's metadata; None if it has none that can be used."""
        raw = self._txn.get(POSITION, db=self._dbs[META])
        return None if raw is None else decode_meta(raw)

    def meta(self) -> Meta:
        """Return the copy's metadata; that of an empty copy if it has none that can be used."""
        return self.recorded() or Meta()

    def usable(self, stores: Collection[str]) -> bool:
        """Return whether the copy is empty, or of this boot and format and complete for these stores."""
        raw = self._txn.get(POSITION, db=self._dbs[META])
        if raw is None:
            return True
        meta = decode_meta(raw)
        return meta is not None and not set(meta.skipped) & set(stores)

    def write_meta(self, meta: Meta) -> None:
        """Write the copy's metadata."""
        self._txn.put(POSITION, encode_meta(meta), db=self._dbs[META])

    # -- the undo record

    def undo(self) -> RecordFile | None:
        """Return the records that undo the last batch; None without an undo record."""
        record = self._txn.get(UNDO, db=self._dbs[META])
        return None if record is None else RecordFile(verified(UNDO, record))

    def write_undo(self, records: bytes) -> None:
        """Write the undo record of the batch that this transaction commits."""
        self._txn.put(UNDO, checked(UNDO, records), db=self._dbs[META])

    def drop_undo(self) -> None:
        """Remove the undo record, if there is one."""
        self._txn.delete(UNDO, db=self._dbs[META])

    # -- stores

    def get(self, store: str, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """Return the value of each key, None for a missing key. O(keys x log size)."""
        return get_values(self._txn, self._db(store), keys)

    def scan(self, store: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield all (key, value) from the key `start` on, in the order of their bytes."""
        with self._txn.cursor(db=self._db(store)) as cursor:
            if not start:
                yield from restore_all(cursor.iternext(), self.count(store))
            elif cursor.set_range(physical(start)):
                yield from restore_all(cursor.iternext())

    def count(self, store: str) -> int:
        """Return the number of keys in a store. O(1)."""
        return int(self._txn.stat(db=self._db(store))["entries"])

    def put(self, store: str, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Write entries, and delete the keys whose value is None."""
        db = self._db(store)
        written = keys
        if None in values:
            entries = list(zip(keys, values, strict=True))
            for key in (key for key, value in entries if value is None):
                self._txn.delete(physical(key), db=db)
            written = [key for key, value in entries if value is not None]
            values = [value for value in values if value is not None]
        with self._txn.cursor(db=db) as cursor:
            cursor.putmulti(store_all(written, cast("Sequence[bytes]", values)))

    def load(self, store: str, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Write entries of a snapshot. Entries behind the last key of the store are appended, without a search.

        A snapshot has its entries in the order of LMDB, so it fills an empty store by appending alone, and its pages
        completely. In any other order, the entries are written as by `put`.
        """
        if None in values:  # no snapshot has deleted keys
            self.put(store, keys, values)
            return
        there = cast("Sequence[bytes]", values)
        with self._txn.cursor(db=self._db(store)) as cursor:
            asked, appended = cursor.putmulti(store_all(keys, there), append=True)
            if appended < asked:  # LMDB refuses to append a key that is not behind its last one
                cursor.putmulti(store_all(keys, there))

    def apply(self, meta: Meta, records: RecordFile) -> Meta:
        """Write records; skip those of a store that the topology no longer has. Return the metadata after it.

        Skipped stores are recorded: if the topology gets such a store again, the copy counts as incomplete.
        """
        for number in range(len(records)):
            store, keys, values = records.columns(number)
            if self.has(store):
                self.put(store, keys, values)
            elif keys:
                meta = skipping(meta, store)
        return meta

    def wipe(self, meta: Meta) -> Meta:
        """Empty the copy. Return the metadata after it, which keeps the newest fence that the copy has seen.

        Stores of another topology are not emptied. They are recorded as skipped: if the topology gets such a store
        again, the copy counts as incomplete.
        """
        for db in self._dbs.values():
            self._txn.drop(db, delete=False)
        with self._txn.cursor() as cursor:
            others = {name.decode() for name in cursor.iternext(values=False) if name not in self._dbs}
        return Meta(fence=meta.fence, skipped=tuple(sorted(others)))

    def empty(self, stores: Iterable[str]) -> None:
        """Remove all entries of stores."""
        for store in stores:
            self._txn.drop(self._db(store), delete=False)

    def has(self, store: str) -> bool:
        """Return whether a store is open."""
        return store.encode() in self._dbs

    def _db(self, store: str) -> lmdb._Database:
        try:
            return self._dbs[store.encode()]
        except KeyError:
            known = [name.decode() for name in self._dbs if name != META]
            raise CheckpointError(
                f"{self._path.name}: found a store {store!r}, the topology has {known}"
            ) from None


def skipping(meta: Meta, store: str) -> Meta:
    """Return the metadata of a copy without the entries of a store, which the topology no longer has."""
    return replace(meta, skipped=tuple(sorted({*meta.skipped, store})))


# -- from outside: a copy to which attempts may write meanwhile


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
        points |= {change.base for change in history.changes[:1]}
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
