"""A disk that loses everything that was not synced when the host crashes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    """A disk that keeps only what was synced, as POSIX promises.

    A file keeps its content of its last sync. What was appended since is lost; if anything else was written since, all
    is. A directory keeps its names of its last sync, so a file that was renamed since is lost.
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
            self._held.append(os.dup(handle))  # an open handle keeps the inode from being reused
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
        """Copy what remains of a folder after a power cut to `into`. `luck`: an unsynced path that remains."""
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
            else:
                size, at = self._contents.get((status.st_dev, status.st_ino), (0, 0))
                kept = size if size < status.st_size or at == status.st_mtime_ns else 0
                (into / path.name).write_bytes(path.read_bytes()[:kept])

    def close(self) -> None:
        for handle in self._held:
            os.close(handle)
