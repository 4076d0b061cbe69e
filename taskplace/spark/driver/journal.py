"""The checkpoint: one manifest per batch. Only the manifest decides what is committed.

    <checkpoint>/
      epochs/0000000003               one file per driver: its declared topology and store layouts
      manifests/0000000012.json       batch 12 is committed; never overwritten
      changelog/<task>/<version>-<attempt>.arrow
      snapshots/<task>/<version>-<attempt>.arrow
      batches/0000000012/             attempts' reports, rows between subtopologies, staged sink output
      tick                            the number of the batch that has work without rows, if any
      spark/                          Spark's own checkpoint of the query, if taskplace starts the query

Properties:
- A manifest is written completely and then made visible by an exclusive create (a hard link). If two drivers
  commit the same batch, one loses and stops (`Fenced`).
- A manifest names, per task, the winning attempt and its files with length and checksum. Files that no
  manifest names are not part of the checkpoint.
- A checkpoint keeps its identity: the last manifest's driver has declared the structure, and every manifest has the
  key types, the schemas of sinks, the hash version and Spark's query. A mismatch is refused at the start, before the
  driver changes anything.
- A manifest names the first batch whose manifest is still needed. Manifests with lower numbers are ignored: a driver
  that was stopped during its commit may create one long after other drivers have gone further.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from taskplace.errors import CheckpointError, Fenced
from taskplace.spark import faults
from taskplace.spark.codec import sealed
from taskplace.spark.driver.epochs import Epochs
from taskplace.spark.driver.versions import read_manifest
from taskplace.spark.messages import Change, Declaration, History, Manifest, Snapshot, StagedFile
from taskplace.spark.state.files import create_exclusively, sync_directory
from taskplace.spark.worker.hashing import UNTYPED
from topology import TaskId

SNAPSHOTS_KEPT = 2
BATCHES_KEPT = 2
FULL_EVERY = 50
ABANDONED_SECONDS = 3600.0
OPENINGS = 20
#: The declaration of a journal without `declare`.
UNDECLARED = Declaration("", {}, {}, {})


class Journal:
    """Reads and commits manifests for one driver.

    `declare` gets the last manifest and returns this driver's declaration, or raises if it cannot continue from there.
    `check_keys` gets the key types of all topics before the checkpoint is bound to them; it may raise.
    With `take_over=False` the journal only reads the checkpoint, until `take_over` is called.

    Lifetime: `history` and `last` follow the manifests. `epoch` and `declaration` are this driver's, set by
    `take_over`; before that, the epoch is 0 and the declaration is the one that `take_over` would write. `spared` has
    the snapshots, by task and attempt, that are kept although newer ones exist.
    Errors: `CheckpointError` for missing or damaged manifests, and for a mismatch with `identity`.
    """

    def __init__(
        self,
        root: Path,
        identity: Mapping[str, Any],
        declare: Callable[[Manifest | None], Declaration] = lambda last: UNDECLARED,
        *,
        take_over: bool = True,
        check_keys: Callable[[Mapping[str, Sequence[str]]], None] = lambda keys: None,
    ) -> None:
        self.root = root
        self.identity, self._given = dict(identity), dict(identity)
        self.last: Manifest | None = None
        self.history: dict[TaskId, History] = {}
        self.spared: frozenset[tuple[TaskId, str]] = frozenset()
        self._new_snapshots: dict[TaskId, Snapshot] = {}
        self._full: list[int] = []  # the full manifests that are needed: the last two
        self._tried = -1  # the last batch whose manifest this driver tried to create
        self._sure: set[Path] | None = None  # the files that may be pruned during the running visit
        self._manifests = root / "manifests"
        self._epochs = Epochs(root)
        self.epoch = 0
        self.declaration = UNDECLARED
        self._declare, self._check_keys = declare, check_keys
        if take_over:
            self.take_over()
        else:
            self._load()
            self.declaration = declare(self.last)

    @property
    def last_batch(self) -> int:
        """The last committed batch; -1 before the first."""
        return -1 if self.last is None else self.last.batch

    def newest_batch(self) -> int:
        """Return the newest batch that has a manifest now, from any driver; -1 before the first."""
        return max(self._numbers(), default=-1)

    # -- opening

    def take_over(self, check: Callable[[Declaration], None] = lambda declaration: None) -> None:
        """Take the next epoch, which fences the driver that was in charge.

        `check` gets the declaration before it is written, when `last` is the manifest to continue from; it may raise.
        Errors: as for the constructor, for manifests that others have committed since. After an error, the previous
        driver is still in charge.
        """
        keys, query = self.identity.get("keys"), self.identity.get("query")
        while True:
            self.identity = dict(self._given)
            self._load()
            if keys is not None:
                self.bind_keys(keys)
            self.bind("query", query)
            epoch = max(self._epochs.newest(), self.last.epoch if self.last else 0) + 1
            declaration = self._declare(self.last)
            check(declaration)
            taken = self._epochs.take(epoch, declaration)
            # If the previous driver has committed meanwhile, this driver has read too little: read and check again.
            if taken and self._numbers()[-1:] == ([self.last.batch] if self.last else []):
                self._keep_what_is_found()
                self.epoch, self.declaration = epoch, declaration
                return

    def _keep_what_is_found(self) -> None:
        """Sync the directories of the last manifest, because its driver may have been killed before it synced them."""
        for folder in (self.root.parent, self.root, self._manifests):
            with suppress(FileNotFoundError, PermissionError):  # an unreadable directory cannot be synced
                sync_directory(folder)

    def _load(self) -> None:
        """Read the manifests. If another driver prunes listed manifests meanwhile, list and read them again."""
        for again in range(OPENINGS):
            numbers = self._numbers()
            try:
                last = self._read(numbers[-1]) if numbers else None
                needed = [number for number in numbers if last and number >= last.needs]
                for number, expected in zip(needed, itertools.count(last.needs if last else 0)):
                    if number != expected:
                        if numbers != self._numbers():
                            raise FileNotFoundError(number)
                        raise CheckpointError(
                            f"{self._manifest(number)}: the manifest of batch {expected} is missing"
                        )
                before = [self._read(number) for number in needed[:-1]]
                self._take_in([*before, last] if last else [])
                return
            except FileNotFoundError:
                if again == OPENINGS - 1:
                    raise

    def _take_in(self, manifests: Sequence[Manifest]) -> None:
        changes: dict[TaskId, list[Change]] = {}
        self.history, self._full = {}, []
        for manifest in manifests:
            if manifest.histories is not None:
                self._full.append(manifest.batch)
                changes = {task: list(history.changes) for task, history in manifest.histories.items()}
            else:
                for task, change in manifest.changes.items():
                    changes.setdefault(task, []).append(change)
        if not manifests:
            return
        self.last = manifests[-1]
        self._check_identity(self.last.identity)
        self.identity = {**self.identity, **self.last.identity}
        for task in {*changes, *self.last.snapshots}:
            self.history[task] = _trimmed(tuple(changes.get(task, ())), self.last.snapshots.get(task, ()))

    def _numbers(self) -> list[int]:
        """Return the batches that have a manifest, in order, including manifests that are no longer needed."""
        return sorted(int(path.stem) for path in self._manifests.glob("*.json") if path.stem.isdigit())

    def _manifest(self, batch: int) -> Path:
        return self._manifests / f"{batch:010d}.json"

    def _read(self, batch: int) -> Manifest:
        path = self._manifest(batch)
        return read_manifest(path)

    def _check_identity(self, kept: Mapping[str, Any]) -> None:
        for name, wanted in self.identity.items():
            if wanted is not None and kept.get(name) is not None and kept[name] != wanted:
                raise CheckpointError(
                    f"{self.root}: the checkpoint was created with {name} = {kept[name]!r}, found {wanted!r}; "
                    "use the original value, or start a new checkpoint"
                )

    def bind(self, name: str, value: Any) -> None:
        """Bind the checkpoint to one more property of its identity. Errors: `CheckpointError` on a mismatch."""
        if value is None:
            return
        bound = self.identity.get(name)
        if bound is not None and bound != value:
            raise CheckpointError(
                f"{self.root}: the checkpoint belongs to {name} {bound!r}, found {value!r}; Spark's checkpoint and "
                "this one belong together: keep both, or start a new checkpoint for both"
            )
        self.identity[name] = value

    def bind_keys(self, keys: Mapping[str, Sequence[str]]) -> None:
        """Bind the checkpoint to the key types of its topics; topics may be added. `check_keys` may refuse the result.

        A key column with only nulls has no type; the first type that comes binds it.
        """
        bound: dict[str, Any] = dict(self.identity.get("keys") or {})
        for topic, types in keys.items():
            known = list(bound.get(topic, types))
            if len(known) != len(types) or any(
                UNTYPED not in (before, now) and before != now
                for before, now in zip(known, types, strict=True)
            ):
                raise CheckpointError(
                    f"{self.root}: the key of topic {topic!r} had the types {bound[topic]}, found {list(types)}; "
                    "another type assigns keys to other partitions: cast the key, or start a new checkpoint"
                )
            known = [now if before == UNTYPED else before for before, now in zip(known, types, strict=True)]
            if set(known) != {UNTYPED}:
                bound[topic] = known
        self._check_keys(bound)
        self.identity["keys"] = bound

    # -- committing

    def end_offset(self, task: TaskId) -> int:
        """Return the length of a task's changelog, in records."""
        history = self.history.get(task)
        return history.end.offset if history else 0

    def settled_offset(self, task: TaskId) -> int:
        """Return the length one commit ago, because followers are still applying the last batch's records."""
        change = self.last.changes.get(task) if self.last else None
        return self.end_offset(task) if change is None else change.offset - change.records

    def check_epoch(self) -> None:
        """Raise `Fenced` if a newer driver has taken over the checkpoint. It saves work; only the manifest decides."""
        if (newest := self._epochs.newest()) != self.epoch:
            taken = (
                f"driver {newest} has taken over this checkpoint from driver {self.epoch}; this driver stops"
            )
            raise Fenced(f"{self.root}: {taken}")

    def commit(
        self,
        batch: int,
        generation: int,
        changes: Mapping[TaskId, Change],
        sinks: Mapping[str, Sequence[StagedFile]],
        assignment: Mapping[str, Any],
        event_times: Mapping[str, int] = MappingProxyType({}),
        rows: int = 0,
        watermark: int | None = None,
        expired: Mapping[str, int | None] = MappingProxyType({}),
        held: Mapping[TaskId, Mapping[str, int | None]] = MappingProxyType({}),
    ) -> Manifest:
        """Publish the manifest of `batch`: the commit point.

        Errors: `Fenced` if a newer driver has taken over the checkpoint, or has committed this batch.
        """
        self.check_epoch()
        snapshots = self._snapshots_with_new()
        after = dict(self.history)
        for task in {*changes, *snapshots}:
            added = (changes[task],) if task in changes else ()
            after[task] = _trimmed(after.get(task, History()).changes + added, snapshots.get(task, ()))
        full = [*self._full[-1:], batch] if batch > 0 and batch % FULL_EVERY == 0 else self._full
        manifest = Manifest(
            batch=batch,
            epoch=self.epoch,
            generation=generation,
            identity=self.identity,
            changes=changes,
            snapshots=snapshots,
            sinks={s: tuple(f) for s, f in sinks.items()},
            assignment=assignment,
            histories=after if full is not self._full else None,
            event_times=self.event_times_with(event_times),
            needs=max(0, min(_first_needed(after, full, batch), batch - 1)),
            rows=rows,
            watermark=watermark,
            expired=dict(expired),
            held=dict(held),
        )
        faults.point("batch.checked")
        self._publish(manifest)
        self.history, self._full = after, full
        self._new_snapshots.clear()
        self.last = manifest
        return manifest

    def event_times_with(self, more: Mapping[str, int]) -> dict[str, int]:
        """Return the newest event time of each source so far, updated with those of one more batch."""
        known = dict(self.last.event_times) if self.last else {}
        return {topic: max(known.get(topic, t), more.get(topic, t)) for topic, t in {**known, **more}.items()}

    def _publish(self, manifest: Manifest) -> None:
        path = self._manifest(manifest.batch)
        self._sync_above(manifest)
        tried, self._tried = self._tried == manifest.batch, manifest.batch
        data = sealed(manifest)
        try:
            create_exclusively(path, data)
        except FileExistsError:
            if (
                tried and path.read_bytes() == data
            ):  # an error of the disk hid the success of the first try, and may have prevented its sync
                sync_directory(self._manifests)
            elif tried:
                raise CheckpointError(
                    f"{path}: this driver committed the batch, but a disk error hid the result; "
                    "restart the application, it continues after this batch"
                ) from None
            else:
                raise Fenced(
                    f"{path}: another driver has committed this batch; this driver stops. If no other driver runs, "
                    "start the application again: it continues after this batch"
                ) from None
        if self._epochs.newest() != self.epoch and self._is_over(manifest.batch):
            path.unlink(missing_ok=True)  # no driver reads it, and the next pruning would remove it
            raise Fenced(f"{path}: other drivers have committed this batch and later ones; this driver stops")

    def _sync_above(self, manifest: Manifest) -> None:
        """Sync the directories above the files that a manifest names, so that they survive a crash of the host.

        The writer of a file syncs the file and its directory. The directories above may have been made for files that
        need no sync, or by a process that was killed before it synced them.
        """
        named = [change.file for change in manifest.changes.values()]
        named += [snapshot.file for kept in manifest.snapshots.values() for snapshot in kept]
        named += [staged.file for files in manifest.sinks.values() for staged in files]
        for folder in sorted({folder for file in named for folder in Path(file).parent.parents}):
            with suppress(FileNotFoundError):  # a missing directory is an error where its files are read
                sync_directory(self.root / folder)

    def _is_over(self, batch: int) -> bool:
        """Return whether the newest manifest says that the manifest of this batch is no longer needed."""
        while True:
            with suppress(FileNotFoundError):
                return self._read(self._numbers()[-1]).needs > batch

    def add_snapshots(self, snapshots: Mapping[TaskId, Snapshot]) -> None:
        """Note new snapshots; the next manifest names them."""
        self._new_snapshots.update(snapshots)

    def snapshot_pending(self, task: TaskId) -> bool:
        """Return whether the task has a new snapshot that no manifest names yet."""
        return task in self._new_snapshots

    def _snapshots_with_new(self) -> dict[TaskId, tuple[Snapshot, ...]]:
        kept = {task: history.snapshots for task, history in self.history.items() if history.snapshots}
        for task, snapshot in list(self._new_snapshots.items()):
            ordered = sorted({*kept.get(task, ()), snapshot}, key=lambda s: s.version)
            newest = ordered[-SNAPSHOTS_KEPT:]
            kept[task] = tuple(s for s in ordered if s in newest or (task, s.attempt) in self.spared)
        return kept

    # -- pruning

    @contextmanager
    def visit(self) -> Iterator[None]:
        """Protect the files that the orders of a visit may name from pruning while the visit runs (see `prune`)."""
        self._sure = self._unneeded(below_end=True)
        try:
            yield
        finally:
            self._sure = None

    def prune(self) -> int:
        """Remove the files that no history, running batch or running visit can need; return their number.

        Call it between batches. During a visit, only those changelogs and snapshots are removed that were not
        needed when the visit began. So the checkpoint does not grow even if there is always a visit. A fenced driver
        removes nothing, because it does not know the files of newer manifests.
        """
        sure = self._sure  # read once, because the visit may end at any moment
        old = self._unneeded() if sure is None else self._unneeded() & sure
        old.update(self._folders(self.root / "batches", self.last_batch - BATCHES_KEPT + 1))
        old.update(self._abandoned())
        old.update(self._folders(self._manifests, self.last.needs if self.last else 0))
        old.update(self._epochs.below(self.last.epoch if self.last else 0))
        # Check the epoch last: no newer driver has named any of the files found so far.
        if self._epochs.newest() != self.epoch:
            return 0
        for path in old:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return len(old)

    def _unneeded(self, *, below_end: bool = False) -> set[Path]:
        """Return the files of attempts that lost, and the files that newer snapshots cover.

        A file with a newer version than the end can only be from an attempt that lost; it is kept until the end has
        passed it. With `below_end`, snapshots of the end are kept as well: a visit may be making that snapshot now.
        """
        unneeded = set()
        for task, history in self.history.items():
            needed = {change.file for change in history.changes} | {s.file for s in history.snapshots}
            needed |= {s.file for t, s in self._new_snapshots.items() if t == task}
            newest = {"changelog": history.end.version, "snapshots": history.end.version - below_end}
            for kind, version in newest.items():
                for path in (self.root / kind / str(task)).glob("*.arrow"):
                    if f"{kind}/{task}/{path.name}" not in needed and int(path.name.split("-")[0]) <= version:
                        unneeded.add(path)
        return unneeded

    def _abandoned(self) -> Iterator[Path]:
        """Yield unfinished files of processes that died: no process needs an hour for one file."""
        for path in itertools.chain(
            self.root.glob("snapshots/*/*.tmp"),
            self._manifests.glob(".*"),
            self._epochs.folder.glob(".*"),
            (path for path in self.root.glob("reads/*") if path.name != str(self.epoch)),
        ):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                    yield path

    @staticmethod
    def _folders(folder: Path, below: int) -> Iterable[Path]:
        return [path for path in sorted(folder.glob("*")) if path.stem.isdigit() and int(path.stem) < below]


def _first_needed(histories: Mapping[TaskId, History], full: Sequence[int], batch: int) -> int:
    """Return the first batch whose manifest is needed to rebuild `histories` after `batch` is committed."""
    first = min(
        (h.changes[0].version if h.changes else h.end.version + 1 for h in histories.values()), default=batch
    )
    # The last but one full manifest contains everything older.
    return max(first, full[-2]) if len(full) > 1 else first


def _trimmed(changes: tuple[Change, ...], snapshots: tuple[Snapshot, ...]) -> History:
    """Return a history without the changes that the oldest of a full set of snapshots covers."""
    if len(snapshots) >= SNAPSHOTS_KEPT:
        changes = tuple(change for change in changes if change.version > snapshots[0].version)
    return History(changes, snapshots)
