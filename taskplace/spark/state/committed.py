"""Reads the committed histories of tasks from manifests.

A descriptor has only the end of a task's history, which is all that a copy at that end needs. An attempt whose copy is
elsewhere reads the whole history here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.manifests import DIGITS, numbered, read_manifest
from taskplace.spark.messages import Change, History, Manifest, Snapshot
from topology import TaskId

SNAPSHOTS_KEPT = 2
_FOLDER, _SUFFIX = "manifests", ".json"


def name_of(batch: int) -> str:
    """Return the file of a batch's manifest, by its name relative to the checkpoint.

    >>> name_of(12)
    'manifests/0000000012.json'
    """
    return f"{_FOLDER}/{batch:0{DIGITS}d}{_SUFFIX}"


def path_of(root: Path, batch: int) -> Path:
    """Return the file of a batch's manifest in the checkpoint `root`."""
    return root / name_of(batch)


def numbers(root: Path) -> list[int]:
    """Return the batches that have a manifest, in order, including manifests that are no longer needed."""
    return numbered(root / _FOLDER, _SUFFIX, DIGITS)


def history_before(root: Path, batch: int, task: TaskId) -> History:
    """Return the history of a task as it was committed before `batch`.

    O(bytes of all manifests that are needed). The histories of one batch are kept, for the other tasks of a bin.
    Errors: `CheckpointError` for a missing or damaged manifest.
    """
    last = max((number for number in numbers(root) if number < batch), default=None)
    if last is None:
        return History()
    try:
        status = path_of(root, last).stat()
        return _histories(root, last, (status.st_ino, status.st_mtime_ns)).get(task, History())
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename}: the manifest is missing; batch {batch} needs it") from None


@lru_cache(maxsize=1)
def _histories(root: Path, last: int, file: tuple[int, int]) -> dict[TaskId, History]:
    """Return all histories at the manifest `last`, which is the file with this id and time."""
    needs = read_manifest(path_of(root, last)).needs
    return read_histories([read_manifest(path_of(root, number)) for number in range(needs, last + 1)])[0]


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
        task: trimmed(tuple(changes.get(task, ())), snapshots.get(task, ()))
        for task in {*changes, *snapshots}
    }, full


def trimmed(changes: tuple[Change, ...], snapshots: tuple[Snapshot, ...]) -> History:
    """Return a history without the changes that the oldest of a full set of snapshots covers."""
    if len(snapshots) >= SNAPSHOTS_KEPT:
        changes = tuple(change for change in changes if change.version > snapshots[0].version)
    return History(changes, snapshots)
