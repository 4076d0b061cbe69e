"""Finds the files of a checkpoint that are no longer needed, and removes them.

A changelog segment has sections of several tasks. It is needed as long as one of them is, so the driver moves the last
ones elsewhere (`taskplace.spark.checkpoint.compaction`).

A checkpoint has a directory of snapshots for each task, and few of them change in a batch. `Listings` lists a directory
again only after it has changed: asking for its time of change is cheaper, most of all on a network. What it lists is
what listing anew would show, as far as a file system keeps times. Two changes within one tick of its clock have the
same time. So a directory counts as unchanged only if it was listed `SETTLED_SECONDS` after its time was first found. No
other clock is compared with that of the file system.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from taskplace.spark.checkpoint.history import files_of
from taskplace.spark.checkpoint.manifests import number_of
from taskplace.spark.messages import FollowRequest, History, Snapshot, batch_dir
from topology import TaskId

#: More than a tick of any file system's clock.
SETTLED_SECONDS = 2.5
_GONE = (FileNotFoundError, NotADirectoryError, PermissionError)

ABANDONED_SECONDS = 3600.0
#: The directories of changes and snapshots.
FOLDERS = ("changelog", "snapshots")


@dataclass(frozen=True)
class Listing:
    """The names in a directory: of its `files`, and of the files of each directory `below` it, by its name."""

    files: Sequence[str] = ()
    below: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Known:
    """A directory as it was listed. Times are monotonic.

    - `state`: its inode and its time of change; `since`: when that was first found
    """

    state: tuple[int, int]
    since: float
    listed: float
    names: Sequence[str]


class Listings:
    """The listings of a checkpoint's directories. `clock` returns seconds. Lifetime: one for each driver."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Path, dict[str, _Known]] = {}

    def of(self, folder: Path) -> Listing:
        """List a directory, and those below it. O(directories), and O(files) of those that have changed."""
        before = self._known.get(folder, {})
        files: list[str] = []
        now: dict[str, _Known] = {}
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.is_dir():
                        files.append(entry.name)
                    elif (known := self._listed(entry, before.get(entry.name))) is not None:
                        now[entry.name] = known
        except _GONE:
            pass
        self._known[folder] = now
        return Listing(tuple(files), {name: known.names for name, known in now.items()})

    def _listed(self, folder: os.DirEntry[str], known: _Known | None) -> _Known | None:
        """Return a directory as it is now; None if it is gone or may not be read."""
        try:
            status = folder.stat()
            state, now = (status.st_ino, status.st_mtime_ns), self._clock()
            since = now
            if known is not None and known.state == state:
                if known.listed - known.since >= SETTLED_SECONDS:
                    return known
                since = known.since
            with os.scandir(folder.path) as entries:
                return _Known(state, since, now, tuple(entry.name for entry in entries))
        except _GONE:
            return None


def unneeded(
    root: Path,
    histories: Mapping[TaskId, History],
    there: Mapping[str, Listing],
    *,
    last: int,
    following: Collection[FollowRequest],
    new: Mapping[TaskId, Snapshot],
) -> set[Path]:
    """Return the files of attempts that lost, and the files that newer snapshots cover.

    - `there`: the files in the directories `FOLDERS`, listed after `following` and `new` were read
    - `last`: the last committed batch
    - `following`: the requests of running follow jobs; what they read and make is needed
    - `new`: snapshots that no manifest names yet; they are needed as well

    A file with a newer version than the end can only be from an attempt that lost; it is kept until the end has
    passed it. A segment is kept until all its batches are committed, because attempts may still write to it.
    """
    followed = (history for one in following for history in one.follow.values())
    needed = {file for history in (*histories.values(), *followed) for file in files_of(history)}
    needed.update(snapshot.file for snapshot in new.values())
    # The snapshots that follow jobs make: their names begin with the version.
    made = {(task, history.end.version) for one in following for task, history in one.snapshot.items()}
    paths = set()
    for task, history in histories.items():
        for name in there["snapshots"].below.get(str(task), ()):
            version = _version(name) if name.endswith(".arrow") else None
            if version is None or version > history.end.version or (task, version) in made:
                continue
            if (file := f"snapshots/{task}/{name}") not in needed:
                paths.add(root / file)
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
    staging = [".status.json.*", ".waiting.json.*", "manifests/.*", "epochs/.*", "requests/.*", "answers/.*"]
    reads = (path for path in root.glob("reads/*") if path.name != str(epoch))
    for path in itertools.chain(unfinished, *map(root.glob, staging), reads):
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
