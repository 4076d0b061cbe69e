"""The checkpoint's own rules, without Spark: what is kept, what is pruned, what a restart finds."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint import journal as journal_module
from taskplace.spark.checkpoint.files import write_file
from taskplace.spark.checkpoint.journal import Journal, Manifests
from taskplace.spark.checkpoint.pruning import SETTLED_SECONDS, Listings
from taskplace.spark.messages import FollowRequest
from tests.support.journals import change, run_batches, snapshot
from topology import TaskId


def files(journal):
    """Return the files of changelogs and snapshots."""
    there = (*journal.root.glob("changelog/**/*.*"), *journal.root.glob("snapshots/*/*"))
    return {str(path.relative_to(journal.root)) for path in there}


def test_a_task_that_changes_once_does_not_hold_manifests_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "FULL_EVERY", 10)
    journal = Journal(tmp_path, {})
    for batch in range(100):
        journal.commit(
            batch, 1, {TaskId(0, 0): change(journal, TaskId(0, 0), batch)} if batch == 3 else {}, {}, {}
        )
        journal.prune()
    kept = sorted(int(path.stem) for path in (tmp_path / "manifests").iterdir())
    assert kept == list(range(80, 100))
    again = Journal(tmp_path, {})
    assert again.history == journal.history
    assert again.history[TaskId(0, 0)].end.version == 3
    assert files(again) == {
        change_file for c in again.history[TaskId(0, 0)].changes for change_file in [c.file]
    }


def test_of_the_batch_before_the_last_one_marks_and_staged_output_stay(tmp_path):
    """By the mark of its cancelled round, an attempt that still runs ends."""
    kinds = (
        "attempts/0/r-0_0-1.json",
        "attempts/0/called-off-r-0",
        "inputs/0.listing",
        "topics/t/x",
        "sinks/out/x",
    )
    for batch in range(3):
        for kind in kinds:
            write_file(tmp_path / f"batches/{batch:010d}" / kind, b"x", sync=False)
    journal = Journal(tmp_path, {})
    for batch in range(3):
        journal.commit(batch, 1, {}, {}, {})
    journal.prune()
    left = {
        str(path.relative_to(tmp_path / "batches"))
        for path in tmp_path.glob("batches/**/*")
        if path.is_file()
    }
    assert left == {
        *(f"{2:010d}/{kind}" for kind in kinds),
        f"{1:010d}/attempts/0/called-off-r-0",
        f"{1:010d}/sinks/out/x",
    }


def test_a_restart_finds_every_history_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "FULL_EVERY", 7)
    journal = Journal(tmp_path, {})
    for batch in range(40):
        changed = [TaskId(0, i) for i in range(4) if batch % (i + 1) == 0]
        journal.commit(batch, 1, {task: change(journal, task, batch) for task in changed}, {}, {})
        if batch % 5 == 4:
            journal.add_snapshots({task: snapshot(journal, task) for task in changed[:2]})
        journal.prune()
        assert Journal(tmp_path, {}).history == journal.history
        journal = Journal(tmp_path, {})
    named = {c.file for h in journal.history.values() for c in h.changes}
    named |= {s.file for h in journal.history.values() for s in h.snapshots}
    assert named <= files(journal)


def test_pruning_lists_the_directories_of_tasks_whose_snapshots_have_changed(tmp_path, monkeypatch):
    """What somebody else leaves there, such as a follow job that was given up, goes as before."""
    now, listed, stamps = [0.0], [], itertools.count(1)
    journal, tasks = Journal(tmp_path, {}), [TaskId(0, partition) for partition in range(5)]
    journal._listings = Listings(clock=lambda: now[0])
    really_list = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(Path(path)) or really_list(path))

    def changed(folder):
        """Give each change a time of its own: the file system's clock may tick less often than this test changes."""
        os.utime(folder, ns=(next(stamps),) * 2)

    def go_on(batch, *snapshots):
        """Run a batch, and return the tasks whose directories pruning has listed."""
        now[0] += 2 * SETTLED_SECONDS
        journal.commit(batch, 1, {task: change(journal, task, batch) for task in tasks}, {}, {})
        journal.add_snapshots({task: snapshot(journal, task) for task in snapshots})
        for task in snapshots:
            changed(tmp_path / "snapshots" / str(task))
        before = files(journal)
        listed.clear()
        journal.prune()
        found = sorted(path.name for path in listed if path.parent == tmp_path / "snapshots")
        for folder in {(tmp_path / file).parent for file in before - files(journal)}:
            changed(folder)
        return found

    for batch in range(3):
        go_on(batch, *tasks)
    for batch in range(3, 6):  # to prune, and for changes within one tick of the file system's clock
        go_on(batch)
    assert go_on(6) == []
    assert go_on(7, *tasks[1:3]) == ["0_1", "0_2"]
    for batch in range(8, 11):
        assert go_on(batch) == ["0_1", "0_2"]
    assert go_on(11) == []
    stray = tmp_path / "snapshots" / "0_3" / f"{7:010d}-stray.arrow"
    write_file(stray, b"s", sync=False)
    changed(stray.parent)
    assert go_on(12) == ["0_3"]
    assert not stray.exists()
    named = {s.file for h in journal.history.values() for s in h.snapshots}
    assert named == {file for file in files(journal) if file.startswith("snapshots/")}


def request(**what):
    return FollowRequest("executor-1", "checkpoint", "state", "app", {}, {}, **what)


def test_what_a_follow_job_makes_and_reads_is_not_pruned_until_it_ends(tmp_path):
    """Nobody knows yet of a snapshot that was just made."""
    task = TaskId(0, 0)
    journal = Journal(tmp_path, {})
    for batch in range(3):
        journal.commit(batch, 1, {task: change(journal, task, batch)}, {}, {})
    begun = journal.history[task]
    read = {change.file for change in begun.changes}
    with journal.protected(request(follow={task: begun})):
        with journal.protected(request(snapshot={task: begun})):
            assert journal.snapshot_running(task)
            made = snapshot(journal, task)
            for batch in range(3, 6):  # the end moves on, and snapshots make the changes unneeded
                journal.commit(batch, 1, {task: change(journal, task, batch)}, {}, {})
                journal.add_snapshots({task: snapshot(journal, task)})
            journal.commit(6, 1, {}, {}, {})
            journal.prune()
            assert made.file in files(journal)
        assert not journal.snapshot_running(task)
        journal.prune()
        assert made.file not in files(journal)
        assert read <= files(journal)
        assert not read & {change.file for change in journal.history[task].changes}
    journal.prune()
    assert not read & files(journal)


def test_a_snapshot_that_is_being_restored_outlives_newer_ones(tmp_path):
    journal = Journal(tmp_path, {})

    def go_on(batch):
        journal.commit(batch, 1, {TaskId(0, 0): change(journal, TaskId(0, 0), batch)}, {}, {})
        journal.add_snapshots({TaskId(0, 0): snapshot(journal, TaskId(0, 0))})
        journal.prune()

    for batch in range(2):
        go_on(batch)
    begun = journal.history[TaskId(0, 0)].snapshots[0]
    journal.spared = frozenset({(TaskId(0, 0), begun.attempt)})
    for batch in range(2, 7):
        go_on(batch)
        kept = journal.history[TaskId(0, 0)]
        assert kept.snapshots[0] == begun and begun.file in files(journal)
        assert len(kept.snapshots) <= 3
        assert [change.version for change in kept.changes] == list(range(begun.version + 1, batch + 1))
    journal.spared = frozenset()
    for batch in range(7, 9):
        go_on(batch)
    assert begun not in journal.history[TaskId(0, 0)].snapshots and begun.file not in files(journal)
    assert Journal(tmp_path, {}).history == journal.history


def test_follow_jobs_without_a_break_do_not_make_the_checkpoint_grow(tmp_path):
    """On a fast machine the next job begins before the batch thread gets to prune, every time."""
    journal = Journal(tmp_path, {})
    kept = []
    for batch in range(40):
        with journal.protected(request(follow=journal.history, snapshot=journal.history)):
            named = {c.file for h in journal.history.values() for c in h.changes}
            named |= {s.file for h in journal.history.values() for s in h.snapshots}
            journal.commit(batch, 1, {TaskId(0, 0): change(journal, TaskId(0, 0), batch)}, {}, {})
            journal.prune()
            assert named <= files(journal)  # what the job's request may name
            if batch % 3 == 0:
                journal.add_snapshots({TaskId(0, 0): snapshot(journal, TaskId(0, 0))})
        kept.append(len(files(journal)) + len(list((tmp_path / "manifests").iterdir())))
    assert max(kept[10:]) == max(kept[20:]) < 25


def test_a_gap_and_a_damaged_manifest_are_named(tmp_path):
    journal = Journal(tmp_path, {})
    for batch in range(3):
        journal.commit(batch, 1, {}, {}, {})
    (tmp_path / "manifests" / "0000000001.json").rename(tmp_path / "kept")
    with pytest.raises(CheckpointError, match="the manifest of batch 1 is missing"):
        Journal(tmp_path, {})
    (tmp_path / "manifests" / "0000000001.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"0000000001\.json: damaged manifest"):
        Journal(tmp_path, {})


def test_what_a_checkpoint_is_bound_to(tmp_path):
    journal = Journal(tmp_path, {"hash": "one", "query": None})
    journal.bind("query", "q1")
    journal.commit(0, 1, {}, {}, {})
    with pytest.raises(CheckpointError, match="created with hash = 'one', found 'two'"):
        Journal(tmp_path, {"hash": "two"})
    with pytest.raises(CheckpointError, match="belongs to query 'q1', found 'q2'"):
        Journal(tmp_path, {"hash": "one"}).bind("query", "q2")


def test_opening_while_another_driver_prunes(tmp_path, monkeypatch):
    journal = Journal(tmp_path, {})
    run_batches(journal, range(5))
    read, gone = Manifests._read, []

    def reading(self, batch):
        if not gone:
            gone.append(batch)
            run_batches(journal, range(5, 15))
        return read(self, batch)

    monkeypatch.setattr(Manifests, "_read", reading)
    again = Journal(tmp_path, {})
    assert (again.history, again.last_batch) == (journal.history, 14)


def test_everything_in_a_checkpoint_is_private(tmp_path):
    mask = os.umask(0o022)
    try:
        journal = Journal(tmp_path / "a" / "checkpoint", {})
        run_batches(journal, range(3))
    finally:
        os.umask(mask)
    found = {path.stat().st_mode & 0o777 for path in journal.root.rglob("*") if path.is_dir()}
    assert found | {journal.root.stat().st_mode & 0o777} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in journal.root.rglob("*") if path.is_file()} == {0o600}
    assert journal.root.parent.stat().st_mode & 0o777 == 0o755


def test_what_killed_processes_had_begun_to_write_goes_after_an_hour(tmp_path):
    journal = Journal(tmp_path, {})
    run_batches(journal, [0])
    begun = [
        "manifests/.0000000001.1234",
        "epochs/.0000000001.1234",
        "snapshots/0_0/old.arrow.executor-1.tmp",
    ]
    for name in (*begun, "snapshots/0_0/new.arrow.executor-1.tmp"):
        write_file(tmp_path / name, b"x", sync=False)
    for name in begun:
        os.utime(tmp_path / name, (1e9, 1e9))
    assert Journal(tmp_path, {}).last_batch == 0
    Journal(tmp_path, {}).prune()
    assert not any((tmp_path / name).exists() for name in begun)
    assert (tmp_path / "snapshots/0_0/new.arrow.executor-1.tmp").exists()
