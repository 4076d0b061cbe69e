"""What is committed of one task's state: a chain of changes, snapshots at points of it, positions in it."""

from __future__ import annotations

from taskplace.spark.messages.base import Message


class Position(Message, frozen=True, array_like=True):
    """A point of a task's history: the batch that made it, the attempt that did, records applied in all."""

    version: int = -1
    attempt: str = ""
    offset: int = 0


#: Where every task begins, before its first change.
EMPTY = Position()


class Change(Message, frozen=True):
    """One committed step: the records that lead from `base` (an attempt) to this position.

    `file` is relative to the checkpoint; empty when a batch changed only stores that are not logged.
    """

    version: int
    attempt: str
    base: str
    offset: int
    records: int
    file: str = ""
    size: int = 0
    checksum: str = ""

    @property
    def position(self) -> Position:
        """The point that this change leads to."""
        return Position(self.version, self.attempt, self.offset)


class Snapshot(Message, frozen=True):
    """The whole state at one committed position, in one file."""

    version: int
    attempt: str
    offset: int
    records: int
    file: str
    size: int
    checksum: str

    @property
    def position(self) -> Position:
        """The point that this snapshot holds."""
        return Position(self.version, self.attempt, self.offset)


class History(Message, frozen=True):
    """The committed changes of one task, oldest first, and its snapshots; `changes` may begin at a snapshot."""

    changes: tuple[Change, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()

    @property
    def end(self) -> Position:
        """The last committed position."""
        if self.changes:
            return self.changes[-1].position
        return self.snapshots[-1].position if self.snapshots else EMPTY
