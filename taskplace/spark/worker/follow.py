"""A visit to an executor: let its standbys and warm-ups follow their changelogs, snapshot, clean up, report.

One visit takes one slot of an executor for about its budget, and does what there is time for; the driver sends the
next when it has the report, while a batch runs not at once (`Followers.orders`). Only committed files are applied.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from taskplace.spark import faults
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
from taskplace.spark.state.history import History, Position, Snapshot
from taskplace.spark.worker import identity
from taskplace.spark.worker.guard import guarded, seen, told_when_full

BUDGET_SECONDS = 0.5
"""A batch that begins while an executor is visited waits for one of its slots for about this, if copies are small."""


@dataclass(frozen=True)
class Orders:
    """What one executor is asked to do. Histories by task, stores by subtopology; `logged` have a changelog.

    `budget`: seconds.
    """

    instance: str
    checkpoint: str
    state_root: str
    spark_app: str
    stores: Mapping[int, Sequence[str]]
    logged: Mapping[int, Sequence[str]]
    follow: Mapping[str, History] = field(default_factory=dict)
    snapshot: Mapping[str, History] = field(default_factory=dict)
    remove: Sequence[str] = ()
    orphans_after: float | None = None
    compression: str | None = "lz4"
    budget: float = BUDGET_SECONDS

    def encode(self) -> bytes:
        """Return the orders as JSON bytes."""
        raw = {
            **vars(self),
            **{k: {t: h.to_dict() for t, h in getattr(self, k).items()} for k in ("follow", "snapshot")},
        }
        return json.dumps(raw).encode()

    @classmethod
    def decode(cls, data: bytes) -> Orders:
        """Return the orders that `encode` wrote."""
        raw = json.loads(data)
        for part in ("follow", "snapshot"):
            raw[part] = {task: History.from_dict(history) for task, history in raw[part].items()}
        for part in ("stores", "logged"):
            raw[part] = {int(subtopology): names for subtopology, names in raw[part].items()}
        return cls(**raw)


@dataclass
class Visit:
    """What an executor answers: every copy it has, where each is, and what was done.

    `here` is False when Spark ran the visit on another executor; `pid` is the executor's JVM; `restoring`: by task, the
    attempt of the snapshot that the next visit goes on with.
    """

    instance: str
    here: bool
    pid: int = 0
    copies: dict[str, Position] = field(default_factory=dict)
    replayed: int = 0
    restored: int = 0
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    unfinished: bool = False
    restoring: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the visit as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Visit:
        """Return the visit that `to_json` wrote."""
        raw = json.loads(text)
        raw["copies"] = {task: Position(**at) for task, at in raw["copies"].items()}
        raw["snapshots"] = {task: Snapshot(**snapshot) for task, snapshot in raw["snapshots"].items()}
        return cls(**raw)


def visit_all(elements: Iterable[bytes]) -> Iterator[str]:
    """Run the visits of one Spark partition."""
    for data in elements:
        yield visit(Orders.decode(bytes(data))).to_json()


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
        _follow(home / task, task, history, root, orders, in_time, done)
        if left and not in_time():
            done.unfinished = True
            break
    for task, history in orders.snapshot.items():
        if not in_time():
            break
        _snapshot(home / task, task, history, root, orders, done)
    for task in orders.remove:
        _remove(home / task)
        done.removed.append(task)
    if orders.orphans_after is not None:
        done.removed.extend(identity.remove_orphans(Path(orders.state_root), orders.orphans_after))
    for path in sorted(home.glob("*_*")):
        at = seen(path, owner)
        if at is not None:
            done.copies[path.name] = at
    done.seconds = time.monotonic() - start
    return done


def _stores(orders: Orders, task: str) -> Sequence[str]:
    return orders.stores[int(task.split("_")[0])]


def _follow(
    path: Path,
    task: str,
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


def _snapshot(path: Path, task: str, history: History, root: Path, orders: Orders, done: Visit) -> None:
    """Write the copy as a snapshot, piece by piece, if it is exactly at the committed end of `history`."""
    if not (path / DATA).exists():
        return
    stores = sorted(orders.logged[int(task.split("_")[0])])
    try:
        with guarded(path, identity.executor()[1]), Copy(path, _stores(orders, task)) as copy:
            at, pieces = copy.dump(ROWS_PER_BATCH, SNAPSHOT_BYTES)
            if at != history.end:
                return
            batches = (
                record_batch(stores.index(store), entries) for store, entries in pieces if store in stores
            )
            metadata = {"task": task, "version": str(at.version), "attempt": at.attempt, "snapshot": "true"}
            name = f"{at.version:010d}-{at.attempt}"
            staging = root / f"snapshots/{task}/{name}.arrow.{uuid.uuid4().hex}.tmp"
            with told_when_full(root), closing(pieces):
                made = write_records(staging, stores, batches, metadata, orders.compression)
        file = f"snapshots/{task}/{name}.arrow"
        if (root / file).exists() and seal_of(root / file) != made.checksum:
            # Of a topology with other stores, which never committed, or damaged; a manifest may name it all the same.
            file = f"snapshots/{task}/{name}-{made.checksum[:8]}.arrow"
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
