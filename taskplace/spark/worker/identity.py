"""Finds the executor of this Python worker, and the executor's state directory; prepares the worker's process.

Spark does not tell a Python worker its executor. But the executor's JVM is an ancestor process with `--executor-id` in
its command line. Every executor owns one directory under `state.dir`. The owner is a process (id and start time, so
that a reused id is not mistaken for it). An executor without a directory takes over one from the same boot whose owner
and workers are all proven dead; of several, the one that was used last. So a replacement executor, or the executors of
a restarted driver, find the copies of their predecessors.

Spark collects garbage after each Python task. With the modules that a worker has loaded, that takes 20 to 40 ms: more
than most placed tasks. So before each bin and each follow job (`begin`), the objects of loaded modules are frozen: the
collector skips them from then on. Modules may be loaded at any time: PyArrow loads pandas with its first scalar. So
whenever a worker has loaded modules since it froze its objects, it freezes them again.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil

from taskplace.errors import InputError
from taskplace.spark.checkpoint.files import file_name, private_directory, write_file
from taskplace.spark.messages import Orphaned, Owner
from taskplace.spark.state.directories import check_copies, check_owner, reason
from taskplace.spark.state.environment import boot_id, keep_environments

OWNER, WORKERS, ORPHANED = "owner.json", "workers", "orphaned"
#: The prefix of the name of a copy that is being removed.
REMOVED = ".removed-"

#: How many modules were loaded when this process froze its objects; 0: it has not.
_frozen_modules = 0


def owner_of(process: psutil.Process) -> Owner:
    """Return the identity of a process: unique on this host, also across restarts."""
    return Owner(process.pid, _started(process), boot_id(), pid_namespace())


def alive(owner: Owner) -> bool:
    """Return whether this exact process still runs; True if that cannot be determined."""
    if owner.boot != boot_id():
        return False
    if owner.namespace != pid_namespace():  # in another container: its death cannot be proven
        return True
    try:
        process = psutil.Process(owner.pid)
        return abs(_started(process) - owner.started) < 0.02 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@cache
def pid_namespace() -> str:
    """Return the namespace of process ids, which differs between containers."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _started(process: psutil.Process) -> float:
    try:
        after_name = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2]
        return float(after_name.split()[19])  # field 22 of proc(5): clock ticks since boot
    except (OSError, IndexError):
        return process.create_time()


@cache
def executor() -> tuple[str, Owner]:
    """Return this worker's executor id and its JVM; ("driver", ...) in local mode."""
    process: psutil.Process | None = psutil.Process()
    java = None
    while process is not None:
        command = _command(process)
        if "--executor-id" in command:
            return command[command.index("--executor-id") + 1], owner_of(process)
        if java is None and command and Path(command[0]).name.startswith("java"):
            java = process
        process = process.parent()
    return "driver", owner_of(java or psutil.Process())


def this_process() -> str:
    """Return which process this is, for an error: the driver or the executor, the host, and the process id."""
    id_, _ = executor()
    return f"{id_ if id_ == 'driver' else f'executor-{id_}'} on host {socket.gethostname()}, process {os.getpid()}"


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.AccessDenied, psutil.ZombieProcess):
        return process.cmdline()
    return []


@cache
def home(root: Path, spark_app: str) -> Path:
    """Return this executor's state directory under `root`; take over an orphaned one if it has none yet."""
    executor_id, owner = executor()
    path = root / file_name(f"{spark_app}.{executor_id}")
    with _locked(root):
        former = _read(path / OWNER)
        if former is not None and former.boot != boot_id():
            shutil.rmtree(path)  # copies of another boot cannot be used: see `taskplace.spark.state.copy`
        if not path.exists():
            check_copies(root, "state_dir")
            _adopt(root, path, owner)
        private_directory(path / WORKERS)
        if _read(path / OWNER) != owner:
            _write(path / OWNER, owner)
            (path / ORPHANED).unlink(missing_ok=True)
        me = owner_of(psutil.Process())
        _write(path / WORKERS / f"{me.pid}", me)
        _tidy(path)
    return path


def _tidy(path: Path) -> None:
    """Remove the files of dead workers, and copies whose removal was interrupted, so that they do not accumulate."""
    for file, worker in _workers(path).items():
        if worker is not None and not alive(worker):
            file.unlink(missing_ok=True)
    for gone in path.glob(f"{REMOVED}*"):
        shutil.rmtree(gone, ignore_errors=True)


def _adopt(root: Path, path: Path, owner: Owner) -> None:
    """Rename the orphaned directory that was used last to `path`: its copies have the least to catch up.

    Copies of another boot cannot be used, and are removed.
    """
    orphans = []
    for candidate, former in _orphans(root):
        if former is not None and former.boot == boot_id():
            orphans.append(candidate)
        elif former is not None:
            shutil.rmtree(candidate, ignore_errors=True)
    if orphans:
        freshest = max(orphans, key=_last_commit)
        # If this process is killed before the rename, the directory is an orphan again, under its old name.
        _write(freshest / OWNER, owner)
        (freshest / ORPHANED).unlink(missing_ok=True)
        freshest.rename(path)
        shutil.rmtree(path / WORKERS, ignore_errors=True)


def remove_orphans(root: Path, older_than_seconds: float) -> list[str]:
    """Remove directories that have had no known owner for longer than this; return their names.

    A directory is marked when it is first found without an owner. The age of its copies does not matter, because a
    stream may be quiet.
    """
    removed = []
    with _locked(root):
        for candidate, _ in _orphans(root):
            if _orphaned_for(candidate) > older_than_seconds:
                shutil.rmtree(candidate, ignore_errors=True)
                removed.append(candidate.name)
    return removed


def _orphans(root: Path) -> Iterator[tuple[Path, Owner | None]]:
    """Yield the directories whose owner and workers are all dead.

    An owner is None if it cannot be read, as a crash of the host leaves it.
    """
    for candidate in sorted(root.iterdir()):
        owner = _read(candidate / OWNER)
        dead = not alive(owner) if owner is not None else (candidate / OWNER).exists()
        if dead and not any(alive(worker) for worker in _workers(candidate).values() if worker is not None):
            yield candidate, owner


def _orphaned_for(path: Path) -> float:
    """Return for how many seconds a directory is known to be an orphan, by the monotonic clock."""
    mark, now = path / ORPHANED, time.monotonic()
    with suppress(OSError, ValueError):
        orphaned = Orphaned.decode(mark.read_bytes())
        if orphaned.boot == boot_id():
            return max(0.0, now - orphaned.since)
    mark.unlink(missing_ok=True)
    write_file(mark, Orphaned(boot_id(), now).encode(), sync=False)
    return 0.0


def _last_commit(path: Path) -> float:
    """Return the time when a copy in a directory was last written; 0 without copies.

    The directory's own time cannot be used: an interrupted adoption changes it, and a directory that never had a copy
    may be new.
    """
    return max((file.stat().st_mtime for file in path.glob("*/data.mdb")), default=0.0)


def _workers(path: Path) -> dict[Path, Owner | None]:
    """Return the workers of a directory, by file; None for a file that cannot be read."""
    return {file: _read(file) for file in (path / WORKERS).glob("*")}


def _write(path: Path, owner: Owner) -> None:
    staging = path.with_name(f".{path.name}")
    staging.unlink(missing_ok=True)
    write_file(staging, owner.encode(), sync=False)
    staging.replace(path)  # atomic, so that a kill never leaves a partial file


def _read(path: Path) -> Owner | None:
    try:
        return Owner.decode(path.read_bytes())
    except (OSError, ValueError):
        return None


def _make(root: Path) -> None:
    """Make a directory of copies for this user alone. Errors: `InputError` for one that others can write."""
    try:
        for folder, shared in ((root.parent, True), (root, False)):
            check_owner(folder, "state_dir", shared=shared)  # check before anything is made in it
            folder.parent.mkdir(parents=True, exist_ok=True)  # parents may belong to others
            private_directory(folder)
            check_owner(folder, "state_dir", shared=shared)  # check again: another process may have made it
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _refused(
            root, "create a directory", error, "that this user can write to, on every executor"
        ) from error


def _refused(root: Path, what: str, error: OSError, needed: str) -> InputError:
    found = f"{root}, where this failed: {what} ({reason(error)})"
    return InputError("state_dir", found=found, expected=f"a directory {needed}")


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    _make(root)
    handle = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            needed = "on a file system with file locks, such as a local disk"
            raise _refused(root, "lock a file", error, needed) from error
        yield
    finally:
        os.close(handle)


def begin() -> None:
    """Prepare this process for a bin or a follow job."""
    keep_environments()
    # Not in other processes, such as those of tests, whose objects at this point are not only loaded modules.
    if "pyspark.worker" in sys.modules:
        freeze()


def freeze() -> None:
    """Freeze all objects of this process, if it has loaded modules since it last did."""
    global _frozen_modules
    if len(sys.modules) != _frozen_modules:
        gc.collect()  # so that no garbage is frozen
        gc.freeze()
        _frozen_modules = len(sys.modules)
