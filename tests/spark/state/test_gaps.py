"""Copies that are not whole, and files that are cut: never a source of snapshots, reads, or dead workers."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.spark.checkpoint.files import lasting_directory, write_file
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import EMPTY, FollowRequest, History, Position, Snapshot
from taskplace.spark.processors import Count
from taskplace.spark.state import environment
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.state.transaction import View
from taskplace.spark.worker.follow import follow
from tests.support.copies import peek, snapshot_of
from topology import TaskId

FLIGHTS = [("a", 1), ("b", 2)]
PLANES = [("a", 10), ("b", 20)]


def without(program, store):
    """The program of a topology without the processor of that store."""
    operators = tuple(o for o in program.operators if store not in o.stores and o.name != "out")
    stores = {name: schema for name, schema in program.stores.items() if name != store}
    return replace(program, operators=operators, stores=stores)


def orders(runtime, program, **what):
    stores = {program.subtopology: sorted(program.databases)}
    return FollowRequest(
        "executor-2", str(runtime.checkpoint), str(runtime.state), "app", stores, stores, **what
    )


@pytest.fixture
def ran(runtime):
    runtime.run_batch(FLIGHTS, PLANES)
    runtime.run_batch(FLIGHTS, PLANES)
    return runtime


def test_a_copy_with_gaps_is_neither_dumped_nor_read(ran):
    history, full = ran.history[TaskId(0, 0)], ran.first
    ran.be("2")
    with Copy(ran.copy(TaskId(0, 0), "2"), without(full, "totals").databases) as copy:
        copy.follow(history, ran.checkpoint)
    done = follow(orders(ran, full, snapshot={TaskId(0, 0): history}))
    assert done.snapshots == {}
    with pytest.raises(CheckpointError, match="no usable copy"):
        View(ran.copy(TaskId(0, 0), "2"), "totals", history)
    with Copy(ran.copy(TaskId(0, 0), "2"), full.databases) as copy:
        assert copy.bring_to(history, ran.checkpoint).scratch
    assert ran.contents(TaskId(0, 0), "2") == ran.contents(TaskId(0, 0), "1")


def test_a_snapshot_of_a_topology_that_never_committed_is_not_taken_for_the_whole(ran):
    history, full = {TaskId(0, 0): ran.history[TaskId(0, 0)]}, ran.first
    less = without(full, "totals")
    ran.be("2")
    for program in (less, full):
        with Copy(ran.copy(TaskId(0, 0), "2"), program.databases) as copy:
            copy.bring_to(history[TaskId(0, 0)], ran.checkpoint)
            copy.commit_unchanged()
        made = follow(orders(ran, program, snapshot=history)).snapshots[TaskId(0, 0)]
    truth = ran.contents(TaskId(0, 0), "1")
    ran.history[TaskId(0, 0)] = History((), (made,))
    ran.be("3")
    assert ran.contents(TaskId(0, 0), "3") == truth


def test_what_a_wipe_leaves_of_other_stores_is_not_taken_up_again(tmp_path, committed, contents):
    history = committed(History(), tmp_path, {"x": {b"k": b"1"}, "y": {b"q": b"old"}}, 0)
    with Copy(tmp_path / "c", ["x", "y"]) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit_unchanged()
    later = History((), (snapshot_of(tmp_path, [("x", [(b"k", b"2")])], Position(5, "a5", 9)),))
    with Copy(tmp_path / "c", ["x"]) as copy:
        copy.follow(later, tmp_path)
    with Copy(tmp_path / "c", ["x", "y"]) as copy:
        copy.bring_to(later, tmp_path)
        assert contents(copy) == {"x": {b"k": b"2"}, "y": {}}


def test_a_follow_job_survives_copies_that_were_cut(ran):
    ran.be("1")
    file = ran.copy(TaskId(0, 0)) / "data.mdb"
    whole = file.read_bytes()
    used = len(whole.rstrip(b"\0"))
    assert used > 40_000
    for size in (*range(used - 1, 8192, -4096), 5_000, 100, 0):
        pid = os.fork()
        if not pid:  # who touches what is not there is killed
            with file.open("r+b") as handle:
                handle.truncate(size)
            peek(file.parent)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0, size
        file.write_bytes(whole)


def test_a_restore_that_was_begun_is_finished_though_newer_snapshots_appear(tmp_path, contents):
    def snapshot(version):
        entries = [(f"{i:03}".encode(), b"%d" % version) for i in range(60)]
        pieces = [("s", entries[i : i + 10]) for i in range(0, 60, 10)]
        return snapshot_of(tmp_path, pieces, Position(version, f"a{version}", version), f"s{version}")

    kept = [snapshot(0)]
    with Copy(tmp_path / "c", ["s"]) as copy:
        for version in range(1, 7):
            if version == 3:
                kept.append(snapshot(version))
            copy.follow(History((), tuple(kept[-2:])), tmp_path, pause=lambda: False)
    assert peek(tmp_path / "c") == Position(0, "a0", 0)


def test_epochs_that_were_removed_do_not_begin_again(tmp_path):
    for _ in range(3):
        journal = Journal(tmp_path, {})
    journal.commit(0, 1, {}, {}, {})
    shutil.rmtree(tmp_path / "epochs")
    again = Journal(tmp_path, {})
    assert again.epoch == 4
    (tmp_path / "epochs" / ".nfs0001").touch()
    again.commit(1, 1, {}, {}, {})
    with pytest.raises(Fenced):
        journal.commit(1, 1, {}, {}, {})


def test_a_driver_that_was_taken_over_removes_nothing(tmp_path):
    first = Journal(tmp_path, {})
    write_file(tmp_path / "changelog" / "0_0" / "0000000000-lost.arrow", b"x", sync=False)
    first.history = {TaskId(0, 0): History((), (Snapshot(0, "a", 0, 0, "f", 0, ""),))}
    Journal(tmp_path, {})
    assert first.prune() == 0


def test_more_stores_than_a_copy_can_have():
    from taskplace.spark.compile.programs import programs
    from topology import Topology

    topo = Topology("t")
    source = topo.source("s", key=["k"], partitions=1)
    for number in range(65):
        source.process(Count(f"n{number}", by={"k": "string"}))
    with pytest.raises(InputError, match=r"found .65 stores.*at most 64"):
        programs(topo.build())
    assert environment.MAX_STORES == 64 and EMPTY.version == -1


@pytest.mark.parametrize("length", [1, 479, 480, 511, 600])
def test_keys_of_any_length_are_read_beside_a_writer(tmp_path, committed, length):
    history = committed(History(), tmp_path, {"s": {b"k" * length: b"1", b"other": b"2"}}, 0)
    with Copy(tmp_path / "c", ["s"]) as copy:
        copy.follow(history, tmp_path)
    with View(tmp_path / "c", "s", history) as view:
        assert view.get_many([b"k" * length, b"other", b"x" * length]) == [b"1", b"2", None]
        assert dict(view.scan()) == {b"k" * length: b"1", b"other": b"2"}


def test_a_file_that_another_process_has_made_longer_stays_so(tmp_path):
    with Copy(tmp_path / "c", ["s"]) as copy:
        file = tmp_path / "c" / "data.mdb"
        longer = 4 * file.stat().st_size
        os.truncate(file, longer)
        copy._env.lengthen()
        assert file.stat().st_size == longer


def test_a_folder_of_snapshots_that_is_gone_does_not_stop_commits(tmp_path):
    journal = Journal(tmp_path, {})
    name = "snapshots/0_0/s.arrow"
    write_file(tmp_path / name, b"x", sync=False)
    journal.add_snapshots({TaskId(0, 0): Snapshot(-1, "", 0, 0, name, 1, checksum_of(b"x"))})
    journal.commit(0, 1, {}, {}, {})
    shutil.rmtree(tmp_path / "snapshots")
    assert journal.commit(1, 1, {}, {}, {}).batch == 1


def test_directories_that_may_be_passed_but_not_read_are_left_alone(tmp_path, monkeypatch):
    (tmp_path / "home" / "out").mkdir(parents=True)
    read = os.open

    def refuse(path, *args, **kwargs):
        if Path(path) == tmp_path / "home":
            raise PermissionError(path)
        return read(path, *args, **kwargs)

    listed = Path.iterdir

    def refuse_to_list(path):
        if path == tmp_path / "home":
            raise PermissionError(path)
        return listed(path)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "iterdir", refuse_to_list)
    lasting_directory(tmp_path / "home" / "out")
    lasting_directory(tmp_path / "home" / "out" / "deeper")
    assert (tmp_path / "home" / "out" / "deeper").is_dir()


# -- stores that a later topology does not have, and that come back: copies are right, warm, cold or in between


def come_back(program, store):
    """The program of a topology that has the store again (see `driver/structure.py`)."""
    stores = {**program.stores, store: replace(program.stores[store], incarnation=1)}
    return replace(program, stores=stores)


def totals(runtime, executor):
    found = [row for p in range(2) for row in runtime.contents(TaskId(0, p), executor)["totals"]]
    return {row["tailnum"]: row["flights"] for row in found}


@pytest.fixture
def before(runtime):
    """Two batches with the store `totals`."""
    runtime.run_batch(FLIGHTS, PLANES)
    runtime.run_batch(FLIGHTS, PLANES)
    return runtime


def test_a_cold_copy_follows_a_history_with_records_of_a_store_that_went(before):
    before.first = without(before.first, "totals")
    before.run_batch(FLIGHTS)  # warm
    before.run_batch(FLIGHTS, executor="2")  # cold
    for p in range(2):
        assert before.contents(TaskId(0, p), "2") == before.contents(TaskId(0, p), "1")
    assert [row["seats"] for p in range(2) for row in before.contents(TaskId(0, p), "2")["planes"]] == [
        10,
        20,
    ]


def test_another_store_under_the_same_tasks_starts_empty(before):
    other = Count("other", by={"delay": "int64"})
    operators = tuple(
        replace(o, stores=("other",), processor=other) if o.name == "days" else o
        for o in before.second.operators
    )
    schema = StoreSchema.of("other", other.layouts()["other"])
    before.second = replace(before.second, operators=operators, stores={"other": schema})
    for executor in "12":
        before.run_batch(FLIGHTS, executor=executor)
    rows = [row for p in range(3) for row in before.contents(TaskId(1, p), "2")["other"]]
    assert {row["delay"]: row["count"] for row in rows} == {1: 2, 2: 2}


def test_a_store_that_comes_back_is_empty_on_every_copy(before):
    full = before.first
    before.first = without(full, "totals")
    before.run_batch(FLIGHTS)
    before.first = come_back(full, "totals")
    before.run_batch(FLIGHTS)
    assert totals(before, "1") == {"a": 1, "b": 1}
    before.run_batch(FLIGHTS, executor="2")
    assert totals(before, "1") == totals(before, "2") == {"a": 2, "b": 2}


def test_a_topology_that_never_committed_leaves_no_gaps_in_copies(before):
    """Its followers passed records over; then the old topology came back, and has to see all of them."""
    full, end = before.first, dict(before.history)
    less = without(full, "totals")
    for p in range(2):
        before.be("2")
        with Copy(before.copy(TaskId(0, p), "2"), less.databases) as copy:
            copy.follow(end[TaskId(0, p)], before.checkpoint)
            assert copy.position() == end[TaskId(0, p)].end
    before.run_batch(FLIGHTS, executor="2")  # with the old topology
    assert totals(before, "2") == {"a": 3, "b": 3}


def test_a_lost_attempt_of_a_topology_with_more_stores_is_undone(before):
    full = before.first
    report = before.attempt(TaskId(0, 0), FLIGHTS)  # changes `totals`, and no manifest names it
    assert report.change is not None
    before.first = without(full, "totals")
    before.run_batch(FLIGHTS)
    assert before.history[TaskId(0, 0)] == before.history.get(TaskId(0, 0), History())
    for p in range(2):
        with Copy(before.copy(TaskId(0, p)), before.first.databases) as copy:
            recovery = copy.bring_to(before.history[TaskId(0, p)], before.checkpoint)
            assert not recovery.scratch
