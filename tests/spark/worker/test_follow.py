"""Follow jobs: followers catch up, snapshots are made, left-overs go, and the answer says what there is."""

from __future__ import annotations

import os
import shutil
import signal

import lmdb
import pytest

from taskplace.spark import faults
from taskplace.spark.checkpoint.files import RecordFile, decode_records, read_sealed
from taskplace.spark.messages import EMPTY, History
from taskplace.spark.state.copy import Copy
from taskplace.spark.worker import identity
from tests.support.attempt_files import damage
from tests.support.copies import peek
from tests.support.follow_jobs import ROWS, orders, run_job
from topology import TaskId


def ends(runtime):
    return {task: history.end for task, history in runtime.history.items()}


def test_a_newcomer_follows_to_the_end(ran):
    done = run_job(ran, orders(ran, follow=ran.history))
    assert (done.here, done.errors, done.unfinished, done.restored) == (True, {}, False, 0)
    assert done.copies == ends(ran)
    assert done.replayed == sum(history.end.offset for history in ran.history.values())
    assert done.pid == identity.executor()[1].pid
    for task in ran.history:
        assert ran.contents(task, "2") == ran.contents(task, "1")


def test_a_follower_applies_what_is_new_and_no_more(ran):
    run_job(ran, orders(ran, follow=ran.history))
    before = ends(ran)
    ran.run_batch([("N1", 77)])
    done = run_job(ran, orders(ran, follow=ran.history))
    assert done.replayed == sum(h.end.offset - before.get(t, EMPTY).offset for t, h in ran.history.items())
    assert run_job(ran, orders(ran, follow=ran.history)).replayed == 0


def test_on_another_executor_it_does_nothing(ran):
    run_job(ran, orders(ran, follow=ran.history))
    before = sorted(ran.state.rglob("*")), ran.files()
    ran.run_batch([("N1", 77)])
    files = ran.files()
    done = run_job(
        ran,
        orders(ran, follow=ran.history, snapshot=ran.history, remove=list(ran.history), orphans_after=0.0),
        executor="3",
    )
    assert (done.here, done.instance, done.copies, done.removed, done.snapshots) == (
        False,
        "executor-3",
        {},
        [],
        {},
    )
    assert sorted(ran.state.rglob("*")) == before[0]
    assert ran.files() == files


def test_a_snapshot_is_the_whole_state(ran):
    made = run_job(ran, orders(ran, follow=ran.history, snapshot=ran.history))
    assert set(made.snapshots) == set(ran.history)
    for task, snapshot in made.snapshots.items():
        assert snapshot.position == ran.history[task].end
        rows = decode_records((ran.checkpoint / snapshot.file).read_bytes())
        assert snapshot.records == sum(len(entries) for _, entries in rows)
        # From the snapshot alone, with all changes trimmed.
        ran.history[task] = History((), (snapshot,))
    shutil.rmtree(ran.checkpoint / "changelog")
    done = run_job(ran, orders(ran, "executor-3", follow=ran.history), executor="3")
    assert done.copies == ends(ran) and not done.errors
    assert (done.replayed, done.restored) == (0, sum(s.records for s in made.snapshots.values()))
    for task in ran.history:
        assert ran.contents(task, "3") == ran.contents(task, "2")
    assert not ran.files("*.tmp")


def test_a_snapshot_whose_report_was_lost_is_reported_again(ran):
    """The executor that made it died before it could answer; another one is asked."""
    lost = run_job(ran, orders(ran, follow=ran.history, snapshot=ran.history))
    files = {
        name: (ran.checkpoint / name).read_bytes() for name in ran.files() if name.startswith("snapshots")
    }
    again = run_job(ran, orders(ran, "executor-1", snapshot=ran.history), executor="1")
    assert again.snapshots == lost.snapshots != {}
    # With other bytes it is another file: a manifest may name the first one all the same.
    other = run_job(ran, orders(ran, "executor-1", snapshot=ran.history, compression="zstd"), executor="1")
    assert not {s.file for s in other.snapshots.values()} & set(files)
    assert files == {name: (ran.checkpoint / name).read_bytes() for name in files}


@pytest.mark.parametrize("compression", ["lz4", None])
def test_a_snapshot_that_was_damaged_before_anybody_named_it_is_made_again(ran, compression):
    """Its executor died before it could report it; whatever has become of the file, it is given no seal."""
    run_job(ran, orders(ran, follow=ran.history))
    given = orders(ran, snapshot={TaskId(0, 0): ran.history[TaskId(0, 0)]}, compression=compression)
    first = run_job(ran, given).snapshots[TaskId(0, 0)]
    file = ran.checkpoint / first.file
    whole = file.read_bytes()
    for at in range(0, len(whole), 37):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        again = run_job(ran, given).snapshots[TaskId(0, 0)]
        assert again.file != first.file
        assert read_sealed(ran.checkpoint / again.file, again.size, again.checksum).to_pybytes() == whole


def test_no_snapshot_of_anything_but_the_committed_end(ran):
    task = next(t for t in ran.history if t.subtopology == 0)
    run_job(ran, orders(ran, follow={task: ran.history[task]}))
    older = History(ran.history[task].changes[:-1])
    assert run_job(ran, orders(ran, snapshot={task: older})).snapshots == {}, "the copy is beyond it"
    ran.attempt(TaskId(0, 0), [("N1", 1)], executor="2")
    ran.attempt(TaskId(0, 1), [("N7", 1)], executor="2")
    ahead = run_job(ran, orders(ran, snapshot={task: ran.history[task]}))
    assert ahead.snapshots == {}, "its last attempt was never committed"
    assert run_job(ran, orders(ran, "executor-3", snapshot=ran.history), executor="3").snapshots == {}, (
        "no copy"
    )
    assert not [name for name in ran.files() if name.startswith("snapshots")]


def test_stores_without_changelog_are_in_no_snapshot(ran):
    task = TaskId(0, 0)
    given = orders(ran, "executor-1", logged={0: ["totals"], 1: ["days"]}, snapshot={task: ran.history[task]})
    assert ran.contents(task)["planes"]
    snapshot = run_job(ran, given, executor="1").snapshots[task]
    assert snapshot.records == len(ran.contents(task)["totals"])


def test_what_cannot_be_read_is_told_and_the_others_follow(ran):
    tasks = sorted(ran.history)
    damage(ran.checkpoint, ran.history[tasks[0]].changes[-1])
    done = run_job(ran, orders(ran, follow=ran.history))
    assert list(done.errors) == [tasks[0]]
    assert done.errors[tasks[0]].startswith("CheckpointError: ") and "torn" not in done.errors[tasks[0]]
    end = ends(ran)
    assert {task: end[task] for task in tasks[1:]} == {
        t: at for t, at in done.copies.items() if t != tasks[0]
    }
    assert done.copies[tasks[0]] in [change.position for change in ran.history[tasks[0]].changes[:-1]] + [
        EMPTY
    ]


def test_a_snapshot_that_cannot_be_written_is_told(ran):
    (ran.checkpoint / "snapshots").write_text("a file where the folder should be")
    done = run_job(ran, orders(ran, "executor-1", snapshot=ran.history), executor="1")
    assert set(done.errors) == set(ran.history) and done.snapshots == {}
    assert set(done.copies) >= set(ran.history), "the job says what it found, all the same"


def test_a_follower_leaves_newer_work_alone(ran):
    run_job(ran, orders(ran, follow=ran.history))
    task = next(t for t in ran.history if t.subtopology == 0)
    pending = ran.attempt(task, ROWS[0], executor="2")
    done = run_job(ran, orders(ran, follow={task: ran.history[task]}))
    assert (done.replayed, done.errors) == (0, {})
    assert done.copies[task] == ran.history[task].end, "what is certain"
    ran.commit(pending)
    run_job(ran, orders(ran, follow={task: ran.history[task]}))
    assert ran.contents(task, "2") == ran.contents(task, "1")


def test_out_of_time_it_says_so(ran):
    done = run_job(ran, orders(ran, follow=ran.history, snapshot=ran.history, budget=-1.0))
    assert (done.unfinished, done.snapshots) == (True, {})
    assert len(done.copies) == 1  # one step at least, so that jobs without end cannot come to nothing
    assert not run_job(ran, orders(ran, follow=ran.history)).unfinished


def test_left_overs_go(ran):
    run_job(ran, orders(ran, follow=ran.history))
    task = sorted(ran.history)[0]
    done = run_job(ran, orders(ran, remove=[task, TaskId(0, 77)]))
    assert done.removed == [task, TaskId(0, 77)] and task not in done.copies
    assert not ran.copy(task, "2").exists()
    assert set(done.copies) == set(ran.history) - {task}
    assert ran.copy(task, "1").exists(), "only here"


def test_copies_that_are_no_copies_do_not_count(ran):
    run_job(ran, orders(ran, follow=ran.history))
    (ran.copy(TaskId(0, 88), "2")).mkdir()
    of_no_task = ran.copy(TaskId(0, 0), "2").with_name("not_a_task")
    shutil.copytree(ran.copy(TaskId(0, 0), "2"), of_no_task)
    damaged = ran.copy(sorted(ran.history)[0], "2") / "data.mdb"
    damaged.write_bytes(b"x" * 9000)
    assert set(run_job(ran, orders(ran)).copies) == set(ran.history) - {TaskId.parse(damaged.parent.name)}


def kill_at_the_second_piece(path, stores, history, root, folder):
    """In a forked process: restore, and be killed between two pieces by an order."""
    child = os.fork()
    if child == 0:
        os.environ["TASKPLACE_FAULTS"] = str(folder)
        faults.worker_of(os.getpid())  # it is its own executor
        with Copy(path, stores) as copy:
            copy.follow(history, root)
        os._exit(1)  # nobody has killed it
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_who_is_killed_between_two_pieces_of_a_restore_leaves_the_rest_to_the_next(ran, tmp_path):
    made = run_job(ran, orders(ran, "executor-1", snapshot=ran.history), executor="1")
    snapshot = made.snapshots[TaskId(0, 0)]
    pieces = len(RecordFile((ran.checkpoint / snapshot.file).read_bytes()))
    assert pieces > 1, "one for each store"
    ran.history[TaskId(0, 0)] = History((), (snapshot,))
    order = tmp_path / "restore.piece"
    order.write_text("kill")
    path = ran.copy(TaskId(0, 0), "2")
    died = kill_at_the_second_piece(
        path, sorted(ran.first.stores), ran.history[TaskId(0, 0)], ran.checkpoint, tmp_path
    )
    assert (died, order.exists()) == (-signal.SIGKILL, False)
    assert peek(path) is None, "half of a state is none"
    done = run_job(ran, orders(ran, follow={TaskId(0, 0): ran.history[TaskId(0, 0)]}))
    assert 0 < done.restored < snapshot.records, "the first piece is not loaded again"
    assert done.copies == {TaskId(0, 0): snapshot.position}
    assert ran.contents(TaskId(0, 0), "2") == ran.contents(TaskId(0, 0), "1")


def test_of_foreign_errors_the_log_of_the_executor_has_the_place_and_no_values(ran, monkeypatch, caplog):
    def fails(*_):
        raise ValueError("the row of N7 is bad")

    monkeypatch.setattr(Copy, "follow", fails)
    task = TaskId(0, 0)
    done = run_job(ran, orders(ran, follow={task: ran.history[task]}))
    assert done.errors == {task: "ValueError"}
    assert "the copy of task 0_0 cannot follow: ValueError, raised by" in caplog.text
    assert f'"{__file__}"' in caplog.text and "is bad\n" not in caplog.text


def test_damage_that_lmdb_finds_is_that_of_an_entry(ran, monkeypatch):
    def fails(*_):
        raise lmdb.CorruptedError("Located page was wrong type")

    run_job(ran, orders(ran, follow=ran.history))
    monkeypatch.setattr(Copy, "dump", fails)
    task = TaskId(0, 0)
    done = run_job(ran, orders(ran, snapshot={task: ran.history[task]}))
    assert done.errors[task].startswith("DamagedEntry: Located page was wrong type")
    assert done.errors[task].endswith("; the copy is discarded") and task in done.removed
