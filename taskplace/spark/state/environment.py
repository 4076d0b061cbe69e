"""The LMDB environment of a copy: its files, its metadata, and those that a worker keeps open.

An environment is opened only if its file is complete. The map grows by doubling. The file is made as long as the map,
so that a cut file is detected. The added part is a hole and takes no space. A reader that was killed leaves its slot in
LMDB's table of readers, and LMDB cannot reuse the pages that it read. Opening the environment clears such slots.

The metadata of a copy is one record, written with every transaction that changes the copy.

A worker keeps environments open between its attempts and follow jobs (`WARM`), because opening one costs as much as its
work. One is used again only while its path still leads to its data file and to its lock file: a copy that was discarded
and made again has other files, and processes with different lock files do not see each other. An environment is closed
after any error, when its copy is removed, and when others were used more recently. After a minute without tasks, Spark
ends the worker with all of them. LMDB must not open one file twice in a process, so everybody in a worker who opens a
copy asks `WARM` first. Not thread-safe: a worker has one thread that opens copies.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeAlias

import lmdb
import psutil
from msgspec import structs

from taskplace.spark.checkpoint.files import private_directory
from taskplace.spark.messages import FORMAT, Meta
from taskplace.spark.state.keys import DamagedEntry, checked, verified

MAX_STORES = 64
#: The database of the metadata and the undo record, and their keys.
META, POSITION, UNDO = b"meta", b"position", b"undo"

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
#: The most environments that a process keeps open. Each takes a part of the address space and three file descriptors.
#: An executor's bins take turns on its workers, so a worker sees all its copies; with fewer, it would open most anew.
ENVIRONMENTS_LIMIT = 1024
#: At most this part of the file descriptors that a process may have.
DESCRIPTORS_SHARE = 1 / 8


@cache
def boot_id() -> str:
    """Return the id of the host's current boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"boot-{int(psutil.boot_time())}"


def encode_meta(meta: Meta) -> bytes:
    """Return the record with the current boot and format, and its checksum."""
    return checked(POSITION, structs.replace(meta, boot=boot_id(), format=FORMAT).encode())


def decode_meta(raw: bytes) -> Meta | None:
    """Return a copy's metadata; None if the record is damaged, or is of another boot or another format."""
    try:
        meta = Meta.decode(verified(POSITION, raw))
    except (DamagedEntry, ValueError):
        return None
    return meta if meta.boot == boot_id() and meta.format == FORMAT else None


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


class ReadOnly:
    """An environment that is opened to read a copy once, with some of its databases. Use as a context manager."""

    def __init__(self, path: Path, names: Iterable[bytes]) -> None:
        """Errors: `lmdb.NotFoundError` for a missing database; `lmdb.CorruptedError` for a file that was cut."""
        self.path = path
        self._lmdb = lmdb.open(str(path), readonly=True, max_dbs=MAX_STORES + 1)
        try:
            check_length(self._lmdb, path / DATA)
            self._lmdb.reader_check()  # clears the slots of readers that were killed
            self.databases = {name: self._lmdb.open_db(name, create=False) for name in names}
        except BaseException:
            self._lmdb.close()
            raise

    def __enter__(self) -> ReadOnly:
        return self

    def __exit__(self, *_: object) -> None:
        self._lmdb.close()

    def begin(self, *, write: bool = False) -> Txn:
        """Begin a transaction."""
        return self._lmdb.begin(write=write)


def _id(status: os.stat_result) -> FileId:
    return status.st_dev, status.st_ino


def _id_at(path: Path) -> FileId | None:
    """Return the file that is at a path now; None for a missing one."""
    try:
        return _id(path.stat())
    except OSError:
        return None


def check_length(env: lmdb.Environment, file: Path) -> None:
    """Raise `lmdb.CorruptedError` for a file that was cut.

    The missing part would be mapped anyway, and a process that reads it is killed by SIGBUS.
    """
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if file.stat().st_size < needed:  # read the size last: another process may be growing the file
        raise lmdb.CorruptedError(f"{file}: the file is shorter than its contents")


class Warm:
    """The environments that a process keeps open: at most `most`, by path; those used last are kept."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self._kept: OrderedDict[Path, Environment] = OrderedDict()
        self._paths: dict[FileId, Path] = {}  # by data file, of those that are kept

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, path: Path) -> bool:
        """Return whether an environment is kept open for a path; the files there may be others by now."""
        return path in self._kept

    def take(self, path: Path, names: Iterable[bytes]) -> Environment:
        """Return the open environment of a copy, or open it. Errors: as `Environment`."""
        names = tuple(names)
        environment = self._checked(path)
        if environment is not None and environment.databases.keys() >= set(names):
            return environment
        if environment is not None:
            environment.close()  # the topology has another store now
        return Environment(path, names)

    def give_back(self, environment: Environment) -> None:
        """Keep an environment open for its next use. No transaction may be open."""
        if not self.most:
            environment.close()
            return
        self._kept[environment.path] = environment
        self._paths[environment.file_id] = environment.path
        while len(self._kept) > self.most:
            self._removed(next(iter(self._kept))).close()

    @contextmanager
    def borrow(self, path: Path) -> Iterator[Environment | None]:
        """Yield the open environment of a copy, or None if it is not open. An error closes it."""
        environment = self._checked(path)
        if environment is None:
            yield None
            return
        try:
            yield environment
        except BaseException:
            environment.close()
            raise
        self.give_back(environment)

    def drop(self, path: Path) -> None:
        """Close the environment of a copy, if it is open."""
        environment = self._taken(path)
        if environment is not None:
            environment.close()

    def tidy(self) -> None:
        """Close the environments of removed copies. This frees their disk space."""
        for path, environment in list(self._kept.items()):
            if not environment.file().st_nlink:
                self._removed(path).close()

    def clear(self) -> None:
        """Close all environments."""
        while self._kept:
            self._removed(next(iter(self._kept))).close()

    def _removed(self, path: Path) -> Environment:
        """Take the environment of a path out, still open."""
        environment = self._kept.pop(path)
        if self._paths.get(environment.file_id) == path:
            del self._paths[environment.file_id]
        return environment

    def _checked(self, path: Path) -> Environment | None:
        """Take out the environment of a copy, and check its file. Errors: `lmdb.CorruptedError`; it is closed then."""
        environment = self._taken(path)
        if environment is not None:
            try:
                environment.check()
            except BaseException:
                environment.close()
                raise
        return environment

    def _taken(self, path: Path) -> Environment | None:
        """Take out the environment of a copy; None if no open environment has the files that are at `path` now.

        LMDB refuses to open a path or a file a second time. So an environment at `path` with another data file or lock
        file is closed, and one with this data file at another path, because its directory was renamed.
        """
        if not self._kept:
            return None
        data, lock = _id_at(path / DATA), _id_at(path / LOCK)
        if path in self._kept:
            kept = self._removed(path)
            if (kept.file_id, kept.lock_id) == (data, lock):
                return kept
            kept.close()
        if data is not None and (renamed := self._paths.get(data)) is not None:
            self._removed(renamed).close()
        return None


#: The environments of this process. It keeps none before `keep_environments`.
WARM = Warm()


def keep_environments() -> None:
    """Let this process keep environments open, and close those of removed copies. Workers of Spark call it."""
    if not WARM.most:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        WARM.most = (
            ENVIRONMENTS_LIMIT
            if descriptors == resource.RLIM_INFINITY
            else min(ENVIRONMENTS_LIMIT, int(descriptors * DESCRIPTORS_SHARE))
        )
    WARM.tidy()


# LMDB's environments must not be used behind a fork: neither by the child, nor opened there a second time.
os.register_at_fork(before=WARM.clear)
