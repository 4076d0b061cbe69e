"""A bin runs its tasks one after the other, with the results of each alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from taskplace.spark.checkpoint import files
from taskplace.spark.messages import (
    AttemptDescriptor,
    BinDescriptor,
    History,
    Report,
    ReportGroup,
    report_file,
)
from taskplace.spark.worker import bin_context
from taskplace.spark.worker import bins as attempt_reports
from taskplace.spark.worker.attempt import Attempted
from taskplace.spark.worker.bins import run_stage
from taskplace.spark.worker.guard import DiskFull
from tests.support.attempt_files import decoded, reports_in
from tests.support.attempts import BATCHES, PLANES, sink_rows
from topology import TaskId


def test_a_bin_of_all_tasks_gives_the_results_of_each_alone(runtime, truth):
    tasks = [TaskId(0, 0), TaskId(0, 1)]
    descriptors = tuple(AttemptDescriptor(task, "executor-1", History()) for task in tasks)
    read = [b for p in (1, 0) for b in runtime.input(p, BATCHES[0], PLANES)]  # Spark mixes the partitions
    runtime.be("1")
    element = BinDescriptor(descriptors).encode(), read
    reports = decoded(run_stage(runtime.first, runtime.setting(runtime.first).encode(), [element]))
    assert [report.task for report in reports] == tasks
    alone = [truth.attempt(task, BATCHES[0], PLANES) for task in tasks]
    assert [r.rows for r in reports] == [r.rows for r in alone]
    runtime.commit(*reports)
    truth.commit(*alone)
    for task in tasks:
        assert runtime.contents(task) == truth.contents(task)


def test_a_bin_drops_the_rows_of_tasks_between_its_own(runtime):
    """The task between them has finished before a loss, or another executor has it."""
    task = TaskId(0, 1)
    bin_ = BinDescriptor((AttemptDescriptor(task, "executor-1", History()),), skipped=(0,))
    read = [b for p in (1, 0) for b in runtime.input(p, BATCHES[0], PLANES)]
    runtime.be("1")
    (report,) = decoded(
        run_stage(runtime.first, runtime.setting(runtime.first).encode(), [(bin_.encode(), read)])
    )
    alone = runtime.attempt(task, BATCHES[0], PLANES)
    assert (report.task, report.rows, report.brought) == (task, alone.rows, alone.brought)


@pytest.mark.parametrize(("tasks", "limit", "told"), [(2, 0, 1), (2, 1 << 20, 0), (1, 0, 0)])
def test_a_bin_of_several_tasks_that_is_larger_than_expected_is_told(
    runtime, monkeypatch, caplog, tasks, limit, told
):
    """A single task may be larger. Of the second stage, the rows are in files."""
    monkeypatch.setattr(bin_context, "BIN_BYTES", limit)
    runtime.be("1")
    for program, reports in ((runtime.first, ()), (runtime.second, "first")):
        if reports:
            reports = [runtime.attempt(TaskId(0, p), BATCHES[0], PLANES) for p in range(2)]
        of = [TaskId(program.subtopology, p) for p in range(tasks)]
        bin_ = BinDescriptor(tuple(AttemptDescriptor(task, "executor-1", History()) for task in of)).encode()
        read = [b for task in of for b in runtime.input(task.partition, BATCHES[0], PLANES)]
        caplog.clear()
        element = bin_ if reports else (bin_, read)
        done = decoded(run_stage(program, runtime.setting(program, reports).encode(), [element]))
        assert all(report.brought > 0 for report in done if report.rows)
        assert (
            sum("the input of a bin of 2 tasks takes" in record.message for record in caplog.records) == told
        )


def test_a_report_has_the_bytes_of_the_rows_that_were_brought(runtime):
    few, many = (runtime.attempt(TaskId(0, 0), BATCHES[0] * times, PLANES) for times in (1, 100))
    assert 0 < few.brought < many.brought / 20
    assert few.fetched == many.fetched == 0
    second = [runtime.attempt(TaskId(1, p), reports=[many]) for p in range(3)]
    assert sum(report.brought for report in second) > 100 * len(BATCHES[0])


# -- reports of finished attempts come after one sync of all their files; a bin that fails reports what had finished


TASKS = [TaskId(0, 0), TaskId(0, 1)]


def bin_of(runtime, tasks=TASKS):
    """Return an element of the first batch: a bin of both tasks, and its rows."""
    runtime.be("1")
    rows = [batch for p in (0, 1) for batch in runtime.input(p, BATCHES[0], PLANES)]
    return BinDescriptor(
        tuple(AttemptDescriptor(task, "executor-1", History()) for task in tasks)
    ).encode(), rows


def run(runtime, element) -> list[Report]:
    setting = runtime.setting(runtime.first).encode()
    return decoded(run_stage(runtime.first, setting, [element]))


def reported(runtime) -> set[str]:
    return {str(report.task) for report in reports_in(runtime.checkpoint, runtime.batch, 0)}


@pytest.fixture
def events(monkeypatch, runtime):
    """What happens, in order: "sync" for each file or directory, and the tasks of each group of reports."""
    happened: list[str] = []
    really_sync, really_rename = os.fsync, Path.rename

    def sync(handle):
        happened.append("sync")
        really_sync(handle)

    def rename(path, target):
        if target.suffix == ".json":
            happened.extend(str(report.task) for report in ReportGroup.decode(path.read_bytes()).reports)
        return really_rename(path, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "rename", rename)
    return happened


def test_the_files_of_all_attempts_are_synced_before_the_first_report(runtime, events, monkeypatch):
    monkeypatch.setattr(attempt_reports, "SECONDS_LIMIT", 60.0)  # however busy the machine is
    reports = run(runtime, bin_of(runtime))
    sealed = {r.change.file for r in reports if r.change} | {
        s.file for r in reports for s in r.sinks.values()
    }
    assert [report.task for report in reports] == TASKS
    assert events[-2:] == ["0_0", "0_1"]
    assert set(events[:-2]) == {"sync"}
    assert len(events) - 2 >= len(sealed) >= 2


def test_a_group_has_one_file_for_each_sink_and_schema(runtime, monkeypatch):
    monkeypatch.setattr(attempt_reports, "SECONDS_LIMIT", 60.0)
    reports = run(runtime, bin_of(runtime))
    (staged,) = {report.sinks["out"] for report in reports}
    alone = [runtime.attempt(task, BATCHES[0], PLANES, executor="3", run="alone") for task in TASKS]
    rows = [sink_rows(runtime, [report], "out") for report in alone]
    assert all(rows), "both have rows"
    assert staged.rows == sum(report.sinks["out"].rows for report in alone)
    assert sink_rows(runtime, reports[:1], "out") == sorted(rows[0] + rows[1], key=repr)
    assert len({report.change.file for report in reports}) == 1, "their changes are in one segment"


def test_rows_under_several_schemas_are_in_several_files(runtime, monkeypatch):
    monkeypatch.setattr(attempt_reports, "SECONDS_LIMIT", 60.0)
    reporting = attempt_reports.AttemptReports(runtime.setting(runtime.first))
    done = runtime.attempt(TASKS[0], BATCHES[0], PLANES)
    tables = [pa.table({"n": [1, 2]}), pa.table({"n": ["x"]}), pa.table({"n": [3]})]
    for table in tables:
        reporting.add(Attempted(done, {"out": table}))
    files = [report.sinks["out"] for report in reporting.report().reports]
    assert files[0] == files[2] != files[1]
    assert pq.read_table(runtime.checkpoint / files[0].file)["n"].to_pylist() == [1, 2, 3]
    assert pq.read_table(runtime.checkpoint / files[1].file)["n"].to_pylist() == ["x"]


def group(runtime, number: int, *partitions: int) -> ReportGroup:
    """Write a group of reports of these tasks, as the attempt with this number."""
    report = runtime.attempt(TASKS[0], BATCHES[0], PLANES, run="elsewhere")
    tasks = [TaskId(0, partition) for partition in partitions]
    written = ReportGroup(
        tuple(structs.replace(report, task=task, attempt=f"{number}-{task}") for task in tasks)
    )
    path = runtime.checkpoint / report_file(runtime.setting(runtime.first, run="r"), written)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written.encode())
    return written


@pytest.mark.parametrize(
    ("written", "asked", "counts"),
    [
        ([(0, 1), (2, 3)], {0, 1, 2, 3}, [0, 1]),
        ([(0, 1), (2, 3)], {0, 1, 2}, [0]),  # 0_3 is of another bin, or has a report already
        ([(0, 1), (1, 2)], {0, 1, 2}, [0]),  # 0_1 finished twice
        ([(1, 2), (0, 1), (0,)], {0, 1, 2}, [1]),  # the first by name
        ([(0, 1), (0, 1)], {0, 1}, [0]),
        ([(0, 2), (1,), (2,)], {0, 1, 2}, [0, 1]),
        ([(0,)], {1}, []),
    ],
)
def test_groups_count_whole_and_no_task_counts_twice(runtime, written, asked, counts):
    groups = [group(runtime, number, *partitions) for number, partitions in enumerate(written)]
    tasks = frozenset(TaskId(0, partition) for partition in asked)
    found = attempt_reports.finished(runtime.checkpoint, runtime.setting(runtime.first, run="r"), 0, tasks)
    assert found == [groups[number] for number in counts]
    other = runtime.setting(runtime.first, run="another")
    assert attempt_reports.finished(runtime.checkpoint, other, 0, tasks) == []


def test_so_many_rows_are_due(runtime, events, monkeypatch):
    monkeypatch.setattr(attempt_reports, "BYTES_LIMIT", 1)
    run(runtime, bin_of(runtime))
    assert [event for event in events if event != "sync"] == ["0_0", "0_1"]
    assert "sync" in events[events.index("0_0") :], "the second attempt has a sync of its own"


def test_after_a_long_attempt_nothing_waits_for_the_next_one(runtime, events, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(attempt_reports.time, "monotonic", lambda: clock[0])
    reporting = attempt_reports.AttemptReports(runtime.setting(runtime.first))
    assert not reporting.due()
    clock[0] += attempt_reports.SECONDS_LIMIT * 2  # the first attempt takes so long
    assert reporting.due()
    reporting.add(Attempted(runtime.attempt(TASKS[0], BATCHES[0], PLANES), {}))
    reporting.report()
    assert not reporting.due()


def test_attempts_before_one_that_fails_are_reported(runtime, monkeypatch):
    from taskplace.spark.worker import bins

    really_run = bins.run_attempt

    def fail_at_the_second(context, descriptor):
        if descriptor.task == TASKS[1]:
            raise ValueError("of the processor")
        return really_run(context, descriptor)

    element = bin_of(runtime)
    with monkeypatch.context() as patch:
        patch.setattr(bins, "run_attempt", fail_at_the_second)
        with pytest.raises(ValueError, match="of the processor"):
            run(runtime, element)
    assert reported(runtime) == {"0_0"}
    again = run(runtime, bin_of(runtime))
    assert [report.task for report in again] == TASKS
    done = [report.task for report in reports_in(runtime.checkpoint, 0, 0)]
    assert sorted(done) == TASKS, "the first was taken over"


def test_the_error_of_an_attempt_is_not_hidden_by_that_of_the_reports_before_it(runtime, monkeypatch, caplog):
    reporting = attempt_reports.AttemptReports(runtime.setting(runtime.first))
    done = runtime.attempt(TASKS[0], BATCHES[0], PLANES)
    with pytest.raises(ValueError, match="of the processor"), reporting:
        reporting.add(Attempted(done, {"out": pa.table({"n": pa.array([{}], pa.struct([]))})}))
        raise ValueError("of the processor")
    assert "rows that Parquet cannot store" in caplog.text


def test_rows_that_are_a_slice_count_with_what_they_keep_in_memory(runtime, monkeypatch):
    monkeypatch.setattr(attempt_reports, "SECONDS_LIMIT", 60.0)
    reporting = attempt_reports.AttemptReports(runtime.setting(runtime.first))
    done = runtime.attempt(TASKS[0], BATCHES[0], PLANES)
    large = pa.table({"n": range(attempt_reports.BYTES_LIMIT // 8)})
    reporting.add(Attempted(done, {"out": large.slice(0, 1)}))
    assert reporting.due()
    reporting.report()
    assert not reporting.due()


def test_boundary_files_are_sent_to_other_hosts_before_the_report(runtime, monkeypatch):
    """A network file system does that when a handle is closed."""
    closed, really_close = [], os.close

    def close(handle):
        closed.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        really_close(handle)

    monkeypatch.setattr(os, "close", close)
    reports = run(runtime, bin_of(runtime))
    (boundary,) = {one.file for report in reports for one in report.boundaries.values()}
    assert str(runtime.checkpoint / boundary) in closed


def test_without_a_sync_there_is_no_report(runtime, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    element = bin_of(runtime)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskFull, match="no space left"):
            run(runtime, element)
    assert reported(runtime) == set()
    assert len(run(runtime, bin_of(runtime))) == 2, "the copies are rolled back, and all is repeated"


def test_files_whose_batch_is_over_need_no_sync(tmp_path):
    with files.Unsynced() as unsynced:
        unsynced.write(tmp_path / "batches" / "1" / "a", b"a")
        unsynced.write(tmp_path / "kept" / "b", b"b")
        (tmp_path / "batches" / "1" / "a").unlink()
        (tmp_path / "batches" / "1").rmdir()
        unsynced.sync()
    assert (tmp_path / "kept" / "b").read_bytes() == b"b"
    assert len(unsynced) == 0


def test_a_file_is_never_replaced(tmp_path):
    with files.Unsynced() as unsynced:
        unsynced.write(tmp_path / "a", b"a")
        with pytest.raises(FileExistsError):
            unsynced.write(tmp_path / "a", b"b")
    assert (tmp_path / "a").read_bytes() == b"a"
