"""What lies on an executor's own disk: how far a copy is, and which processes use what."""

from __future__ import annotations

from taskplace.spark.messages.base import Message
from taskplace.spark.messages.histories import EMPTY, Position

#: Of `Meta`: a copy of another one is made anew.
FORMAT = 3


class Fence(Message, frozen=True, order=True, array_like=True):
    """Whose work this is: the driver's epoch, the batch, the generation. A copy takes no older one than it has seen."""

    epoch: int = 0
    batch: int = -1
    generation: int = 0


class Meta(Message, frozen=True):
    """Where a copy is, and how it got there.

    - `at`: its position, its last attempt included; `undo`: where its undo record leads, None without one
    - `skipped`: stores whose records were passed over, because the topology did not have them
    - `restoring`: which snapshot (attempt and checksum), and how many pieces of it have been loaded; `at` is EMPTY then
    - `boot`: of the host, in which it was written: no copy is used after another one
    """

    at: Position = EMPTY
    undo: Position | None = None
    fence: Fence = Fence()
    skipped: tuple[str, ...] = ()
    restoring: tuple[str, int] | None = None
    boot: str = ""
    format: int = FORMAT

    @property
    def certain(self) -> Position:
        """The position without an uncommitted last batch: of what is sure is where its undo record leads."""
        return self.undo if self.undo is not None else self.at


class Owner(Message, frozen=True):
    """A process that cannot be mistaken for a later one with the same id (`taskplace.spark.worker.identity`).

    `started` is counted from the boot where the system says it so: by the wall clock, a process would seem to
    be another one after the clock was set.
    """

    pid: int
    started: float
    boot: str
    namespace: str


class Orphaned(Message, frozen=True):
    """Since when a directory is known to have no owner: seconds of the boot's own clock."""

    boot: str
    since: float


class Opened(Message, frozen=True):
    """Who has a copy open, and how many before it have died of that; it is gone when the copy is closed.

    `called_off`: the file that says that Spark has ended the worker, and not the copy.
    """

    worker: Owner
    executor: Owner
    deaths: int = 0
    called_off: str = ""
