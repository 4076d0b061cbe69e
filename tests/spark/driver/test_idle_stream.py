"""Batches run the tasks that they bring rows to; on a real local-cluster."""

from __future__ import annotations

import pyarrow as pa
import pytest

from taskplace.spark.worker.hashing import partition_of
from tests.support.attempt_files import reports_in
from tests.support.placed_harness import kill_executor, wait_until
from topology import TaskId

pytestmark = pytest.mark.spark


def attempts(p, batch, subtopology):
    """Return the tasks that an attempt of a batch has finished for."""
    return {report.task for report in reports_in(p.folder / "checkpoint", batch, subtopology)}


def test_only_tasks_with_rows_run_and_those_whose_copy_is_behind(pipeline):
    p = pipeline()
    p.run(0)
    assert len(attempts(p, 0, 0)) == len(attempts(p, 0, 1)) == 6
    p.run(1, rows=0)
    assert attempts(p, 1, 0) == {TaskId(0, 0)}  # tells the columns of the rows that there are none of
    assert attempts(p, 1, 1) == set()
    row = ("k5", "g1", 4)
    p.placed.process_batch(p.frame([row]), 2)
    p.rows.append(row)
    place = {t: partition_of([pa.array([t])], 6)[0] for t in ("k5", "g1")}
    assert attempts(p, 2, 0) == {TaskId(0, place["k5"])}
    assert attempts(p, 2, 1) == {TaskId(1, place["g1"])}
    p.check()
    p.reopen()  # what this driver knows of copies comes from follow jobs alone
    p.run(3, rows=0)
    assert attempts(p, 3, 1) == set()
    p.settle()
    victim = p.placed.placement()[0].id
    lost = p.placed.state.roles(victim).active
    kill_executor(p.placed, victim)
    wait_until(lambda: victim.split("-")[1] not in p.placed.bridge.alive(), "the loss is noticed")
    p.run(4, rows=0)
    p.run(5, rows=0)
    assert {task for task in lost if task.subtopology == 1} >= attempts(p, 5, 1)
    p.run(6)
    p.check()
    assert p.placed.stats.scratch == 0
