"""The LMDB environment of a copy: it is opened only if its file is complete, and its map grows.

The map grows by doubling. The file is made as long as the map, so that a cut file is detected. The added part is a
hole and takes no space.

A reader that was killed leaves its slot in LMDB's table of readers, and LMDB cannot reuse the pages that it read.
Opening the environment clears such slots.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import lmdb

from taskplace.spark.checkpoint.files import private_directory
from taskplace.spark.state.environment import MAX_STORES
from taskplace.spark.state.keys import DamagedEntry

INITIAL_MAP = 64 << 20
DATA, LOCK = "data.mdb", "lock.mdb"
#: Both of LMDB's first pages begin with these bytes, behind a header.
MAGIC, PAGE_HEADER = (0xBEEFC0DE).to_bytes(4, sys.byteorder), 16

Txn: TypeAlias = "lmdb.Transaction[bytes]"
#: The device and the inode of a file.
FileId: TypeAlias = tuple[int, int]

#: Errors that mean that a file is damaged, or that another version of LMDB has made it.
DAMAGED = (
    DamagedEntry,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
)


class Environment:
    """An open environment, and its databases by name.

    LMDB does not sync here: the data survives a killed process, not a crashed host.
    Errors: one of `DAMAGED` for an incomplete file.
    """

    def __init__(self, path: Path, names: Iterable[bytes]) -> None:
        self.path = path
        private_directory(path)
        file = path / DATA
        size = INITIAL_MAP
        while file.exists() and size < file.stat().st_size:
            size *= 2
        self.lmdb = lmdb.open(
            str(path),
            map_size=size,
            max_dbs=MAX_STORES + 1,
            sync=False,
            metasync=False,
            mode=0o600,
            max_spare_txns=1,
        )
        self.databases: dict[bytes, lmdb._Database] = {}
        self._handle, self._length = -1, 0
        try:
            self._handle = os.open(file, os.O_RDWR)
            #: The open data file, and LMDB's lock file beside it.
            self.file_id, self.lock_id = _id(self.file()), _id((path / LOCK).stat())
            self._magic_at = (PAGE_HEADER, self.lmdb.stat()["psize"] + PAGE_HEADER)
            self.check()
            self.lengthen()
            with self.begin(write=True) as txn:
                for name in names:
                    self.databases[name] = self.lmdb.open_db(name, txn=txn)
        except BaseException:
            self.close()
            raise

    def begin(self, *, write: bool = False) -> Txn:
        """Begin a transaction on the current map."""
        try:
            return self.lmdb.begin(write=write)
        except lmdb.MapResizedError:  # another process has grown the map, maybe while this one waited
            self.lmdb.set_mapsize(0)
            return self.lmdb.begin(write=write)

    def grow(self) -> None:
        """Double the map; no transaction may be open."""
        self.lmdb.set_mapsize(2 * self.lmdb.info()["map_size"])
        self.lengthen()

    def lengthen(self) -> None:
        """Make the file as long as the map. The added part is a hole: it takes no space."""
        size = self.lmdb.info()["map_size"]
        # This never shortens the file, even if another process has made it longer meanwhile.
        os.posix_fallocate(self._handle, size - 1, 1)
        self._length = size

    def check(self) -> None:
        """Raise `lmdb.CorruptedError` if the file was cut or overwritten, and clear the slots of killed readers."""
        # The file is asked first, because reading a map of a cut file would kill the process.
        if self.file().st_size < self._length:
            raise lmdb.CorruptedError(f"{self.path / DATA}: the file was cut")
        if any(os.pread(self._handle, len(MAGIC), at) != MAGIC for at in self._magic_at):
            raise lmdb.CorruptedError(f"{self.path / DATA}: the file was overwritten")
        check_length(self.lmdb, self.path / DATA)
        self.lmdb.reader_check()

    def file(self) -> os.stat_result:
        """Return the status of the open file, which may have been removed."""
        return os.fstat(self._handle)

    def close(self) -> None:
        """Close the environment; no transaction may be open. Closing it again does nothing."""
        self.lmdb.close()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _id(status: os.stat_result) -> FileId:
    return status.st_dev, status.st_ino


def file_ids(path: Path) -> tuple[FileId | None, FileId | None]:
    """Return the data file and the lock file that are in a copy's directory now; None for a missing one."""
    found: list[FileId | None] = []
    for name in (DATA, LOCK):
        try:
            found.append(_id((path / name).stat()))
        except OSError:
            found.append(None)
    return found[0], found[1]


def check_length(env: lmdb.Environment, file: Path) -> None:
    """Raise `lmdb.CorruptedError` for a file that was cut.

    The missing part would be mapped anyway, and a process that reads it is killed by SIGBUS.
    """
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if file.stat().st_size < needed:  # read the size last: another process may be growing the file
        raise lmdb.CorruptedError(f"{file}: the file is shorter than its contents")
