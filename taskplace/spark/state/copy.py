"""One copy of a task's state on this host: an LMDB environment that contains its position in the task's history.

Properties:
- State, position and the undo record of the last batch change in *one* LMDB transaction: a killed process
  leaves the copy as it was before or after the transaction.
- The write transaction is held from the first read to the commit. So two attempts on one copy, in two Python
  workers of one executor or of two, run one after the other.
- An undo record is dropped only after its attempt was committed; a descriptor that names the attempt is the proof.
- An attempt with an older fence (epoch, batch, generation) than the copy has seen is refused. This saves work. The
  manifest, not the fence, keeps state right.
- LMDB does not sync: a copy survives a killed process, not a crashed host. A copy from another boot of the
  host is discarded.
- The entries have checksums, and the file is as long as its map. So a changed or cut copy is detected and made again.

When the map is full it grows, and the attempt runs again on the larger map.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import lmdb
import pyarrow as pa
from msgspec.structs import replace

from taskplace.errors import CheckpointError, Fenced, InputError, TaskplaceError
from taskplace.spark import faults
from taskplace.spark.messages import EMPTY, Change, Fence, History, Meta, Position, Recovery, Snapshot
from taskplace.spark.state import warm
from taskplace.spark.state.environment import DAMAGED, DATA, Environment, Txn, check_length
from taskplace.spark.state.files import (
    Changes,
    RecordFile,
    decode_records,
    encode_changes,
    open_sealed,
    pieces,
)
from taskplace.spark.state.history import Action, NoWay, Step, next_step, without
from taskplace.spark.state.keys import (
    CHECKSUM,
    LARGEST_STORED,
    checked,
    physical,
    restore_all,
    restore_entry,
    store_entry,
    verified,
)
from taskplace.spark.state.meta import META, POSITION, UNDO, decode_meta, encode_meta

T = TypeVar("T")
#: Pieces of a copy: a store and some of its entries.
Dumped = Generator[tuple[str, list[tuple[bytes, bytes]]], None, None]


class Superseded(TaskplaceError):
    """An attempt that its own driver does not want any more: its round was cancelled, or its task was planned again.

    `Fenced` is about another driver. The driver that cancels a round does not use its results, nor its errors.
    """


class _DamagedFile(Exception):
    def __init__(self, part: Change | Snapshot, error: CheckpointError) -> None:
        super().__init__(str(error))
        self.part, self.error = part, error


class _Ways:
    """The files that lead to the end of a history, without those that were found damaged."""

    def __init__(self, history: History, done: Recovery) -> None:
        self.history = history
        self._done = done
        self._damaged: _DamagedFile | None = None

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Guard a step: if it finds a damaged file, the next steps do without the file.

        Errors: `CheckpointError` naming the file, if the remaining files do not lead to the end.
        """
        try:
            yield
        except _DamagedFile as damaged:
            around = without(self.history, damaged.part)
            if around is None:
                raise damaged.error from None
            self._done.damaged.append(str(damaged))
            self.history, self._damaged = around, damaged
        except NoWay as error:
            if self._damaged is None:
                raise
            raise CheckpointError(f"{self._damaged}; without this file, {error}") from None


def _file_of(snapshot: Snapshot) -> str:
    """Return the id of a snapshot that a copy records while it restores: attempt and checksum.

    The attempt alone is not enough: two files of one attempt may have different pieces.
    """
    return f"{snapshot.attempt}:{snapshot.checksum}"


class Copy:
    """An open copy. Use as a context manager; `bring_to` begins the write transaction, `commit` ends it.

    Lifetime: `_env` from open to close; `_txn` from `bring_to` to `commit` or close. `_read_before` lives as long as
    `_txn`: it has the values that were read of each store, which the undo record needs for most written keys.
    """

    def __init__(self, path: Path, stores: Sequence[str], *, fence: Fence | None = None) -> None:
        self.path = path
        self.stores = tuple(stores)
        self._fence = fence
        try:
            self._open()
        except DAMAGED:
            self._make_anew()

    def _make_anew(self) -> None:
        """Discard a copy that cannot be read completely: a copy can always be made again."""
        shutil.rmtree(self.path)
        self._open()

    def _open(self) -> None:
        self._env = warm.WARM.take(self.path, (META, *(store.encode() for store in self.stores)))
        self._dbs = self._env.databases
        self._snapshot: tuple[str, RecordFile] | None = None
        self._txn: Txn | None = None
        self._read_before: dict[str, dict[bytes, bytes | None]] = {}

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end()
        if kind is None:
            warm.WARM.give_back(self._env)
        else:
            self._env.close()

    def close(self) -> None:
        """Close the copy; uncommitted changes are lost."""
        self._end()
        self._env.close()

    def _end(self) -> None:
        self._abort()
        self._close_snapshot()

    # -- where it is

    def position(self) -> Position:
        """Return the copy's position in its task's history, with its last attempt. Takes no lock."""
        with self._env.begin() as txn:
            return self._meta(txn).at

    def _being_restored(self) -> str:
        """Return the attempt of the snapshot that is partly restored; "" for none."""
        with self._env.begin() as txn:
            restoring = self._meta(txn).restoring
        return restoring[0].rpartition(":")[0] if restoring else ""

    def _meta(self, txn: Txn) -> Meta:
        raw = txn.get(POSITION, db=self._dbs[META])
        return Meta() if raw is None else (decode_meta(raw) or Meta())

    def _usable(self, txn: Txn) -> bool:
        raw = txn.get(POSITION, db=self._dbs[META])
        if raw is None:
            return True
        meta = decode_meta(raw)
        return meta is not None and not set(meta.skipped) & set(self.stores)

    def _write_meta(self, txn: Txn, meta: Meta) -> None:
        txn.put(POSITION, encode_meta(meta), db=self._dbs[META])

    # -- getting there

    def bring_to(self, history: History, root: Path, done: Recovery | None = None) -> Recovery:
        """Bring the copy to `history.end` and hold its write transaction.

        Every step is a transaction of its own, so a kill in between loses no work. The work is counted in `done`, if
        given.
        Errors: `Fenced` if the copy has seen a newer driver or batch, `Superseded` for a newer generation of the same
        batch; `CheckpointError` for a missing or damaged file.
        """
        done = Recovery() if done is None else done
        ways = _Ways(history, done)
        while True:
            with ways.tried():
                if self._take_step(self._begin(), ways.history, root, done):
                    return done

    def follow(
        self, history: History, root: Path, pause: Callable[[], bool] = lambda: True
    ) -> Recovery | None:
        """Bring the copy to `history.end` and commit that; return None, doing nothing, if it is already beyond.

        `pause` is called between the short steps. If it returns False, following stops; finished steps stay.
        A follower never rolls back work that is newer than its history: the copy may have been
        promoted meanwhile, and its attempt may be about to be committed.
        """
        done = Recovery()
        ways = _Ways(history, done)
        while True:
            txn = self._begin()
            # Checked before each step: an attempt may have changed the copy since the last transaction.
            if self._meta(txn).at.version > history.end.version:
                self._abort()
                return None
            with ways.tried():
                if self._take_step(txn, ways.history, root, done):
                    self.commit_unchanged()
                    return done
                if not pause():
                    done.unfinished, done.restoring = True, self._being_restored()
                    return done

    def _take_step(self, txn: Txn, history: History, root: Path, done: Recovery) -> bool:
        """Take the next step to `history.end` and commit it. If none is left, return True and hold the transaction."""
        meta = self._meta(txn)
        if meta.at == EMPTY and history.end != EMPTY and meta.restoring is None:
            done.scratch = True
        seen = meta.fence
        if self._fence is not None and self._fence < seen:
            self._abort()
            here = (
                f"{self.path.name}: the fence of this attempt is {self._fence}, the copy has the newer {seen}"
            )
            backup = f"the checkpoint was restored from a backup: remove {self.path.parent.parent}"
            if (self._fence.epoch, self._fence.batch) == (seen.epoch, seen.batch):
                raise Superseded(f"{here}; if the driver has not planned again since, {backup}")
            raise Fenced(f"{here}; if no other driver has taken over, {backup}")
        meta = replace(meta, fence=self._fence or seen)
        begun = next(
            (s for s in history.snapshots if meta.restoring and _file_of(s) == meta.restoring[0]), None
        )
        # Finish a snapshot that was begun; otherwise newer snapshots could restart the restore for ever.
        step = Step(Action.RESTORE, snapshot=begun) if begun else next_step(meta.at, meta.undo, history)
        restore = step.action is Action.RESTORE and step.snapshot is not None
        if meta.restoring is not None and not (
            restore and step.snapshot is not None and _file_of(step.snapshot) == meta.restoring[0]
        ):
            meta = self._wipe(txn, meta)  # the copy has a part of another snapshot
        if step.action is Action.READY:
            if meta.undo is not None:  # `history` names this attempt as committed: drop its undo record
                txn.delete(UNDO, db=self._dbs[META])
            self._write_meta(txn, replace(meta, undo=None))
            return True
        if step.action is Action.ROLL_BACK:
            record = txn.get(UNDO, db=self._dbs[META])
            back = meta.undo
            if back is None or record is None:
                raise CheckpointError(f"{self.path}: no undo record at {meta.at}")
            meta = self._apply(txn, meta, decode_records(verified(UNDO, record)))
            txn.delete(UNDO, db=self._dbs[META])
            self._write_meta(txn, replace(meta, at=back, undo=None))
            done.rolled_back = True
        elif step.action is Action.REPLAY and step.change is not None:
            self._replay(txn, meta, step.change, root)
            done.replayed += step.change.records
        elif step.snapshot is None:
            done.scratch = done.scratch or step.unknown
            self._write_meta(txn, self._wipe(txn, meta))
        else:
            done.scratch = done.scratch or (step.unknown and meta.restoring is None)
            done.restored += self._restore(txn, meta, step.snapshot, root)
        txn.commit()
        self._txn = None
        if restore:
            faults.point("restore.piece")
        return False

    def dump(self, rows: int, most: int | None = None) -> tuple[Position, Dumped]:
        """Return the position and all (store, entries) at it, in `pieces`.

        One read transaction lasts until the generator is closed. Errors: `DamagedEntry`, from the generator, if an
        entry is damaged or missing.
        """
        txn = self._env.begin()
        if not self._usable(
            txn
        ):  # from another boot, or incomplete: the next attempt or visit makes it again
            txn.abort()
            nothing: list[tuple[str, list[tuple[bytes, bytes]]]] = []
            return EMPTY, (piece for piece in nothing)
        return self._meta(txn).at, self._dump(txn, rows, most)

    def _dump(self, txn: Txn, rows: int, most: int | None) -> Dumped:
        with txn:
            for store in self.stores:
                with txn.cursor(db=self._db(store)) as cursor:
                    entries = restore_all(cursor.iternext(), self._count(txn, store))
                    for piece in pieces(store, entries, rows, most):
                        yield store, piece

    def _replay(self, txn: Txn, meta: Meta, change: Change, root: Path) -> None:
        if change.file:
            with self._read(change, root) as file:
                meta = self._apply(txn, meta, decode_records(file))
        txn.delete(UNDO, db=self._dbs[META])
        self._write_meta(txn, replace(meta, at=change.position, undo=None))

    def _restore(self, txn: Txn, meta: Meta, snapshot: Snapshot, root: Path) -> int:
        """Load the next piece of a snapshot; return its number of records. The next call continues after this piece."""
        if meta.restoring is None:
            meta = replace(self._wipe(txn, meta), restoring=(_file_of(snapshot), 0))
        file = self._opened(snapshot, root)
        loaded = meta.restoring[1] if meta.restoring is not None else 0
        records = 0
        if loaded < len(file):
            store, entries = file.piece(loaded)
            meta = self._apply(txn, meta, [(store, entries)])
            records = len(entries)
        loaded += 1
        if loaded >= len(file):
            self._close_snapshot()
            self._write_meta(txn, replace(meta, at=snapshot.position, undo=None, restoring=None))
        else:
            self._write_meta(txn, replace(meta, restoring=(_file_of(snapshot), loaded)))
        return records

    def _opened(self, snapshot: Snapshot, root: Path) -> RecordFile:
        """Return a snapshot's file. It is checked once; its pieces are read when they are needed."""
        if self._snapshot is None or self._snapshot[0] != snapshot.file:
            self._close_snapshot()
            self._snapshot = snapshot.file, RecordFile(self._read(snapshot, root))
        return self._snapshot[1]

    def _close_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot[1].close()
            self._snapshot = None

    @staticmethod
    def _read(part: Change | Snapshot, root: Path) -> pa.NativeFile:
        try:
            return open_sealed(root / part.file, part.size, part.checksum)
        except CheckpointError as error:
            raise _DamagedFile(part, error) from None

    def _wipe(self, txn: Txn, meta: Meta) -> Meta:
        """Empty the copy, but keep the newest fence that it has seen.

        Stores of another topology are not emptied. They are recorded as skipped: if the topology gets such a store
        again, the copy counts as incomplete.
        """
        for db in self._dbs.values():
            txn.drop(db, delete=False)
        with txn.cursor() as cursor:
            others = {name.decode() for name in cursor.iternext(values=False) if name not in self._dbs}
        return Meta(fence=meta.fence, skipped=tuple(sorted(others)))

    def _apply(
        self, txn: Txn, meta: Meta, records: Iterable[tuple[str, list[tuple[bytes, bytes | None]]]]
    ) -> Meta:
        """Apply records; skip those of a store that the topology no longer has.

        Skipped stores are recorded: if the topology gets such a store again, the copy counts as incomplete.
        """
        skipped = set(meta.skipped)
        for store, entries in records:
            if (db := self._dbs.get(store.encode())) is not None:
                self._put(txn, db, entries)
            else:
                skipped.add(store)
        return replace(meta, skipped=tuple(sorted(skipped)))

    @staticmethod
    def _put(txn: Txn, db: lmdb._Database, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        puts = []
        for key, value in entries:
            if value is None:
                txn.delete(physical(key), db=db)
            else:
                puts.append(store_entry(key, value))
        if puts:
            with txn.cursor(db=db) as cursor:
                cursor.putmulti(puts)

    # -- reading and writing, in the transaction that `bring_to` began

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for a missing key. O(keys x log size)."""
        with self._held().cursor(db=self._db(store)) as cursor:
            wanted = [physical(key) for key in keys]
            entries = dict(cursor.getmulti(sorted(set(wanted))))
        values = [None if (raw := entries.get(key)) is None else restore_entry(key, raw)[1] for key in wanted]
        self._read_before.setdefault(store, {}).update(zip(keys, values, strict=True))
        return values

    def scan(self, store: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield all (key, value), in the order of their bytes."""
        with self._held().cursor(db=self._db(store)) as cursor:
            yield from restore_all(cursor.iternext(), self.count(store))

    def count(self, store: str) -> int:
        """Return the number of keys in a store. O(1)."""
        return self._count(self._held(), store)

    def _count(self, txn: Txn, store: str) -> int:
        return int(txn.stat(db=self._db(store))["entries"])

    def commit(self, changes: Changes, to: Position) -> None:
        """Write `changes`, their undo record and the new position, and end the transaction.

        Errors: `InputError` if the overwritten values exceed an undo record, 4 GiB.
        """
        txn = self._held()
        meta = self._meta(txn)
        old: Changes = {}
        for store, entries in changes.items():
            known = self._read_before.setdefault(store, {})
            self.get_many(store, [key for key in entries if key not in known])
            old[store] = {key: known[key] for key in entries}
        undo = encode_changes(old, {}, compression=None).to_pybytes()
        if len(undo) > LARGEST_STORED - CHECKSUM:
            raise InputError(
                f"task {self.path.name}",
                found=f"{len(undo)} bytes of state that one batch overwrites",
                expected=f"at most {LARGEST_STORED - CHECKSUM}, the largest undo record",
                hint="make the batches smaller",
            )
        txn.put(UNDO, checked(UNDO, undo), db=self._dbs[META])
        for store, entries in changes.items():
            self._put(txn, self._db(store), sorted(entries.items()))
        self._write_meta(txn, replace(meta, at=to, undo=meta.at, fence=self._fence or meta.fence))
        txn.commit()
        self._txn = None

    def commit_unchanged(self) -> None:
        """End the transaction of `bring_to` without further changes."""
        self._held().commit()
        self._txn = None

    # -- transactions

    def _db(self, store: str) -> lmdb._Database:
        try:
            return self._dbs[store.encode()]
        except KeyError:
            raise CheckpointError(
                f"{self.path.name}: found a store {store!r}, the topology has {list(self.stores)}"
            ) from None

    def _held(self) -> Txn:
        if self._txn is None:
            raise RuntimeError("bring_to() has to come first")
        return self._txn

    def _begin(self) -> Txn:
        self._abort()
        self._read_before = {}
        self._txn = self._env.begin(write=True)
        if not self._usable(self._txn):
            self._write_meta(self._txn, self._wipe(self._txn, Meta()))
        return self._txn

    def _abort(self) -> None:
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    def grow(self) -> None:
        """Double the map; uncommitted changes are lost."""
        self._abort()
        self._env.grow()

    def growing(self, work: Callable[[], T]) -> T:
        """Return `work()`. Run it again on a larger map while the map is full.

        If LMDB finds damage during `work`, discard the copy and run `work` once more on an empty one.
        """
        anew = False
        while True:
            try:
                return work()
            except lmdb.MapFullError:
                self.grow()
            except DAMAGED:
                if anew:
                    raise
                anew = True
                self.close()
                self._make_anew()


def look(path: Path) -> Meta | None:
    """Return the metadata of the copy at `path`, None if it is missing, incomplete or unusable. Changes nothing."""
    if not (path / DATA).exists():
        return None
    try:
        with warm.WARM.borrow(path) as opened:
            raw = _meta_of(path) if opened is None else _meta_in(opened)
    except lmdb.Error:
        return None
    meta = None if raw is None else decode_meta(raw)
    return None if meta is None or meta.restoring is not None else meta


def _meta_in(environment: Environment) -> bytes | None:
    with environment.begin() as txn:
        return txn.get(POSITION, db=environment.databases[META])


def _meta_of(path: Path) -> bytes | None:
    with lmdb.open(str(path), readonly=True, max_dbs=1, lock=True) as env:
        check_length(env, path / DATA)
        env.reader_check()
        with env.begin() as txn:
            return txn.get(POSITION, db=env.open_db(META, txn=txn, create=False))
