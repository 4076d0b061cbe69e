"""One copy of a task's state on this host: an LMDB environment that always knows where in history it is.

Properties:
- State, position and the undo record of the last batch change in *one* LMDB transaction: a killed process
  leaves the copy exactly as it was before, or after.
- The write transaction is held from the first read to the commit. Two attempts on one copy, in two Python
  workers of one executor or of two, run one after the other.
- Only a committed attempt's undo record is dropped: the descriptor that names the attempt is the proof.
- An attempt with an older fence (epoch, batch) than the copy has seen is refused. This saves work; it is
  not what keeps state right: that is the manifest.
- LMDB does not sync: a copy survives a killed process, not a crashed host. A copy from another boot of the
  host is discarded.

The map grows by doubling when it is full: the attempt is run again on the larger map.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias, TypeVar

import lmdb
import psutil

from taskplace.errors import CheckpointError, Fenced
from taskplace.spark.state.files import Changes, decode_records, encode_changes, read_sealed
from taskplace.spark.state.history import EMPTY, Action, Change, History, Position, Snapshot, next_step
from taskplace.spark.state.keys import physical, restore_entry, store_entry

FORMAT = 1
INITIAL_MAP = 64 << 20
MAX_STORES = 64
_META, _POSITION, _UNDO, _SKIPPED = b"meta", b"position", b"undo", b"skipped"

T = TypeVar("T")
Txn: TypeAlias = "lmdb.Transaction[bytes]"

#: What LMDB says of a file that is no good, or that another version of it has made.
_DAMAGED = (
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
)


@dataclass(frozen=True, slots=True)
class Fence:
    """Whose work this is: the driver's epoch, then the batch. A copy accepts no older one than it has seen."""

    epoch: int = 0
    batch: int = -1


@dataclass(slots=True)
class Recovery:
    """What it took to bring a copy to its base."""

    replayed: int = 0
    restored: int = 0
    rolled_back: bool = False
    scratch: bool = False


@cache
def boot_id() -> str:
    """Return what tells one boot of this host from another."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"boot-{int(psutil.boot_time())}"


class Copy:
    """An open copy. Use as a context manager; `bring_to` begins the write transaction, `commit` ends it.

    Lifetime: `_env` from open to close; `_txn` from `bring_to` to `commit` or close.
    """

    def __init__(self, path: Path, stores: Sequence[str], *, fence: Fence | None = None) -> None:
        self.path = path
        self.stores = tuple(stores)
        self._fence = fence
        try:
            self._open()
        except _DAMAGED:
            self._make_anew()

    def _make_anew(self) -> None:
        """Discard the copy, of which LMDB cannot read all: a copy can always be made again."""
        shutil.rmtree(self.path)
        self._open()

    def _open(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        used = self.path / "data.mdb"
        size = INITIAL_MAP
        while used.exists() and size < 2 * used.stat().st_size:
            size *= 2
        self._env = lmdb.open(
            str(self.path),
            map_size=size,
            max_dbs=MAX_STORES + 1,
            sync=False,
            metasync=False,
            mode=0o600,
            max_spare_txns=1,
        )
        self._txn: Txn | None = None
        self._dbs: dict[bytes, lmdb._Database] = {}
        try:
            with self._begin_on_current_map(write=True) as txn:
                for name in (_META, *(store.encode() for store in self.stores)):
                    self._dbs[name] = self._env.open_db(name, txn=txn)
        except BaseException:
            self._env.close()
            raise

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is not committed, and close."""
        self._abort()
        self._env.close()

    # -- where it is

    def position(self) -> Position:
        """Return where in its task's history this copy is, its last attempt included. Takes no lock."""
        with self._begin_on_current_map() as txn:
            return self._read_position(txn)[0]

    def _read_position(self, txn: Txn) -> tuple[Position, Position | None, Fence]:
        raw = txn.get(_POSITION, db=self._dbs[_META])
        if raw is None:
            return EMPTY, None, Fence()
        meta = json.loads(raw)
        undo = meta["undo"]
        return Position(*meta["at"]), None if undo is None else Position(*undo), Fence(*meta["fence"])

    def _usable(self, txn: Txn) -> bool:
        raw = txn.get(_POSITION, db=self._dbs[_META])
        if raw is None:
            return True
        meta = json.loads(raw)
        skipped = json.loads(txn.get(_SKIPPED, default=b"[]", db=self._dbs[_META]))
        whole = not set(skipped) & set(self.stores)
        return bool(meta["format"] == FORMAT and meta["boot"] == boot_id() and whole)

    def _write_position(self, txn: Txn, at: Position, undo: Position | None, fence: Fence) -> None:
        meta = {
            "at": astuple(at),
            "undo": undo and astuple(undo),
            "fence": astuple(fence),
            "boot": boot_id(),
            "format": FORMAT,
        }
        txn.put(_POSITION, json.dumps(meta).encode(), db=self._dbs[_META])

    # -- getting there

    def bring_to(self, history: History, root: Path, done: Recovery | None = None) -> Recovery:
        """Bring the copy to `history.end` and hold its write transaction.

        Every step on the way is committed by itself, so a kill in between loses no work. What it took is added
        to `done`, if that is given.
        Errors: `Fenced` when newer work has been here; `CheckpointError` for a missing or damaged file.
        """
        done = Recovery() if done is None else done
        while not self._take_step(self._begin(), history, root, done):
            pass
        return done

    def follow(self, history: History, root: Path) -> Recovery | None:
        """Bring the copy to `history.end` and commit that; None, doing nothing, when it is beyond it already.

        A follower never rolls back work that is newer than the history it was given: the copy may have been
        promoted meanwhile, and its attempt may be about to be committed.
        """
        done = Recovery()
        while True:
            txn = self._begin()
            # Asked again at each step: an attempt may have been here since the last one ended its transaction.
            if self._read_position(txn)[0].version > history.end.version:
                self._abort()
                return None
            if self._take_step(txn, history, root, done):
                self.commit_unchanged()
                return done

    def _take_step(self, txn: Txn, history: History, root: Path, done: Recovery) -> bool:
        """Take the next step to `history.end` and commit it; True, the transaction still held, when there is none."""
        at, undo, seen = self._read_position(txn)
        if at == EMPTY and history.end != EMPTY:
            done.scratch = True
        if self._fence is not None and (self._fence.epoch, self._fence.batch) < (seen.epoch, seen.batch):
            self._abort()
            raise Fenced(f"{self.path.name}: this attempt belongs to {self._fence}, the copy has seen {seen}")
        fence = self._fence or seen
        step = next_step(at, undo, history)
        if step.action is Action.READY:
            if undo is not None:  # `history` names this attempt as committed: its undo record has served
                txn.delete(_UNDO, db=self._dbs[_META])
            self._write_position(txn, at, None, fence)
            return True
        if step.action is Action.ROLL_BACK:
            record = txn.get(_UNDO, db=self._dbs[_META])
            if undo is None or record is None:
                raise CheckpointError(f"{self.path}: no undo record at {at}")
            self._apply(txn, decode_records(record))
            txn.delete(_UNDO, db=self._dbs[_META])
            self._write_position(txn, undo, None, fence)
            done.rolled_back = True
        elif step.action is Action.REPLAY and step.change is not None:
            self._replay(txn, step.change, root, fence)
            done.replayed += step.change.records
        else:
            done.scratch = done.scratch or step.unknown
            done.restored += self._restore(txn, step.snapshot, root, fence)
        txn.commit()
        self._txn = None
        return False

    def dump(self, rows: int) -> tuple[Position, Iterator[tuple[str, list[tuple[bytes, bytes | None]]]]]:
        """Return the position and all (store, entries) at it, in pieces; they come from one read transaction."""
        txn = self._begin_on_current_map()
        at, _, _ = self._read_position(txn)
        return at, self._dump(txn, rows)

    def _dump(self, txn: Txn, rows: int) -> Iterator[tuple[str, list[tuple[bytes, bytes | None]]]]:
        with txn:
            for store in self.stores:
                with txn.cursor(db=self._db(store)) as cursor:
                    entries: list[tuple[bytes, bytes | None]] = []
                    for key, raw in cursor.iternext():
                        entries.append(restore_entry(key, raw))
                        if len(entries) == rows:
                            yield store, entries
                            entries = []
                    if entries:
                        yield store, entries

    def _replay(self, txn: Txn, change: Change, root: Path, fence: Fence) -> None:
        if change.file:
            self._apply(txn, decode_records(read_sealed(root / change.file, change.size, change.checksum)))
        txn.delete(_UNDO, db=self._dbs[_META])
        self._write_position(txn, change.position, None, fence)

    def _restore(self, txn: Txn, snapshot: Snapshot | None, root: Path, fence: Fence) -> int:
        self._wipe(txn)
        if snapshot is None:
            self._write_position(txn, EMPTY, None, fence)
            return 0
        self._apply(txn, decode_records(read_sealed(root / snapshot.file, snapshot.size, snapshot.checksum)))
        self._write_position(txn, snapshot.position, None, fence)
        return snapshot.records

    def _wipe(self, txn: Txn) -> None:
        for db in self._dbs.values():
            txn.drop(db, delete=False)

    def _apply(self, txn: Txn, records: Iterable[tuple[str, list[tuple[bytes, bytes | None]]]]) -> None:
        for store, entries in records:
            if (db := self._dbs.get(store.encode())) is not None:
                self._put(txn, db, entries)
            else:
                self._pass_over(txn, store)

    def _pass_over(self, txn: Txn, store: str) -> None:
        """Take note that records of a store were left out: the topology does not have it any more.

        Should it have it again after all, this copy is not whole (see `_usable`).
        """
        skipped = set(json.loads(txn.get(_SKIPPED, default=b"[]", db=self._dbs[_META])))
        if store not in skipped:
            txn.put(_SKIPPED, json.dumps(sorted({*skipped, store})).encode(), db=self._dbs[_META])

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
        """Return the value of each key, None where there is none. O(keys x log size)."""
        with self._held().cursor(db=self._db(store)) as cursor:
            wanted = [physical(key) for key in keys]
            found = dict(cursor.getmulti(sorted(set(wanted))))
        return [None if (raw := found.get(key)) is None else restore_entry(key, raw)[1] for key in wanted]

    def scan(self, store: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield all (key, value), in the order of their bytes."""
        with self._held().cursor(db=self._db(store)) as cursor:
            for key, raw in cursor.iternext():
                yield restore_entry(key, raw)

    def count(self, store: str) -> int:
        """Return the number of keys in a store. O(1)."""
        return int(self._held().stat(db=self._db(store))["entries"])

    def commit(self, changes: Changes, to: Position) -> None:
        """Write `changes`, their undo record and the new position, and end the transaction."""
        txn = self._held()
        at, _, seen = self._read_position(txn)
        old: Changes = {}
        for store, entries in changes.items():
            keys = list(entries)
            old[store] = dict(zip(keys, self.get_many(store, keys), strict=True))
        txn.put(_UNDO, encode_changes(old, {}, compression=None).to_pybytes(), db=self._dbs[_META])
        for store, entries in changes.items():
            self._put(txn, self._db(store), sorted(entries.items()))
        self._write_position(txn, to, at, self._fence or seen)
        txn.commit()
        self._txn = None

    def commit_unchanged(self) -> None:
        """End the transaction, keeping what `bring_to` did and nothing else."""
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
        self._txn = self._begin_on_current_map(write=True)
        if not self._usable(self._txn):
            self._wipe(self._txn)
        return self._txn

    def _begin_on_current_map(self, *, write: bool = False) -> Txn:
        try:
            return self._env.begin(write=write)
        except lmdb.MapResizedError:  # another process has grown it, maybe while this one waited for it
            self._env.set_mapsize(0)
            return self._env.begin(write=write)

    def _abort(self) -> None:
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    def grow(self) -> None:
        """Double the map; what was not committed is given up."""
        self._abort()
        self._env.set_mapsize(2 * self._env.info()["map_size"])

    def growing(self, work: Callable[[], T]) -> T:
        """Return `work()`, run again on a larger map as long as the map is full."""
        while True:
            try:
                return work()
            except lmdb.MapFullError:
                self.grow()


def peek(path: Path) -> Position | None:
    """Return where the copy at `path` is, None when there is none or it cannot be used. Changes nothing."""
    if not (path / "data.mdb").exists():
        return None
    try:
        with lmdb.open(str(path), readonly=True, max_dbs=1, lock=True) as env, env.begin() as txn:
            raw = txn.get(_POSITION, db=env.open_db(_META, txn=txn, create=False))
    except lmdb.Error:
        return None
    if raw is None:
        return None
    meta = json.loads(raw)
    if meta["format"] != FORMAT or meta["boot"] != boot_id():
        return None
    # An uncommitted last batch does not count: what is certain is where its undo record leads.
    return Position(*(meta["undo"] or meta["at"]))
