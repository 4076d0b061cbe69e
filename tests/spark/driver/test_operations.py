"""The status file of a driver, and its answers to operators; no Spark needed."""

from __future__ import annotations

import logging
import os
import re
import time
from types import SimpleNamespace

import pytest

from taskplace.errors import CheckpointError, InputError
from taskplace.logs import RepeatedWarnings
from taskplace.record import PlainReporter
from taskplace.record.events import WorkProgress
from taskplace.spark.driver import operations
from taskplace.spark.driver.operations import StatusBoard
from taskplace.spark.inspection.driver import ask, driver_of
from taskplace.spark.inspection.now import state_of
from taskplace.spark.operator_messages import (
    STATUS_FILE,
    WAITING_FILE,
    Request,
    Status,
    WaitingDriver,
    read,
    write,
)
from taskplace.spark.state.copy import Copy
from taskplace.wording import about
from tests.support.operators import STRICT, run, stream, turn, write_status
from tests.support.word_counts import counts, words
from topology import TaskId


def status_of(world) -> Status:
    return read(world.folder / "checkpoint" / STATUS_FILE, Status)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(operations, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr("taskplace.model.work.LEAST_SECONDS", 0.0)


def asked(placed, kind, *executors, status=None):
    """Ask the driver, which takes a turn whenever the operator waits."""
    root = placed.checkpoint
    status = status or read(root / STATUS_FILE, Status)
    return ask(root, status, kind, executors, timeout=0.5, sleep=lambda seconds: turn(placed))


def test_the_status_follows_batches_rebalances_and_losses(world):
    placed = stream(world, config={"num.standby.replicas": 1})
    turn(placed)
    first = status_of(world)
    assert (first.epoch, first.batch, first.running, first.ended) == (1, 0, None, False)
    assert first.checkpoint == placed.journal.declaration.id
    assert list(first.executors["executor-1"].active) == ["0_0", "0_1"]
    assert [change.reason for change in first.rebalances] == ["start: 2 tasks on 1 instance"]
    assert [(batch.batch_id, batch.rows) for batch in first.batches] == [(0, 8)]

    world.come()
    world.follow(placed)
    run(world, placed, 1)
    turn(placed)
    second = status_of(world)
    assert second.number == first.number + 1
    assert second.rebalances[-1].reason == "membership: executor-2 joined"
    follower = second.executors["executor-2"]
    lags = {**follower.standby, **{task: copy.lag for task, copy in follower.warmup.items()}}
    assert lags and all(lag > 0 for lag in lags.values())
    world.follow(placed)
    run(world, placed, 2)
    world.follow(placed)
    turn(placed)
    assert status_of(world).executors["executor-2"].lag == 0

    world.lose("1")
    run(world, placed, 3)
    turn(placed)
    third = status_of(world)
    assert [loss.instance for loss in third.losses] == ["executor-1"]
    assert sorted(third.executors) == ["executor-2"]
    assert third.homeless == ()


def test_a_status_is_written_for_news_and_as_a_heartbeat_only(world, monkeypatch):
    now, written = [100.0], []
    placed = stream(world)
    monkeypatch.setattr(operations, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    monkeypatch.setattr(operations, "write", lambda path, status: written.append(status))
    monkeypatch.setattr(operations, "LEAST_SECONDS", 1.0)
    turn(placed)
    assert len(written) == 1
    run(world, placed, 1)
    for seconds, statuses in ((0.0, 1), (1.0, 2), (0.0, 2), (1.5, 2), (0.5, 3)):
        now[0] += seconds  # news is a second old at least; without news, there is a heartbeat
        turn(placed)
        assert len(written) == statuses


def test_a_driver_that_never_ran_a_batch_writes_nothing(world):
    stream(world).close()
    before = status_of(world)
    world.open(counts(world)).close()
    assert status_of(world) == before


def test_a_replaced_driver_writes_nothing_more(world):
    old = stream(world)
    new = stream_again(world)
    turn(new)
    before = status_of(world)
    turn(old)
    old.close()
    assert status_of(world) == before
    assert before.epoch == 2


def stream_again(world):
    placed = world.open(counts(world))
    run(world, placed, 1)
    return placed


def test_an_error_of_the_disk_is_logged_once_and_fails_no_batch(world, monkeypatch, caplog):
    placed = stream(world)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(operations, "write", full)
    for batch in (1, 2):
        run(world, placed, batch)
        turn(placed)
    placed.close()
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in warnings] == [
        "operators do not see the state of the stream, which is not affected: OSError: [Errno 28] No space left on "
        "device"
    ]


def test_a_failed_batch_is_in_the_status_without_values_of_rows(world):
    placed = stream(world)

    def fails(point):
        if point == "batch.staged":
            raise ValueError("the row of k7 is bad")

    world.at = fails
    with pytest.raises(ValueError, match="k7"):
        run(world, placed, 1)
    turn(placed)
    failed = status_of(world).failed
    assert (failed.batch, failed.error) == (1, "ValueError")
    world.at = lambda point: None
    run(world, placed, 1)
    turn(placed)
    assert status_of(world).failed is None


def test_a_batch_whose_query_was_stopped_has_not_failed(world):
    placed, errors = stream(world), []

    def fails(point):
        if point == "batch.staged":
            raise errors.pop()

    world.at, world.stopped = fails, True
    errors.append(OSError("the job was cancelled"))
    with pytest.raises(OSError, match="cancelled"):
        run(world, placed, 1)
    turn(placed)
    status = status_of(world)
    assert (status.failed, status.stopped.batch) == (None, 1)
    assert state_of(status).word == "stopped"

    errors.append(CheckpointError("manifests: damaged"))
    with pytest.raises(CheckpointError):
        run(world, placed, 1)
    turn(placed)
    assert (status_of(world).failed.batch, status_of(world).stopped) == (1, None), "an error of taskplace"

    def gone(error):
        raise ConnectionError

    world.query_stopped = gone
    errors.append(OSError("the JVM has ended"))
    with pytest.raises(OSError, match="JVM"):
        run(world, placed, 1)
    turn(placed)
    assert status_of(world).failed.error == "OSError", "it is not known why"
    world.at = lambda point: None
    run(world, placed, 1)
    turn(placed)
    assert (status_of(world).failed, status_of(world).stopped) == (None, None)


def damage(state, key):
    """Change the byte behind each entry's key in all copies: the first one of its checksum."""
    stored = b"\0" + len(key).to_bytes(4, "little") + key.encode()
    damaged = 0
    for file in state.rglob("data.mdb"):
        data = file.read_bytes()
        places = [at.end() for at in re.finditer(re.escape(stored), data)]
        with file.open("r+b") as opened:
            for at in places:
                opened.seek(at)
                opened.write(bytes([data[at] ^ 1]))
        damaged += bool(places)
    assert damaged == 2, "the active copy and its standby"


def test_damage_of_a_copy_is_told_without_keys_of_rows(world, monkeypatch, caplog):
    monkeypatch.setattr(operations, "HEARTBEAT_SECONDS", 0.0)
    key = "customer-4711"
    world.come()
    config = {**STRICT, "num.standby.replicas": 1}
    placed = world.open(counts(world), config=config, snapshot_interval=2)
    world.batch(placed, 0, **{"in": words(key)})
    world.follow(placed)
    run(world, placed, 1)
    damage(world.folder / "state", key)
    caplog.set_level(logging.DEBUG)
    told = []
    for _ in range(4):
        world.follow(placed, rounds=1)  # all copies are read for the snapshot that is due
        turn(placed)
        told += [why for one in status_of(world).executors.values() for why in one.errors.values()]
        assert key not in (placed.checkpoint / STATUS_FILE).read_text()
    damaged = f"DamagedEntry: an entry with a key of {len(key) + 5} bytes is damaged"
    assert any(why.startswith(damaged) for why in told)
    assert f"cannot follow: {damaged}" in caplog.text and key not in caplog.text
    assert world.stored(placed, "n").count((key, 1)) == 1, "the copies are made anew"


def test_a_copy_that_cannot_follow_is_logged_at_growing_intervals_and_when_it_follows_again(
    world, monkeypatch, caplog
):
    world.come()
    placed = world.open(counts(world), config={**STRICT, "num.standby.replicas": 1})
    world.batch(placed, 0, **{"in": words(*"abcdefgh")})
    followers, seconds, free = placed._runner.followers, [0.0], [1_000]
    followers._repeated = RepeatedWarnings(clock=lambda: seconds[0])
    really = Copy.follow

    def full(*_, **__):
        free[0] -= 1
        raise OSError(28, f"No space left on device: {free[0]} bytes")

    monkeypatch.setattr(Copy, "follow", full)
    for _ in range(20):
        world.follow(placed)
        seconds[0] += 0.7
    said = [record.getMessage() for record in caplog.records if "cannot follow" in record.getMessage()]
    tasks = sorted({line.split()[1] for line in said})
    assert tasks and len(said) == 2 * len(tasks), "at once, and after 5 s"
    assert all(" (9 times since " in line for line in said[-len(tasks) :])

    monkeypatch.setattr(Copy, "follow", really)
    caplog.clear()
    for _ in range(3):
        world.follow(placed)
    again = [line for line in caplog.messages if "follows again" in line]
    assert sorted(line.split()[1] for line in again) == tasks, "once for each"
    assert all("follows again (after 20 failures since " in line for line in again)


# -- requests


def test_a_drain_is_previewed_followed_and_undone(world):
    placed = stream(world)
    world.come()
    world.follow(placed)
    run(world, placed, 1)
    world.follow(placed)
    run(world, placed, 2)
    turn(placed)
    assert [len(placed.state.roles(f"executor-{n}").active) for n in (1, 2)] == [1, 1]

    preview = asked(placed, "preview", "2")
    (move,) = preview.moves
    assert (move.role, move.from_, move.to) == ("active", "executor-2", "executor-1")
    assert preview.draining == ()
    assert not placed.state.draining

    (no,) = asked(placed, "can-remove", "executor-2").removals
    assert not no.can_remove
    assert "1 active" in no.text or "must catch up" in no.text

    assert asked(placed, "drain", "2").draining == ("executor-2",)
    for batch in (3, 4):
        world.follow(placed)
        run(world, placed, batch)
    (yes,) = asked(placed, "can-remove", "2").removals
    assert yes.can_remove
    assert asked(placed, "undrain", "2").draining == ()

    world.lose("2")
    run(world, placed, 5)
    (gone,) = asked(placed, "can-remove", "2").removals
    assert (gone.can_remove, gone.gone, gone.text) == (True, True, "yes: it is gone")


def test_an_answer_says_when_the_tasks_have_caught_up_elsewhere(world):
    placed = stream(world, config={"num.standby.replicas": 1})
    world.come()
    world.follow(placed)
    run(world, placed, 1)
    turn(placed)
    member = placed.state.members["executor-2"]
    member.restore_rate = None
    (unknown,) = asked(placed, "can-remove", "1").removals
    assert len(unknown.waits) == 2
    assert unknown.seconds is None
    member.restore_rate = 2.0
    (known,) = asked(placed, "can-remove", "1").removals
    lags = placed.state.lag
    behind = sum(lags("executor-2", TaskId.parse(copy.task)) for copy in known.waits)  # they take turns
    assert [copy.seconds for copy in known.waits] == [behind / 2, behind / 2]
    assert known.seconds == behind / 2
    assert f"which takes {about(behind / 2)}: 0_0 (executor-2" in known.text


def test_the_last_executor_cannot_be_drained(world):
    placed = stream(world)
    turn(placed)
    answer = asked(placed, "drain", "1")
    assert "expected executors without which at least one stays" in answer.error
    assert not placed.state.draining
    assert "found '9', expected executor-1, the only executor" in asked(placed, "drain", "9").error


def test_requests_to_other_drivers_are_not_followed(world):
    old = stream(world)
    turn(old)
    before = status_of(world)
    new = stream_again(world)
    requests = new.checkpoint / "requests"
    requests.mkdir()
    for name, request in {
        "stale": Request("stale", before.checkpoint, before.epoch, "drain", ("1",), time.time()),
        "other": Request("other", "another id", 2, "drain", ("1",), time.time()),
        "later": Request("later", before.checkpoint, 3, "drain", ("1",), time.time()),
    }.items():
        write(requests / f"{name}.json", request)
    (requests / "torn.json").write_text("{")
    turn(new)
    assert [path.name for path in requests.iterdir()] == ["later.json"]
    assert not new.state.draining
    assert not (new.checkpoint / "answers").exists()


def test_answers_that_nobody_reads_and_requests_of_dead_drivers_are_removed(world, monkeypatch):
    placed = stream(world)
    turn(placed)
    answers, requests = placed.checkpoint / "answers", placed.checkpoint / "requests"
    answers.mkdir()
    requests.mkdir()
    (answers / "old.json").write_text("{}")
    (requests / "dead.taken").write_text("{}")
    monkeypatch.setattr(placed._runner.operations._requests, "_clock", lambda: time.time() + 601)
    turn(placed)
    assert list(answers.iterdir()) == []
    stream_again(world)
    assert list(requests.iterdir()) == []


def test_what_killed_writers_have_left_is_pruned(world):
    placed = stream(world)
    (placed.checkpoint / "requests").mkdir()
    left = [placed.checkpoint / f".{name}.ab" for name in (STATUS_FILE, WAITING_FILE)]
    left += [placed.checkpoint / "requests" / ".1.json.cd"]
    for path in left:
        path.touch()
    run(world, placed, 1)
    assert all(path.exists() for path in left)
    for path in left:
        os.utime(path, (0, 0))
    run(world, placed, 2)
    assert not any(path.exists() for path in left)


# -- a driver that was started says that it waits for its first batch; no Spark needed


def test_a_driver_waits_until_its_first_batch_or_its_end(world):
    placed = stream(world)
    placed.close()
    file = placed.checkpoint / WAITING_FILE
    assert not file.exists()
    again = world.open(counts(world))
    again._runner.operations.wait()
    assert read(file, WaitingDriver).driver.pid == os.getpid()
    assert " has ended, " in driver_of(placed.checkpoint).why
    assert "waits for its first batch, with which it takes over" in driver_of(placed.checkpoint).why
    run(world, again, 1)
    assert not file.exists()
    again._runner.operations.wait()
    assert not file.exists(), "its first batch came before"
    again.close()
    third = world.open(counts(world))
    third._runner.operations.wait()
    assert file.exists()
    third.close()
    assert not file.exists()


def test_a_driver_in_charge_is_so_before_it_has_rows_of_its_own(world):
    """Its first batch was committed by the driver before it, which ended before Spark knew."""
    stream(world).close()
    again = world.open(counts(world))
    run(world, again, 0)
    write_status(again)
    assert driver_of(again.checkpoint).runs
    world.follow(again)
    write_status(again)
    seen = driver_of(again.checkpoint).status
    assert (seen.epoch, seen.batch, seen.ended) == (2, 0, False)
    again.close()
    assert " has ended, " in driver_of(again.checkpoint).why


def test_a_query_that_is_stopped_and_started_again_stays_in_charge(world):
    placed = stream(world)
    placed.close()
    assert not driver_of(placed.checkpoint).runs
    placed._runner.operations.wait()
    write_status(placed)
    assert driver_of(placed.checkpoint).runs
    assert not (placed.checkpoint / WAITING_FILE).exists()


def test_a_waiting_driver_says_so_again_and_again(world, monkeypatch):
    stream(world).close()
    again = world.open(counts(world))
    again._runner.operations.wait()
    first = read(again.checkpoint / WAITING_FILE, WaitingDriver)
    monkeypatch.setattr(operations, "HEARTBEAT_SECONDS", 0.0)
    again._runner.operations.turn()
    second = read(again.checkpoint / WAITING_FILE, WaitingDriver)
    assert second.driver == first.driver and second.written > first.written


def test_a_last_status_is_written_without_spark_too(world, monkeypatch):
    placed = stream(world)
    write_status(placed)

    def gone(*_, **__):
        raise ConnectionRefusedError("Spark's process is gone")

    monkeypatch.setattr(StatusBoard, "status", gone)
    monkeypatch.setattr(placed._runner.replicator, "stop", gone)
    with pytest.raises(ConnectionRefusedError):
        placed.close()
    seen = driver_of(placed.checkpoint)
    assert not seen.runs and " has ended, " in seen.why


# -- the long work of a stream, as its reporter gets it; no Spark needed


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
            for seconds in (operations.LONG_BATCH_SECONDS - 1, operations.LONG_BATCH_SECONDS + 30):
                later = started + seconds
                clock = SimpleNamespace(time=lambda later=later: later, monotonic=time.monotonic)
                monkeypatch.setattr(operations, "time", clock)
                turn(placed)

    world.at = look
    run(world, placed, 1)
    turn(placed)
    first, last = recorder.of("batch 1")
    assert 30 < first.seconds < operations.LONG_BATCH_SECONDS + 30
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
