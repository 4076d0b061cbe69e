"""A bin runs its tasks one after the other, with the results of each alone."""

from __future__ import annotations

import pytest

from taskplace.spark.messages import AttemptDescriptor, BinDescriptor, History
from taskplace.spark.worker import bin_context
from taskplace.spark.worker.bins import run_stage
from tests.support.attempt_files import decoded
from tests.support.attempts import BATCHES, PLANES
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
