"""One transaction on a copy: its stores, its metadata and its undo record, as the transaction sees and changes them.

All changes of a transaction appear together, or not at all: a killed process leaves the copy as it was before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import lmdb
from msgspec.structs import replace

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.files import RecordFile
from taskplace.spark.messages import Meta
from taskplace.spark.state.environment import (
    META,
    POSITION,
    UNDO,
    Environment,
    ReadOnly,
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

if TYPE_CHECKING:
    from taskplace.spark.state.environment import Txn


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

    def __init__(self, environment: Environment | ReadOnly, *, write: bool = False) -> None:
        self._path, self._dbs = environment.path, environment.databases
        self._txn = environment.begin(write=write)
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
