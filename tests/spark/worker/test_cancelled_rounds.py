"""Attempts that are not wanted: of an older epoch or generation, or elsewhere when their round is cancelled."""

from __future__ import annotations

import pickle

import pytest

from taskplace.errors import Fenced
from taskplace.spark.messages import cancellation_mark
from taskplace.spark.state.catching_up import Superseded
from taskplace.spark.worker import bin_context
from tests.support.attempts import BATCHES
from topology import TaskId


def test_older_work_is_refused(runtime):
    runtime.run_batch(BATCHES[0])
    runtime.epoch = 2
    runtime.attempt(TaskId(0, 0), BATCHES[1])
    runtime.epoch = 1
    before = runtime.files()
    with pytest.raises(Fenced):
        runtime.attempt(TaskId(0, 0), BATCHES[1])
    assert runtime.files() == before


def test_an_attempt_elsewhere_gives_way_when_its_round_is_cancelled(runtime):
    runtime.run_batch(BATCHES[0])
    task = next(t for t in runtime.history if t.subtopology == 0)
    mark = runtime.checkpoint / cancellation_mark(runtime.setting(runtime.first), 0)
    mark.parent.mkdir(parents=True)
    mark.touch()
    with pytest.raises(Superseded, match="was cancelled"):
        runtime.attempt(task, BATCHES[1], executor="2", planned="executor-1")
    assert runtime.attempt(task, BATCHES[1], executor="1").instance == "executor-1", "the planned one goes on"


def test_an_attempt_elsewhere_goes_on_when_nobody_calls_it_off(runtime, monkeypatch):
    monkeypatch.setattr(bin_context, "ELSEWHERE_SECONDS", 0.0)
    runtime.run_batch(BATCHES[0])
    task, history = next((t, h) for t, h in runtime.history.items() if t.subtopology == 0)
    report = runtime.attempt(task, BATCHES[1], executor="2", planned="executor-1")
    assert (report.instance, report.planned, report.recovery.scratch) == ("executor-2", "executor-1", True)
    assert report.recovery.replayed == history.end.offset


def test_work_of_an_older_generation_is_refused(runtime):
    """Its round was cancelled, and the task was assigned again."""
    runtime.run_batch(BATCHES[0])
    runtime.attempt(TaskId(0, 0), BATCHES[1], generation=5)
    before = runtime.files()
    with pytest.raises(Superseded, match="generation=4"):
        runtime.attempt(TaskId(0, 0), BATCHES[1], generation=4)
    assert runtime.files() == before
    runtime.commit(runtime.attempt(TaskId(0, 0), BATCHES[1], generation=6))


def test_what_is_superseded_is_not_fenced_and_survives_pickling():
    """`Fenced` means that another driver has taken over, and only that."""
    error = pickle.loads(pickle.dumps(Superseded("0_0: called off")))  # noqa: S301
    assert type(error) is Superseded and str(error) == "0_0: called off"
    assert not isinstance(error, Fenced)
