"""A follow job on an executor: copies follow their changelogs; it makes snapshots, cleans up and reports.

A job takes one slot of an executor for about its time budget. The driver sends the next one after the report; while a
batch runs, it waits first (`driver/followers.py`). Only committed files are applied.
"""

from __future__ import annotations

import logging
import shutil
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from taskplace.errors import TaskplaceError
from taskplace.logs import RepeatedWarnings
from taskplace.spark import faults
from taskplace.spark.checkpoint.files import (
    ROWS_PER_BATCH,
    SNAPSHOT_BYTES,
    record_batch,
    seal_of,
    sync_directory,
    write_records,
)
from taskplace.spark.messages import (
    FollowReport,
    FollowRequest,
    History,
    Owner,
    Position,
    Snapshot,
    snapshot_file,
)
from taskplace.spark.state import environment
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.environment import DAMAGED, DATA
from taskplace.spark.state.keys import DamagedEntry
from taskplace.spark.worker import identity
from taskplace.spark.worker.guard import guarded, position_of, raising_disk_full, remove_marks, shown_error
from topology import TaskId

log = logging.getLogger(__name__)

#: By directory of a copy. A worker process runs many jobs.
_REPEATED = RepeatedWarnings()


def follow_all(elements: Iterable[bytes]) -> Iterator[bytes]:
    """Run the follow jobs of one Spark partition."""
    identity.begin()
    for data in elements:
        yield follow(FollowRequest.decode(bytes(data))).encode()


def follow(request: FollowRequest) -> FollowReport:
    """Carry out `request`, or nothing if Spark ran the job on another executor than the requested one."""
    budget = Budget(request.budget)
    executor_id, executor = identity.executor()
    instance = f"executor-{executor_id}"
    faults.worker_of(executor.pid)
    done = FollowReport(instance, here=instance == request.instance, pid=executor.pid)
    if not done.here:
        return done
    state_root = Path(request.state_root)
    with raising_disk_full(state_root):
        home = identity.home(state_root, request.spark_app)
    work = FollowWork(request, budget, executor, home, done)
    work.follow_all()
    for task, history in request.snapshot.items():
        if budget.left():
            work.snapshot(task, history)
    for task in request.remove:
        work.remove(task)
    if request.orphans_after is not None:
        done.orphans.extend(identity.remove_orphans(state_root, request.orphans_after))
    work.report_copies()
    done.seconds = budget.spent()
    return done


class Budget:
    """The seconds that a job may work, from its creation on; None: no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._start = time.monotonic()
        self._deadline: float | None = None

    def spent(self) -> float:
        """Return the seconds since the job began."""
        return time.monotonic() - self._start

    def left(self) -> bool:
        """Return whether the job may take one more step."""
        if self._seconds is None:
            return True
        now = time.monotonic()
        if self._deadline is None:
            # A snapshot is read and checked before its first piece; the budget grows so that pieces follow as well.
            self._deadline = self._start + self._seconds + 2 * (now - self._start)
        return now < self._deadline


@dataclass(frozen=True)
class FollowWork:
    """The work of one follow job on the copies in `home`. `done` counts it."""

    request: FollowRequest
    budget: Budget
    executor: Owner
    home: Path
    done: FollowReport

    @property
    def _root(self) -> Path:
        return Path(self.request.checkpoint)

    @contextmanager
    def _opened(self, task: TaskId) -> Iterator[Copy]:
        path = self.home / str(task)
        with guarded(path, self.executor), Copy(path, self.request.stores[task.subtopology]) as copy:
            yield copy

    def follow_all(self) -> None:
        """Apply the histories of the request, as far as the budget lasts: at least one step, for any budget."""
        for number, (task, history) in enumerate(self.request.follow.items()):
            if number and not self.budget.left():
                self.done.unfinished = True
                break
            self._follow(task, history)

    def report_copies(self) -> None:
        """Report the position of each usable copy of this executor."""
        for path in sorted(self.home.glob("*_*")):
            try:
                task = TaskId.parse(path.name)
            except ValueError:
                continue  # a mark, or another file
            if (meta := position_of(path, self.executor)) is not None:
                self.done.copies[task] = meta.certain
                if meta.undo is not None:
                    self.done.attempted[task] = meta.at
                if self.request.stores.get(task.subtopology) != self.request.logged.get(task.subtopology):
                    self.done.followed[task] = meta.followed

    def _follow(self, task: TaskId, history: History) -> None:
        done = self.done
        try:
            with raising_disk_full(self._root, Path(self.request.state_root)), self._opened(task) as copy:
                recovery = copy.growing(lambda: copy.follow(history, self._root, self.budget.left))
        except Exception as error:
            done.errors[task] = _described(task, self.home / str(task), error)
            return
        faults.point("follow.applied")
        if recovery is not None:
            done.replayed += recovery.replayed
            done.restored += recovery.restored
            done.unfinished = done.unfinished or recovery.unfinished
            if recovery.restoring:
                done.restoring[task], done.loaded[task] = recovery.restoring, recovery.loaded

    def snapshot(self, task: TaskId, history: History) -> None:
        """Make a snapshot of a copy if it is exactly at the committed end of `history`."""
        path = self.home / str(task)
        if not (path / DATA).exists():
            return
        try:
            with self._opened(task) as copy:
                written = self._write_snapshot(task, copy, history.end)
            if written is not None:
                self.done.snapshots[task] = self._place_snapshot(task, *written)
        except DAMAGED as error:
            self.done.errors[task] = f"{_described(task, path, error)}; the copy is discarded"
            self.remove(task)
        except Exception as error:
            self.done.errors[task] = _described(task, path, error)

    def _write_snapshot(self, task: TaskId, copy: Copy, end: Position) -> tuple[Path, Snapshot] | None:
        """Write a copy, piece by piece, into a file of its own; None if the copy is not at `end`."""
        stores = sorted(self.request.logged[task.subtopology])
        at, pieces = copy.dump(ROWS_PER_BATCH, SNAPSHOT_BYTES)
        if at != end:
            return None
        batches = (record_batch(stores.index(store), entries) for store, entries in pieces if store in stores)
        metadata = {"task": str(task), "version": str(at.version), "attempt": at.attempt, "snapshot": "true"}
        file = snapshot_file(task, at.version, at.attempt)
        staging = self._root / f"{file}.{uuid.uuid4().hex}.tmp"
        with raising_disk_full(self._root), closing(pieces):
            made = write_records(staging, stores, batches, metadata, self.request.compression)
        return staging, Snapshot(
            at.version, at.attempt, at.offset, made.records, file, size=made.size, checksum=made.checksum
        )

    def _place_snapshot(self, task: TaskId, staging: Path, snapshot: Snapshot) -> Snapshot:
        """Give a written snapshot its name in the checkpoint, and return it with that name."""
        path = self._root / snapshot.file
        if path.exists() and seal_of(path) != snapshot.checksum:
            # The existing file is damaged, or from a topology with other stores that never committed. A manifest may
            # name it, so it stays.
            attempt = f"{snapshot.attempt}-{snapshot.checksum[:8]}"
            snapshot = replace(snapshot, file=snapshot_file(task, snapshot.version, attempt))
        staging.rename(self._root / snapshot.file)  # replaces only a file with the same bytes
        sync_directory(staging.parent)
        faults.point("snapshot.written")
        return snapshot

    def remove(self, task: TaskId) -> None:
        """Remove a copy. It is renamed first, so that an attempt of the task can start a new copy meanwhile."""
        copy = self.home / str(task)
        environment.WARM.drop(copy)
        gone = copy.with_name(f"{identity.REMOVED}{uuid.uuid4().hex}")
        with suppress(FileNotFoundError):
            copy.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
        remove_marks(copy)
        self.done.removed.append(task)


def _described(task: TaskId, copy: Path, error: Exception) -> str:
    """Return an error for the driver and for operators. Damage that LMDB finds is that of an entry, too.

    The messages of others than taskplace may have values of rows: this executor logs where such an error was raised.
    """
    if isinstance(error, DAMAGED):
        return shown_error(DamagedEntry(str(error)))
    if not isinstance(error, TaskplaceError):
        where = "".join(traceback.format_tb(error.__traceback__))
        kind = type(error).__name__
        times = _REPEATED.again(copy, kind=(kind, where))
        if times is not None:
            log.warning("the copy of task %s cannot follow: %s%s, raised by\n%s", task, kind, times, where)
    return shown_error(error)
