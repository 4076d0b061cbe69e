"""A disk that forgets: what was not synced is gone after a crash of the host."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    """A disk that forgets: it keeps what was synced, and nothing else. POSIX promises no more.

    A file keeps what was in it at its last sync, if nothing was written since. A directory keeps the names that it had
    at its last sync, so that a file that was renamed since is gone.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._contents: dict[tuple[int, int], tuple[int, int]] = {}
        self._names: dict[tuple[int, int], dict[str, int]] = {}
        self._held: list[int] = []
        self.watching = True
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._sync)

    def _sync(self, handle: int) -> None:
        if not self.watching:
            return
        found = os.fstat(handle)
        inode = (found.st_dev, found.st_ino)
        if inode not in self._contents and inode not in self._names:
            self._held.append(os.dup(handle))  # while it is held, nothing else gets its inode
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(handle) as entries:
                self._names[inode] = {entry.name: entry.inode() for entry in entries}
        else:
            self._contents[inode] = found.st_size, found.st_mtime_ns

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        self.watching = False
        try:
            yield
        finally:
            self.watching = True

    def cut(self, folder: Path, into: Path, luck: Path | None = None) -> None:
        """Copy to `into` what of a folder is left when the power is cut; also `luck`, which need not be, but may."""
        found = folder.stat()
        names = self._names.get((found.st_dev, found.st_ino), {})
        into.mkdir()
        for path in folder.iterdir():
            status = path.stat()
            lucky = luck is not None and (path == luck or path in luck.parents)
            if names.get(path.name) != status.st_ino and not lucky:
                continue
            if path.is_dir():
                self.cut(path, into / path.name, luck)
            elif self._contents.get((status.st_dev, status.st_ino)) == (status.st_size, status.st_mtime_ns):
                shutil.copy(path, into / path.name)
            else:
                (into / path.name).touch()

    def close(self) -> None:
        for handle in self._held:
            os.close(handle)
