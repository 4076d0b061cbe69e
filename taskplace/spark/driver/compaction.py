"""Moves the last needed sections out of old changelog segments, so that the segments can be removed.

**Idea.** A segment has the changes of many tasks. A task that seldom changes needs its section for a long time, and the
whole segment with it. So a driver that writes a full manifest copies such sections into one new segment; the full
manifest has all histories anyway, so it can say where the sections are now. Each section keeps its bytes and its
checksum. The old segment stays until no running visit reads it (`taskplace.spark.driver.pruning`).

Cost: a section moves only when most of its segment is not needed any more, and a pass moves at most `BYTES_LIMIT`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from taskplace.errors import CheckpointError
from taskplace.spark.messages import Change, History, segment_file
from taskplace.spark.state.sections import SectionFile, open_section
from topology import TaskId

log = logging.getLogger(__name__)

#: The part of a segment that may be needed when its sections move.
MOST_NEEDED = 0.25
#: The most bytes to move at once. The sections are copied one by one.
BYTES_LIMIT = 32 << 20


def compacted(
    root: Path, histories: Mapping[TaskId, History], batch: int, epoch: int
) -> dict[TaskId, History]:
    """Return the histories, with the sections of mostly unneeded segments in a new one, which is synced.

    `batch`: the one that is about to be committed. Segments that may still grow are left alone.
    A damaged section stays where it is, and so do the others of its segment. Errors: `OSError` of the new segment.
    O(changes), and O(bytes) that move.
    """
    into = SectionFile(root, segment_file(batch, epoch, uuid.uuid4().hex))
    moved: dict[tuple[str, int], tuple[str, int]] = {}
    for name, sections in _mostly_unneeded(root, histories, batch):
        try:
            moved |= {(name, part.start): (into.name, into.append(_read(root, part))) for part in sections}
        except CheckpointError as error:
            log.warning("the changelog segment stays because of a damaged section: %s", error)
    if not moved:
        return dict(histories)
    into.sync()
    return {
        task: replace(history, changes=tuple(_moved(change, moved) for change in history.changes))
        for task, history in histories.items()
    }


def _mostly_unneeded(
    root: Path, histories: Mapping[TaskId, History], batch: int
) -> list[tuple[str, list[Change]]]:
    """Return the segments to empty, with their needed sections; the smallest rest first, up to `BYTES_LIMIT`."""
    needed: dict[str, list[Change]] = {}
    for history in histories.values():
        for change in history.changes:
            if change.file.endswith(".segment") and int(Path(change.file).name.split("-")[0]) < batch:
                needed.setdefault(change.file, []).append(change)
    found = []
    for name, sections in needed.items():
        size = sum(part.size for part in sections)
        try:
            if size <= MOST_NEEDED * (root / name).stat().st_size:
                found.append((size, name, sections))
        except FileNotFoundError:
            continue  # an attempt or a visit that needs it will say so
    chosen, left = [], BYTES_LIMIT
    for size, name, sections in sorted(found, key=lambda one: one[:2]):
        if size > left:
            break
        chosen.append((name, sections))
        left -= size
    return chosen


def _read(root: Path, change: Change) -> bytes:
    with open_section(root / change.file, change.start, change.size, change.checksum) as section:
        return bytes(section.read())


def _moved(change: Change, moved: Mapping[tuple[str, int], tuple[str, int]]) -> Change:
    if (place := moved.get((change.file, change.start))) is None:
        return change
    return replace(change, file=place[0], start=place[1])
