"""Finds the files of a checkpoint that are no longer needed, and removes them."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from taskplace.spark.driver.histories import files_of
from taskplace.spark.messages import FollowRequest, History, Snapshot
from topology import TaskId

ABANDONED_SECONDS = 3600.0


def unneeded(
    root: Path,
    histories: Mapping[TaskId, History],
    *,
    visits: Collection[FollowRequest],
    new: Mapping[TaskId, Snapshot],
) -> set[Path]:
    """Return the files of attempts that lost, and the files that newer snapshots cover.

    - `visits`: the running ones; what they read and make is needed
    - `new`: snapshots that no manifest names yet; they are needed as well

    A file with a newer version than the end can only be from an attempt that lost; it is kept until the end has
    passed it.
    """
    paths = set()
    for task, history in histories.items():
        needed = {*files_of(history), *((new[task].file,) if task in new else ())}
        needed.update(*(files_of(visit.follow[task]) for visit in visits if task in visit.follow))
        # The name of a snapshot that a visit makes begins with its version.
        made = {visit.snapshot[task].end.version for visit in visits if task in visit.snapshot}
        for kind in ("changelog", "snapshots"):
            for path in (root / kind / str(task)).glob("*.arrow"):
                version = int(path.name.split("-")[0])
                if version > history.end.version or (kind == "snapshots" and version in made):
                    continue
                if f"{kind}/{task}/{path.name}" not in needed:
                    paths.add(path)
    return paths


def abandoned(root: Path, epoch: int) -> Iterator[Path]:
    """Yield unfinished files of processes that died: no process needs an hour for one file."""
    for path in itertools.chain(
        root.glob("snapshots/*/*.tmp"),
        root.glob("manifests/.*"),
        root.glob("epochs/.*"),
        (path for path in root.glob("reads/*") if path.name != str(epoch)),
    ):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                yield path


def numbered_below(folder: Path, number: int) -> list[Path]:
    """Return the files and directories in a folder that are named by lower numbers."""
    return [path for path in sorted(folder.glob("*")) if path.stem.isdigit() and int(path.stem) < number]


def remove(paths: Iterable[Path]) -> None:
    """Remove files, and directories with all that is in them."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
