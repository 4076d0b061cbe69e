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

Beside it: `transaction` has what one transaction reads and changes, and views of a copy from outside; `catching_up`
brings a copy to the end of a history.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import lmdb
from msgspec.structs import replace

from taskplace.errors import InputError
from taskplace.spark.checkpoint.files import Changes, Columns, encode_columns, in_order, pieces
from taskplace.spark.messages import EMPTY, Fence, History, Meta, Position, Recovery
from taskplace.spark.state import environment
from taskplace.spark.state.catching_up import CatchingUp, CheckpointFiles, Progress, restored_attempt
from taskplace.spark.state.environment import DAMAGED, META
from taskplace.spark.state.keys import CHECKSUM, LARGEST_STORED
from taskplace.spark.state.transaction import Transaction

T = TypeVar("T")
#: Pieces of a copy: a store and some of its entries.
Dumped = Generator[tuple[str, list[tuple[bytes, bytes]]], None, None]


class Copy:
    """An open copy. Use as a context manager; `bring_to` begins the write transaction, `commit` ends it.

    `fence`: of the attempt that opens the copy; None for a follower.

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
        self._env = environment.WARM.take(self.path, (META, *(store.encode() for store in self.stores)))
        self._files: CheckpointFiles | None = None
        self._txn: Transaction | None = None
        self._read_before: dict[str, dict[bytes, bytes | None]] = {}

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end()
        if kind is None:
            environment.WARM.give_back(self._env)
        else:
            self._env.close()

    def close(self) -> None:
        """Close the copy; uncommitted changes are lost."""
        self._end()
        self._env.close()

    def _end(self) -> None:
        self._abort()
        if self._files is not None:
            self._files.close()

    # -- where it is, and what it has

    def position(self) -> Position:
        """Return the copy's position in its task's history, with its last attempt. Takes no lock."""
        with Transaction(self._env) as txn:
            return txn.meta().at

    def lacks(self, unlogged: Iterable[str]) -> bool:
        """Return whether it was made of changes and snapshots, which lack stores that are not logged.

        If so, these stores are emptied, in the transaction that `bring_to` began: what they have is of an earlier time.
        """
        meta = self._begun().meta()
        lacking = meta.at != EMPTY and meta.at.attempt == meta.followed
        if lacking:
            self._begun().empty(unlogged)
        return lacking

    def dump(self, rows: int, most: int | None = None) -> tuple[Position, Dumped]:
        """Return the position and all (store, entries) at it, in `pieces`.

        One read transaction lasts until the generator is closed. Errors: `DamagedEntry`, from the generator, if an
        entry is damaged or missing.
        """
        txn = Transaction(self._env)
        if not txn.usable(self.stores):
            # From another boot, or incomplete: the next attempt or follow job makes it again.
            txn.abort()
            nothing: list[tuple[str, list[tuple[bytes, bytes]]]] = []
            return EMPTY, (piece for piece in nothing)
        return txn.meta().at, self._dump(txn, rows, most)

    def _dump(self, txn: Transaction, rows: int, most: int | None) -> Dumped:
        with txn:
            for store in self.stores:
                for piece in pieces(store, txn.scan(store), rows, most):
                    yield store, piece

    # -- getting there

    def bring_to(
        self,
        history: History,
        root: Path,
        done: Recovery | None = None,
        whole: Callable[[], History] | None = None,
    ) -> Recovery:
        """Bring the copy to `history.end` and hold its write transaction.

        Every step is a transaction of its own, so a kill in between loses no work. The work is counted in `done`, if
        given. `whole`: returns the whole history, if `history` may be only the end of it.
        Errors: as for `CatchingUp.step`.
        """
        done = Recovery() if done is None else done
        catching_up = self._catching_up(history, root, done, whole)
        while catching_up.step(self._begin) is not Progress.READY:
            pass
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
        catching_up = self._catching_up(history, root, done)
        while True:
            # Checked in each step: an attempt may have changed the copy since the last transaction.
            progress = catching_up.step(self._begin, back=False)
            if progress is Progress.BEYOND:
                self._abort()
                return None
            if progress is Progress.READY:
                self.commit_unchanged()
                return done
            if not pause():
                done.unfinished = True
                done.restoring, done.loaded = self._being_restored()
                return done

    def _catching_up(
        self, history: History, root: Path, done: Recovery, whole: Callable[[], History] | None = None
    ) -> CatchingUp:
        if self._files is None or self._files.root != root:
            self._end()
            self._files = CheckpointFiles(root)
        return CatchingUp(self.path, history, self._files, done=done, fence=self._fence, whole=whole)

    def _being_restored(self) -> tuple[str, float]:
        """Return the attempt of the snapshot that is partly restored ("" for none), and the part of it."""
        with Transaction(self._env) as txn:
            meta = txn.meta()
        if meta.restoring is None or self._files is None:
            return "", 0.0
        return restored_attempt(meta), meta.restoring[1] / max(1, self._files.pieces())

    # -- reading and writing, in the transaction that `bring_to` began

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for a missing key. O(keys x log size)."""
        found = self._begun().get(store, keys)
        known = self._read_before.setdefault(store, found)
        if known is not found:
            known.update(found)
        return list(map(found.__getitem__, keys))

    def scan(self, store: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield all (key, value) from the key `start` on, in the order of their bytes."""
        yield from self._begun().scan(store, start)

    def count(self, store: str) -> int:
        """Return the number of keys in a store. O(1)."""
        return self._begun().count(store)

    def commit(self, changes: Changes, to: Position) -> None:
        """Write `changes`, their undo record and the new position, and end the transaction.

        Errors: `InputError` if the overwritten values exceed an undo record, 4 GiB.
        """
        txn = self._begun()
        meta = txn.meta()
        written = {store: in_order(entries) for store, entries in changes.items()}
        txn.write_undo(self._overwritten({store: keys for store, (keys, _) in written.items()}))
        for store, (keys, values) in written.items():
            txn.put(store, keys, values)
        txn.write_meta(replace(meta, at=to, undo=meta.at, fence=self._fence or meta.fence))
        txn.commit()

    def commit_unchanged(self) -> None:
        """End the transaction of `bring_to` without further changes."""
        self._begun().commit()

    def _overwritten(self, written: Mapping[str, list[bytes]]) -> bytes:
        """Return the records that undo writes of these keys, which are in order."""
        old: dict[str, Columns] = {}
        for store, keys in written.items():
            known = self._read_before.setdefault(store, {})
            if missing := [key for key in keys if key not in known]:
                self.get_many(store, missing)
            old[store] = keys, list(map(known.__getitem__, keys))
        undo = encode_columns(old, {}, compression=None).to_pybytes()
        if len(undo) > LARGEST_STORED - CHECKSUM:
            raise InputError(
                f"task {self.path.name}",
                found=f"{len(undo)} bytes of state that one batch overwrites",
                expected=f"at most {LARGEST_STORED - CHECKSUM}, the largest undo record",
                hint="make the batches smaller",
            )
        return undo

    # -- transactions

    def _begun(self) -> Transaction:
        if self._txn is None or self._txn.ended:
            raise RuntimeError("bring_to() has to come first")
        return self._txn

    def _begin(self) -> Transaction:
        """Begin a write transaction. A copy that cannot be used is emptied."""
        self._abort()
        self._read_before = {}
        self._txn = txn = Transaction(self._env, write=True)
        if not txn.usable(self.stores):
            txn.write_meta(txn.wipe(Meta()))
        return txn

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
