"""A visit to an executor: let its standbys and warm-ups follow their changelogs, snapshot, clean up, report.

One visit takes one slot of an executor for about its budget, and does what there is time for; the driver sends the
next when it has the report, while a batch runs not at once (`Followers.orders`). Only committed files are applied.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from taskplace.spark import faults
from taskplace.spark.messages import History, Orders, Snapshot, Visit, snapshot_file
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
from taskplace.spark.worker import identity
from taskplace.spark.worker.guard import guarded, seen, told_when_full
from topology import TaskId


def visit_all(elements: Iterable[bytes]) -> Iterator[bytes]:
    """Run the visits of one Spark partition."""
    for data in elements:
        yield visit(Orders.decode(bytes(data))).encode()


def visit(orders: Orders) -> Visit:
    """Carry out `orders` on this executor, or nothing, if Spark brought them to another one."""
    start = time.monotonic()
    executor_id, owner = identity.executor()
    instance = f"executor-{executor_id}"
    done = Visit(instance, here=instance == orders.instance, pid=owner.pid)
    if not done.here:
        return done
    home = identity.home(Path(orders.state_root), orders.spark_app)
    root = Path(orders.checkpoint)

    deadline: float | None = None

    def in_time() -> bool:
        nonlocal deadline
        now = time.monotonic()
        if deadline is None:
            # A snapshot is read and checked before its first piece: that should not be most of the visit.
            deadline = start + orders.budget + 2 * (now - start)
        return now < deadline

    for left, (task, history) in zip(reversed(range(len(orders.follow))), orders.follow.items(), strict=True):
        # One step at least, whatever the budget.
        _follow(home / str(task), task, history, root, orders, in_time, done)
        if left and not in_time():
            done.unfinished = True
            break
    for task, history in orders.snapshot.items():
        if not in_time():
            break
        _snapshot(home / str(task), task, history, root, orders, done)
    for task in orders.remove:
        _remove(home / str(task))
        done.removed.append(task)
    if orders.orphans_after is not None:
        done.orphans.extend(identity.remove_orphans(Path(orders.state_root), orders.orphans_after))
    for task, path in _copies(home):
        if (at := seen(path, owner)) is not None:
            done.copies[task] = at
    done.seconds = time.monotonic() - start
    return done


def _copies(home: Path) -> Iterator[tuple[TaskId, Path]]:
    """Yield the directories of an executor that are named after a task; marks and what people put there are not."""
    for path in sorted(home.glob("*_*")):
        with suppress(ValueError):
            yield TaskId.parse(path.name), path


def _stores(orders: Orders, task: TaskId) -> Sequence[str]:
    return orders.stores[task.subtopology]


def _follow(
    path: Path,
    task: TaskId,
    history: History,
    root: Path,
    orders: Orders,
    in_time: Callable[[], bool],
    done: Visit,
) -> None:
    try:
        with (
            told_when_full(root, Path(orders.state_root)),
            guarded(path, identity.executor()[1]),
            Copy(path, _stores(orders, task)) as copy,
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


def _snapshot(path: Path, task: TaskId, history: History, root: Path, orders: Orders, done: Visit) -> None:
    """Write the copy as a snapshot, piece by piece, if it is exactly at the committed end of `history`."""
    if not (path / DATA).exists():
        return
    stores = sorted(orders.logged[task.subtopology])
    try:
        with guarded(path, identity.executor()[1]), Copy(path, _stores(orders, task)) as copy:
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
            with told_when_full(root), closing(pieces):
                made = write_records(staging, stores, batches, metadata, orders.compression)
        if (root / file).exists() and seal_of(root / file) != made.checksum:
            # Of a topology with other stores, which never committed, or damaged; a manifest may name it all the same.
            file = snapshot_file(task, at.version, f"{at.attempt}-{made.checksum[:8]}")
        staging.rename(root / file)  # one with these very bytes may be there, named by a manifest
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
    """Remove a copy. It is renamed first: an attempt that has just been given the task begins a new one."""
    gone = copy.with_name(f"{identity.REMOVED}{uuid.uuid4().hex}")
    with suppress(FileNotFoundError):
        copy.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
