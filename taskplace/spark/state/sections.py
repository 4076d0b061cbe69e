"""Files with sections: parts that are written one after the other, and named by file, offset and length.

One file for many small parts costs a fraction of one file for each: to create, to sync, to list and to remove. Whoever
names a section also keeps its checksum. What no message and no manifest names is never read: the part of a writer that
was killed, or of an attempt that lost, stays in the file until the whole file is removed.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.files import NEW, open_file, sync_directory
from taskplace.spark.codec import checksum_of, open_regular

#: A section up to this size is read at once; a larger one in parts, so that it takes the memory of a part.
READ_AT_ONCE = 1 << 20
_PART = 1 << 20


class SectionFile:
    """A new file to which this process appends sections. The first section creates it.

    - `name`: relative to the directory `root`
    - `size`: the bytes of its sections
    - `failed`: whether an error has left it in an unknown state; then append nothing more

    Threads may share it. Sections survive a killed process at once, and a crash of the host after `sync`. The file is
    closed with the object.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.name, self.path = name, root / name
        self.size = 0
        self.failed = False
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._directories: list[Path] = []

    def append(self, data: bytes | pa.Buffer) -> int:
        """Append a section and return the offset of its first byte. Makes the file's directory if it is missing.

        Errors: `OSError`, for example `FileExistsError` if another process has made the file.
        """
        with self._lock:
            start, view = self.size, memoryview(data)
            try:
                handle = self._opened()
                while view:
                    written = os.write(handle, view)
                    view, self.size = view[written:], self.size + written
            except BaseException:
                self.failed = True
                raise
        return start

    def sync(self) -> None:
        """Make the sections survive a crash of the host. Errors: `OSError`; then no new section may be used."""
        with self._lock:
            if self._handle is None:
                return
            try:
                os.fsync(self._handle)
                while self._directories:
                    sync_directory(self._directories[-1])
                    self._directories.pop()
            except BaseException:
                self.failed = True
                raise

    def flush(self) -> None:
        """Make the sections visible to other hosts: a network file system sends them when a handle is closed."""
        with self._lock:
            if self._handle is not None:
                os.close(os.dup(self._handle))

    def usable(self) -> bool:
        """Return whether sections may be appended: after no error, and if the path still leads to this file."""
        if self.failed:
            return False
        if self._handle is None:
            return True
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._handle))
        except FileNotFoundError:
            return False

    def _opened(self) -> int:
        if self._handle is None:
            self._handle, self._directories = open_file(self.path, NEW)
            weakref.finalize(self, os.close, self._handle)
        return self._handle


def open_section(path: Path, start: int, size: int, checksum: str) -> pa.NativeFile:
    """Open a section for reading, after a check of all its bytes.

    Errors: `CheckpointError` if the file is missing or too short, or the section was changed.
    """
    try:
        handle = open_regular(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: the file is missing; a manifest names {size} bytes of it") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None
    section = _Section(handle, start, size)
    try:
        length = os.fstat(handle).st_size
        if length < start + size:
            raise CheckpointError(
                f"{path}: found {length} bytes, the manifest names the bytes {start} to {start + size}"
            )
        if size <= READ_AT_ONCE:
            data = section.read()
            actual = checksum_of(data)
        else:
            actual = section.checksum()
        if actual != checksum:
            raise CheckpointError(
                f"{path}: found checksum {actual} of the bytes {start} to {start + size}, the manifest says {checksum}"
            )
    except BaseException:
        section.close()
        raise
    if size <= READ_AT_ONCE:
        section.close()
        return pa.BufferReader(data)
    section.seek(0)
    return pa.PythonFile(section, mode="r")


class _Section(io.RawIOBase):
    """The bytes of one section, as a file of its own."""

    def __init__(self, handle: int, start: int, size: int) -> None:
        self._handle, self._start, self._size, self._at = handle, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def size(self) -> int:
        return self._size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self._size - self._at))
        got = os.preadv(self._handle, [view[:wanted]], self._start + self._at)
        self._at += got
        return got

    def checksum(self) -> str:
        """Return the checksum of all its bytes; reads them in parts."""
        digest = hashlib.blake2b(digest_size=16)
        while part := self.read(_PART):
            digest.update(part)
        return digest.hexdigest()

    def close(self) -> None:
        if not self.closed:
            os.close(self._handle)
        super().close()
