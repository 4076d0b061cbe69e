"""Which changes share a changelog segment, and what covers a lost one."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from taskplace.errors import CheckpointError
from taskplace.spark.messages import FollowRequest
from taskplace.spark.worker import bin_context as segments
from taskplace.spark.worker.bin_context import BATCHES, segment
from taskplace.spark.worker.follow import follow
from tests.support.attempts import BATCHES as ROWS
from tests.support.attempts import PLANES
from topology import TaskId


def used(root, batch, epoch=1):
    file = segment(root, batch, epoch)
    file.append(b"x")
    return file


def test_neighbouring_batches_of_one_driver_share_a_segment_that_is_named_by_the_last_of_them(tmp_path):
    first = used(tmp_path, 0)
    assert all(used(tmp_path, batch) is first for batch in range(BATCHES))
    assert first.path.name.startswith(f"{BATCHES - 1:010d}-1-")
    following = used(tmp_path, BATCHES)
    assert following is not first and following.path.name.startswith(f"{2 * BATCHES - 1:010d}-1-")


def test_another_driver_and_another_checkpoint_get_segments_of_their_own(tmp_path):
    files = [used(tmp_path / "a", 3, 1), used(tmp_path / "a", 3, 2), used(tmp_path / "b", 3, 1)]
    assert len({file.path for file in files}) == 3
    assert used(tmp_path / "b", 4, 1) is files[2]


@pytest.mark.parametrize(
    "harm",
    [
        lambda file, patch: patch.setattr(os, "getpid", lambda: -1),  # a process that was forked
        lambda file, patch: file.path.unlink(),  # the checkpoint was removed and made again
        lambda file, patch: patch.setattr(file, "failed", True),
    ],
)
def test_a_segment_of_another_process_or_that_has_gone_or_failed_is_left(tmp_path, monkeypatch, harm):
    first = used(tmp_path, 0)
    harm(first, monkeypatch)
    again = used(tmp_path, 1)
    assert again is not first and again.path.exists()


def test_a_process_keeps_a_bounded_number_open(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "OPEN", {})
    files = [used(tmp_path / str(number), 0) for number in range(segments.CHECKPOINTS + 3)]
    assert len(segments.OPEN) == segments.CHECKPOINTS
    assert used(tmp_path / str(segments.CHECKPOINTS + 2), 0) is files[-1]
    assert used(tmp_path / "0", 0) is not files[0]


def test_a_full_segment_is_followed_by_segments_for_as_many_batches_as_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "BYTES_LIMIT", 100)

    def batches(sizes: list[int], first: int) -> list[str]:
        names = []
        for number, size in enumerate(sizes, first):
            file = segment(tmp_path, number, 1)
            file.append(b"x" * size)
            names.append(file.name)
        return names

    busy = batches([60, 60, 60, 60], 0)
    assert busy[0] == busy[1] != busy[2] != busy[3], "full after two; then one batch in each"
    assert [int(name.split("/")[1].split("-")[0]) for name in busy] == [BATCHES - 1, BATCHES - 1, 2, 3]
    quiet = batches([1] * 12, 4)
    assert quiet[0] != quiet[1] and len(set(quiet[1:])) == 1, "the next one is for the rest"
    assert int(quiet[-1].split("/")[1].split("-")[0]) == BATCHES - 1


@pytest.mark.parametrize("harm", [os.unlink, lambda path: os.truncate(path, 10)])
def test_a_segment_of_several_batches_is_not_needed_if_a_snapshot_covers_all_of_them(runtime, harm):
    task = TaskId(0, 0)
    for rows in ROWS[:3]:
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
    snapshot = follow(order).snapshots[task]
    truth = runtime.contents(task)
    harm(runtime.checkpoint / segment)
    runtime.be("2")
    with pytest.raises(CheckpointError, match=rf"{segment}: (found|the file is missing)"):
        runtime.contents(task, "2")
    large = replace(snapshot, records=10**6)  # so the changes are the first choice
    runtime.history[task] = replace(history, snapshots=(large,))
    assert runtime.contents(task, "2") == truth
