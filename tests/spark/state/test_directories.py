"""Directories that others can write, or that cannot do what is needed, are refused before anything is done."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from pathlib import Path

import lmdb
import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.processors import Count
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.state import directories
from taskplace.spark.state.directories import PROBE, check_commits, check_copies, check_owner
from taskplace.spark.worker import identity
from tests.support.placed_without_spark import World
from topology import Topology


def counts(world: World) -> Topology:
    topo = Topology("t")
    counted = topo.source("in", key="k", partitions=1).process(Count("n", by={"k": "string"}), name="n")
    counted.sink("o", target=ParquetSink(world.folder / "out"))
    return topo


def words(*keys: str) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.string())})


def failing(error: int):
    def fail(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    return fail


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


# ------------------------------------------------------------------------- what a file system can do


@pytest.mark.parametrize(
    ("owner", "name", "fake", "tried"),
    [
        (os, "link", failing(errno.EPERM), "create a hard link"),
        (os, "link", failing(errno.EOPNOTSUPP), "create a hard link"),
        (os, "link", lambda *_: None, "refuse a hard link to a name that is taken"),
        (Path, "rename", failing(errno.ENOSYS), "rename a file"),
        (directories, "sync_directory", failing(errno.EINVAL), "sync a directory"),
        (directories, "write_file", failing(errno.EROFS), "write and sync a file"),
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_a_checkpoint_where_a_commit_cannot_work_is_refused_at_the_start(
    world, monkeypatch, owner, name, fake, tried, there
):
    checkpoint = world.folder / "checkpoint"
    if there:
        checkpoint.mkdir()
    before = everything(world.folder)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fake)
        where = checkpoint if there else world.folder
        with pytest.raises(InputError, match=rf"checkpoint: found '{where}, where this failed: {tried} \("):
            world.open(counts(world))
    assert everything(world.folder) == before
    world.open(counts(world))


def test_a_sink_whose_directory_cannot_take_a_batch_is_refused_at_the_start(world, monkeypatch):
    (world.folder / "out").mkdir()
    make = os.link

    def link(source, target, **options):
        if Path(target).is_relative_to(world.folder / "out"):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        make(source, target, **options)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(InputError, match=r"ParquetSink\.path: .*/out, where this failed: create a hard"):
        world.open(counts(world))
    assert everything(world.folder) == {world.folder / "out"}


def test_a_start_that_is_refused_for_its_directories_fences_nobody(world, monkeypatch):
    first = world.open(counts(world))
    world.batch(first, 0, **{"in": words("a")})
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", failing(errno.EPERM))
        with pytest.raises(InputError, match="create a hard link"):
            world.open(counts(world))
    world.batch(first, 1, **{"in": words("a")})
    assert world.sent("out") == {0: [("a", 1)], 1: [("a", 2)]}
    assert not [path for path in everything(world.folder) if path.name.startswith(PROBE)]


def test_what_a_killed_start_has_left_is_removed_by_another(tmp_path):
    old, new = (tmp_path / f"{PROBE}{name}" for name in ("old", "new"))
    for left in (old, new):
        left.mkdir()
        (left / "one").touch()
    os.utime(old, (time.time() - 7200,) * 2)
    check_commits(tmp_path / "not" / "there", "checkpoint")
    assert everything(tmp_path) == {new, new / "one"}


def test_what_is_tried_is_tried_where_nobody_else_can_look(tmp_path, monkeypatch):
    modes = set()

    def look(path: Path) -> None:
        modes.add(oct(stat.S_IMODE(path.stat().st_mode)))

    monkeypatch.setattr(directories, "sync_directory", look)
    check_commits(tmp_path, "checkpoint")
    assert modes == {"0o700"}


@pytest.mark.parametrize(
    ("check", "owner", "name", "error"),
    [
        (check_commits, directories, "write_file", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
        (check_copies, lmdb, "open", OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))),
        (check_copies, lmdb, "open", lmdb.Error(os.strerror(errno.ENOSPC))),
    ],
)
def test_a_full_disk_is_not_blamed_on_the_file_system(tmp_path, monkeypatch, check, owner, name, error):
    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(owner, name, full)
    with pytest.raises(type(error), match=r"No space|quota"):
        check(tmp_path, "checkpoint")
    assert not everything(tmp_path)


def test_a_file_where_a_directory_is_to_be_is_named(world):
    (world.folder / "checkpoint").touch()
    with pytest.raises(InputError, match=r"checkpoint: .*/checkpoint, .* failed: create a directory"):
        world.open(counts(world))
    (world.folder / "checkpoint").unlink()
    (world.folder / "above").touch()
    with pytest.raises(InputError, match=r"checkpoint: .*/above, .* failed: create a directory"):
        world.open(counts(world), checkpoint="above/checkpoint")


def no_map(*_: object, **__: object) -> None:
    raise lmdb.Error("mmap: No such device")


def test_a_directory_that_cannot_be_looked_at_is_named(tmp_path, monkeypatch):
    """As one below a directory that only another user may pass; root may pass any."""
    look = Path.exists
    hidden = tmp_path / "of-another" / "checkpoint"

    def exists(self: Path) -> bool:
        if self == hidden:
            raise PermissionError(errno.EACCES, "Permission denied")
        return look(self)

    monkeypatch.setattr(Path, "exists", exists)
    with pytest.raises(InputError, match=rf"checkpoint: .*{hidden}, .* failed: create a directory"):
        check_commits(hidden, "checkpoint")


@pytest.mark.parametrize(
    ("owner", "name", "fake", "message"),
    [
        (lmdb, "open", no_map, r"open an LMDB environment, write and read \(mmap: No such device\)"),
        (os, "posix_fallocate", failing(errno.EOPNOTSUPP), "open an LMDB environment, write and read"),
        (fcntl, "flock", failing(errno.ENOLCK), "lock a file"),
        (os, "mkdir", failing(errno.EROFS), "create a directory"),
    ],
)
def test_a_state_directory_where_copies_cannot_be_is_named_by_the_first_task(
    tmp_path, monkeypatch, owner, name, fake, message
):
    monkeypatch.setattr(owner, name, fake)
    with pytest.raises(InputError, match=rf"state_dir: found '{tmp_path}.*, where this failed: {message}"):
        identity.home.__wrapped__(tmp_path / "state" / "id", "app")
    assert not [path for path in everything(tmp_path) if path.name.startswith(PROBE)]


def test_a_probe_of_copies_leaves_nothing(tmp_path):
    check_copies(tmp_path, "state_dir")
    assert not everything(tmp_path)


# ------------------------------------------------------------------------- whose a directory is


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (0o777, "which others can write to: its permissions are 0777"),
        (0o770, "which others can write to: its permissions are 0770"),
        (0o702, "which others can write to: its permissions are 0702"),
        (0o1777, "which others can write to: its permissions are 1777"),
    ],
)
def test_a_checkpoint_that_others_can_write_is_refused(world, mode, message):
    checkpoint = world.folder / "checkpoint"
    checkpoint.mkdir()
    checkpoint.chmod(mode)
    with pytest.raises(InputError, match=rf"checkpoint: found '{checkpoint}, {message}.*chmod go-w"):
        world.open(counts(world))
    assert checkpoint.stat().st_mode & 0o7777 == mode
    assert everything(world.folder) == {checkpoint}
    checkpoint.chmod(0o755)
    world.open(counts(world))
    assert checkpoint.stat().st_mode & 0o7777 == 0o755, "it keeps its permissions"


def home(state: Path) -> Path:
    return identity.home.__wrapped__(state / "id", "app")


def test_a_state_directory_that_others_can_write_is_refused(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o770)
    with pytest.raises(InputError, match=rf"state_dir: found '{state}, which others can write to"):
        home(state)
    assert everything(tmp_path) == {state}


def test_a_state_directory_that_is_there_keeps_its_permissions_and_one_that_is_made_is_private(tmp_path):
    state = tmp_path / "above" / "state"
    state.parent.mkdir()
    home(state)
    assert {path.stat().st_mode & 0o7777 for path in (state, state / "id")} == {0o700}
    state.chmod(0o755)
    home(state)
    assert state.stat().st_mode & 0o7777 == 0o755


def test_in_a_directory_of_all_only_a_private_one_is_used(tmp_path):
    """Like /var/tmp itself: what is in it can be removed by its owner alone."""
    state = tmp_path / "tmp"
    state.mkdir()
    state.chmod(0o1777)
    home(state)
    assert (state / "id").stat().st_mode & 0o7777 == 0o700
    (state / "id").chmod(0o777)
    with pytest.raises(InputError, match=rf"state_dir: found '{state / 'id'}, which others can write to"):
        home(state)


def test_a_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    mine = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    if mine == 0:  # who is root may do everything anyway
        check_owner(tmp_path, "checkpoint")
        os.chown(tmp_path, 12345, -1)
        mine = 12345
    message = (
        f"checkpoint: found '{re.escape(str(tmp_path))}, which belongs to user {mine}, while this is user"
    )
    with pytest.raises(InputError, match=message):
        check_owner(tmp_path, "checkpoint")
