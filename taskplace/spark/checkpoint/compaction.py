"""Moves the last needed sections out of old changelog segments, so that the segments can be removed.

**Idea.** A segment has the changes of many tasks. A task that seldom changes needs its section for a long time, and the
whole segment with it. So a driver that writes a full manifest copies such sections into one new segment; the full
manifest has all histories anyway, so it can say where the sections are now. Each section keeps its bytes and its
checksum. The old segment stays until no running follow job reads it (`taskplace.spark.checkpoint.pruning`).

Properties:
- A section moves only when most of its segment is not needed any more. A pass moves about `BYTES_LIMIT`.
- It is never needed for a commit: after any error of the disk, everything stays where it is, and a warning is logged.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from taskplace.errors import CheckpointError
from taskplace.logs import RepeatedWarnings
from taskplace.spark.checkpoint.files import SectionFile, open_section
from taskplace.spark.messages import Change, History, segment_file
from topology import TaskId

log = logging.getLogger(__name__)

#: By path: each pass finds the same files again.
_REPEATED = RepeatedWarnings()

#: The part of a segment that may be needed when its sections move.
MOST_NEEDED = 0.25
#: After so many bytes, a pass moves no more segments.
BYTES_LIMIT = 32 << 20
#: Fewer unneeded bytes in segments are not worth a full manifest before its time.
UNNEEDED_LIMIT = 256 << 20
_PART = 1 << 20

#: By segment: the changes whose sections are needed.
Needed = Mapping[str, Sequence[Change]]
Place = tuple[str, int]


def compacted(
    root: Path, histories: Mapping[TaskId, History], batch: int, epoch: int
) -> dict[TaskId, History]:
    """Return the histories, with the sections of mostly unneeded segments in a new one, which is synced.

    `batch`: the one that is about to be committed. Segments that may still grow are left alone, and so are segments
    with a damaged section. O(changes), and O(bytes) that move.
    """
    into = SectionFile(root, segment_file(batch, epoch, uuid.uuid4().hex))
    moved: dict[Place, Place] = {}
    try:
        for name, sections in _mostly_unneeded(root, histories, batch):
            if _readable(root, sections):
                moved |= {(name, part.start): (into.name, _copy(root, part, into)) for part in sections}
        into.sync()
    except (OSError, CheckpointError) as error:
        _warn(root, "the sections of old changelog segments stay where they are: %s", error)
        with suppress(OSError):
            into.path.unlink(missing_ok=True)
        return dict(histories)

    def now(change: Change) -> Change:
        file, start = moved.get((change.file, change.start), (change.file, change.start))
        return change if file == change.file else replace(change, file=file, start=start)

    return {
        task: replace(history, changes=tuple(map(now, history.changes)))
        for task, history in histories.items()
    }


def wasteful(root: Path, histories: Mapping[TaskId, History], batch: int) -> bool:
    """Return whether `compacted` would free many bytes at `batch`, and more than are needed in all segments.

    Segments that it leaves alone do not count. Else they would call for one pass after another that frees nothing.
    """
    needed = unneeded = 0
    for name, sections in _needed(histories).items():
        size = sum(part.size for part in sections)
        needed += size
        with suppress(OSError):
            unneeded += _freed(root, name, size, batch)
    return unneeded > max(UNNEEDED_LIMIT, needed)


def _needed(histories: Mapping[TaskId, History]) -> dict[str, list[Change]]:
    needed: dict[str, list[Change]] = {}
    for history in histories.values():
        for change in history.changes:
            if change.file:
                needed.setdefault(change.file, []).append(change)
    return needed


def _freed(root: Path, name: str, needed: int, batch: int) -> int:
    """Return how many bytes go if the needed ones of a segment move; 0 if it stays. Errors: `OSError`."""
    if int(Path(name).name.split("-")[0]) >= batch:
        return 0  # it may still grow
    size = (root / name).stat().st_size
    return size - needed if needed <= MOST_NEEDED * size else 0


def _mostly_unneeded(
    root: Path, histories: Mapping[TaskId, History], batch: int
) -> Iterator[tuple[str, Sequence[Change]]]:
    """Yield the segments to empty, with their needed sections: the smallest rest first."""
    found = []
    for name, sections in _needed(histories).items():
        size = sum(part.size for part in sections)
        try:
            if _freed(root, name, size, batch):
                found.append((size, name, sections))
        except OSError as error:  # whoever needs the segment will say more
            _warn(root / name, "the changelog segment cannot be emptied: %s", error)
    moved = 0
    for size, name, sections in sorted(found, key=lambda one: one[:2]):
        if moved >= BYTES_LIMIT:
            return
        moved += size
        yield name, sections


def _warn(path: Path, text: str, error: Exception) -> None:
    """Log a warning about a file, at growing intervals. `text` has a %s for the error."""
    _REPEATED.warn(log, text, error, key=path, kind=type(error), stacklevel=3)


def _readable(root: Path, sections: Sequence[Change]) -> bool:
    """Return whether all sections are there and whole. If not, log the error."""
    try:
        for part in sections:
            _open(root, part).close()
    except (OSError, CheckpointError) as error:
        segment = root / sections[0].file
        _warn(segment, "the changelog segment stays because of an unreadable section: %s", error)
        return False
    return True


def _open(root: Path, change: Change) -> pa.NativeFile:
    return open_section(root / change.file, change.start, change.size, change.checksum)


def _copy(root: Path, change: Change, into: SectionFile) -> int:
    """Append a section to another file, and return its offset there. Takes the memory of a part of it."""
    start = into.size
    with _open(root, change) as section:
        while data := section.read(_PART):
            into.append(data)
    return start
