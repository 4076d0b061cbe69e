"""A bin runs its tasks one after the other, with the results of each alone."""

from __future__ import annotations

from taskplace.spark.messages import AttemptDescriptor, BinDescriptor, History
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
