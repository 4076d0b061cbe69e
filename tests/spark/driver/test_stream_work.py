"""The long work of a stream, as its reporter gets it; no Spark needed."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from taskplace.errors import InputError
from taskplace.record import PlainReporter
from taskplace.record.events import WorkProgress
from taskplace.spark.driver import operations
from taskplace.spark.driver import operations as stream_work
from tests.support.operators import run, stream, turn
from tests.support.word_counts import counts, words


class Recorder(PlainReporter):
    """A reporter that keeps the progress of work."""

    def __init__(self) -> None:
        self.shown: list[WorkProgress] = []

    def _write(self, *lines: str) -> None:
        """Write nothing."""

    def progress(self, event: WorkProgress) -> None:
        self.shown.append(event)

    def of(self, name: str) -> list[WorkProgress]:
        return [event for event in self.shown if event.name == name]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(operations, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr("taskplace.model.work.LEAST_SECONDS", 0.0)


@pytest.fixture
def recorder():
    return Recorder()


def test_followers_that_catch_up(world, recorder):
    placed = stream(world, reporter=recorder, config={"num.standby.replicas": 1})
    turn(placed)
    assert recorder.shown == []  # one executor: there is no place for a follower
    world.come()
    world.follow(placed)
    run(world, placed, 1)
    turn(placed)
    first = recorder.of("catching up standbys")[0]
    behind = sum(placed.journal.settled_offset(task) for task in placed.state.roles("executor-2").standby)
    assert (first.done, first.total, first.unit) == (0, behind, "records")
    assert behind > 0
    assert first.detail in ("1 copy on executor-2", "2 copies on executor-2")
    world.follow(placed)
    world.follow(placed)
    turn(placed)
    last = recorder.shown[-1]
    assert last.ended and last.fraction == 1.0
    seen = len(recorder.shown)
    turn(placed)
    assert len(recorder.shown) == seen  # all is caught up


def test_what_an_executor_was_reading_is_no_work_after_its_loss(world, recorder):
    placed = stream(world, reporter=recorder, config={"num.standby.replicas": 1})
    world.come()
    world.follow(placed)
    run(world, placed, 1)
    turn(placed)
    assert not recorder.shown[-1].ended
    world.lose("2")
    run(world, placed, 2)
    turn(placed)
    last = recorder.shown[-1]
    assert last.ended and last.done == 0 < last.total  # given up
    shown = len(recorder.shown)
    turn(placed)
    assert len(recorder.shown) == shown


def test_active_tasks_that_are_restored(world, recorder):
    world.come(1)
    placed = stream(world, reporter=recorder)
    (task,) = placed.state.roles("executor-1").active
    lost = placed.journal.end_offset(task)
    world.lose("1")

    def look(point):
        if point == "attempt.sealed":
            turn(placed)

    world.at = look
    run(world, placed, 1)
    world.at = lambda point: None
    turn(placed)
    first, *_, last = recorder.of("restoring active tasks")
    assert (first.done, first.total, first.ended) == (0, lost, False)
    assert (last.done, last.total, last.ended) == (lost, lost, True)


def test_snapshots(world, recorder):
    placed = stream(world, reporter=recorder, snapshot_interval=1)
    due = placed._runner.followers
    orders = due.jobs()
    assert due.snapshots_waiting() == sum(len(order.request.snapshot) for order in orders) == 2
    turn(placed)
    for order in orders:
        order.files.close()
    world.follow(placed)
    turn(placed)
    first, last = recorder.of("making snapshots")
    assert (first.done, first.total) == (0, 2)
    assert (last.done, last.total, last.ended) == (2, 2, True)


def test_a_batch_that_takes_long(world, recorder, monkeypatch):
    placed = stream(world, reporter=recorder)
    started = time.time()

    def look(point):
        if point == "batch.staged":
            for seconds in (stream_work.LONG_BATCH_SECONDS - 1, stream_work.LONG_BATCH_SECONDS + 30):
                later = started + seconds
                clock = SimpleNamespace(time=lambda later=later: later, monotonic=time.monotonic)
                monkeypatch.setattr(operations, "time", clock)
                turn(placed)

    world.at = look
    run(world, placed, 1)
    turn(placed)
    first, last = recorder.of("batch 1")
    assert 30 < first.seconds < stream_work.LONG_BATCH_SECONDS + 30
    assert last.ended


def test_the_end_of_the_stream_ends_all_work(world, recorder):
    placed = stream(world, reporter=recorder, config={"num.standby.replicas": 1})
    world.come()
    world.follow(placed)
    run(world, placed, 1)
    turn(placed)
    assert not recorder.shown[-1].ended
    placed.close()
    assert recorder.shown[-1].ended


def test_a_reporter_need_not_take_progress(world):
    reporter = SimpleNamespace(**dict.fromkeys(("batch", "rebalance", "failure"), lambda event: None))
    placed = stream(world, reporter=reporter)
    turn(placed)
    with pytest.raises(InputError, match=r"reporter\.progress"):
        world.open(counts(world), reporter=SimpleNamespace(**vars(reporter), progress=lambda: None))


def test_a_reporter_that_fails_fails_no_batch(world, recorder, monkeypatch, caplog):
    placed = stream(world, reporter=recorder, config={"num.standby.replicas": 1})
    world.come()
    world.follow(placed)

    def fail(event):
        raise ValueError("no such terminal")

    monkeypatch.setattr(placed._runner.operations._work, "_show", fail)
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    turn(placed)
    assert "ValueError: no such terminal" in caplog.text
    assert placed.journal.last_batch == 1
