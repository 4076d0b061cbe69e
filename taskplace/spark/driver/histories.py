"""The histories of tasks: continued by a batch, and trimmed by snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from taskplace.spark.checkpoint.manifests import SNAPSHOTS_KEPT, trimmed
from taskplace.spark.messages import Change, History, Manifest, Snapshot
from topology import TaskId


def continued(
    histories: Mapping[TaskId, History],
    changes: Mapping[TaskId, Change],
    snapshots: Mapping[TaskId, tuple[Snapshot, ...]],
) -> dict[TaskId, History]:
    """Return the histories with a batch's changes. `snapshots`: all that are kept, by task."""
    after = dict(histories)
    for task in {*changes, *snapshots}:
        added = (changes[task],) if task in changes else ()
        after[task] = trimmed(after.get(task, History()).changes + added, snapshots.get(task, ()))
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
