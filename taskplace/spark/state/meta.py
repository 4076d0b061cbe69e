"""What a copy knows of itself: one record in its environment, written with every transaction that changes the copy."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

import psutil

from taskplace.spark.state.history import EMPTY, Position

FORMAT = 3
MAX_STORES = 64
#: The database that has it and the undo record, and their keys there.
META, POSITION, UNDO = b"meta", b"position", b"undo"


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """Whose work this is: the driver's epoch, the batch, the generation. A copy takes no older one than it has seen."""

    epoch: int = 0
    batch: int = -1
    generation: int = 0


@cache
def boot_id() -> str:
    """Return what tells one boot of this host from another."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"boot-{int(psutil.boot_time())}"


@dataclass(frozen=True, slots=True)
class Meta:
    """Where a copy is, and how it got there.

    - `at`: its position, its last attempt included; `undo`: where its undo record leads, None without one
    - `skipped`: stores whose records were passed over, because the topology did not have them
    - `restoring`: which snapshot (attempt and checksum), and how many pieces of it have been loaded; `at` is EMPTY then
    """

    at: Position = EMPTY
    undo: Position | None = None
    fence: Fence = Fence()
    skipped: tuple[str, ...] = ()
    restoring: tuple[str, int] | None = None

    def encode(self) -> bytes:
        """Return the record, which also names this boot of the host: no copy is used after another one."""
        return json.dumps(
            {
                "at": astuple(self.at),
                "undo": self.undo and astuple(self.undo),
                "fence": astuple(self.fence),
                "skipped": self.skipped,
                "restoring": self.restoring,
                "boot": boot_id(),
                "format": FORMAT,
            }
        ).encode()

    @classmethod
    def decode(cls, raw: bytes) -> Meta | None:
        """Return what `encode` wrote; None if it is of another boot or another format."""
        try:
            found = json.loads(raw)
            if found["format"] != FORMAT or found["boot"] != boot_id():
                return None
            return cls(
                Position(*found["at"]),
                None if found["undo"] is None else Position(*found["undo"]),
                Fence(*found["fence"]),
                tuple(found["skipped"]),
                None if found["restoring"] is None else (found["restoring"][0], found["restoring"][1]),
            )
        except (ValueError, KeyError, TypeError, IndexError):
            return None

    @property
    def certain(self) -> Position:
        """The position without an uncommitted last batch: of what is sure is where its undo record leads."""
        return self.undo if self.undo is not None else self.at
