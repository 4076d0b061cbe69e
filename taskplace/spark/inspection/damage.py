"""Checks the files that a checkpoint's manifests name: their existence and length, or all their bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from taskplace.spark.checkpoint.history import is_whole
from taskplace.spark.codec import open_regular
from taskplace.spark.messages import Change, History, Manifest, Snapshot
from taskplace.wording import count
from topology import TaskId

_PART = 1 << 20


class Part(NamedTuple):
    """Bytes of a file that a manifest names. `whole`: whether they are all of the file."""

    file: str
    start: int
    size: int
    checksum: str
    whole: bool


class Damage(NamedTuple):
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
    return Part(change.file, change.start, change.size, change.checksum, not change.file.endswith(".segment"))


def _of_snapshot(snapshot: Snapshot) -> Part:
    return Part(snapshot.file, 0, snapshot.size, snapshot.checksum, True)


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
    while left > 0 and (data := file.read(min(left, _PART))):
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
    starts = {task: start_of(one, wrong) for task, one in history.items()}
    needless = _needless(history, wrong, starts)
    counts, counts_not = (
        {part: what for part, what in wrong.items() if (part in needless) == without}
        for without in (False, True)
    )
    lost = {task for task, start in starts.items() if start is None}
    return _by_file(history, kinds, counts, lost), _by_file(history, kinds, counts_not, lost)


def _needless(
    history: Mapping[TaskId, History], wrong: Mapping[Part, str], starts: Mapping[TaskId, int | None]
) -> set[Part]:
    """Return the damaged parts that no task's state is made of any more. `starts`: of each task, see `start_of`."""
    needless: set[Part] = set()
    needed: set[Part] = set()
    for task, one in history.items():
        parts, start = _parts(one).intersection(wrong), starts[task]
        old = set() if start is None else {part for part in parts if _version(one, part) <= start}
        needless |= old
        needed |= parts - old
    return needless - needed


def _version(history: History, part: Part) -> int:
    """Return the version that a part leads to."""
    versions = [change.version for change in history.changes if _of_change(change) == part]
    versions += [snapshot.version for snapshot in history.snapshots if _of_snapshot(snapshot) == part]
    return max(versions)


def _by_file(
    history: Mapping[TaskId, History],
    kinds: Mapping[Part, str],
    wrong: Mapping[Part, str],
    lost: Collection[TaskId],
) -> list[Damage]:
    found: dict[tuple[str, str], Damage] = {}
    holders: dict[Part, list[TaskId]] = {}
    for task, one in sorted(history.items()):
        for part in _parts(one).intersection(wrong):
            holders.setdefault(part, []).append(task)
    causes: dict[tuple[str, str], set[str]] = {}
    for part, what in wrong.items():
        causes.setdefault((part.file, kinds[part]), set()).add(what)
    for part, what in wrong.items():
        tasks = holders.get(part, [])
        file, kind = part.file, kinds[part]
        more = len(causes[file, kind]) - 1
        others = f" ({count(more, 'more part')} of the file as well)" if more else ""
        before = found.get((file, kind), Damage(file, kind, what + others))
        found[file, kind] = before._replace(
            tasks=tuple(dict.fromkeys([*before.tasks, *map(str, tasks)])),
            lost=tuple(dict.fromkeys([*before.lost, *(str(task) for task in tasks if task in lost)])),
        )
    return [found[key] for key in sorted(found)]


def start_of(history: History, wrong: Mapping[Part, str]) -> int | None:
    """Return from which version on a task's state can be made; None if it cannot.

    It is that of the newest snapshot that is whole, with whole changes since; -1 for nothing but changes.
    """
    starts = [s.version for s in history.snapshots if _of_snapshot(s) not in wrong]
    if is_whole(history):
        starts.append(-1)
    return max(
        (
            start
            for start in starts
            if all(_of_change(c) not in wrong for c in history.changes if c.version > start and c.file)
        ),
        default=None,
    )


def _parts(history: History) -> frozenset[Part]:
    return frozenset(
        [
            *(_of_change(change) for change in history.changes),
            *map(_of_snapshot, history.snapshots),
        ]
    )
