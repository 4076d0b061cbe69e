"""Files of the checkpoint: plain ones, sealed ones, and files with sections; changes and snapshots in them.

A file is written once, under a name with its attempt. The manifest has its seal: its length and checksum (BLAKE2b,
128 bits). Files that no manifest names are never read, so a torn write of a killed process does no harm. The seal is
checked before any data is used, so a damaged file is detected.

A section is a part of a file, named by file, offset, length and checksum. One file for many small parts costs a
fraction of one file for each: to create, to sync, to list and to remove. A part that nobody names, of a writer that was
killed or of an attempt that lost, stays in the file until the whole file is removed.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.codec import checksum_of, open_regular

#: One state change: the store's index in the file's metadata, key, value (null: deleted).
RECORD = pa.schema([("store", pa.uint8()), ("key", pa.binary()), ("value", pa.binary())])
#: The longest string or binary value of Arrow, bytes. A longer key or value could not be written to a file.
LARGEST = 2**31 - 2
#: The most entries, and bytes of keys and values, in a piece of a file; one larger entry is a piece by itself.
ROWS_PER_BATCH = 65_536
BYTES_PER_BATCH = 64 << 20
#: The same for a snapshot: it is written and restored piece by piece, and a piece takes several times as much memory.
SNAPSHOT_BYTES = 8 << 20
#: A part of a file up to this size is read at once; a larger one in parts, so that it takes the memory of a part.
READ_AT_ONCE = 1 << 20
_AT_A_TIME = 1 << 20
SYNC_THREADS = 8
#: Opens a file that must not exist.
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL

# A worker has one core, and its files are many and small. Arrow's thread pool would start as many threads as the
# host has cores in every worker, and handing columns to it takes longer than decompressing them.
READ = pa.ipc.IpcReadOptions(use_threads=False)

#: The changes of one batch: store -> key -> value, None for a deleted key.
Changes = dict[str, dict[bytes, bytes | None]]
#: Keys and their values: they take less time than a tuple for each entry.
Columns = tuple[list[bytes], list[bytes | None]]
Value = TypeVar("Value", bytes, bytes | None)


def write_options(compression: str | None) -> pa.ipc.IpcWriteOptions:
    """Return the options for writing Arrow files of the checkpoint."""
    return pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)


def file_name(name: str) -> str:
    """Return `name` as one path component, with special characters escaped.

    >>> file_name("by-aircraft"), file_name("../etc")
    ('by-aircraft', '..%2Fetc')
    >>> file_name("."), file_name("..")
    ('%2E', '%2E%2E')
    """
    return quote(name, safe="") if name not in (".", "..") else name.replace(".", "%2E")


def private_directory(path: Path) -> list[Path]:
    """Make a directory and its missing parents, for this user alone; return the directories with a new entry.

    Existing directories keep their permissions.
    """
    if path.is_dir():
        return []
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(made):
        folder.mkdir(mode=0o700, exist_ok=True)
    return [folder.parent for folder in made]


def lasting_directory(path: Path) -> None:
    """Make a directory and its missing parents, and sync them, so that they survive a crash of the host.

    A parent that this user cannot read existed before, and is not synced.
    """
    for folder in reversed(list(takewhile(_may_be_new, (path, *path.parents)))):
        folder.mkdir(exist_ok=True)
        with suppress(PermissionError):
            sync_directory(folder.parent)


def _may_be_new(folder: Path) -> bool:
    try:
        return not folder.exists() or not any(folder.iterdir())
    except PermissionError:
        return False


@dataclass(frozen=True, slots=True)
class Sealed:
    """The length, the checksum and the number of records of a written file."""

    size: int
    checksum: str
    records: int


def write_file(path: Path, data: bytes | pa.Buffer, *, sync: bool, mode: int = 0o600) -> None:
    """Write a new file; with `sync` it survives a crash of the host. Makes its directory if it is missing."""
    directories = _write(path, data, sync, mode)
    for directory in directories if sync else ():
        sync_directory(directory)


class Unsynced:
    """New files that are written now and synced together, which costs a fraction of syncing each by itself.

    A file that was not synced survives a killed process, but not a crash of the host. So nothing may count on the files
    before `sync`. Use as a context manager: it closes the files.
    """

    def __init__(self) -> None:
        self._files: list[io.BufferedWriter] = []
        self._directories: dict[Path, None] = {}

    def __len__(self) -> int:
        return len(self._files)

    def __enter__(self) -> Unsynced:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def write(self, path: Path, data: bytes | pa.Buffer, *, mode: int = 0o600) -> None:
        """Write a new file. Makes its directory if it is missing."""
        handle, directories = open_file(path, NEW, mode)
        file = os.fdopen(handle, "wb")
        self._files.append(file)
        self._directories |= dict.fromkeys(directories)
        file.write(memoryview(data))
        file.flush()

    def sync(self, also: Sequence[SectionFile] = ()) -> None:
        """Make the files that were written survive a crash of the host, and the other files in `also`.

        Errors: `OSError`; then none may be used.
        """
        directories = list(self._directories)
        syncs = [partial(os.fsync, file.fileno()) for file in self._files] + [file.sync for file in also]
        try:
            # Threads wait together: the file system writes its journal once for several files.
            if len(syncs) > 1:
                with ThreadPoolExecutor(min(SYNC_THREADS, len(syncs))) as threads:
                    deque(threads.map(lambda sync: sync(), syncs), maxlen=0)
            elif syncs:
                syncs[0]()
            for directory in directories:
                with suppress(FileNotFoundError):  # its batch is over, so nobody needs these files
                    sync_directory(directory)
        finally:
            self._close()

    def _close(self) -> None:
        files, self._files, self._directories = self._files, [], {}
        for file in files:
            file.close()


def _write(path: Path, data: bytes | pa.Buffer, sync: bool, mode: int = 0o600) -> list[Path]:
    """Write a new file and return the directories with a new entry."""
    handle, directories = open_file(path, NEW, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(memoryview(data))
        if sync:
            file.flush()
            os.fsync(file.fileno())
    return directories


def open_file(path: Path, flags: int, mode: int = 0o600) -> tuple[int, list[Path]]:
    """Open a file, and make its directory if it is missing; return the handle and the directories with a new entry.

    The file's own directory counts as such.
    """
    try:
        return os.open(path, flags, mode), [path.parent]
    except FileNotFoundError:
        made = private_directory(path.parent)
        return os.open(path, flags, mode), [path.parent, *made]


def create_exclusively(path: Path, data: bytes) -> None:
    """Create a file with all its bytes at once, unless the name exists; it survives a crash of the host.

    On a network file system the reply to a link may be lost, so that the repeated link finds its own file. The file's
    identity shows that. Its bytes do not, because another driver may have written the same bytes.
    Errors: `FileExistsError`; the existing file stays.
    """
    staging = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    directories = _write(staging, data, sync=True)
    try:
        link(staging, path)
    finally:
        staging.unlink(missing_ok=True)
    for directory in directories:
        sync_directory(directory)


def link(source: Path, target: Path) -> None:
    """Make a hard link. Errors: `OSError`, unless the link was made in spite of the error."""
    try:
        os.link(source, target)
    except OSError:
        with suppress(OSError):
            if source.samefile(target):
                return
        raise


def sync_directory(path: Path) -> None:
    """Sync a directory, so that its entries survive a crash of the host."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_sealed(path: Path, size: int, checksum: str) -> pa.Buffer:
    """Return a sealed file's bytes. Errors: `CheckpointError` if the file is missing, torn or changed."""
    with open_sealed(path, size, checksum) as file:
        return file.read_buffer()


def open_sealed(path: Path, size: int, checksum: str) -> pa.NativeFile:
    """Open a sealed file for reading in parts, after a check of all its bytes. Errors: as `read_sealed`."""
    return _open_part(path, 0, size, checksum, whole=True)


def open_section(path: Path, start: int, size: int, checksum: str) -> pa.NativeFile:
    """Open a section for reading, after a check of all its bytes.

    Errors: `CheckpointError` if the file is missing or too short, or the section was changed.
    """
    return _open_part(path, start, size, checksum)


def _open_part(path: Path, start: int, size: int, checksum: str, *, whole: bool = False) -> pa.NativeFile:
    """Open a part of a file. `whole`: the file must end with it. A small part is read at once."""
    try:
        handle = open_regular(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: the file is missing; a manifest names {size} bytes of it") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None
    part = _Part(handle, start, size)
    try:
        length, end = os.fstat(handle).st_size, start + size
        if length < end or (whole and length > end):
            named = f"says {size}" if whole else f"names the bytes {start} to {end}"
            raise CheckpointError(f"{path}: found {length} bytes, the manifest {named}")
        data = part.read() if size <= READ_AT_ONCE else None
        actual = part.checksum() if data is None else checksum_of(data)
        if actual != checksum:
            raise CheckpointError(
                f"{path}: found checksum {actual} of the bytes {start} to {end}, the manifest says {checksum}"
            )
    except BaseException:
        part.close()
        raise
    if data is not None:
        part.close()
        return pa.BufferReader(data)
    part.seek(0)
    return pa.PythonFile(part, mode="r")


class _Part:
    """The bytes of a part of a file, as a file of its own; Arrow reads it."""

    closed = False

    def __init__(self, handle: int, start: int, size: int) -> None:
        self._handle, self._start, self._size, self._at = handle, start, size, 0

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        wanted, found = left if size < 0 else min(size, left), []
        while wanted and (data := os.pread(self._handle, wanted, self._start + self._at)):
            found.append(data)
            wanted, self._at = wanted - len(data), self._at + len(data)
        return b"".join(found)

    def checksum(self) -> str:
        """Return the checksum of all its bytes; reads them in parts."""
        digest = hashlib.blake2b(digest_size=16)
        while data := self.read(_AT_A_TIME):
            digest.update(data)
        return digest.hexdigest()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._handle)


def seal_of(path: Path) -> str:
    """Return the checksum of a file; reads it in parts."""
    handle = open_regular(path)
    part = _Part(handle, 0, os.fstat(handle).st_size)
    try:
        return part.checksum()
    finally:
        part.close()


def in_order(entries: Mapping[bytes, bytes | None]) -> Columns:
    """Return a store's entries as columns, sorted by key."""
    keys = sorted(entries)
    return keys, list(map(entries.__getitem__, keys))


def encode_changes(changes: Changes, metadata: dict[str, str], compression: str | None = "lz4") -> pa.Buffer:
    """Return the bytes of a file that holds `changes`, sorted by store and key."""
    return encode_columns({store: in_order(of) for store, of in changes.items()}, metadata, compression)


def encode_columns(
    stores: Mapping[str, Columns], metadata: dict[str, str], compression: str | None
) -> pa.Buffer:
    """Return the bytes of a file that holds the entries of each store, which are in order."""
    return encode_records(sorted(stores), _batches(stores), metadata, compression)


def encode_records(
    stores: list[str], batches: Iterable[pa.RecordBatch], metadata: dict[str, str], compression: str | None
) -> pa.Buffer:
    """Return the bytes of a file of `RECORD` batches whose store numbers index `stores`."""
    out = pa.BufferOutputStream()
    _write_records(out, stores, batches, metadata, compression)
    return out.getvalue()


def write_records(
    path: Path,
    stores: list[str],
    batches: Iterable[pa.RecordBatch],
    metadata: dict[str, str],
    compression: str | None,
) -> Sealed:
    """Write a new file of `RECORD` batches, in the form of `encode_records`, batch by batch, and sync it.

    Takes the memory of one batch. Errors: those of the disk, and of `batches`; then the file is removed.
    """
    handle, directories = open_file(path, NEW)
    try:
        with os.fdopen(handle, "wb") as file:
            sealing = _Sealing(file)
            records = _write_records(sealing, stores, batches, metadata, compression)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    for directory in directories:
        sync_directory(directory)
    return Sealed(sealing.size, sealing.checksum, records)


def _write_records(
    out: Any,
    stores: list[str],
    batches: Iterable[pa.RecordBatch],
    metadata: dict[str, str],
    compression: str | None,
) -> int:
    """Write a file of `RECORD` batches, and return the number of records."""
    schema = RECORD.with_metadata({**metadata, "stores": "\n".join(stores)})
    records = 0
    with pa.ipc.new_file(out, schema, options=write_options(compression)) as writer:
        for batch in batches:
            writer.write_batch(batch)
            records += batch.num_rows
    return records


class _Sealing(io.RawIOBase):
    """Writes to a file, and computes the length and checksum of the data."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self.size = 0
        self._file, self._digest = file, hashlib.blake2b(digest_size=16)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._digest.update(view)
        self.size += view.nbytes
        return self._file.write(view)

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()


def _batches(stores: Mapping[str, Columns]) -> Iterator[pa.RecordBatch]:
    for number, store in enumerate(sorted(stores)):
        keys, values = stores[store]
        if sum(map(len, keys)) + sum(map(len, filter(None, values))) > BYTES_PER_BATCH:
            for piece in pieces(store, zip(keys, values, strict=True)):
                yield record_batch(number, piece)
        else:  # the usual case: entries need not be measured one by one
            for at in range(0, len(keys), ROWS_PER_BATCH):
                end = at + ROWS_PER_BATCH
                yield _record_batch(number, keys[at:end], values[at:end])


def pieces(
    store: str, entries: Iterable[tuple[bytes, Value]], rows: int | None = None, most: int | None = None
) -> Iterator[list[tuple[bytes, Value]]]:
    """Yield a store's entries in pieces of at most `rows` entries and `most` bytes (None: the limits of a file).

    A larger entry is a piece by itself. Errors: `InputError` for a key or value that no file can hold.
    """
    rows, most = rows or ROWS_PER_BATCH, most or BYTES_PER_BATCH
    piece: list[tuple[bytes, Value]] = []
    size = 0
    for entry in entries:
        key, value = entry
        more = len(key) + (len(value) if value else 0)
        if size + more > most:
            if (longest := max(len(key), len(value or b""))) > LARGEST:
                found, expected = f"a key or value of {longest} bytes", f"at most {LARGEST} bytes"
                raise InputError(f"stores.{store}", found=found, expected=expected)
            if piece:
                yield piece
                piece, size = [], 0
        piece.append(entry)
        size += more
        if len(piece) == rows:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def record_batch(store: int, entries: Sequence[tuple[bytes, bytes | None]]) -> pa.RecordBatch:
    """Return the `RECORD` batch of one store's entries, which are one of the `pieces`."""
    return _record_batch(store, [key for key, _ in entries], [value for _, value in entries])


def _record_batch(store: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> pa.RecordBatch:
    stores = pa.array(np.full(len(keys), store, np.uint8))
    columns = [stores, pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    return pa.record_batch(columns, schema=RECORD)


class RecordFile:
    """The records of a file, piece by piece. A piece has entries of one store; its writer chose the size."""

    def __init__(self, data: pa.Buffer | bytes | pa.NativeFile) -> None:
        self._data = pa.py_buffer(data) if isinstance(data, bytes) else data
        self._reader = pa.ipc.open_file(self._data, options=READ)
        self.stores = self._reader.schema.metadata[b"stores"].decode().split("\n")

    def __len__(self) -> int:
        return self._reader.num_record_batches

    def close(self) -> None:
        """Close the data, if it is a file."""
        if isinstance(self._data, pa.NativeFile):
            self._data.close()

    def columns(self, number: int) -> tuple[str, list[bytes], list[bytes | None]]:
        """Return the store, the keys and the values of a piece."""
        batch = self._reader.get_batch(number)
        store = self.stores[batch["store"][0].as_py()] if batch.num_rows else ""
        return store, batch["key"].to_pylist(), batch["value"].to_pylist()


def decode_records(
    data: pa.Buffer | bytes | pa.NativeFile,
) -> Iterator[tuple[str, list[tuple[bytes, bytes | None]]]]:
    """Yield (store, entries) from a file, in the pieces in which they were written."""
    file = RecordFile(data)
    for number in range(len(file)):
        store, keys, values = file.columns(number)
        if keys:
            yield store, list(zip(keys, values, strict=True))


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
