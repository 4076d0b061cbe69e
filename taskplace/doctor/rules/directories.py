"""Where the checkpoint and the copies lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Found, Severity, rule, set_key
from taskplace.spec.paths import local_path

#: Emptied by the system: at a boot, or file by file after some days.
TEMPORARY = ("/tmp", "/dev/shm", "/run")
_FOR_DAYS = "/var/tmp"
NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "fuse.sshfs",
    "fuse.s3fs",
    "9p",
    "glusterfs",
    "fuse.glusterfs",
)
#: File systems of one host's own disks.
LOCAL = ("ext4", "ext3", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "ramfs", "f2fs", "apfs")
#: Where remedies put files; the first one that may be a disk.
DISKS = ("/data", "/srv", "/var/lib")
_IN_MEMORY = ("tmpfs", "ramfs")
_STATE, _CHECKPOINT = "state.dir", "checkpoint.dir"


def _state(facts: Facts) -> str:
    """Return a directory for copies, on a local disk as far as this host tells."""
    local = (facts.spark.get("spark.local.dir") or "").split(",")
    own = f"{facts.settings.application.id}/state"
    for disk in map(Path, DISKS):
        kind, inside = facts.host.file_system(disk), [each for each in local if each.strip()]
        if kind not in (*NETWORK, *_IN_MEMORY) and not any(
            (disk / own).is_relative_to(each) for each in inside
        ):
            return f"{disk}/{own}"
    return f"{DISKS[0]}/{own}"


def _durable(facts: Facts) -> str:
    """Return a directory for a checkpoint: on a file system that all hosts mount, if there are several."""
    top = (_shared(facts) if facts.spark.several_hosts else "") or DISKS[0]
    return f"{top}/{facts.settings.application.id}/checkpoint"


def _checkpoint(facts: Facts) -> Path:
    return local_path(facts.settings.checkpoint_dir, _CHECKPOINT)


def _shared(facts: Facts) -> str:
    """Return a directory that hosts share: the first one that this host has mounted; "" for none."""
    return min((point for point, kind in facts.host.file_systems.items() if kind in NETWORK), default="")


def fresh(facts: Facts) -> str:
    """Return a directory for a new checkpoint, beside that of the file unless that is a temporary one."""
    path = _checkpoint(facts)
    beside = _durable(facts) if _below(path, (*TEMPORARY, _FOR_DAYS)) else facts.settings.checkpoint_dir
    return f"{beside}-2"


def _below(path: Path, directories: tuple[str, ...]) -> str:
    """Return the first of some directories that has a path; "" if none has."""
    return next((each for each in directories if path.is_relative_to(each)), "")


@rule("state-in-temporary-directory", Severity.WARNING, "copies in `/tmp`, or in memory")
def state_in_temporary_directory(facts: Facts) -> Iterator[Found]:
    """Find a state directory that the system cleans, or that takes memory."""
    path = facts.settings.state_dir
    if facts.host.file_system(path) in _IN_MEMORY or path.is_relative_to("/dev/shm"):
        why = "Files in this file system are memory, which the copies then take twice."
    elif _below(path, TEMPORARY):
        why = "The system removes files there that were not changed for some days, under copies that are in use."
    else:
        return
    yield Found(
        _STATE,
        str(path),
        f"{why} Lost copies are restored from the checkpoint.",
        set_key(_STATE, _state(facts)),
    )


@rule(
    "checkpoint-in-temporary-directory", Severity.WARNING, "a checkpoint in `/tmp`, `/var/tmp` or in memory"
)
def checkpoint_in_temporary_directory(facts: Facts) -> Iterator[Found]:
    """Find a checkpoint that the system may remove."""
    path = _checkpoint(facts)
    if _below(path, (*TEMPORARY, _FOR_DAYS)) or facts.host.file_system(path) in _IN_MEMORY:
        yield Found(
            _CHECKPOINT,
            str(path),
            "The system may remove files there, at a boot or after some days. Without its checkpoint, a stream has "
            "lost its state and begins again.",
            set_key(_CHECKPOINT, _durable(facts)),
        )


@rule("state-in-spark-local-dir", Severity.WARNING, "copies inside a directory of `spark.local.dir`")
def state_in_spark_local_dir(facts: Facts) -> Iterator[Found]:
    """Find a state directory among the files that Spark makes and removes itself."""
    for directory in (facts.spark.get("spark.local.dir") or "").split(","):
        if directory.strip() and facts.settings.state_dir.is_relative_to(Path(directory.strip()).absolute()):
            yield Found(
                _STATE,
                f"{facts.settings.state_dir}, inside spark.local.dir",
                "This directory is for files that end with an executor. Copies are to survive it: a new executor takes "
                "over those of a dead one.",
                set_key(_STATE, _state(facts)),
            )


@rule("state-on-network", Severity.WARNING, "copies on a network file system")
def state_on_network(facts: Facts) -> Iterator[Found]:
    """Find a state directory that is not on a local disk. Looks at this host only."""
    kind = facts.host.file_system(facts.settings.state_dir)
    if kind in NETWORK:
        yield Found(
            _STATE,
            f"{facts.settings.state_dir}, on {kind}",
            "LMDB needs a local disk: it maps its files into memory, and its locks do not work between hosts. Each "
            "access would go over the network.",
            set_key(_STATE, _state(facts)),
        )


@rule(
    "checkpoint-on-one-host",
    Severity.WARNING,
    "a checkpoint on a local disk, with executors on several hosts",
)
def checkpoint_on_one_host(facts: Facts) -> Iterator[Found]:
    """Find a checkpoint that executors on other hosts do not see."""
    path = _checkpoint(facts)
    kind = facts.host.file_system(path)
    if facts.spark.several_hosts and kind in LOCAL:
        yield Found(
            _CHECKPOINT,
            f"{path}, on {kind}, and the master {facts.spark.master}",
            "Executors write changes and snapshots to the checkpoint, and restore from it. On another host they find "
            "another, empty directory. Use a file system that all hosts mount.",
            set_key(_CHECKPOINT, _durable(facts))
            if _shared(facts)
            else f"# mount a file system that all hosts share, such as NFS, and set {_CHECKPOINT} to a directory there",
        )


@rule("directories-by-default", Severity.ADVICE, "directories by default, with executors on several hosts")
def directories_by_default(facts: Facts) -> Iterator[Found]:
    """Find paths that depend on the directory in which the driver was started."""
    if facts.spark.several_hosts and _STATE not in facts.written:
        yield Found(
            _STATE,
            f"{facts.settings.state_dir}, because the key is not set",
            "The default is below the driver's current directory. The same path is used on every executor, where it "
            "may not be a disk for state.",
            set_key(_STATE, _state(facts)),
        )


RULES = (
    state_in_temporary_directory,
    checkpoint_in_temporary_directory,
    state_in_spark_local_dir,
    state_on_network,
    checkpoint_on_one_host,
    directories_by_default,
)
