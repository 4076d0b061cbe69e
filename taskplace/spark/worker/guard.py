"""Copies that kill whoever opens them, and disks that are full.

LMDB maps its file. In a damaged one it may follow a page number to nowhere, and the process is gone, without an
error that anybody could handle. Spark would send the next attempt to the same copy, until it gives up. So whoever
opens a copy leaves a mark beside it, and takes it away again; a mark of a worker that is dead while its executor
lives is such a death. After `DEATHS` in a row the copy is discarded, and is restored like any other.
(An executor that was killed with all its workers tells nothing about its copies.)
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
from taskplace.spark.messages import Opened, Owner, Position
from taskplace.spark.state.copy import peek
from taskplace.spark.state.files import private_directory
from taskplace.spark.worker.identity import alive, owner_of

log = logging.getLogger(__name__)

#: Spark gives a task four attempts; the third finds the copy discarded.
DEATHS = 2
NEARLY_FULL = 64 << 20  # bytes
_FULL = {
    errno.ENOSPC: "no space is left",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "the file is too big",
}


class DiskFull(TaskplaceError):
    """Nothing can be written any more; says where, and what to free. Nothing was lost: the batch is not committed."""


def seen(copy: Path, executor: Owner) -> Position | None:
    """Return where a copy is, None if there is none that can be used; one that has killed who only looked goes, too."""
    if not (copy / "data.mdb").exists():
        return None
    try:
        with guarded(copy, executor, what="seen"):
            return peek(copy)
    except OSError:  # a full disk takes no mark
        return peek(copy)


@contextmanager
def guarded(
    copy: Path, executor: Owner, called_off: Path | None = None, *, what: str = "opened"
) -> Iterator[None]:
    """Open a copy within this block: one that has killed its last visitors is discarded first.

    A worker that dies after its round was called off, which is when the file `called_off` appears, was ended by Spark.
    `what` visitors do: who only looks may live where others die, and must not make them forgotten.
    """
    mark = copy.with_name(f".{copy.name}.{what}")
    deaths = _deaths(mark, executor)
    if deaths >= DEATHS:
        log.warning("%s has ended %d workers that opened it; it is discarded and made anew", copy, deaths)
        shutil.rmtree(copy, ignore_errors=True)
        deaths = 0
    private_directory(mark.parent)
    mark.touch(mode=0o600)
    mark.write_bytes(Opened(_me(os.getpid()), executor, deaths, str(called_off or "")).encode())
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def _deaths(mark: Path, executor: Owner) -> int:
    try:
        found = Opened.decode(mark.read_bytes())
    except (OSError, ValueError):
        return 0
    if found.executor != executor or alive(found.worker):
        return 0
    ended = found.called_off and Path(found.called_off).exists()
    return found.deaths if ended else found.deaths + 1


@cache
def _me(pid: int) -> Owner:  # by its id: a forked process is not the one that asked before
    return owner_of(psutil.Process(pid))


@contextmanager
def told_when_full(*folders: Path) -> Iterator[None]:
    """Turn what LMDB and the system say of a full disk into a `DiskFull` that names it."""
    try:
        yield
    except (OSError, lmdb.Error) as error:
        reason = _full(error, folders)
        if reason is None:
            raise
        raise DiskFull(reason) from error


def _full(error: OSError | lmdb.Error, folders: tuple[Path, ...]) -> str | None:
    """Return what is to be done about a full disk; None if that is not what the error is about."""
    left, least = [], NEARLY_FULL
    for folder in folders:
        with suppress(OSError):
            usage = shutil.disk_usage(folder)
            left.append(f"{folder}: {usage.free >> 20} of {usage.total >> 20} MiB free")
            least = min(least, usage.free)
    if isinstance(error, OSError):
        word = _FULL.get(error.errno or 0)
    elif least < NEARLY_FULL and _says(error, errno.EIO):  # what LMDB makes of a write that fitted in part
        word = _FULL[errno.ENOSPC]
    else:
        word = next((word for number, word in _FULL.items() if _says(error, number)), None)
    if word is None:
        return None
    return (
        f"{word} ({error}); {'; '.join(left)}. Free space there, or give it a bigger disk; nothing is lost, and the "
        "batch is repeated when the stream starts again. Copies without a role go after state.cleanup.delay.ms, "
        "changelogs when two snapshots cover them"
    )


def _says(error: lmdb.Error, number: int) -> bool:
    return os.strerror(number) in str(error)
