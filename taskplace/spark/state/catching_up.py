"""Brings a copy to the end of its task's history: rolls back, replays changes, restores a snapshot piece by piece.

`taskplace.spark.checkpoint.history` decides on each step; this module takes it. Every step is a transaction of its
own, so a kill in between loses no work. A damaged file is left out as long as the other files lead to the end.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from taskplace.errors import CheckpointError, Fenced, TaskplaceError
from taskplace.spark import faults
from taskplace.spark.checkpoint.files import RecordFile, open_sealed, open_section
from taskplace.spark.checkpoint.history import Action, NoWay, Step, next_step, without
from taskplace.spark.messages import EMPTY, Change, Fence, History, Meta, Recovery, Snapshot
from taskplace.spark.state.transaction import Transaction, skipping


class Superseded(TaskplaceError):
    """An attempt that its own driver does not want any more: its round was cancelled, or its task was planned again.

    `Fenced` is about another driver. The driver that cancels a round does not use its results, nor its errors.
    """


class Progress(enum.Enum):
    """The result of a step.

    - `STEPPED`: one step nearer; the transaction is committed
    - `READY`: the copy is at the end of the history, in a transaction that is still open
    - `BEYOND`: the copy is newer than the history, and was not changed; the transaction is still open
    """

    STEPPED = "stepped"
    READY = "ready"
    BEYOND = "beyond"


class CatchingUp:
    """Brings one copy to the end of `history`, and counts the work in `done`.

    - `copy`: its directory, for errors
    - `history`: the whole one, or its last changes, if `whole` returns the whole one; it is called when they do not
      lead to the end
    - `files`: reads the files of the history
    - `fence`: of the attempt that needs the copy; None for a follower
    """

    def __init__(
        self,
        copy: Path,
        history: History,
        files: CheckpointFiles,
        *,
        done: Recovery,
        fence: Fence | None = None,
        whole: Callable[[], History] | None = None,
    ) -> None:
        self._copy, self._files, self._done, self._fence = copy, files, done, fence
        self._history, self._whole = history, whole
        self._damaged: _DamagedFile | None = None
        self._taken = 0  # steps along this history

    def step(self, begin: Callable[[], Transaction], *, back: bool = True) -> Progress:
        """Take the next step, in a transaction that `begin` returns.

        If a file is damaged, another way is tried at once.
        `back`: whether to roll back work that is newer than the history.
        Errors: `Fenced` if the copy has seen a newer driver or batch, `Superseded` for a newer generation of the same
        batch; `CheckpointError` for a missing or damaged file.
        """
        while True:
            # Each time a new transaction: the one before has the part that was read before the damage was found.
            txn = begin()
            if not back and txn.meta().at.version > self._history.end.version:
                return Progress.BEYOND
            try:
                return self._step(txn)
            except _DamagedFile as damaged:
                around = without(self._history, damaged.part)
                if around is None and self._widened():
                    around = without(self._history, damaged.part)
                if around is None:
                    raise damaged.error from None
                self._done.damaged.append(str(damaged))
                self._history, self._damaged, self._taken = around, damaged, 0
            except NoWay as error:
                if self._widened():
                    continue
                if self._damaged is None:
                    raise
                raise CheckpointError(f"{self._damaged}; without this file, {error}") from None

    def _widened(self) -> bool:
        """Go on with the whole history, once; return whether it was not known yet.

        Errors: `CheckpointError` if its end is another one: the checkpoint is not the one of the descriptor.
        """
        if self._whole is None:
            return False
        end, self._history, self._whole = self._history.end, self._whole(), None
        if self._history.end != end:
            raise CheckpointError(f"the manifests end at {self._history.end}, the driver has sent {end}")
        self._taken = 0
        return True

    def _step(self, txn: Transaction) -> Progress:
        meta, end = txn.meta(), self._history.end
        if meta.at == EMPTY and end != EMPTY and meta.restoring is None:
            self._done.scratch = True
        meta = self._fenced(txn, meta)
        step = self._next(meta)
        self._count(meta, step)
        if meta.restoring is not None and not _continues(meta, step):
            meta = txn.wipe(meta)  # the copy has a part of another snapshot
        if step.action is Action.READY:
            if meta.undo is not None:  # the history names this attempt as committed
                txn.drop_undo()
            txn.write_meta(replace(meta, undo=None))
            return Progress.READY
        if step.action is Action.ROLL_BACK:
            self._roll_back(txn, meta)
        elif step.change is not None:
            self._replay(txn, meta, step.change)
        else:
            self._done.scratch = self._done.scratch or (step.unknown and meta.restoring is None)
            self._restore(txn, meta, step.snapshot)
        txn.commit()
        if step.snapshot is not None:
            faults.point("restore.piece")
        return Progress.STEPPED

    def _count(self, meta: Meta, step: Step) -> None:
        """Count a step along the history. Errors: `NoWay` after more than `next_step` promises: it is a circle."""
        self._taken += not _continues(meta, step)
        if self._taken > 3 + len(self._history.changes):
            end = self._history.end.version
            raise NoWay(f"{self._copy.name}: the changes up to version {end} do not follow each other")

    def _fenced(self, txn: Transaction, meta: Meta) -> Meta:
        """Return the metadata with the fence of the attempt, which must not be older than the copy's."""
        seen = meta.fence
        if self._fence is None or self._fence >= seen:
            return replace(meta, fence=self._fence or seen)
        txn.abort()
        here = f"{self._copy.name}: the fence of this attempt is {self._fence}, the copy has the newer {seen}"
        backup = f"the checkpoint was restored from a backup: remove {self._copy.parent.parent}"
        if (self._fence.epoch, self._fence.batch) == (seen.epoch, seen.batch):
            raise Superseded(f"{here}; if the driver has not planned again since, {backup}")
        raise Fenced(f"{here}; if no other driver has taken over, {backup}")

    def _next(self, meta: Meta) -> Step:
        """Return the next step: to finish a snapshot that was begun, or newer ones could restart it for ever."""
        for snapshot in self._history.snapshots:
            if meta.restoring is not None and _file_of(snapshot) == meta.restoring[0]:
                return Step(Action.RESTORE, snapshot=snapshot)
        return next_step(meta.at, meta.undo, self._history)

    def _roll_back(self, txn: Transaction, meta: Meta) -> None:
        records = txn.undo()
        if meta.undo is None or records is None:
            raise CheckpointError(f"{self._copy}: no undo record at {meta.at}")
        back = meta.undo
        meta = txn.apply(meta, records)
        txn.drop_undo()
        txn.write_meta(replace(meta, at=back, undo=None))
        self._done.rolled_back = True

    def _replay(self, txn: Transaction, meta: Meta, change: Change) -> None:
        if change.file:
            with self._files.read(change) as file:
                meta = txn.apply(meta, RecordFile(file))
        txn.drop_undo()
        txn.write_meta(replace(meta, at=change.position, undo=None, followed=change.attempt))
        self._done.replayed += change.records

    def _restore(self, txn: Transaction, meta: Meta, snapshot: Snapshot | None) -> None:
        """Load the next piece of a snapshot, and count its records; None: start empty."""
        if snapshot is None:
            txn.write_meta(txn.wipe(meta))
            return
        if meta.restoring is None:
            meta = replace(txn.wipe(meta), restoring=(_file_of(snapshot), 0))
        file = self._files.snapshot(snapshot)
        loaded = meta.restoring[1] if meta.restoring is not None else 0
        if loaded < len(file):
            store, keys, values = file.columns(loaded)
            if txn.has(store):
                txn.load(store, keys, values)
            elif keys:
                meta = skipping(meta, store)
            self._done.restored += len(keys)
        loaded += 1
        if loaded >= len(file):
            self._files.close()
            at, followed = snapshot.position, snapshot.attempt
            txn.write_meta(replace(meta, at=at, undo=None, restoring=None, followed=followed))
        else:
            txn.write_meta(replace(meta, restoring=(_file_of(snapshot), loaded)))


class CheckpointFiles:
    """Reads the files of a task's history. A snapshot is checked once, and stays open between its pieces."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._snapshot: tuple[str, RecordFile] | None = None

    def read(self, part: Change | Snapshot) -> pa.NativeFile:
        """Return an open file, or section of a file, after a check of all its bytes."""
        path = self.root / part.file
        try:
            if isinstance(part, Change):
                return open_section(path, part.start, part.size, part.checksum)
            return open_sealed(path, part.size, part.checksum)
        except CheckpointError as error:
            raise _DamagedFile(part, error) from None

    def snapshot(self, snapshot: Snapshot) -> RecordFile:
        """Return a snapshot's file. Its pieces are read when they are needed."""
        if self._snapshot is None or self._snapshot[0] != snapshot.file:
            self.close()
            self._snapshot = snapshot.file, RecordFile(self.read(snapshot))
        return self._snapshot[1]

    def pieces(self) -> int:
        """Return the number of pieces of the open snapshot; 0 if none is open."""
        return 0 if self._snapshot is None else len(self._snapshot[1])

    def close(self) -> None:
        """Close the snapshot, if one is open. The files can still be read."""
        if self._snapshot is not None:
            self._snapshot[1].close()
            self._snapshot = None


class _DamagedFile(Exception):
    def __init__(self, part: Change | Snapshot, error: CheckpointError) -> None:
        super().__init__(str(error))
        self.part, self.error = part, error


def _continues(meta: Meta, step: Step) -> bool:
    """Return whether a step loads one more piece of the snapshot that the copy has begun to restore."""
    return (
        step.snapshot is not None
        and meta.restoring is not None
        and _file_of(step.snapshot) == meta.restoring[0]
    )


def _file_of(snapshot: Snapshot) -> str:
    """Return the id of a snapshot that a copy records while it restores: attempt and checksum.

    The attempt alone is not enough: two files of one attempt may have different pieces.
    """
    return f"{snapshot.attempt}:{snapshot.checksum}"


def restored_attempt(meta: Meta) -> str:
    """Return the attempt of the snapshot that a copy has begun to restore; "" for none."""
    return meta.restoring[0].rpartition(":")[0] if meta.restoring is not None else ""
