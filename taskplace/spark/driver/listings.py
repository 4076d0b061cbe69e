"""Lists the files of directories that seldom change: each directory again only after it has changed.

**Idea.** A checkpoint has a directory of snapshots for each task, and few of them change in a batch. Asking for a
directory's time of change is cheaper than listing it, most of all on a network.

Properties:
- What is listed is what listing anew would show, as far as a file system keeps times. Two changes within one tick of
  its clock have the same time. So a directory counts as unchanged only if it was listed `SETTLED_SECONDS` after its
  time was first seen. No other clock is compared with that of the file system.
- A directory that goes meanwhile, or may not be read, has no files.

Not thread-safe.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: More than a tick of any file system's clock.
SETTLED_SECONDS = 2.5
_GONE = (FileNotFoundError, NotADirectoryError, PermissionError)


@dataclass(frozen=True)
class Listing:
    """The names in a directory: of its `files`, and of the files of each directory `below` it, by its name."""

    files: Sequence[str] = ()
    below: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Known:
    """A directory as it was listed. `state`: its inode and its time of change; `seen`, `listed`: monotonic times."""

    state: tuple[int, int]
    seen: float
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
            seen = now
            if known is not None and known.state == state:
                if known.listed - known.seen >= SETTLED_SECONDS:
                    return known
                seen = known.seen
            with os.scandir(folder.path) as entries:
                return _Known(state, seen, now, tuple(entry.name for entry in entries))
        except _GONE:
            return None
