"""Several drivers at one checkpoint, without Spark: who is in charge, and which manifest counts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskplace.errors import CheckpointError, Fenced
from taskplace.spark.checkpoint import journal as journal_module
from taskplace.spark.checkpoint import journal as manifests
from taskplace.spark.checkpoint.journal import Epochs, Journal
from taskplace.spark.sinks import ParquetSink
from tests.support.journals import change, run_batches
from topology import TaskId


def test_of_two_drivers_at_one_batch_one_loses(tmp_path):
    first = Journal(tmp_path, {})
    second = Journal(tmp_path, {})
    with pytest.raises(Fenced, match="driver 2 has taken over this checkpoint from driver 1"):
        first.commit(0, 1, {}, {}, {})
    second.commit(0, 1, {}, {}, {})
    first.epoch = second.epoch  # even one that would not notice
    with pytest.raises(Fenced, match="another driver has committed this batch"):
        first.commit(0, 1, {}, {}, {})


def test_who_only_reads_a_checkpoint_is_not_in_charge_until_it_takes_over(tmp_path):
    identity = {"hash": "one", "keys": None, "query": None}
    first = Journal(tmp_path, identity)
    first.bind_keys({"a": ["int"]})
    first.commit(0, 1, {}, {}, {})
    refused, second = (Journal(tmp_path, identity, take_over=False) for _ in range(2))
    with pytest.raises(CheckpointError, match=r"the key of topic 'a' had the types int, found bigint"):
        refused.bind_keys({"a": ["bigint"]})
    second.bind_keys({"a": ["int"], "b": ["string"]})
    second.bind("query", "q1")
    first.commit(1, 1, {}, {}, {})  # nobody has fenced it
    second.take_over()
    with pytest.raises(Fenced, match="driver 2 has taken over this checkpoint"):
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
    create = manifests.create_exclusively

    def and_fail(path, data):
        create(path, data)
        raise OSError(errno.EIO, "the directory cannot be synced")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="cannot be synced"):
        patch.setattr(manifests, "create_exclusively", and_fail)
        journal.commit(1, 1, {}, {}, {})
    if same:
        journal.commit(1, 1, {}, {}, {})
        journal.commit(2, 1, {}, {}, {})
    else:  # the batch has run again, as other attempts
        with pytest.raises(
            CheckpointError, match=r"this driver committed the batch.*start the application again"
        ):
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
    with pytest.raises(Fenced, match="other drivers have committed this batch and later ones"):
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
