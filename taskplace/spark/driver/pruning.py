"""Finds the files of a checkpoint that are no longer needed, and removes them.

A changelog segment has sections of several tasks. It is needed as long as one of them is, so the driver moves the last
ones elsewhere (`taskplace.spark.checkpoint.compaction`).
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from taskplace.spark.checkpoint.history import files_of
from taskplace.spark.checkpoint.manifests import number_of
from taskplace.spark.checkpoint.pruning import Listing
from taskplace.spark.messages import FollowRequest, History, Snapshot, batch_dir
from topology import TaskId

ABANDONED_SECONDS = 3600.0
#: The directories of changes and snapshots.
FOLDERS = ("changelog", "snapshots")


def unneeded(
    root: Path,
    histories: Mapping[TaskId, History],
    there: Mapping[str, Listing],
    *,
    last: int,
    visits: Collection[FollowRequest],
    new: Mapping[TaskId, Snapshot],
) -> set[Path]:
    """Return the files of attempts that lost, and the files that newer snapshots cover.

    - `there`: the files in the directories `FOLDERS`, listed after `visits` and `new` were read
    - `last`: the last committed batch
    - `visits`: the running ones; what they read and make is needed
    - `new`: snapshots that no manifest names yet; they are needed as well

    A file with a newer version than the end can only be from an attempt that lost; it is kept until the end has
    passed it. A segment is kept until all its batches are committed, because attempts may still write to it.
    """
    needed = {file for history in histories.values() for file in files_of(history)}
    needed.update(snapshot.file for snapshot in new.values())
    needed.update(file for visit in visits for history in visit.follow.values() for file in files_of(history))
    # By task: the versions of the snapshots that visits make, with which their names begin.
    made: dict[TaskId, set[int]] = {}
    for visit in visits:
        for task, history in visit.snapshot.items():
            made.setdefault(task, set()).add(history.end.version)
    paths = set()
    for kind, listing in there.items():  # before version 7 of the manifest, each change had a file
        for task, history in histories.items() if listing.below else ():
            folder = f"{kind}/{task}"
            for name in listing.below.get(str(task), ()):
                if not name.endswith(".arrow") or f"{folder}/{name}" in needed:
                    continue
                version = _version(name)
                if (
                    version is None
                    or version > history.end.version
                    or (kind == "snapshots" and version in made.get(task, ()))
                ):
                    continue
                paths.add(root / folder / name)
    for name in there["changelog"].files:
        version = _version(name) if name.endswith(".segment") else None
        if version is not None and version <= last and f"changelog/{name}" not in needed:
            paths.add(root / "changelog" / name)
    return paths


def _version(name: str) -> int | None:
    """Return the version with which the name of a file begins; None for a file of others."""
    number, dash, _ = name.partition("-")
    return number_of(number, digits=len(number)) if dash else None


def batch_files(root: Path, last: int, kept: int) -> Iterator[Path]:
    """Yield what batches before the `last` one have left, and of the `kept` newest batches what is of no more use.

    That is what their subtopologies read and reported. Their staged output stays, and the marks of cancelled rounds, by
    which attempts that still run end. All files of the last batch stay.
    """
    yield from numbered_below(root / "batches", last - kept + 1)
    for batch in range(max(0, last - kept + 1), last):
        folder = root / batch_dir(batch)
        yield from (part for part in (folder / "inputs", folder / "topics") if part.is_dir())
        yield from folder.glob("attempts/*/*.json")


def abandoned(root: Path, epoch: int, snapshots: Listing) -> Iterator[Path]:
    """Yield unfinished files of processes that died: no process needs an hour for one file."""
    unfinished = (
        root / "snapshots" / task / name
        for task, names in snapshots.below.items()
        for name in names
        if name.endswith(".tmp")
    )
    staging = (
        ".status.json.*",
        ".waiting.json.*",
        *(f"{folder}/.*" for folder in ("manifests", "epochs", "requests", "answers")),
    )
    for path in itertools.chain(
        unfinished,
        *(root.glob(pattern) for pattern in staging),
        (path for path in root.glob("reads/*") if path.name != str(epoch)),
    ):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                yield path


def numbered_below(folder: Path, number: int) -> list[Path]:
    """Return the files and directories in a folder that are named by lower numbers."""
    below = ((path, number_of(path.stem, digits=len(path.stem))) for path in sorted(folder.glob("*")))
    return [path for path, found in below if found is not None and found < number]


def remove(paths: Iterable[Path]) -> None:
    """Remove files, and directories with all that is in them."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
