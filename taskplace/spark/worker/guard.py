"""Discards copies that kill the processes that open them; reports full disks; says what is shown of errors.

LMDB maps its file into memory. In a damaged file it may follow a page number outside the file, and the process is
killed without an exception. Spark would send the next attempt to the same copy, until the task fails for good. So a
worker writes a mark beside a copy before it opens the copy, and clears the mark afterwards. A mark that was not cleared
counts as one death, if the worker that wrote it is dead and its executor is alive. After `DEATHS` deaths in a
row the copy is discarded, and restored like any other. If the executor was killed with all its workers, the mark does
not count.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import lmdb
import psutil

from taskplace.errors import TaskplaceError
from taskplace.redaction import scrubbed
from taskplace.spark.checkpoint.files import open_file
from taskplace.spark.messages import Meta, Opened, Owner
from taskplace.spark.state import environment
from taskplace.spark.state.transaction import read_meta
from taskplace.spark.worker.identity import alive, owner_of

log = logging.getLogger(__name__)

#: The most letters of an error that operators see.
ERROR_LETTERS = 500
#: Spark gives a task four attempts; the third finds the copy discarded.
DEATHS = 2
NEARLY_FULL = 64 << 20  # bytes
#: The end of a mark's first line. A mark whose first line is empty names nobody.
CLEARED = b"\n"
MARK_BYTES = 16 << 10
_FULL = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "the file is too large",
}

#: What a directory without the permission, an immutable one and a file system for reading only answer.
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NOTHING_LOST = "nothing is lost, and the batch is repeated when the stream is restarted"


class DiskFull(TaskplaceError):
    """A disk takes no more: it is full, or may not be written to. The message has the directory and its free space.

    Nothing is lost: the batch is not committed.
    """


def shown_error(error: BaseException) -> str:
    """Return an error's type. Only the messages of taskplace are shown: those of others may have values of rows.

    >>> shown_error(TaskplaceError("manifest 7 is missing")), shown_error(ValueError("bad row k7"))
    ('TaskplaceError: manifest 7 is missing', 'ValueError')
    """
    name = type(error).__name__
    if not isinstance(error, TaskplaceError):
        return name
    return f"{name}: {' '.join(scrubbed(str(error)).split())[:ERROR_LETTERS]}"


def position_of(copy: Path, executor: Owner) -> Meta | None:
    """Return a copy's metadata, or None if it is missing or unusable. Discards a copy that killed its last readers.

    Reading an open environment takes no mark: after a crash, the next worker has to open the copy, with a mark.
    """
    if copy in environment.WARM:
        return read_meta(copy)
    if not (copy / "data.mdb").exists():
        return None
    try:
        with guarded(copy, executor, what="read"):
            return read_meta(copy)
    except OSError:  # a full disk takes no mark
        return read_meta(copy)


@contextmanager
def guarded(
    copy: Path, executor: Owner, cancellation: Path | None = None, *, what: str = "opened"
) -> Iterator[None]:
    """Guard a block that opens a copy; first discard a copy that killed the last workers that opened it.

    `cancellation` is the file that marks a cancelled round. Spark ends the workers of a cancelled round, so such a
    death does not count. `what` names the kind of access. Each kind has its own mark, because a worker that only reads
    the position may survive where others die, and must not reset their count.
    """
    # The file stays: creating and removing it would cost more than all of the rest.
    handle, _ = open_file(copy.with_name(f".{copy.name}.{what}"), os.O_RDWR | os.O_CREAT)
    try:
        deaths = _deaths(os.pread(handle, MARK_BYTES, 0), executor)
        if deaths >= DEATHS:
            log.warning(
                "%s crashed the last %d workers that opened it; it is discarded and restored", copy, deaths
            )
            environment.WARM.drop(copy)
            shutil.rmtree(copy, ignore_errors=True)
            deaths = 0
        opened = Opened(_me(os.getpid()), executor, deaths, str(cancellation or ""))
        os.pwrite(handle, opened.encode() + CLEARED, 0)  # the first line counts
        try:
            yield
        finally:
            os.pwrite(handle, CLEARED, 0)
    finally:
        os.close(handle)


def remove_marks(copy: Path) -> None:
    """Remove the marks of a copy that is removed."""
    for mark in copy.parent.glob(f".{copy.name}.*"):
        mark.unlink(missing_ok=True)


def _deaths(mark: bytes, executor: Owner) -> int:
    try:
        opened = Opened.decode(mark.partition(CLEARED)[0])
    except ValueError:
        return 0
    if opened.executor != executor or alive(opened.worker):
        return 0
    ended = opened.called_off and Path(opened.called_off).exists()
    return opened.deaths if ended else opened.deaths + 1


@cache
def _me(pid: int) -> Owner:  # cached by process id, because a forked process is another process
    return owner_of(psutil.Process(pid))


@contextmanager
def raising_disk_full(*folders: Path) -> Iterator[None]:
    """Turn errors of LMDB and of the system about a disk that takes no more into a `DiskFull` that names it."""
    try:
        yield
    except (OSError, lmdb.Error) as error:
        reason = _full(error, folders)
        if reason is None:
            raise
        raise DiskFull(reason) from error


def _full(error: OSError | lmdb.Error, folders: tuple[Path, ...]) -> str | None:
    """Return the message for a full disk, or one that may not be written to; None if the error has another cause."""
    system = error if isinstance(error, OSError) else None

    def means(number: int) -> bool:  # LMDB's errors have the system's text for the number
        return system.errno == number if system is not None else os.strerror(number) in str(error)

    named = system.filename if system is not None and isinstance(system.filename, str) else ""
    ours = system is None or any(Path(named).is_relative_to(folder) for folder in folders)
    if ours and any(map(means, _REFUSED)):
        return f"not allowed to write ({error}): `ls -ld` or `lsattr -d` shows why; {_NOTHING_LOST}"
    rooms = []
    for folder in folders:
        with suppress(OSError):
            rooms.append(_room(folder))
    word = next((word for number, word in _FULL.items() if means(number)), None)
    if system is None and means(errno.EIO) and min(rooms, default=(NEARLY_FULL, ""))[0] < NEARLY_FULL:
        word = _FULL[errno.ENOSPC]  # LMDB raises EIO when a write fitted only in part
    return word and f"{word} ({error}); {'; '.join(text for _, text in rooms)}; {_NOTHING_LOST}"


def _room(folder: Path) -> tuple[int, str]:
    """Return the free bytes of a directory's file system, and the text for an error."""
    while not folder.exists():
        folder = folder.parent
    usage, files = shutil.disk_usage(folder), os.statvfs(folder)
    inodes = f", but none of {files.f_files} inodes" if files.f_files and not files.f_favail else ""
    return usage.free, f"{folder}: {usage.free >> 20} of {usage.total >> 20} MiB free{inodes}"
