"""Who owns a state directory, and who may take one over. Owners are real processes, dead and alive."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from taskplace.spark.messages import Change, History, Owner, Position
from taskplace.spark.state.copy import Copy
from taskplace.spark.worker import identity
from taskplace.spark.worker.identity import ORPHANED, OWNER, WORKERS, home, remove_orphans


class Process:
    """A process that lives until it is told otherwise."""

    def __init__(self) -> None:
        self.popen = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
        self.owner = identity.owner_of(psutil.Process(self.popen.pid))

    def end(self, *, reap: bool = True) -> Owner:
        self.popen.kill()
        if reap:
            self.popen.wait(30)
        else:
            os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOWAIT)
        return self.owner


@pytest.fixture
def process() -> Iterator[type[Process]]:
    made: list[Process] = []

    def make() -> Process:
        made.append(Process())
        return made[-1]

    yield make
    for one in made:
        one.end()
        one.popen.stdin.close()


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "state"


def test_a_home_is_below_its_root_whatever_the_application_is_called(root):
    assert home(root, "../../elsewhere").parent == root


def directory(root: Path, name: str, owner: Owner, *workers: Owner, copies: int = 1) -> Path:
    """Make a state directory, as its owner would have left it."""
    path = root / name
    (path / WORKERS).mkdir(parents=True)
    (path / OWNER).write_bytes(owner.encode())
    for worker in workers:
        (path / WORKERS / str(worker.pid)).write_bytes(worker.encode())
    for i in range(copies):
        (path / f"0_{i}").mkdir()
        (path / f"0_{i}" / "data.mdb").write_text(name)
    return path


def owner_of(path: Path) -> Owner:
    return Owner(**json.loads((path / OWNER).read_text()))


# -- processes


@pytest.mark.parametrize("reap", [True, False])
def test_a_process_is_alive_until_it_ends_and_one_with_its_id_is_another(process, reap):
    one = process()
    assert identity.alive(one.owner)
    assert not identity.alive(replace(one.owner, started=one.owner.started - 100))
    assert not identity.alive(replace(one.owner, boot="another boot"))
    one.end(reap=reap)  # a zombie is dead
    assert not identity.alive(one.owner)


def test_setting_the_clock_does_not_kill_anybody(process, monkeypatch):
    """The wall-clock start of a process is counted from the boot's, which moves with the clock."""
    living = process().owner
    really = psutil._pslinux.boot_time if hasattr(psutil, "_pslinux") else psutil.boot_time
    for module in (psutil, getattr(psutil, "_pslinux", psutil)):
        monkeypatch.setattr(module, "boot_time", lambda: really() + 3600)
    assert identity.alive(living)


# -- adoption


def test_a_new_executor_makes_a_directory(root, be_executor):
    be_executor("3")
    path = home(root, "app")
    assert path == root / "app.3"
    assert owner_of(path) == identity.executor()[1]
    assert identity.alive(Owner.decode((path / WORKERS / str(os.getpid())).read_bytes()))
    identity.home.cache_clear()
    assert home(root, "app") == path, "the next worker finds it"


def test_the_directory_of_a_dead_owner_is_taken_over(root, be_executor, process):
    old = directory(root, "old.1", process().end())
    be_executor("3")
    path = home(root, "app")
    assert not old.exists() and path == root / "app.3"
    assert (path / "0_0" / "data.mdb").read_text() == "old.1"
    assert owner_of(path) == identity.executor()[1]
    assert [file.name for file in (path / WORKERS).iterdir()] == [str(os.getpid())]


@pytest.mark.parametrize("who", ["owner", "worker"])
def test_a_directory_in_which_somebody_lives_is_kept(root, be_executor, process, who):
    """The executor's JVM may have been killed, while one of its Python workers is still writing."""
    living = process()
    old = (
        directory(root, "old.1", living.owner)
        if who == "owner"
        else directory(root, "old.1", process().end(), process().end(), living.owner)
    )
    be_executor("3")
    assert not (home(root, "app") / "0_0").exists() and old.exists()
    assert remove_orphans(root, -1.0) == []
    living.end()
    be_executor("4")
    assert (home(root, "app") / "0_0").exists() and not old.exists()


@pytest.mark.parametrize("name", ["old.1", "app.3"])
def test_copies_of_another_boot_are_removed(root, be_executor, process, name):
    """Also its own: a cluster manager may start an application again under its old id."""
    lost = directory(root, name, replace(process().end(), boot="before the crash"))
    (lost / "0_0" / "lost").touch()
    good = directory(root, "old.2", process().end())
    be_executor("3")
    path = home(root, "app")
    assert not good.exists() and not list(root.glob("*/0_0/lost"))
    assert (path / "0_0" / "data.mdb").read_text() == "old.2"
    assert owner_of(path) == identity.executor()[1]


def used(path: Path, seconds_ago: float) -> None:
    """Make a state directory one whose copies were last written so long ago."""
    for i, file in enumerate(sorted(path.glob("*/data.mdb"))):
        os.utime(file, (time.time() - seconds_ago - 100 * i,) * 2)


def test_each_orphan_is_taken_over_once_the_freshest_first(root, be_executor, process):
    """Copies tell, not directories: that of an executor that never had a task, or of a cut-short adoption, is newer."""
    for name, seconds_ago in (("old.1", 3 * 86400), ("old.2", 5), ("old.3", 1), ("old.4", 600)):
        used(directory(root, name, process().end(), copies=3), seconds_ago)
    directory(root, "never.5", process().end(), copies=0)
    identity._write(root / "old.1" / OWNER, process().end())
    taken = []
    for executor in ("3", "4", "5", "6", "7", "8"):
        be_executor(executor)
        path = home(root, "app") / "0_0" / "data.mdb"
        taken.append(path.read_text() if path.exists() else None)
    assert taken == ["old.3", "old.2", "old.4", "old.1", None, None]
    assert not (root / "never.5").exists(), "it was taken over, last"


def test_a_copy_that_was_written_last_makes_its_directory_the_freshest(root, be_executor, process):
    """What real copies leave: an attempt, and a follower that finds nothing to do, write both."""
    dead = process().end()
    for name in ("old.1", "old.2", "old.3"):
        with Copy(directory(root, name, dead, copies=0) / "0_0", ["s"]) as copy:
            copy.bring_to(History(), root)
            copy.commit({"s": {b"k": name.encode()}}, Position(0, "a", 1))
    for path in root.glob("*/0_0/data.mdb"):
        os.utime(path, (time.time() - 60,) * 2)
    with Copy(root / "old.2" / "0_0", ["s"]) as copy:
        copy.bring_to(History((Change(0, "a", "", 1, 1),)), root)
        copy.commit_unchanged()
    be_executor("3")
    with Copy(home(root, "app") / "0_0", ["s"]) as copy:
        copy.bring_to(History((Change(0, "a", "", 1, 1),)), root)
        assert copy.get_many("s", [b"k"]) == [b"old.2"]


def test_of_two_executors_one_gets_it(root, be_executor, process):
    """Two processes ask at once; which one wins does not matter."""
    directory(root, "old.1", process().end())
    context = multiprocessing.get_context("fork")
    barrier, got = context.Barrier(2), context.Queue()

    def ask(executor: str) -> None:
        be_executor(executor)
        barrier.wait(30)
        got.put((home(root, "app") / "0_0").exists())

    asking = [context.Process(target=ask, args=(executor,)) for executor in ("3", "4")]
    for one in asking:
        one.start()
    assert sorted(got.get(timeout=30) for _ in asking) == [False, True]
    for one in asking:
        one.join(30)


def test_its_own_directory_gets_its_new_owner(root, be_executor, process):
    be_executor("3")
    directory(root, "app.3", process().end())
    path = home(root, "app")
    assert (path / "0_0").exists() and owner_of(path) == identity.executor()[1]
    be_executor("4")
    assert not (home(root, "app") / "0_0").exists(), "and nobody takes it from under its feet"


@pytest.mark.parametrize("killed_before", ["replace", "rename", "rmtree"])
def test_killed_while_it_takes_over_it_loses_nothing(root, be_executor, process, monkeypatch, killed_before):
    """Whatever was done of an adoption, the next executor finds the copies."""
    directory(root, "old.1", process().end())

    def take_over_and_die() -> None:
        owner = identity.owner_of(psutil.Process())
        monkeypatch.setattr(identity, "executor", lambda: ("3", owner))
        identity.home.cache_clear()
        target = identity.shutil if killed_before == "rmtree" else identity.Path
        monkeypatch.setattr(target, killed_before, lambda *_, **__: os._exit(9))
        home(root, "app")

    child = multiprocessing.get_context("fork").Process(target=take_over_and_die)
    child.start()
    child.join(30)
    assert child.exitcode == 9
    be_executor("4")
    assert (home(root, "app") / "0_0" / "data.mdb").read_text() == "old.1"


def test_strange_things_in_the_directory_are_left_alone(root, be_executor, process):
    (root / "mine").mkdir(parents=True)
    (root / "note.txt").write_text("hello")
    be_executor("3")
    assert not (home(root, "app") / "0_0").exists()
    assert remove_orphans(root, -1.0) == []
    assert {path.name for path in root.iterdir()} == {"mine", "note.txt", "app.3", ".lock"}


@pytest.mark.parametrize("owner", ["", '{"pid": 1'])
def test_a_directory_whose_owner_cannot_be_told_is_not_taken_over_but_goes_in_time(
    root, be_executor, process, owner
):
    worker = process()
    torn = directory(root, "torn", process().end())
    (torn / OWNER).write_text(owner)
    (torn / WORKERS).mkdir(exist_ok=True)
    (torn / WORKERS / "1").write_bytes(worker.owner.encode())
    be_executor("3")
    assert not (home(root, "app") / "0_0").exists()
    assert remove_orphans(root, -1.0) == []  # somebody works there
    worker.end()
    assert remove_orphans(root, 600.0) == []
    assert remove_orphans(root, -1.0) == ["torn"]


# -- removal


def orphaned_since(path, seconds):
    mark = json.loads((path / ORPHANED).read_text())
    (path / ORPHANED).write_text(json.dumps({**mark, "since": mark["since"] - seconds}))


@pytest.mark.parametrize("copies", [0, 2])
def test_orphans_are_removed_when_nobody_came_for_so_long(root, process, copies):
    dead = process().end()
    old, recent = directory(root, "old.1", dead, copies=copies), directory(root, "old.2", dead, copies=copies)
    living = directory(root, "old.3", process().owner, copies=copies)
    assert remove_orphans(root, 600.0) == []
    orphaned_since(old, 601)
    orphaned_since(recent, 599)
    assert remove_orphans(root, 600.0) == ["old.1"]
    assert not old.exists() and recent.exists() and living.exists()


@pytest.mark.parametrize("mark", ["", "{}", '{"boot": "another", "since": -9e9}', "null"])
def test_a_mark_that_says_nothing_here_is_made_again(root, process, mark):
    old = directory(root, "old.1", process().end())
    (old / ORPHANED).write_text(mark)
    assert remove_orphans(root, 600.0) == []
    orphaned_since(old, 601)
    assert remove_orphans(root, 600.0) == ["old.1"]


def test_who_takes_a_directory_over_begins_anew(root, be_executor, process):
    for old in (directory(root, "old.1", process().end()), directory(root, "app.4", process().end())):
        remove_orphans(root, 600.0)
        orphaned_since(old, 599)
    for executor in "34":
        be_executor(executor)
        path = home(root, "app")
        assert (path / "0_0").exists() and not (path / ORPHANED).exists()


# -- which executor


def test_a_worker_finds_the_id_in_its_ancestors_command_line():
    ask = "from taskplace.spark.worker import identity as i; e, o = i.executor(); print(e, o.pid)"
    middle = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[-1]], check=True)"
    jvm = subprocess.Popen(
        [
            sys.executable,
            "-c",
            middle,
            "--driver-url",
            "spark://x",
            "--executor-id",
            "17",
            "--cores",
            "2",
            ask,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = jvm.communicate(timeout=60)
    assert out.split() == ["17", str(jvm.pid)]


def test_what_workers_that_have_gone_left_is_removed_by_the_next_one(root, be_executor, process):
    be_executor("1")
    path = home(root, "app")
    dead, alive = process(), process()
    for one in (dead, alive):
        (path / WORKERS / f"{one.owner.pid}").write_bytes(one.owner.encode())
    (path / f"{identity.REMOVED}copy").mkdir()
    dead.end()
    be_executor("1")
    assert home(root, "app") == path
    assert {int(file.name) for file in (path / WORKERS).iterdir()} == {os.getpid(), alive.owner.pid}
    assert not list(path.glob(".*"))
