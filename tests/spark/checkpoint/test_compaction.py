"""The last needed sections of old segments move, so that a task that seldom changes does not keep whole segments."""

from __future__ import annotations

import errno
import itertools
import os

import pytest

from taskplace.spark.checkpoint import compaction
from taskplace.spark.checkpoint import journal as journal_module
from taskplace.spark.checkpoint.compaction import compacted, wasteful
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import Change, FollowRequest, History
from taskplace.spark.state.catching_up import CheckpointFiles
from taskplace.spark.worker import bin_context as segments
from tests.support.attempt_files import damage
from tests.support.journals import snapshot
from topology import TaskId

BUSY, RARE = TaskId(0, 0), TaskId(0, 1)


def logged(journal: Journal, task: TaskId, batch: int, size: int = 1000) -> Change:
    """Append a change to the process' segment."""
    base = journal.history[task].end if task in journal.history else History().end
    data, file = f"{task} {batch} ".encode() * size, segments.segment(journal.root, batch, journal.epoch)
    start = file.append(data)
    return Change(
        version=batch,
        attempt=f"a{batch}",
        base=base.attempt,
        offset=base.offset + 1,
        records=1,
        file=file.name,
        size=len(data),
        checksum=checksum_of(data),
        start=start,
    )


def readable(journal: Journal) -> None:
    for task, history in journal.history.items():
        for change in history.changes:
            with CheckpointFiles(journal.root).read(change) as section:
                assert section.read().startswith(f"{task} {change.version} ".encode())


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(journal_module, "FULL_EVERY", 10)
    monkeypatch.setattr(segments, "BATCHES", 4)


def test_a_task_that_changes_once_does_not_keep_the_segment_of_the_others(tmp_path, often):
    journal = Journal(tmp_path, {})
    sizes = []
    for batch in range(120):
        changes = {BUSY: logged(journal, BUSY, batch)}
        if batch == 5:
            changes[RARE] = logged(journal, RARE, batch)
        journal.commit(batch, 1, changes, {}, {})
        journal.add_snapshots({BUSY: snapshot(journal, BUSY)})
        journal.prune()
        readable(journal)
        assert Journal(tmp_path, {}, take_over=False).history == journal.history
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "changelog").iterdir()))
    (change,) = journal.history[RARE].changes
    assert change.version == 5 and change.start == 0, "it has moved, alone"
    # Of the others: the last two changes, and what is in their segments with them.
    assert max(sizes[20:]) <= 12 * len(b"0_0 100 ") * 1000


def test_what_is_needed_of_a_segment_decides(tmp_path, monkeypatch):
    """Four equal sections: with one or none of them needed it is emptied, with two it stays."""
    journal = Journal(tmp_path, {})
    old = [logged(journal, RARE, 0) for _ in range(4)]
    for needed, moves in ((2, False), (1, True)):
        histories = {TaskId(0, number): History((old[number],)) for number in range(needed)}
        after = compacted(tmp_path, histories, 100, 1)
        assert (after != histories) == moves
        assert {task: h.end for task, h in after.items()} == {task: h.end for task, h in histories.items()}


def test_a_segment_that_may_still_grow_is_left_alone(tmp_path):
    journal = Journal(tmp_path, {})
    old = [logged(journal, RARE, 0) for _ in range(5)]
    histories = {RARE: History((old[0],))}
    last = segments.BATCHES - 1
    assert compacted(tmp_path, histories, last, 1) == histories
    assert compacted(tmp_path, histories, last + 1, 1) != histories


def test_a_pass_ends_after_the_limit_and_the_smallest_rest_comes_first(tmp_path, monkeypatch):
    journal = Journal(tmp_path, {})
    monkeypatch.setattr(segments, "BATCHES", 1)
    histories = {}
    for number, size in enumerate((300, 100, 200)):
        kept = logged(journal, RARE, number, size)
        logged(journal, RARE, number, 9 * size)
        histories[TaskId(0, number)] = History((kept,))
    monkeypatch.setattr(compaction, "BYTES_LIMIT", 150 * len(b"0_1 0 "))
    after = compacted(tmp_path, histories, 100, 1)
    assert [after[TaskId(0, n)] != histories[TaskId(0, n)] for n in range(3)] == [False, True, True]
    again = compacted(tmp_path, after, 200, 1)
    assert again[TaskId(0, 0)] != after[TaskId(0, 0)], "however large, it goes at last"


def refuse(*_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_segments_that_cannot_be_read_stay_and_the_others_move(tmp_path, monkeypatch, caplog):
    journal = Journal(tmp_path, {})
    monkeypatch.setattr(segments, "BATCHES", 1)
    histories = {}
    for number in range(3):
        histories[TaskId(0, number)] = History((logged(journal, RARE, number),))
        logged(journal, RARE, number, 9000)
    unreadable = tmp_path / histories[TaskId(0, 1)].changes[0].file
    really_open = os.open
    monkeypatch.setattr(
        os,
        "open",
        lambda path, *how, **more: refuse() if path == unreadable else really_open(path, *how, **more),
    )
    after = compacted(tmp_path, histories, 100, 1)
    assert [after[TaskId(0, n)] != histories[TaskId(0, n)] for n in range(3)] == [True, False, True]
    assert "Input/output error" in caplog.text
    journal.commit(0, 1, {}, {}, {})


@pytest.mark.parametrize("step", ["write", "fsync"])
def test_a_disk_that_takes_no_new_segment_stops_no_commit(tmp_path, monkeypatch, caplog, step):
    journal = Journal(tmp_path, {})
    kept = logged(journal, RARE, 0)
    logged(journal, RARE, 0, 9000)
    histories = {RARE: History((kept,))}
    before = sorted((tmp_path / "changelog").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(os, step, refuse)
        assert compacted(tmp_path, histories, 100, 1) == histories
    assert sorted((tmp_path / "changelog").iterdir()) == before
    assert "stay where they are" in caplog.text


def test_many_unneeded_bytes_bring_a_full_manifest_before_its_time(tmp_path, monkeypatch):
    """In each batch another task changes once, and its section keeps a whole segment."""
    monkeypatch.setattr(segments, "BATCHES", 1)
    monkeypatch.setattr(compaction, "UNNEEDED_LIMIT", 100_000)
    journal, full, most = Journal(tmp_path, {}), [], 0
    for batch in range(journal_module.FULL_EVERY):
        changes = {BUSY: logged(journal, BUSY, batch, 2000)}
        task = TaskId(1, batch)
        changes[task] = logged(journal, task, batch, 10)
        journal.commit(batch, 1, changes, {}, {})
        if journal.last.histories is not None:
            full.append(batch)
        journal.add_snapshots({BUSY: snapshot(journal, BUSY)})
        journal.prune()
        most = max(most, sum(path.stat().st_size for path in (tmp_path / "changelog").iterdir()))
    between = journal_module.FULL_EVERY // 5
    assert full and all(later - earlier >= between for earlier, later in itertools.pairwise(full))
    assert len(full) >= 3
    assert most < 20 * 2000 * len(b"0_0 10 ")
    readable(journal)


def test_unneeded_bytes_that_no_pass_would_free_bring_no_full_manifest(tmp_path, monkeypatch):
    """Of each segment three of ten sections are needed: too many for it to be emptied, however many segments."""
    monkeypatch.setattr(segments, "BATCHES", 1)
    monkeypatch.setattr(compaction, "UNNEEDED_LIMIT", 20_000)
    journal, full = Journal(tmp_path, {}), []
    for batch in range(journal_module.FULL_EVERY):
        changes = {
            TaskId(1, 3 * batch + n): logged(journal, TaskId(1, 3 * batch + n), batch, 100) for n in range(3)
        }
        for _ in range(7):
            logged(journal, BUSY, batch, 100)  # an attempt that lost
        journal.commit(batch, 1, changes, {}, {})
        journal.prune()
        if journal.last.histories is not None:
            full.append(batch)
    there = sum(path.stat().st_size for path in (tmp_path / "changelog").iterdir())
    needed = sum(change.size for history in journal.history.values() for change in history.changes)
    assert there - needed > 10 * compaction.UNNEEDED_LIMIT and there > 2 * needed
    assert full == []


@pytest.mark.parametrize(("kept", "expected"), [(2, True), (3, False)])
def test_what_a_pass_would_free_is_what_counts(tmp_path, monkeypatch, kept, expected):
    monkeypatch.setattr(compaction, "UNNEEDED_LIMIT", 1000)
    journal = Journal(tmp_path, {})
    sections = [logged(journal, RARE, 0, 100) for _ in range(10)]
    histories = {TaskId(0, number): History((sections[number],)) for number in range(kept)}
    assert wasteful(tmp_path, histories, segments.BATCHES) == expected
    assert not wasteful(tmp_path, histories, segments.BATCHES - 1), "the segment may still grow"
    (tmp_path / sections[0].file).unlink()
    assert not wasteful(tmp_path, histories, segments.BATCHES)


def test_a_damaged_section_stays_with_those_beside_it_and_is_told(tmp_path, caplog):
    journal = Journal(tmp_path, {})
    sections = [logged(journal, RARE, 0) for _ in range(9)]
    damage(tmp_path, sections[1])
    histories = {TaskId(0, number): History((sections[number],)) for number in range(2)}
    assert compacted(tmp_path, histories, 100, 1) == histories
    assert sections[0].file in caplog.text


def test_a_segment_that_a_follow_job_reads_stays_until_it_ends(tmp_path, often):
    journal = Journal(tmp_path, {})
    journal.commit(0, 1, {RARE: logged(journal, RARE, 0)}, {}, {})
    for batch in range(1, 10):
        journal.commit(batch, 1, {BUSY: logged(journal, BUSY, batch)}, {}, {})
        journal.add_snapshots({BUSY: snapshot(journal, BUSY)})
    before = journal.history[RARE]
    request = FollowRequest("executor-1", "", "", "app", {}, {}, follow={RARE: before})
    with journal.protected(request):
        journal.commit(10, 1, {BUSY: logged(journal, BUSY, 10)}, {}, {})
        assert journal.history[RARE] != before, "it has moved"
        journal.prune()
        assert (tmp_path / before.changes[0].file).exists()
    journal.prune()
    assert not (tmp_path / before.changes[0].file).exists()
    readable(journal)
