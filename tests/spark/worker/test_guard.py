"""Copies that kill whoever opens them, and disks that are full."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
from pathlib import Path

import lmdb
import psutil
import pytest

from taskplace.spark.messages import FollowRequest, History, Owner
from taskplace.spark.state import environment as warm
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.environment import WARM
from taskplace.spark.worker import bin_context as segments
from taskplace.spark.worker import identity
from taskplace.spark.worker.follow import follow
from taskplace.spark.worker.guard import DiskFull, guarded, position_of, raising_disk_full
from topology import TaskId

ME = identity.owner_of(psutil.Process())


def dies_in(copy: Path, executor: Owner) -> None:
    """A worker that is killed while it has the copy open, as by SIGBUS."""

    def work():
        with guarded(copy, executor):
            os.kill(os.getpid(), signal.SIGKILL)

    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join(30)
    assert worker.exitcode == -signal.SIGKILL


@pytest.fixture
def copy(tmp_path, committed):
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    with Copy(tmp_path / "home" / "0_0", ["s"]) as opened:
        opened.bring_to(history, tmp_path)
        opened.commit_unchanged()
    return tmp_path / "home" / "0_0"


def test_a_copy_that_killed_two_workers_in_a_row_is_discarded(copy, caplog):
    with guarded(copy, ME):  # this process is known by now; those that are forked from it are others
        pass
    for _ in range(2):
        dies_in(copy, ME)
        assert copy.exists()
    with guarded(copy, ME):
        assert not copy.exists()
    assert "crashed the last 2 workers" in caplog.text
    with guarded(copy, ME):
        pass
    assert copy.with_name(".0_0.opened").read_bytes().startswith(b"\n"), "it names nobody"


def test_one_death_is_forgiven(copy):
    for _ in range(3):
        dies_in(copy, ME)
        with guarded(copy, ME):
            assert copy.exists()


def test_a_killed_executor_tells_nothing_about_its_copies(copy):
    other = Owner(1, 0.0, ME.boot, ME.namespace)
    for _ in range(5):
        dies_in(copy, other)
        with guarded(copy, ME):
            assert copy.exists()


def test_an_error_is_no_death(copy):
    for _ in range(4):
        with pytest.raises(ValueError, match="of the processor"), guarded(copy, ME):
            raise ValueError("of the processor")
    with guarded(copy, ME):
        assert copy.exists()


def test_a_worker_that_is_still_at_it_is_not_dead(copy):
    with guarded(copy, ME), guarded(copy, ME), guarded(copy, ME):
        assert copy.exists()


def test_a_mark_that_was_torn_counts_for_nothing(copy):
    copy.with_name(".0_0.opened").write_text('{"worker"')
    with guarded(copy, ME):
        assert copy.exists()


@pytest.mark.parametrize("what", ["look", "follow", "snapshot", "attempt"])
def test_whoever_opens_a_deadly_copy_finds_it_discarded_after_two_deaths(runtime, monkeypatch, what):
    """LMDB leads who opens a damaged file nowhere: the process is gone."""
    runtime.run_batch([("a", 1), ("b", 2)], [("a", 10)])
    truth, program, deadly = runtime.contents(TaskId(0, 0)), runtime.first, runtime.copy(TaskId(0, 0))
    really_open = lmdb.open

    def open_(path, *args, **kwargs):
        if Path(path) == deadly and (deadly / "deadly").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr(lmdb, "open", open_)
    (deadly / "deadly").touch()
    runtime.be("1")
    stores = {0: sorted(program.databases)}
    parts = {} if what in ("look", "attempt") else {what: {TaskId(0, 0): runtime.history[TaskId(0, 0)]}}
    orders = FollowRequest(
        "executor-1", str(runtime.checkpoint), str(runtime.state), "app", stores, stores, **parts
    )

    def come():
        if what == "attempt":
            runtime.attempt(TaskId(0, 0), [("a", 1)])
        else:
            follow(orders)

    exits = []
    for _ in range(3):
        worker = multiprocessing.get_context("fork").Process(target=come)
        worker.start()
        worker.join(60)
        exits.append(worker.exitcode)
    assert exits == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert not (deadly / "deadly").exists()
    assert runtime.contents(TaskId(0, 0)) == truth


# -- full disks


def test_a_full_disk_hides_no_copies(runtime, monkeypatch):
    runtime.run_batch([("a", 1), ("b", 2)])
    runtime.be("1")
    orders = FollowRequest("executor-1", str(runtime.checkpoint), str(runtime.state), "app", {}, {})
    before = follow(orders).copies
    for mark in runtime.state.glob("*/.*.read"):
        mark.unlink()
    really_open = os.open

    def open_(path, *args, **kwargs):
        if str(path).endswith(".read"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_)
    assert follow(orders).copies == before != {}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True
        ).returncode
    ):
        pytest.skip("may not mount a file system here")
    yield folder
    WARM.clear()  # it keeps files open there
    segments.OPEN.clear()
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("which", ["checkpoint", "state"])
def test_a_full_disk_is_named_and_nothing_is_lost(runtime, small_disk, which):
    setattr(runtime, which, small_disk / which)
    first = [("a", 1), ("b", 2)]
    runtime.run_batch(first)
    truth = runtime.contents(TaskId(0, 0)), runtime.contents(TaskId(0, 1))
    if which == "checkpoint":
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb") as file:
            while True:
                file.write(os.urandom(4096))
                file.flush()
    many = [(f"N{i}-{'x' * 100}", i) for i in range(20_000)]
    with pytest.raises(DiskFull, match=rf"no space left .*{small_disk}.* MiB free"):
        for p in range(2):
            runtime.attempt(TaskId(0, p), many, bytes_per_task=1 << 24)
    if which == "checkpoint":
        filler.unlink()
    else:
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    runtime.run_batch(first)  # repeated, with what fits
    now = [row for task in (TaskId(0, 0), TaskId(0, 1)) for row in runtime.contents(task)["totals"]]
    assert {row["tailnum"]: row["flights"] for row in now} == {"a": 2, "b": 2}
    assert truth != (runtime.contents(TaskId(0, 0)), runtime.contents(TaskId(0, 1)))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_directory_that_may_not_be_written_to_is_named(tmp_path, number):
    for error in (
        OSError(number, "no", f"{tmp_path}/manifests/1"),
        lmdb.Error(f"{tmp_path}: {os.strerror(number)}"),
    ):
        says = pytest.raises(DiskFull, match=rf"^not allowed to write .*{tmp_path}.*lsattr")
        with says as told, raising_disk_full(tmp_path / "state", tmp_path):
            raise error
        assert "\n" not in str(told.value)


@pytest.mark.parametrize("file", [None, "/elsewhere/a"])
def test_other_errors_pass_as_they_are(tmp_path, file):
    with pytest.raises(PermissionError), raising_disk_full(tmp_path):
        raise PermissionError(errno.EACCES, "no", file)


def test_inodes_that_are_used_up_are_named(tmp_path, small_disk):
    subprocess.run(["mount", "-o", "remount,nr_inodes=20", str(small_disk)], check=True)
    says = pytest.raises(DiskFull, match=r"MiB free, but none of 20 inodes")
    with says, raising_disk_full(tmp_path, small_disk / "not" / "made"):
        for number in range(20):
            (small_disk / f"{number}").mkdir()


def test_a_worker_that_spark_ended_with_its_round_is_no_death_of_the_copy(copy, tmp_path):
    with guarded(copy, ME):
        pass

    def ended(cancellation):
        def work():
            with guarded(copy, ME, cancellation):
                os.kill(os.getpid(), signal.SIGKILL)

        worker = multiprocessing.get_context("fork").Process(target=work)
        worker.start()
        worker.join(30)

    for round_ in range(4):
        mark = tmp_path / f"called-off-{round_}"
        ended(mark)
        mark.touch()
    with guarded(copy, ME):
        assert copy.exists()
    for _ in range(2):
        ended(tmp_path / "not-called-off")
    with guarded(copy, ME):
        assert not copy.exists()


def test_a_look_at_a_copy_that_is_open_takes_no_mark(copy, monkeypatch):
    warm.WARM.clear()  # a test before may have left it on
    pool = warm.Warm(most=3)
    monkeypatch.setattr(warm, "WARM", pool)
    with Copy(copy, ["s"]) as opened:
        at = opened.position()
    mark = copy.with_name(".0_0.read")
    assert position_of(copy, ME).at == at
    assert not mark.exists()
    pool.clear()
    assert position_of(copy, ME).at == at
    assert mark.exists()
