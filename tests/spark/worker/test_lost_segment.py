"""A changelog segment has changes of several batches; what covers a lost one."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from taskplace.errors import CheckpointError
from taskplace.spark.messages import FollowRequest
from taskplace.spark.worker.follow import visit
from tests.support.attempts import BATCHES, PLANES
from topology import TaskId


@pytest.mark.parametrize("harm", [os.unlink, lambda path: os.truncate(path, 10)])
def test_a_segment_of_several_batches_is_not_needed_if_a_snapshot_covers_all_of_them(runtime, harm):
    task = TaskId(0, 0)
    for rows in BATCHES[:3]:
        runtime.run_batch(rows, PLANES)
    history = runtime.history[task]
    (segment,) = {part.file for part in history.changes}
    assert len(history.changes) > 1
    stores = {p.subtopology: sorted(p.databases) for p in (runtime.first, runtime.second)}
    order = FollowRequest(
        instance="executor-1",
        checkpoint=str(runtime.checkpoint),
        state_root=str(runtime.state),
        spark_app="app",
        stores=stores,
        logged=stores,
        snapshot={task: history},
    )
    runtime.be("1")
    snapshot = visit(order).snapshots[task]
    truth = runtime.contents(task)
    harm(runtime.checkpoint / segment)
    runtime.be("2")
    with pytest.raises(CheckpointError, match=rf"{segment}: (found|the file is missing)"):
        runtime.contents(task, "2")
    large = replace(snapshot, records=10**6)  # so the changes are the first choice
    runtime.history[task] = replace(history, snapshots=(large,))
    assert runtime.contents(task, "2") == truth
