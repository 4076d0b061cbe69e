"""Takes a checkpoint over, and commits to it: one manifest per batch. Only the manifest decides what is committed.

Properties:
- A manifest names, per task, the winning attempt and its files with length and checksum. Files that no
  manifest names are not part of the checkpoint.
- A manifest is written completely and then made visible by an exclusive create (a hard link). If two drivers publish
  the same batch, one loses and stops (`Fenced`).
- A manifest names the first batch whose manifest is still needed. Manifests with lower numbers are ignored: a driver
  that was stopped during its commit may create one long after other drivers have gone further.
- Each driver takes an epoch, a number of its own, and writes its declaration under it before it commits anything. The
  driver with the highest epoch is in charge. A manifest has the epoch of its driver, so it says which declaration
  counts.
- With each full manifest, the last sections that are needed of old segments move to a new one
  (`taskplace.spark.checkpoint.compaction`).
- A checkpoint keeps its identity: every manifest has the key types, the schemas of sinks, the hash version and Spark's
  query. A mismatch is refused at the start, before the driver changes anything.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from taskplace.errors import CheckpointError, Fenced
from taskplace.spark import faults
from taskplace.spark.checkpoint.compaction import compacted, wasteful
from taskplace.spark.checkpoint.files import create_exclusively, lasting_directory, sync_directory
from taskplace.spark.checkpoint.history import continued, first_needed, kept_snapshots
from taskplace.spark.checkpoint.manifests import (
    DIGITS,
    numbered,
    numbers,
    path_of,
    read_declaration,
    read_histories,
    read_manifest,
)
from taskplace.spark.checkpoint.pruning import (
    FOLDERS,
    Listings,
    abandoned,
    batch_files,
    numbered_below,
    remove,
    unneeded,
)
from taskplace.spark.codec import damaged, read_file, seal, sealed
from taskplace.spark.messages import (
    Change,
    Declaration,
    FollowRequest,
    History,
    Manifest,
    Snapshot,
    StagedFile,
    epoch_file,
)
from taskplace.spark.types import UNTYPED, differ
from topology import TaskId
from topology.errors import shown

#: How often a driver reads again what other drivers change meanwhile.
OPENINGS = 20
BATCHES_KEPT = 2
FULL_EVERY = 50
#: The declaration of a journal without `declare`.
UNDECLARED = Declaration("", {}, {}, {})


def check_identity(root: Path, own: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Refuse a driver whose identity, `own`, differs from the one that the checkpoint has, `kept`."""
    for name, wanted in own.items():
        if wanted is not None and kept.get(name) is not None and kept[name] != wanted:
            found = f"was created with {name} = {kept[name]!r}, found {shown(wanted)}"
            raise CheckpointError(
                f"{root}: the checkpoint {found}; use the original value, or start a new checkpoint"
            )


def with_keys(
    root: Path, bound: Mapping[str, Any] | None, keys: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return the key types that the checkpoint is bound to, with those of more topics.

    A key column with only nulls has no type; the first type that comes binds it.

    >>> with_keys(Path("/checkpoint"), {"a": ["string"]}, {"b": ["int"]})
    {'a': ['string'], 'b': ['int']}
    """
    types: dict[str, Any] = dict(bound or {})
    for topic, given in keys.items():
        known = list(types.get(topic, given))
        if differ(given, known):
            raise CheckpointError(
                f"{root}: the key of topic {topic!r} had the types {', '.join(types[topic])}, found "
                f"{', '.join(given)}, which assign keys to other partitions; cast the key, or start a new checkpoint"
            )
        known = [now if before == UNTYPED else before for before, now in zip(known, given, strict=True)]
        if set(known) != {UNTYPED}:
            types[topic] = known
    return types


class Epochs:
    """The epochs of one checkpoint. The driver that creates the file of a number owns the number."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "epochs"

    def newest(self) -> int:
        """Return the number of the last driver that has taken over the checkpoint; 0 before the first."""
        return max(numbered(self.folder, digits=DIGITS), default=0)

    def take(self, number: int, declaration: Declaration) -> bool:
        """Take a number if it is free; return whether this call took it."""
        root = self.folder.parent
        lasting_directory(root.parent)  # may belong to others; only the checkpoint itself is private
        with suppress(FileExistsError):
            create_exclusively(self.path(number), sealed(declaration, indent=1))
            return True
        return False

    def declaration(self, number: int) -> Declaration:
        """Return the declaration of a driver. Errors: `CheckpointError` for a missing or damaged file."""
        path = self.path(number)
        try:
            return read_declaration(self.folder.parent, number)
        except FileNotFoundError:
            why = f"it describes the topology of driver {number}, which committed the last batch"
            raise CheckpointError(
                f"{path}: the file is missing; {why}: restore it, or start a new checkpoint"
            ) from None
        except ValueError as error:
            raise damaged(path, "declaration", error) from None

    def below(self, number: int) -> list[Path]:
        """Return the files of all drivers with lower numbers."""
        return [self.path(earlier) for earlier in numbered(self.folder, digits=DIGITS) if earlier < number]

    def path(self, number: int) -> Path:
        """Return the file of a driver's declaration."""
        return self.folder.parent / epoch_file(number)


def checksum(root: Path, batch: int) -> str:
    """Return the checksum of a batch's manifest. Errors: `CheckpointError` for a missing or damaged manifest."""
    path = path_of(root, batch)
    try:
        return seal(read_file(path))
    except (OSError, ValueError) as error:
        raise damaged(path, "manifest", error) from error


class Manifests:
    """The manifests of one checkpoint, as one driver reads and publishes them.

    Errors: `CheckpointError` for missing or damaged manifests.
    """

    def __init__(self, root: Path, epochs: Epochs) -> None:
        self.folder = path_of(root, 0).parent
        self._root, self._epochs = root, epochs
        self._tried = -1  # the last batch whose manifest this driver tried to create

    def needed(self) -> list[Manifest]:
        """Return the manifests that are still needed, in order; empty before the first commit.

        If another driver prunes listed manifests meanwhile, they are listed and read again.
        """
        for _ in range(OPENINGS - 1):
            with suppress(FileNotFoundError):
                return self._needed()
        return self._needed()

    def _needed(self) -> list[Manifest]:
        found = numbers(self._root)
        if not found:
            return []
        last = self._read(found[-1])
        needed = [number for number in found if number >= last.needs]
        for number, expected in zip(needed, itertools.count(last.needs)):
            if number != expected:
                if found != numbers(self._root):
                    raise FileNotFoundError(number)
                path = path_of(self._root, number)
                raise CheckpointError(f"{path}: the manifest of batch {expected} is missing")
        return [*(self._read(number) for number in needed[:-1]), last]

    def _read(self, batch: int) -> Manifest:
        return read_manifest(path_of(self._root, batch))

    def publish(self, manifest: Manifest) -> None:
        """Create the file of a manifest: the commit point.

        Errors: `Fenced` if another driver has published this batch; `CheckpointError` if the disk hid that this driver
        has, with other contents.
        """
        path = path_of(self._root, manifest.batch)
        self._sync_above(manifest)
        tried, self._tried = self._tried == manifest.batch, manifest.batch
        data = sealed(manifest)
        try:
            create_exclusively(path, data)
        except FileExistsError:
            if tried and path.read_bytes() == data:
                # An error of the disk hid the success of the first try, and may have prevented its sync.
                sync_directory(self.folder)
            elif tried:
                said = "this driver committed the batch, but a disk error hid the result; start the application again"
                raise CheckpointError(f"{path}: {said}") from None
            else:
                hint = "if no other driver runs, start the application again: it continues after this batch"
                raise Fenced(
                    f"{path}: another driver has committed this batch; this driver stops; {hint}"
                ) from None
        if self._epochs.newest() != manifest.epoch and self._is_over(manifest.batch):
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
        for folder in _above(named):
            with suppress(FileNotFoundError):  # a missing directory is an error where its files are read
                sync_directory(self._root / folder)

    def _is_over(self, batch: int) -> bool:
        """Return whether the newest manifest says that the manifest of this batch is no longer needed."""
        for _ in range(OPENINGS):
            with suppress(FileNotFoundError):
                return self._read(numbers(self._root)[-1]).needs > batch
        return False


def _above(files: Iterable[str]) -> list[str]:
    """Return the directories above those of the files, by relative name, and "" for the root. O(files), as text.

    >>> _above(["changelog/a.segment", "snapshots/0_1/b.arrow", "snapshots/0_2/c.arrow"])
    ['', 'snapshots']
    """
    above: set[str] = set()
    folders = {file.rpartition("/")[0] for file in files}
    while folders := {folder.rpartition("/")[0] for folder in folders if folder}:
        above |= folders
    return sorted(above)


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
        self._wasteful = False  # whether a full manifest would free many bytes of segments
        self._following: dict[int, FollowRequest] = {}  # the requests of running follow jobs
        self._numbers = itertools.count()
        self._listings = Listings()
        self._epochs = Epochs(root)
        self.manifests = Manifests(root, self._epochs)
        self.epoch, self._nonce = 0, uuid.uuid4().hex
        self.declaration = UNDECLARED
        self._declare, self._check_keys = declare, check_keys
        self._splits: tuple[Collection[str], Collection[str]] = ((), ())
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
        return max(numbers(self.root), default=-1)

    # -- opening

    def take_over(self, check: Callable[[Declaration], None] = lambda declaration: None) -> None:
        """Take the next epoch, which fences the driver that was in charge.

        `check` gets the declaration before it is written, when `last` is the manifest to continue from; it may raise.
        Errors: as for the constructor, for manifests that others have committed since; `CheckpointError` if they commit
        each time that this driver has read them. After an error of `check`, the previous driver is still in charge.
        """
        keys, query = self.identity.get("keys"), self.identity.get("query")
        for _ in range(OPENINGS):
            self.identity = dict(self._given)
            self._load()
            self.bind_splits(*self._splits)
            if keys is not None:
                self.bind_keys(keys)
            self.bind("query", query)
            epoch = max(self._epochs.newest(), self.last.epoch if self.last else 0) + 1
            declaration = self._declare(self.last)
            check(declaration)
            taken = self._epochs.take(epoch, declaration)
            # If the previous driver has committed meanwhile, this driver has read too little: read and check again.
            if taken and numbers(self.root)[-1:] == ([self.last.batch] if self.last else []):
                self._sync_directories()
                self.epoch, self.declaration = epoch, declaration
                return
        raise CheckpointError(f"{self.root}: other drivers take over or commit meanwhile; end all but one")

    def _sync_directories(self) -> None:
        """Sync the directories of the last manifest, because its driver may have been killed before it synced them."""
        for folder in (self.root.parent, self.root, self.manifests.folder):
            with suppress(FileNotFoundError, PermissionError):  # an unreadable directory cannot be synced
                sync_directory(folder)

    def _load(self) -> None:
        """Read the manifests. Errors: `CheckpointError` for a mismatch with `identity`."""
        manifests = self.manifests.needed()
        self.history, self._full = read_histories(manifests)
        if not manifests:
            return
        self.last = manifests[-1]
        check_identity(self.root, self.identity, self.last.identity)
        self.identity = {**self.identity, **self.last.identity}

    def bind(self, name: str, value: Any) -> None:
        """Bind the checkpoint to one more property of its identity. Errors: `CheckpointError` on a mismatch."""
        if value is None:
            return
        if (bound := self.identity.get(name)) is not None and bound != value:
            found = f"the checkpoint belongs to {name} {bound!r}, found {shown(value)}"
            remedy = "it belongs to Spark's checkpoint: keep both, or start a new checkpoint for both"
            raise CheckpointError(f"{self.root}: {found}; {remedy}")
        self.identity[name] = value

    def bind_splits(self, topics: Iterable[str], by_column: Collection[str]) -> None:
        """Bind the checkpoint to how its external topics are split: by a partition column, or by Spark's hash.

        Comes before `bind_keys`, which records all topics. Errors: `CheckpointError` for a topic that was split in
        another way.
        """
        known, before = self.identity.get("keys") or {}, set(self.identity.get("by_column") or ())
        ways = {True: "a partition column", False: "Spark's hash of the key"}
        for topic in topics:
            was, now = topic in before, topic in by_column
            if topic in known and was != now:
                found = f"the rows of topic {topic!r} were split by {ways[was]}, found {ways[now]}"
                raise CheckpointError(f"{self.root}: {found}; go back to it, or start a new checkpoint")
        self._splits = (tuple(topics), tuple(by_column))
        if bound := sorted(before | set(by_column)):
            self.identity["by_column"] = bound

    def bind_keys(self, keys: Mapping[str, Sequence[str]]) -> None:
        """Bind the checkpoint to the key types of its topics; topics may be added. `check_keys` may refuse the result.

        A key column with only nulls has no type; the first type that comes binds it.
        """
        bound = with_keys(self.root, self.identity.get("keys"), keys)
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
            taken = f"driver {newest} has taken over this checkpoint from driver {self.epoch}"
            raise Fenced(f"{self.root}: {taken}; this driver stops")

    def commit(
        self,
        batch: int,
        generation: int,
        changes: Mapping[TaskId, Change],
        sinks: Mapping[str, Sequence[StagedFile]],
        assignment: Mapping[str, Any],
        *,
        event_times: Mapping[str, int] = MappingProxyType({}),
        **more: Any,
    ) -> Manifest:
        """Publish the manifest of `batch`: the commit point. `more`: further fields of it.

        Errors: `Fenced` if a newer driver has taken over the checkpoint, or has committed this batch.
        """
        self.check_epoch()
        snapshots = kept_snapshots(self.history, dict(self._new_snapshots), self.spared)
        after = continued(self.history, changes, snapshots)
        full = [*self._full[-1:], batch] if self._full_due(batch) else self._full
        if full is not self._full:
            after = compacted(self.root, after, batch, self.epoch)
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
            needs=max(0, min(first_needed(after, full, batch), batch - 1)),
            nonce=self._nonce,
            **more,
        )
        faults.point("batch.checked")
        self.manifests.publish(manifest)
        self.history, self._full = after, full
        self._new_snapshots.clear()
        self.last = manifest
        return manifest

    def _full_due(self, batch: int) -> bool:
        """Return whether the manifest of a batch should be full: at intervals, and earlier if that frees much."""
        since = batch - (self._full[-1] if self._full else 0)
        return batch > 0 and (batch % FULL_EVERY == 0 or (self._wasteful and since >= FULL_EVERY // 5))

    def event_times_with(self, more: Mapping[str, int]) -> dict[str, int]:
        """Return the newest event time of each source so far, updated with those of one more batch."""
        known = dict(self.last.event_times) if self.last else {}
        return {topic: max(known.get(topic, t), more.get(topic, t)) for topic, t in {**known, **more}.items()}

    def add_snapshots(self, snapshots: Mapping[TaskId, Snapshot]) -> None:
        """Note new snapshots; the next manifest names them."""
        self._new_snapshots.update(snapshots)

    def snapshot_pending(self, task: TaskId) -> bool:
        """Return whether the task has a new snapshot that no manifest names yet."""
        return task in self._new_snapshots

    def snapshot_running(self, task: TaskId) -> bool:
        """Return whether a running follow job makes a snapshot of the task."""
        return any(task in request.snapshot for request in list(self._following.values()))

    def snapshots_running(self) -> int:
        """Return how many snapshots running follow jobs make."""
        return sum(len(request.snapshot) for request in list(self._following.values()))

    # -- pruning

    @contextmanager
    def protected(self, request: FollowRequest) -> Iterator[None]:
        """Protect the files that a follow job reads, and the snapshots that it makes, from pruning within this block.

        Begin it before anything is pruned after the request was made; end it when the report has been taken in. Any
        number of jobs may run.
        """
        number = next(self._numbers)
        self._following[number] = request
        try:
            yield
        finally:
            del self._following[number]

    def prune(self) -> int:
        """Remove the files that no history, running batch or running follow job can need; return their number.

        Call it between batches. A running job keeps only the files of its own request, and only until it ends. So the
        checkpoint does not grow even if there is always a job. A fenced driver removes nothing, because it does
        not know the files of newer manifests.
        """
        # Follow jobs first: one that ends meanwhile has noted its snapshot before.
        following = list(self._following.values())
        new = dict(self._new_snapshots)
        there = {folder: self._listings.of(self.root / folder) for folder in FOLDERS}
        old = unneeded(self.root, self.history, there, last=self.last_batch, following=following, new=new)
        old.update(batch_files(self.root, self.last_batch, BATCHES_KEPT))
        old.update(abandoned(self.root, self.epoch, there["snapshots"]))
        old.update(numbered_below(self.manifests.folder, self.last.needs if self.last else 0))
        old.update(self._epochs.below(self.last.epoch if self.last else 0))
        # Check the epoch last: no newer driver has named any of the files in `old`.
        if self._epochs.newest() != self.epoch:
            return 0
        remove(old)
        self._wasteful = wasteful(self.root, self.history, self.last_batch + 1)
        return len(old)
