"""The histories of tasks: read from manifests, continued by a batch, and trimmed by snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from taskplace.spark.messages import Change, History, Manifest, Snapshot
from topology import TaskId

SNAPSHOTS_KEPT = 2


def read_histories(manifests: Sequence[Manifest]) -> tuple[dict[TaskId, History], list[int]]:
    """Return the histories that manifests have together, and the batches of the manifests that have whole histories.

    `manifests`: those that are needed, in order. O(changes).
    """
    changes: dict[TaskId, list[Change]] = {}
    full = []
    for manifest in manifests:
        if manifest.histories is not None:
            full.append(manifest.batch)
            changes = {task: list(history.changes) for task, history in manifest.histories.items()}
        else:
            for task, change in manifest.changes.items():
                changes.setdefault(task, []).append(change)
    snapshots = manifests[-1].snapshots if manifests else {}
    return {
        task: _trimmed(tuple(changes.get(task, ())), snapshots.get(task, ()))
        for task in {*changes, *snapshots}
    }, full


def continued(
    histories: Mapping[TaskId, History],
    changes: Mapping[TaskId, Change],
    snapshots: Mapping[TaskId, tuple[Snapshot, ...]],
) -> dict[TaskId, History]:
    """Return the histories with a batch's changes. `snapshots`: all that are kept, by task."""
    after = dict(histories)
    for task in {*changes, *snapshots}:
        added = (changes[task],) if task in changes else ()
        after[task] = _trimmed(after.get(task, History()).changes + added, snapshots.get(task, ()))
    return after


def trimmed_since(before: Mapping[TaskId, History], after: Mapping[TaskId, History]) -> set[TaskId]:
    """Return the tasks whose history begins later than before. O(tasks)."""
    return {
        task
        for task, history in before.items()
        if history.changes and history.changes[:1] != after[task].changes[:1]
    }


def kept_snapshots(
    histories: Mapping[TaskId, History],
    new: Mapping[TaskId, Snapshot],
    spared: frozenset[tuple[TaskId, str]],
) -> dict[TaskId, tuple[Snapshot, ...]]:
    """Return the snapshots that are kept with the new ones: each task's newest, and those that are `spared`."""
    kept = {task: history.snapshots for task, history in histories.items() if history.snapshots}
    for task, snapshot in new.items():
        ordered = sorted({*kept.get(task, ()), snapshot}, key=lambda s: s.version)
        newest = ordered[-SNAPSHOTS_KEPT:]
        kept[task] = tuple(s for s in ordered if s in newest or (task, s.attempt) in spared)
    return kept


def first_needed(histories: Mapping[TaskId, History], full: Sequence[int], batch: int) -> int:
    """Return the first batch whose manifest is needed to rebuild `histories` after `batch` is committed.

    `full`: the batches whose manifests have whole histories.

    >>> first_needed({}, full=[], batch=7), first_needed({TaskId(0, 0): History()}, full=[50, 100], batch=120)
    (7, 50)
    """
    first = min(
        (h.changes[0].version if h.changes else h.end.version + 1 for h in histories.values()), default=batch
    )
    # The last but one full manifest contains everything older.
    return max(first, full[-2]) if len(full) > 1 else first


def end_offset(task: TaskId, histories: Mapping[TaskId, History]) -> int:
    """Return the length of a task's changelog, in records."""
    history = histories.get(task)
    return history.end.offset if history else 0


def settled_offset(task: TaskId, histories: Mapping[TaskId, History], last: Manifest | None) -> int:
    """Return the length one commit ago, because followers are still applying the last batch's records."""
    change = last.changes.get(task) if last else None
    return end_offset(task, histories) if change is None else change.offset - change.records


def files_of(history: History) -> Iterator[str]:
    """Yield the names of a history's changelogs and snapshots, as its manifest has them."""
    yield from (change.file for change in history.changes)
    yield from (snapshot.file for snapshot in history.snapshots)


def _trimmed(changes: tuple[Change, ...], snapshots: tuple[Snapshot, ...]) -> History:
    """Return a history without the changes that the oldest of a full set of snapshots covers."""
    if len(snapshots) >= SNAPSHOTS_KEPT:
        changes = tuple(change for change in changes if change.version > snapshots[0].version)
    return History(changes, snapshots)
