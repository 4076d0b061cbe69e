"""Checks the files that a checkpoint's manifests name: their existence and length, or all their bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from taskplace.spark.checkpoint.history import is_whole
from taskplace.spark.codec import open_regular
from taskplace.spark.messages import Change, History, Manifest, Snapshot
from taskplace.wording import count
from topology import TaskId

_AT_A_TIME = 1 << 20


class Part(NamedTuple):
    """Bytes of a file that a manifest names. `whole`: whether they are all of the file."""

    file: str
    start: int
    size: int
    checksum: str
    whole: bool


class Damage(msgspec.Struct, frozen=True):
    """A damaged or missing file, or the damaged parts of a file.

    - `kind`: manifest, declaration, changelog, snapshot or output
    - `tasks`: those whose committed state it holds
    - `lost`: those of them whose state cannot be made from the other files
    """

    file: str
    kind: str
    what: str
    tasks: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def parts_of(history: Mapping[TaskId, History], last: Manifest | None) -> dict[Part, str]:
    """Return the bytes that manifests name, with their kind."""
    parts: dict[Part, str] = {}
    for one in history.values():
        parts |= {_of_change(change): "changelog" for change in one.changes if change.file}
        parts |= {_of_snapshot(snapshot): "snapshot" for snapshot in one.snapshots}
    if last is not None:
        staged = [file for files in last.sinks.values() for file in files]
        parts |= {Part(file.file, 0, file.size, file.checksum, True): "output" for file in staged}
    return parts


def _of_change(change: Change) -> Part:
    return Part(change.file, change.start, change.size, change.checksum, whole=False)


def _of_snapshot(snapshot: Snapshot) -> Part:
    return Part(snapshot.file, 0, snapshot.size, snapshot.checksum, whole=True)


def broken(
    root: Path, parts: Iterable[Part], *, verify: bool, progress: Callable[[int], None] = lambda size: None
) -> dict[Part, str]:
    """Return what is wrong with parts of files. `verify`: read all their bytes; `progress` gets the bytes read."""
    wrong: dict[Part, str] = {}
    by_file: dict[str, list[Part]] = {}
    for part in parts:
        by_file.setdefault(part.file, []).append(part)
    for name, inside in sorted(by_file.items()):
        wrong |= _broken_in(root / name, sorted(inside), verify, progress)
    return wrong


def _broken_in(
    path: Path, parts: Sequence[Part], verify: bool, progress: Callable[[int], None]
) -> dict[Part, str]:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            length = file.seek(0, os.SEEK_END)
    except ValueError as error:
        return dict.fromkeys(parts, str(error))
    except OSError as error:
        what = "missing" if isinstance(error, FileNotFoundError) else f"unreadable ({error.strerror})"
        return dict.fromkeys(parts, what)
    wrong = {}
    for part in parts:
        end = part.start + part.size
        if length < end or (part.whole and length != end):
            wrong[part] = f"found {length} bytes, expected {'' if part.whole else 'at least '}{end}"
    if verify:
        try:
            with path.open("rb") as file:
                for part in parts:
                    if part not in wrong and _checksum(file, part, progress) != part.checksum:
                        wrong[part] = f"the bytes {part.start} to {part.start + part.size} were changed"
        except OSError as error:
            return dict.fromkeys(parts, f"unreadable ({error.strerror})")
    return wrong


def _checksum(file: BinaryIO, part: Part, progress: Callable[[int], None]) -> str:
    digest, left = hashlib.blake2b(digest_size=16), part.size
    file.seek(part.start)
    while left > 0 and (data := file.read(min(left, _AT_A_TIME))):
        digest.update(data)
        left -= len(data)
        progress(len(data))
    return digest.hexdigest()


def damages(
    history: Mapping[TaskId, History], kinds: Mapping[Part, str], wrong: Mapping[Part, str]
) -> tuple[list[Damage], list[Damage]]:
    """Return the damages by file, with the tasks that they concern: those that count, and those that do not.

    A damaged part does not count if no copy needs it: a whole snapshot behind it, and the changes since, have the state
    of each task that it belongs to. Its file is removed once no history names it.
    """
    holders: dict[Part, list[TaskId]] = {}
    lost: set[TaskId] = set()
    needed: set[Part] = set()
    needless: set[Part] = set()
    for task, one in sorted(history.items()):
        start = start_of(one, wrong)
        if start is None:
            lost.add(task)
        for part, version in _versions(one).items():
            if part in wrong:
                holders.setdefault(part, []).append(task)
                (needed if start is None or version > start else needless).add(part)

    def by_file(parts: Iterable[Part]) -> Iterator[Damage]:
        files: dict[tuple[str, str], list[Part]] = {}
        for part in parts:
            files.setdefault((part.file, kinds[part]), []).append(part)
        for (file, kind), inside in sorted(files.items()):
            what, *more = dict.fromkeys(wrong[part] for part in inside)
            others = f" ({count(len(more), 'more part')} of the file as well)" if more else ""
            tasks = dict.fromkeys(task for part in inside for task in holders.get(part, ()))
            gone = tuple(str(task) for task in tasks if task in lost)
            yield Damage(file, kind, what + others, tuple(map(str, tasks)), gone)

    unneeded = needless - needed
    return (
        list(by_file(part for part in wrong if part not in unneeded)),
        list(by_file(part for part in wrong if part in unneeded)),
    )


def start_of(history: History, wrong: Mapping[Part, str]) -> int | None:
    """Return from which version on a task's state can be made; None if it cannot.

    It is that of the newest snapshot that is whole, with whole changes since; -1 for nothing but changes.
    """
    starts = [s.version for s in history.snapshots if _of_snapshot(s) not in wrong]
    if is_whole(history):
        starts.append(-1)
    broken = max((c.version for c in history.changes if c.file and _of_change(c) in wrong), default=-1)
    return max((start for start in starts if start >= broken), default=None)


def _versions(history: History) -> dict[Part, int]:
    """Return the parts of a history, each with the version that it leads to."""
    parts = {_of_change(change): change.version for change in history.changes}
    return parts | {_of_snapshot(snapshot): snapshot.version for snapshot in history.snapshots}
