"""The checkpoint: one manifest per batch. Only the manifest decides what is committed.

    <checkpoint>/
      epochs/0000000003               one file per driver: its declared topology and store layouts
      manifests/0000000012.json       batch 12 is committed; never overwritten
      changelog/<version>-<epoch>-<id>.segment   changes of several tasks, up to that version
      snapshots/<task>/<version>-<attempt>.arrow
      batches/0000000012/             attempts' reports, rows between subtopologies and lists of them, staged sink
                                      output, marks of cancelled rounds
      tick                            the number of the batch that has work without rows, if any
      spark/                          Spark's own checkpoint of the query, if taskplace starts the query

Properties:
- A manifest names, per task, the winning attempt and its files with length and checksum. Files that no
  manifest names are not part of the checkpoint.
- The manifest of a batch is created once, exclusively (`taskplace.spark.checkpoint.journal`).
- With each full manifest, the last sections that are needed of old segments move to a new one
  (`taskplace.spark.checkpoint.compaction`).
- A checkpoint keeps its identity: the last manifest's driver has declared the structure, and every manifest has the
  key types, the schemas of sinks, the hash version and Spark's query. A mismatch is refused at the start, before the
  driver changes anything.
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
from taskplace.spark.checkpoint import history as histories
from taskplace.spark.checkpoint.compaction import compacted, wasteful
from taskplace.spark.checkpoint.files import sync_directory
from taskplace.spark.checkpoint.history import continued, first_needed, kept_snapshots
from taskplace.spark.checkpoint.journal import (
    OPENINGS,
    Epochs,
    Manifests,
    check_bound,
    check_identity,
    with_keys,
    with_splits,
)
from taskplace.spark.checkpoint.manifests import read_histories
from taskplace.spark.checkpoint.pruning import (
    FOLDERS,
    Listings,
    abandoned,
    batch_files,
    numbered_below,
    remove,
    unneeded,
)
from taskplace.spark.messages import (
    Change,
    Declaration,
    FollowRequest,
    History,
    Manifest,
    Snapshot,
    StagedFile,
)
from topology import TaskId

BATCHES_KEPT = 2
FULL_EVERY = 50
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
        self._wasteful = False  # whether a full manifest would free many bytes of segments
        self._visits: dict[int, FollowRequest] = {}  # the running visits
        self._visit_numbers = itertools.count()
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
        return max(self.manifests.numbers(), default=-1)

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
            if taken and self.manifests.numbers()[-1:] == ([self.last.batch] if self.last else []):
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
        check_bound(self.root, self.identity, name, value)
        self.identity[name] = value

    def bind_splits(self, topics: Iterable[str], by_column: Collection[str]) -> None:
        """Bind the checkpoint to how its external topics are split: by a partition column, or by Spark's hash.

        Comes before `bind_keys`, which records all topics. Errors: `CheckpointError` for a topic that was split in
        another way.
        """
        bound = with_splits(self.root, self.identity, topics, by_column)
        self._splits = (tuple(topics), tuple(by_column))
        if bound:
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
        return histories.end_offset(task, self.history)

    def settled_offset(self, task: TaskId) -> int:
        """Return the length one commit ago, because followers are still applying the last batch's records."""
        return histories.settled_offset(task, self.history, self.last)

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
        *,
        event_times: Mapping[str, int] = MappingProxyType({}),
        rows: int = 0,
        watermark: int | None = None,
        expired: Mapping[str, int | None] = MappingProxyType({}),
        held: Mapping[TaskId, Mapping[str, int | None]] = MappingProxyType({}),
        offsets: tuple[str, ...] | None = None,
    ) -> Manifest:
        """Publish the manifest of `batch`: the commit point.

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
            rows=rows,
            watermark=watermark,
            expired=dict(expired),
            held=dict(held),
            nonce=self._nonce,
            offsets=offsets,
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
        """Return whether a running visit makes a snapshot of the task."""
        return any(task in visit.snapshot for visit in list(self._visits.values()))

    def snapshots_running(self) -> int:
        """Return how many snapshots running visits make."""
        return sum(len(visit.snapshot) for visit in list(self._visits.values()))

    # -- pruning

    @contextmanager
    def visit(self, request: FollowRequest) -> Iterator[None]:
        """Protect the files that a visit reads, and the snapshots that it makes, from pruning within this block.

        Begin it before anything is pruned after the request was made; end it when the report has been taken in. Any
        number of visits may run.
        """
        number = next(self._visit_numbers)
        self._visits[number] = request
        try:
            yield
        finally:
            del self._visits[number]

    def prune(self) -> int:
        """Remove the files that no history, running batch or running visit can need; return their number.

        Call it between batches. A running visit keeps only the files of its own request, and only until it ends. So
        the checkpoint does not grow even if there is always a visit. A fenced driver removes nothing, because it does
        not know the files of newer manifests.
        """
        # Visits first: a visit that ends meanwhile has noted its snapshot before.
        visits = list(self._visits.values())
        new = dict(self._new_snapshots)
        there = {folder: self._listings.of(self.root / folder) for folder in FOLDERS}
        old = unneeded(self.root, self.history, there, last=self.last_batch, visits=visits, new=new)
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
