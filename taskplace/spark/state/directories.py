"""Checks whether a directory may be used: its owner and permissions, and the features of its file system.

Both are checked at the start. A directory that others can write would give them the stream's state. A file system
without hard links would fail during the first commit, with an unclear error. The features are tried, not looked up.

Properties: the trial uses a directory of its own and removes it; nothing else changes. An existing directory
keeps its permissions: it is used as it is, or refused.
Non-goals: access control lists, and changes while the stream runs.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
import uuid
from contextlib import suppress
from pathlib import Path

import lmdb

from taskplace.errors import InputError
from taskplace.spark.checkpoint.files import sync_directory, write_file
from taskplace.spark.state.environment import Environment

PROBE = ".taskplace-probe-"
ABANDONED_SECONDS = 3600.0
_FULL = (errno.ENOSPC, errno.EDQUOT)  # a full disk says nothing about the features of the file system


def check_owner(path: Path, what: str, *, shared: bool = False) -> None:
    """Refuse a directory that others can write, or that another user but root owns. A missing one is made later.

    `shared`: a shared directory with the sticky bit, like /tmp, is accepted, because only directories inside it are
    used, and those are checked separately.
    Errors: `InputError` naming the path.
    """
    try:
        status = path.stat()
    except OSError:  # missing or unreadable: making it, or the trial, raises the error
        return
    sticky = shared and bool(status.st_mode & stat.S_ISVTX)
    expected = "a directory that only this user can write to, or a path that does not exist yet"
    hint = "remove the write permission of others (chmod go-w), or set a directory below it, which is created private"
    found = ""
    if status.st_uid not in (os.geteuid(), 0):
        found = f"{path}, which belongs to user {status.st_uid}, while this is user {os.geteuid()}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        found = f"{path}, which others can write to: its permissions are {mode:04o}"
    if found and not sticky:
        raise InputError(what, found=found, expected=expected, hint=hint)


def check_commits(path: Path, what: str) -> None:
    """Refuse a directory whose file system has no hard links, exclusive creates, renames or syncs of directories.

    For a missing directory, the nearest existing parent is tried.
    Errors: `InputError` naming the directory and what was tried; `OSError` for a full disk.
    """
    with _Probe(
        path, what, "hard links, renames and syncs of directories, such as a local disk or NFS"
    ) as probe:
        one, other, third = (probe.scratch / name for name in ("one", "other", "third"))
        probe.tries("write and sync a file")
        write_file(one, b"probe", sync=True)
        probe.tries("create a hard link")
        os.link(one, other)
        probe.tries("refuse a hard link to a name that is taken")
        try:
            os.link(one, other)
        except FileExistsError:
            pass
        else:
            raise OSError("the same file was created twice, so there is no exclusive create")
        probe.tries("rename a file")
        one.rename(third)
        probe.tries("sync a directory")
        sync_directory(probe.scratch)


def check_copies(path: Path, what: str) -> None:
    """Refuse a directory in which LMDB cannot work: it maps its file into memory, and locks it.

    Errors: as `check_commits`.
    """
    with _Probe(path, what, "memory maps and file locks, such as a local disk") as probe:
        probe.tries("open an LMDB environment, write and read")
        environment = Environment(probe.scratch / "copy", [b"probe"])
        try:
            with environment.begin(write=True) as txn:
                txn.put(b"key", b"value", db=environment.databases[b"probe"])
            with environment.begin() as txn:
                if txn.get(b"key", db=environment.databases[b"probe"]) != b"value":
                    raise OSError(errno.EIO, "the data read differs from the data written")
        finally:
            environment.close()


class _Probe:
    """A temporary directory for the trial. An error names the operation that failed, and the directory."""

    def __init__(self, path: Path, what: str, needed: str) -> None:
        self._what, self._needed = what, needed
        self._folder = next(folder for folder in (path, *path.parents) if _exists(folder))
        self.scratch = self._folder / f"{PROBE}{uuid.uuid4().hex}"
        self._tried = "create a directory"

    def tries(self, what: str) -> None:
        """Name the operation that is tried next."""
        self._tried = what

    def __enter__(self) -> _Probe:
        with suppress(OSError):  # of processes that were killed during their trial
            for left in self._folder.glob(f"{PROBE}*"):
                if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)
        try:
            self.scratch.mkdir(mode=0o700)
        except OSError as error:
            raise self._told(error) from error
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
        if isinstance(error, OSError | lmdb.Error):
            raise self._told(error) from error

    def _told(self, error: OSError | lmdb.Error) -> Exception:
        if getattr(error, "errno", None) in _FULL or any(os.strerror(n) in str(error) for n in _FULL):
            return error
        return InputError(
            self._what,
            found=f"{self._folder}, where this failed: {self._tried} ({reason(error)})",
            expected=f"a directory that this user can write to, on a file system with {self._needed}",
        )


def reason(error: OSError | lmdb.Error) -> str:
    """Return the system's text for an error, without the file name of the trial."""
    return getattr(error, "strerror", None) or str(error)


def _exists(folder: Path) -> bool:
    """Return whether a directory is there. An unreadable one counts: the trial fails in it, with a clear error."""
    try:
        return folder.exists()
    except OSError:
        return True
