"""The checkpoint's own rules, without Spark: what is kept, what is pruned, what a restart finds."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskplace.errors import CheckpointError, Fenced
from taskplace.spark.bridge import Executor
from taskplace.spark.codec import seal
from taskplace.spark.driver import journal as journal_module
from taskplace.spark.driver.epochs import Epochs
from taskplace.spark.driver.journal import Journal
from taskplace.spark.driver.replication import Replicator
from taskplace.spark.messages import Change, Snapshot
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.state.files import write_file
from topology import TaskId


def change(journal, task, batch, records=1, attempt="a"):
    base = journal.history[task].end if task in journal.history else None
    name = f"changelog/{task}/{batch:010d}-{attempt}{batch}.arrow"
    write_file(journal.root / name, b"x", sync=False)
    offset = (base.offset if base else 0) + records
    return Change(
        batch, f"{attempt}{batch}", base.attempt if base else "", offset, records, name, 1, seal(b"x")
    )


def snapshot(journal, task):
    end = journal.history[task].end
    name = f"snapshots/{task}/{end.version:010d}-{end.attempt}.arrow"
    write_file(journal.root / name, b"s", sync=False)
    return Snapshot(end.version, end.attempt, end.offset, 1, name, 1, seal(b"s"))


def files(journal):
    return {str(path.relative_to(journal.root)) for path in journal.root.rglob("*.arrow")}


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


def test_nothing_is_pruned_between_a_visit_and_what_it_reports(tmp_path):
    """A snapshot that was just made is known to nobody yet; pruning has to wait until it is taken in."""
    journal = Journal(tmp_path, {})
    for batch in range(3):
        journal.commit(batch, 1, {TaskId(0, 0): change(journal, TaskId(0, 0), batch)}, {}, {})
    made = {TaskId(0, 0): snapshot(journal, TaskId(0, 0))}

    def absorb(_visits):
        # What the batch thread does at any moment.
        batch_thread = threading.Thread(target=journal.prune)
        batch_thread.start()
        batch_thread.join()
        journal.add_snapshots(made)
        return False

    replicator = Replicator(
        NoBridge(), lambda: [(Executor("0", "host", 1), NoOrders())], absorb, journal.visit
    )
    replicator.round()
    assert made[TaskId(0, 0)].file in files(journal)
    journal.commit(3, 1, {TaskId(0, 0): change(journal, TaskId(0, 0), 3)}, {}, {})
    journal.prune()
    assert made[TaskId(0, 0)].file in files(journal)


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


def test_visits_without_a_break_do_not_make_the_checkpoint_grow(tmp_path):
    """On a fast machine the next visit begins before the batch thread gets to prune, every time."""
    journal = Journal(tmp_path, {})
    kept = []
    for batch in range(40):
        with journal.visit():
            named = {c.file for h in journal.history.values() for c in h.changes}
            named |= {s.file for h in journal.history.values() for s in h.snapshots}
            journal.commit(batch, 1, {TaskId(0, 0): change(journal, TaskId(0, 0), batch)}, {}, {})
            journal.prune()
            assert named <= files(journal)  # what the visit's orders may name
            if batch % 3 == 0:
                journal.add_snapshots({TaskId(0, 0): snapshot(journal, TaskId(0, 0))})
        kept.append(len(files(journal)) + len(list((tmp_path / "manifests").iterdir())))
    assert max(kept[10:]) == max(kept[20:]) < 25


class NoOrders:
    def encode(self):
        return b""


class NoBridge:
    local = True

    def pinned(self, *_args):
        return None

    def run(self, *_args, **_kwargs):
        return []


def test_what_a_dead_executor_had_begun_to_write_goes_after_an_hour(tmp_path):
    journal = Journal(tmp_path, {})
    journal.commit(0, 1, {TaskId(0, 0): change(journal, TaskId(0, 0), 0)}, {}, {})
    old, new = (tmp_path / "snapshots" / "0_0" / f"{n}.arrow.executor-1.tmp" for n in ("old", "new"))
    for path in (old, new):
        write_file(path, b"x", sync=False)
    os.utime(old, (1e9, 1e9))
    journal.prune()
    assert (old.exists(), new.exists()) == (False, True)


def test_of_two_drivers_at_one_batch_one_loses(tmp_path):
    first = Journal(tmp_path, {})
    second = Journal(tmp_path, {})
    with pytest.raises(Fenced, match="driver 2 has taken this checkpoint over, this is driver 1"):
        first.commit(0, 1, {}, {}, {})
    second.commit(0, 1, {}, {}, {})
    first.epoch = second.epoch  # even one that would not notice
    with pytest.raises(Fenced, match="another driver has committed this batch"):
        first.commit(0, 1, {}, {}, {})


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
    with pytest.raises(CheckpointError, match="made with hash = 'one', this application has 'two'"):
        Journal(tmp_path, {"hash": "two"})
    with pytest.raises(CheckpointError, match="belongs to query 'q1', found 'q2'"):
        Journal(tmp_path, {"hash": "one"}).bind("query", "q2")


def test_key_types_stay_and_new_sources_may_come(tmp_path):
    journal = Journal(tmp_path, {})
    journal.bind_keys({"a": ["string"]})
    journal.commit(0, 1, {}, {}, {})
    again = Journal(tmp_path, {})
    again.bind_keys({"a": ["string"], "b": ["bigint"]})
    with pytest.raises(CheckpointError, match=r"the key of topic 'a' was of \['string'\], is of \['int'\]"):
        again.bind_keys({"a": ["int"]})


def test_who_only_reads_a_checkpoint_is_not_in_charge_until_it_takes_over(tmp_path):
    identity = {"hash": "one", "keys": None, "query": None}
    first = Journal(tmp_path, identity)
    first.bind_keys({"a": ["int"]})
    first.commit(0, 1, {}, {}, {})
    refused, second = (Journal(tmp_path, identity, take_over=False) for _ in range(2))
    with pytest.raises(CheckpointError, match=r"the key of topic 'a' was of \['int'\], is of \['bigint'\]"):
        refused.bind_keys({"a": ["bigint"]})
    second.bind_keys({"a": ["int"], "b": ["string"]})
    second.bind("query", "q1")
    first.commit(1, 1, {}, {}, {})  # nobody has fenced it
    second.take_over()
    with pytest.raises(Fenced, match="driver 2 has taken this checkpoint over"):
        first.commit(2, 1, {}, {}, {})
    assert second.last_batch == 1
    second.commit(2, 1, {}, {}, {})
    assert Journal(tmp_path, {}).identity == {
        "hash": "one",
        "keys": {"a": ["int"], "b": ["string"]},
        "query": "q1",
    }


def test_who_takes_over_looks_again_at_what_others_have_committed_since_it_has_read(tmp_path):
    first = Journal(tmp_path, {"query": None})
    second = Journal(tmp_path, {"query": None}, take_over=False)
    second.bind("query", "q2")
    first.bind("query", "q1")
    first.commit(0, 1, {}, {}, {})
    with pytest.raises(CheckpointError, match="belongs to query 'q1', found 'q2'"):
        second.take_over()
    first.commit(1, 1, {}, {}, {})


@pytest.mark.parametrize("same", [True, False])
def test_a_commit_that_the_disk_made_fail_when_it_was_there_is_not_blamed_on_another_driver(
    tmp_path, monkeypatch, same
):
    journal = Journal(tmp_path, {})
    journal.commit(0, 1, {}, {}, {})
    create = journal_module.create_exclusively

    def and_fail(path, data):
        create(path, data)
        raise OSError(errno.EIO, "the directory cannot be synced")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="cannot be synced"):
        patch.setattr(journal_module, "create_exclusively", and_fail)
        journal.commit(1, 1, {}, {}, {})
    if same:
        journal.commit(1, 1, {}, {}, {})
        journal.commit(2, 1, {}, {}, {})
    else:  # the batch has run again, as other attempts
        with pytest.raises(CheckpointError, match=r"this driver committed the batch.*start it anew"):
            journal.commit(1, 1, {}, {}, {}, rows=1)
    assert Journal(tmp_path, {}).last_batch == 1 + same


def lose_replies(monkeypatch):
    """Have every link be made, and asked for again, as by a network file system that has lost a reply."""
    make, lost = os.link, []

    def twice(source, target, **options):
        make(source, target, **options)
        lost.append(target)
        make(source, target, **options)

    monkeypatch.setattr(os, "link", twice)
    return lost


def test_a_link_whose_reply_was_lost_is_no_other_driver(tmp_path, monkeypatch):
    lost = lose_replies(monkeypatch)
    journal = Journal(tmp_path / "cp", {})
    assert journal.epoch == 1
    journal.commit(0, 1, {}, {}, {})
    sink = ParquetSink(tmp_path / "out")
    sink.bind("one")
    sink.bind("one")
    with pytest.raises(CheckpointError, match="another checkpoint"):
        ParquetSink(tmp_path / "out").bind("two")
    assert [path.name for path in lost] == ["0000000001", "0000000000.json", ".checkpoint"]
    assert [path.name for path in (tmp_path / "cp").rglob(".*")] == []
    other = Journal(tmp_path / "cp", {})
    assert other.epoch == 2
    other.commit(1, 1, {}, {}, {})
    journal.epoch = other.epoch  # with the same bytes, even
    with pytest.raises(Fenced, match="another driver has committed this batch"):
        journal.commit(1, 1, {}, {}, {})


def test_of_two_that_write_the_same_bytes_one_is_told_that_it_was_not_first(tmp_path, monkeypatch):
    lose_replies(monkeypatch)
    epochs = [Epochs(tmp_path) for _ in range(2)]
    assert [one.take(1, {"id": "the same"}) for one in epochs] == [True, False]


def test_output_whose_renaming_reply_was_lost_is_there(tmp_path, monkeypatch):
    lose_replies(monkeypatch)
    rename = Path.rename

    def twice(self, target):
        rename(self, target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", twice)
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "staged.parquet")
    ParquetSink(tmp_path / "out").publish(None, 0, [tmp_path / "staged.parquet"])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["batch_id=0"]
    assert pq.read_table(tmp_path / "out" / "batch_id=0" / "part-00000.parquet").num_rows == 2


def go_on_while_it_commits(monkeypatch, meanwhile):
    """Have `meanwhile` happen between the next commit's check of the epoch and its manifest."""

    def at(name):
        if name == "batch.checked":
            monkeypatch.undo()
            meanwhile()

    monkeypatch.setattr(journal_module.faults, "point", at)


def run_batches(journal, batches):
    for batch in batches:
        journal.commit(batch, 1, {TaskId(0, 0): change(journal, TaskId(0, 0), batch)}, {}, {})
        journal.add_snapshots({TaskId(0, 0): snapshot(journal, TaskId(0, 0))})
        journal.prune()


def test_a_driver_that_was_stopped_in_its_commit_for_long_is_ignored(tmp_path, monkeypatch):
    """The others have gone so far that its batch is pruned, and its name free again."""
    stopped = Journal(tmp_path, {})
    run_batches(stopped, range(3))
    late = change(stopped, TaskId(0, 0), 3, attempt="late")
    others = []

    def meanwhile():
        others.append(Journal(tmp_path, {}))
        run_batches(others[0], range(3, 20))

    go_on_while_it_commits(monkeypatch, meanwhile)
    with pytest.raises(Fenced, match="other drivers have committed this batch and gone on"):
        stopped.commit(3, 1, {TaskId(0, 0): late}, {}, {})
    assert Journal(tmp_path, {}).history == others[0].history


def test_a_manifest_that_came_late_counts_for_nothing_though_its_driver_died_at_once(tmp_path):
    journal = Journal(tmp_path, {})
    first = None
    for batch in range(20):
        run_batches(journal, [batch])
        first = first or (tmp_path / "manifests" / "0000000000.json").read_bytes()
    (tmp_path / "manifests" / "0000000000.json").write_bytes(first)  # made, and then it was killed
    again = Journal(tmp_path, {})
    assert (again.history, again.last) == (journal.history, journal.last)
    run_batches(again, [20])
    assert not (tmp_path / "manifests" / "0000000000.json").exists()


def test_a_manifest_that_came_late_and_first_counts(tmp_path, monkeypatch):
    stopped = Journal(tmp_path, {})
    run_batches(stopped, range(3))
    late = change(stopped, TaskId(0, 0), 3, attempt="late")
    others = []
    go_on_while_it_commits(monkeypatch, lambda: others.append(Journal(tmp_path, {})))
    assert stopped.commit(3, 1, {TaskId(0, 0): late}, {}, {}).epoch == 1
    with pytest.raises(Fenced, match="another driver has committed this batch"):
        others[0].commit(3, 1, {}, {}, {})
    assert Journal(tmp_path, {}).history[TaskId(0, 0)].end.attempt == "late3"


def test_opening_while_another_driver_prunes(tmp_path, monkeypatch):
    journal = Journal(tmp_path, {})
    run_batches(journal, range(5))
    read, gone = Journal._read, []

    def reading(self, batch):
        if not gone:
            gone.append(batch)
            run_batches(journal, range(5, 15))
        return read(self, batch)

    monkeypatch.setattr(Journal, "_read", reading)
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


def test_what_a_killed_driver_had_begun_to_write_goes_after_an_hour(tmp_path):
    journal = Journal(tmp_path, {})
    run_batches(journal, [0])
    for folder in ("manifests", "epochs"):
        write_file(tmp_path / folder / ".0000000001.1234", b"x", sync=False)
        os.utime(tmp_path / folder / ".0000000001.1234", (1e9, 1e9))
    assert Journal(tmp_path, {}).last_batch == 0
    journal = Journal(tmp_path, {})
    journal.prune()
    assert not list(tmp_path.glob("*/.*"))
