"""A visit to an executor: its standbys and warm-ups follow their changelogs; it makes snapshots, cleans up and reports.

A visit takes one slot of an executor for about its time budget. The driver sends the next visit after the report; while
a batch runs, it waits first (`Followers.orders`). Only committed files are applied.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from taskplace.spark import faults
from taskplace.spark.messages import FollowReport, FollowRequest, History, Snapshot, snapshot_file
from taskplace.spark.state import warm
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.environment import DAMAGED, DATA
from taskplace.spark.state.files import (
    ROWS_PER_BATCH,
    SNAPSHOT_BYTES,
    record_batch,
    seal_of,
    sync_directory,
    write_records,
)
from taskplace.spark.worker import identity, worker_process
from taskplace.spark.worker.guard import guarded, raising_disk_full, remove_marks, seen
from topology import TaskId


def visit_all(elements: Iterable[bytes]) -> Iterator[bytes]:
    """Run the visits of one Spark partition."""
    worker_process.begin()
    for data in elements:
        yield visit(FollowRequest.decode(bytes(data))).encode()


def visit(request: FollowRequest) -> FollowReport:
    """Carry out `request`, or nothing if Spark ran the visit on another executor than the ordered one."""
    start = time.monotonic()
    executor_id, owner = identity.executor()
    instance = f"executor-{executor_id}"
    faults.worker_of(owner.pid)
    done = FollowReport(instance, here=instance == request.instance, pid=owner.pid)
    if not done.here:
        return done
    home = identity.home(Path(request.state_root), request.spark_app)
    root = Path(request.checkpoint)

    deadline: float | None = None

    def in_time() -> bool:
        nonlocal deadline
        if request.budget is None:
            return True
        now = time.monotonic()
        if deadline is None:
            # A snapshot is read and checked before its first piece; the budget grows so that pieces follow as well.
            deadline = start + request.budget + 2 * (now - start)
        return now < deadline

    for left, (task, history) in zip(
        reversed(range(len(request.follow))), request.follow.items(), strict=True
    ):
        # At least one step, for any budget.
        _follow(home / str(task), task, history, root, request, in_time, done)
        if left and not in_time():
            done.unfinished = True
            break
    for task, history in request.snapshot.items():
        if not in_time():
            break
        _snapshot(home / str(task), task, history, root, request, done)
    for task in request.remove:
        _remove(home / str(task))
        done.removed.append(task)
    if request.orphans_after is not None:
        done.orphans.extend(identity.remove_orphans(Path(request.state_root), request.orphans_after))
    for task, path in _copies(home):
        if (meta := seen(path, owner)) is not None:
            done.copies[task] = meta.certain
            if meta.undo is not None:
                done.attempted[task] = meta.at
    done.seconds = time.monotonic() - start
    return done


def _copies(home: Path) -> Iterator[tuple[TaskId, Path]]:
    """Yield the directories of an executor that are named after a task, without marks and other files."""
    for path in sorted(home.glob("*_*")):
        with suppress(ValueError):
            yield TaskId.parse(path.name), path


def _stores(request: FollowRequest, task: TaskId) -> Sequence[str]:
    return request.stores[task.subtopology]


def _follow(
    path: Path,
    task: TaskId,
    history: History,
    root: Path,
    request: FollowRequest,
    in_time: Callable[[], bool],
    done: FollowReport,
) -> None:
    try:
        with (
            raising_disk_full(root, Path(request.state_root)),
            guarded(path, identity.executor()[1]),
            Copy(path, _stores(request, task)) as copy,
        ):
            recovery = copy.growing(lambda: copy.follow(history, root, in_time))
    except Exception as error:
        done.errors[task] = f"{type(error).__name__}: {error}"
        return
    faults.point("follow.applied")
    if recovery is not None:
        done.replayed += recovery.replayed
        done.restored += recovery.restored
        done.unfinished = done.unfinished or recovery.unfinished
        if recovery.restoring:
            done.restoring[task] = recovery.restoring


def _snapshot(
    path: Path, task: TaskId, history: History, root: Path, request: FollowRequest, done: FollowReport
) -> None:
    """Write the copy as a snapshot, piece by piece, if it is exactly at the committed end of `history`."""
    if not (path / DATA).exists():
        return
    stores = sorted(request.logged[task.subtopology])
    try:
        with guarded(path, identity.executor()[1]), Copy(path, _stores(request, task)) as copy:
            at, pieces = copy.dump(ROWS_PER_BATCH, SNAPSHOT_BYTES)
            if at != history.end:
                return
            batches = (
                record_batch(stores.index(store), entries) for store, entries in pieces if store in stores
            )
            metadata = {
                "task": str(task),
                "version": str(at.version),
                "attempt": at.attempt,
                "snapshot": "true",
            }
            file = snapshot_file(task, at.version, at.attempt)
            staging = root / f"{file}.{uuid.uuid4().hex}.tmp"
            with raising_disk_full(root), closing(pieces):
                made = write_records(staging, stores, batches, metadata, request.compression)
        if (root / file).exists() and seal_of(root / file) != made.checksum:
            # The existing file is damaged, or from a topology with other stores that never committed. A manifest may
            # name it, so it stays.
            file = snapshot_file(task, at.version, f"{at.attempt}-{made.checksum[:8]}")
        staging.rename(root / file)  # replaces only a file with the same bytes
        sync_directory(staging.parent)
        faults.point("snapshot.written")
    except DAMAGED as error:
        done.errors[task] = f"{error}; the copy is discarded"
        _remove(path)
        done.removed.append(task)
        return
    except Exception as error:
        done.errors[task] = f"{type(error).__name__}: {error}"
        return
    done.snapshots[task] = Snapshot(
        at.version, at.attempt, at.offset, made.records, file, made.size, made.checksum
    )


def _remove(copy: Path) -> None:
    """Remove a copy. It is renamed first, so that an attempt of the same task can start a new copy meanwhile."""
    warm.WARM.drop(copy)
    gone = copy.with_name(f"{identity.REMOVED}{uuid.uuid4().hex}")
    with suppress(FileNotFoundError):
        copy.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    remove_marks(copy)
