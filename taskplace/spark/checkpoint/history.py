"""The committed history of one task's state, and the steps that bring a copy to its end.

A task's history is a chain: each `Change` names the attempt that made it and the attempt that it was made
*from*. A copy stores its `Position` in that chain. `next_step` compares the two and returns the next step. This pure
function is the whole of recovery:

- READY      the copy is at the target;
- ROLL_BACK  its last batch is not part of history (its attempt lost, or its driver died before the
             commit), and its undo record leads back into history;
- REPLAY     it is at an earlier point of history: apply the next change;
- RESTORE    anything else, or replaying would cost more than starting from a snapshot: wipe, load the
             newest snapshot, and go on from there.

Only attempts are compared, never version numbers alone: two attempts at one version are different states.

With each batch the histories go on (`continued`), and snapshots that are kept shorten them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.manifests import SNAPSHOTS_KEPT, trimmed
from taskplace.spark.messages import EMPTY, Change, History, Position, Snapshot
from topology import TaskId


class NoWay(CheckpointError):
    """The remaining files of a history do not lead to its end."""


class Action(enum.Enum):
    """The next action of a copy."""

    READY = "ready"
    ROLL_BACK = "roll back"
    REPLAY = "replay"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Step:
    """An action with its input: the change to replay, or the snapshot to load (None: start empty).

    `unknown`: the copy is restored because its position is not in the history. If false, the restore was chosen
    because it is cheaper.
    """

    action: Action
    change: Change | None = None
    snapshot: Snapshot | None = None
    unknown: bool = False


def next_step(at: Position, undo: Position | None, history: History) -> Step:
    """Return the next step of a copy at `at`, whose undo record leads to `undo`, towards `history.end`.

    Repeating it reaches READY after at most 2 + len(history.changes) steps: after a roll-back or a restore
    the copy is in history, and each replay moves one change on. O(len(history.changes)).
    Errors: `NoWay` if a restore is needed and there is neither a snapshot nor the first change.
    """
    target = history.end
    if at.attempt == target.attempt:
        return Step(Action.READY)
    pending = _after(at, history.changes)
    if pending is not None:
        shortcut = _cheaper_snapshot(pending, history.snapshots)
        return Step(Action.RESTORE, snapshot=shortcut) if shortcut else Step(Action.REPLAY, change=pending[0])
    if undo is not None and (undo.attempt == target.attempt or _after(undo, history.changes) is not None):
        return Step(Action.ROLL_BACK)
    return _restore(history)


def records_to_read(at: Position, history: History, end: int) -> int:
    """Return how many records a copy at `at` has to read to be at the offset `end` of its history: its lag.

    These are the records behind its position, as long as the history has all of them. A history that was trimmed beyond
    the position does not: then they are the newest snapshot's, and those behind that. O(changes).
    """
    snapshots = () if is_whole(history) else _beginnings(history)
    if not snapshots or at.version >= snapshots[0].version:
        return max(end - at.offset, 0)
    newest = snapshots[-1]
    return min(newest.records + max(end - newest.offset, 0), end)


def without(history: History, damaged: Change | Snapshot) -> History | None:
    """Return a history with the same end that does not need a damaged file; None if that is impossible.

    Snapshots that cover a damaged change replace it; an older snapshot and the changes since replace a damaged one.
    """
    if isinstance(damaged, Snapshot):
        around = History(history.changes, tuple(s for s in history.snapshots if s != damaged))
    else:
        first, end = damaged.version, history.end
        covering = tuple(
            s for s in history.snapshots if first <= s.version < end.version or s.position == end
        )
        oldest = min((s.version for s in covering), default=end.version)
        around = History(tuple(c for c in history.changes if c.version > oldest), covering)
    return around if around.end == history.end else None


def _after(at: Position, changes: Sequence[Change]) -> Sequence[Change] | None:
    """Return the changes that follow `at`; None when `at` is not a point of this chain before its end."""
    for i, change in enumerate(changes):
        if change.base == at.attempt:
            return changes[i:]
    return None


def _cheaper_snapshot(pending: Sequence[Change], snapshots: Sequence[Snapshot]) -> Snapshot | None:
    behind = sum(change.records for change in pending)
    ahead = {change.attempt for change in pending}
    for snapshot in reversed(snapshots):
        if snapshot.attempt not in ahead:  # there may be no change that continues from there
            continue
        rest = sum(change.records for change in pending if change.version > snapshot.version)
        if snapshot.records + rest < behind:
            return snapshot
    return None


def _beginnings(history: History) -> list[Snapshot]:
    """Return the snapshots that lead to the end of the history, oldest first."""
    starts = {change.base for change in history.changes} | {history.end.attempt}
    return [snapshot for snapshot in history.snapshots if snapshot.attempt in starts]


def is_whole(history: History) -> bool:
    """Return whether the history has all changes since its task began."""
    return history.end == EMPTY or any(change.base == EMPTY.attempt for change in history.changes[:1])


def _restore(history: History) -> Step:
    if snapshots := _beginnings(history):
        return Step(Action.RESTORE, snapshot=snapshots[-1], unknown=True)
    if is_whole(history):
        return Step(Action.RESTORE, unknown=True)
    raise NoWay(
        f"no snapshot leads to version {history.end.version}: the history begins at version "
        f"{history.changes[0].version} and its snapshots are {[s.version for s in history.snapshots]}"
    )


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


def files_of(history: History) -> Iterator[str]:
    """Yield the names of a history's changelogs and snapshots, as its manifest has them."""
    yield from (change.file for change in history.changes)
    yield from (snapshot.file for snapshot in history.snapshots)
