"""Reads manifests, and the committed histories of tasks from them.

The version of a manifest covers everything that it names and everything beside it: changelogs, snapshots, staged
output, drivers' declarations. Versions before the current one were never released, so nothing upgrades them: another
version is refused, with the reason and the way out.

Files are named by numbers: those of batches and of drivers. A directory may have files of others as well, such as
copies that a person has made. So only a name that the number itself would get counts.

Loads neither Arrow nor LMDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from taskplace.errors import CheckpointError
from taskplace.spark.codec import damaged, decoded, read_file, unsealed
from taskplace.spark.messages import SCHEMA, Change, Declaration, History, Manifest, Snapshot, epoch_file
from topology import TaskId

#: The names of a checkpoint's own files have so many digits, at least.
DIGITS = 10
#: Numbers of batches and drivers fit into 64 bits.
_LONGEST = 19


def number_of(name: str, suffix: str = "", digits: int = 1) -> int | None:
    """Return the number that is a file's name, before `suffix`, and with zeros in front up to `digits`; else None.

    >>> number_of("0000000012.json", ".json", 10)
    12
    >>> number_of("12.json", ".json", 10), number_of("²"), number_of("9" * 30)
    (None, None, None)
    """
    stem = name.removesuffix(suffix)
    if not stem.isascii() or not stem.isdigit() or len(stem) > _LONGEST:
        return None
    number = int(stem)
    return number if f"{number:0{digits}d}{suffix}" == name else None


def numbered(folder: Path, suffix: str = "", digits: int = 1) -> list[int]:
    """Return the numbers that name what is in a folder, in order; none without the folder. See `number_of`."""
    with suppress(FileNotFoundError, NotADirectoryError):
        numbers = (number_of(path.name, suffix, digits) for path in folder.iterdir())
        return sorted(number for number in numbers if number is not None)
    return []


class _Version(msgspec.Struct):
    schema: Any


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file.

    Errors: `FileNotFoundError`; `CheckpointError` naming the file, if it is damaged, is of another batch than its name
    says, or has another version.
    """
    try:
        body = unsealed(read_file(path))
        _check_version(decoded(_Version, body).schema, path)
        manifest = Manifest.decode(body)
        if manifest.batch != number_of(path.name, ".json", DIGITS) or manifest.needs > manifest.batch:
            raise ValueError(f"it is of batch {manifest.batch}, and needs those from {manifest.needs} on")
        _check_names(manifest)
        return manifest
    except ValueError as error:
        raise damaged(path, "manifest", error) from None


def _check_version(schema: object, path: Path) -> None:
    """Raise `CheckpointError` unless a manifest has the version that is written now."""
    if schema == SCHEMA:
        return
    (kind, _, version), (own, _, newest) = str(schema).rpartition("/"), SCHEMA.rpartition("/")
    if kind != own or not (version.isascii() and version.isdigit()):
        why = "this is not a checkpoint of taskplace: set the right directory"
    elif int(version) > int(newest):
        why = "a newer taskplace wrote it: continue with that version of taskplace"
    else:
        why = "a development version wrote it, and no release continues it: continue with that version of taskplace"
    raise CheckpointError(
        f"{path}: found the version {schema!r}, expected {SCHEMA!r}; {why}, or start a new checkpoint in another "
        "directory"
    )


def _check_names(manifest: Manifest) -> None:
    """Refuse files outside of the checkpoint, and attempts that would lead there: snapshots are named after them."""
    histories = (manifest.histories or {}).values()
    changes = [*manifest.changes.values(), *chain(*(one.changes for one in histories))]
    snapshots = [*chain(*manifest.snapshots.values()), *chain(*(one.snapshots for one in histories))]
    staged = chain(*manifest.sinks.values())
    files = [*(c.file for c in changes), *(s.file for s in snapshots), *(file.file for file in staged)]
    attempts = [*(c.attempt for c in changes), *(s.attempt for s in snapshots)]
    for name in (*files, *(f"/{attempt}" for attempt in attempts if "/" in attempt)):
        if name[:1] == "/" or (".." in name and ".." in name.split("/")):
            raise ValueError(f"it names {name!r}, which is outside of the checkpoint")


def read_declaration(root: Path, epoch: int) -> Declaration:
    """Return the declaration of a driver. Errors: `FileNotFoundError`; `ValueError` for a damaged file."""
    found = Declaration.decode(unsealed(read_file(root / epoch_file(epoch))))
    if "/" in found.id:  # executors name their directory after it
        raise ValueError(f"the id {found.id!r} is no name")
    return found


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
