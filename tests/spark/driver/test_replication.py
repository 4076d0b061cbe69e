"""The replicator's thread: when executors follow, how it ends; rebalances while no batch runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import taskplace
from taskplace.errors import InputError
from taskplace.logs import RepeatedWarnings
from taskplace.model.problem import Problem
from taskplace.spark.driver import followers as replication
from taskplace.spark.driver import rebalancer
from tests.support.ended_jobs import Ended
from tests.support.held_jobs import HeldJobs
from tests.support.placed_harness import wait_until
from tests.support.word_counts import counts, words
from topology import TaskId

SECONDS = 30


@pytest.fixture
def placed(world):
    """A stream on three executors that has run a batch. Nobody has followed yet."""
    world.come(2)
    opened = world.open(counts(world), config={"num.standby.replicas": 2})
    world.batch(opened, 0, **{"in": words(*"abcdefgh")})
    return opened


def lag(placed, *executors: str) -> int:
    """Return the number of followers on these executors that are not at the end."""
    state, history = placed.state, placed.journal.history
    with placed.rebalancer.lock:
        return sum(
            state.members[f"executor-{id}"].copies.get(task) != history[task].end
            for id in executors
            for task in state.following(f"executor-{id}")
            if task in history
        )


# -- when
@pytest.fixture
def clock(monkeypatch):
    """Sets the time by which jobs are made; each reading takes a moment. Nothing is waited for."""
    now = SimpleNamespace(seconds=time.monotonic())

    def monotonic() -> float:
        now.seconds += 1e-6
        return now.seconds

    monkeypatch.setattr(replication, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(replication.Replicator, "_wait", lambda *_: None)
    return now


def turn(replicator, held) -> list[str]:
    """Let the replicator check for work once, and return the ids of the executors that get a job."""
    before = len(held.begun)
    replicator._turn()
    return held.begun[before:]


def test_while_a_follow_job_hangs_the_others_follow_every_batch(world, placed, monkeypatch, clock):
    held, replicator = HeldJobs(world, monkeypatch, "1"), placed._runner.replicator
    assert turn(replicator, held) == ["1", "2", "3"]
    for batch in range(1, 4):
        turn(replicator, held)
        assert not lag(placed, "2", "3")
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        clock.seconds += 0.1
        assert turn(replicator, held) == ["2", "3"]
    held.executors.clear()
    held.jobs["1"].go_on()
    assert turn(replicator, held) == ["1"]
    turn(replicator, held)
    assert not lag(placed, "1", "2", "3")


def test_a_failed_job_makes_a_pause_for_its_executor_only(world, placed, monkeypatch, clock, caplog):
    world.follow(placed)
    start = world.start

    def fail(job, *args, **kwargs):
        if job.locations == [world.there["1"].location]:
            return Ended([], OSError("no slot"))
        return start(job, *args, **kwargs)

    monkeypatch.setattr(world, "start", fail)
    held, replicator = HeldJobs(world, monkeypatch), placed._runner.replicator
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    clock.seconds += 1
    assert turn(replicator, held) == ["1", "2", "3"]
    with caplog.at_level(logging.WARNING):
        assert turn(replicator, held) == []
    assert "a follow job on executor-1 failed and is retried: OSError, raised in " in caplog.text
    assert "no slot" not in caplog.text
    assert not lag(placed, "2", "3")
    for batch in range(2, 4):
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        clock.seconds += 0.3
        replicator.wake()
        assert turn(replicator, held) == ["2", "3"]
        turn(replicator, held)
    clock.seconds += replication.PAUSE_SECONDS
    assert turn(replicator, held) == ["1"]


def test_a_follow_job_that_fails_again_and_again_is_logged_seldom_and_its_end_is_logged(
    world, placed, monkeypatch, clock, caplog
):
    world.follow(placed)
    held, replicator = HeldJobs(world, monkeypatch), placed._runner.replicator
    replicator._repeated = RepeatedWarnings(clock=lambda: clock.seconds)
    start, fails = world.start, [True]

    def fail(job, *args, **kwargs):
        if fails and job.locations == [world.there["1"].location]:
            return Ended([], OSError("no slot"))
        return start(job, *args, **kwargs)

    monkeypatch.setattr(world, "start", fail)
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    for _ in range(8):
        clock.seconds += 1.01 * replication.PAUSE_SECONDS
        turn(replicator, held)
        turn(replicator, held)
    said = [line for line in caplog.messages if line.startswith("a follow job on executor-1 failed")]
    assert len(said) == 2 and " times since " in said[1]
    fails.clear()
    clock.seconds += 1.01 * replication.PAUSE_SECONDS
    turn(replicator, held)
    turn(replicator, held)
    assert [line.partition(" (")[0] for line in caplog.messages if "again" in line.partition(" (")[0]] == [
        "follow jobs on executor-1 succeed again"
    ]


def test_an_executor_whose_job_made_no_progress_waits_for_a_wake_or_a_tick(world, placed, monkeypatch, clock):
    """A copy that cannot follow stays behind: each look for work finds it."""
    replicator = placed._runner.replicator
    monkeypatch.setattr(placed._runner.followers, "absorb", lambda reports: frozenset())
    held = HeldJobs(world, monkeypatch)
    clock.seconds += 1
    assert turn(replicator, held) == ["1", "2", "3"]
    assert turn(replicator, held) == []
    clock.seconds += 0.1
    assert turn(replicator, held) == []
    replicator.wake()
    clock.seconds += 0.1
    assert turn(replicator, held) == ["1", "2", "3"]
    replicator.wake()  # while they run
    assert turn(replicator, held) == ["1", "2", "3"]
    assert turn(replicator, held) == []
    clock.seconds += replication.TICK_SECONDS
    assert turn(replicator, held) == ["1", "2", "3"]


def test_a_wake_counts_for_a_follow_job_that_ends_after_it(world, placed, monkeypatch, clock):
    held, replicator = HeldJobs(world, monkeypatch, "1"), placed._runner.replicator
    monkeypatch.setattr(placed._runner.followers, "absorb", lambda reports: frozenset())
    turn(replicator, held)
    replicator.wake()
    assert turn(replicator, held) == ["2", "3"]
    held.jobs["1"].go_on()
    assert turn(replicator, held) == ["1"]


# -- its thread
@pytest.fixture
def threads(world, placed, monkeypatch):
    """Have the replicator run in a thread. No batch may run meanwhile: the executors of a world are this process."""
    placed.close()
    monkeypatch.setattr(world, "thread", lambda target, name: threading.Thread(target=target, daemon=True))
    yield
    placed._runner.replicator.stop(timeout=0.0)


def test_a_loss_ends_a_follow_job_without_waiting_for_its_job(world, placed, threads, monkeypatch):
    held, runner = HeldJobs(world, monkeypatch, "1", "3"), placed._runner
    runner.replicator.start()
    for _ in range(2):
        assert held.held.acquire(timeout=SECONDS)
    world.lose("1")
    assert held.jobs["1"].cancelled.wait(SECONDS)
    held.executors.clear()
    held.jobs["3"].go_on()
    wait_until(lambda: not lag(placed, "2", "3"), "the other executors have followed")
    wait_until(lambda: not runner.replicator.running, "no job runs")
    assert not held.jobs["1"].done.is_set()


def test_a_stop_waits_for_the_jobs_that_run_and_takes_their_reports_in(world, placed, threads, monkeypatch):
    held, replicator = HeldJobs(world, monkeypatch, "1"), placed._runner.replicator
    replicator.start()
    assert held.held.acquire(timeout=SECONDS)
    stop = threading.Thread(target=replicator.stop)
    stop.start()
    assert replicator._stopped.wait(SECONDS)
    held.jobs["1"].go_on()
    stop.join(SECONDS)
    assert not stop.is_alive()
    assert not lag(placed, "1")
    assert not held.jobs["1"].cancelled.is_set()


def test_a_stop_cancels_a_follow_job_that_hangs_and_it_can_start_again(world, placed, threads, monkeypatch):
    held, runner = HeldJobs(world, monkeypatch, "1"), placed._runner
    for number in range(1, 3):
        runner.replicator.start()
        assert held.held.acquire(timeout=SECONDS)
        runner.replicator.stop(timeout=0.0)
        assert held.jobs["1"].cancelled.is_set()
        assert not runner.replicator._thread.is_alive()
        assert not runner.replicator.running
        assert held.begun.count("1") == number
    assert not placed.journal._following, "no file is protected any more"


# -- rebalances while no batch runs


@pytest.fixture
def quiet(world, monkeypatch):
    """A stream on two executors that has run a batch, and whose sources are silent from then on."""
    monkeypatch.setattr(rebalancer, "PAUSE_SECONDS", 0.0)
    world.come()
    opened = world.open(counts(world), config={"num.standby.replicas": 1, "acceptable.recovery.lag": 0})
    world.batch(opened, 0, **{"in": words(*"abcdefgh")})
    world.follow(opened)
    return opened


def settle(world, placed) -> int:
    """Rebalance between batches, and let followers follow, until nothing changes; return the number of rebalances."""
    for made in range(20):
        if not placed.rebalancer.rebalance_between_batches():
            return made
        world.follow(placed)
    raise AssertionError("no end of rebalances")


def test_a_stream_without_rows_empties_an_executor_that_drains(world, quiet):
    assert settle(world, quiet) == 0
    world.come()
    world.follow(quiet)
    quiet.drain("1")
    assert settle(world, quiet) >= 1
    assert quiet.can_remove("1")
    assert not any(quiet.state.roles("executor-1"))
    before = quiet.rebalancer.loop.generation
    world.batch(quiet, 1, **{"in": words(*"abcdefgh")})
    assert quiet.rebalancer.loop.generation == before, "the batch finds nothing left to plan"
    assert quiet.stats.scratch == quiet.stats.elsewhere == 0


def test_a_stream_without_rows_makes_the_standbys_of_a_lost_executor_anew(world, quiet):
    world.come()
    world.follow(quiet)
    settle(world, quiet)
    for lost in ("1", "2"):
        world.lose(lost)
        world.come()
        world.follow(quiet)
        settle(world, quiet)
    world.batch(quiet, 1, **{"in": words(*"abcdefgh")})
    assert quiet.stats.promotions and quiet.stats.scratch == 0, "no state was restored in a batch"


def test_nothing_is_planned_while_a_batch_runs_or_without_executors(world, quiet):
    quiet.drain("1")
    with quiet.rebalancer.batch():
        assert not quiet.rebalancer.rebalance_between_batches()
    world.lose("1")
    world.lose("2")
    assert not quiet.rebalancer.rebalance_between_batches()


def test_the_replicator_rebalances_when_it_looks_for_work(world, quiet, monkeypatch):
    quiet.close()
    monkeypatch.setattr(world, "thread", lambda target, name: threading.Thread(target=target, daemon=True))
    quiet._runner.replicator.start()
    try:
        quiet.drain("1")
        wait_until(lambda: quiet.can_remove("1"), "the executor is empty")
    finally:
        quiet._runner.replicator.stop()


# -- `Placed.release`: parked copies of an executor are tried again with the next batch


def test_the_next_batch_plans_with_released_copies(world):
    placed = world.open(counts(world))
    world.batch(placed, 0, **{"in": words("a")})
    task = TaskId(0, 0)
    placed.loop._watch.parked = {("executor-1", task)}
    with pytest.raises(InputError, match=r"executor: found '7', expected executor-1, the only executor"):
        placed.release("7")
    assert placed.release("1") == (("executor-1", task),)
    assert placed.release() == ()
    plan = placed.loop.plan
    world.batch(placed, 1, **{"in": words("a")})
    assert placed.loop.plan is not plan
    assert placed.loop.plan.assignment == plan.assignment


# -- warnings of plans are logged, also while the assignment stays: each one once, for as long as it lasts


_errors: list[str] = []


def assign(problem: Problem) -> dict:
    """Place as the default assignor does; fail while there is an error to raise."""
    if _errors:
        raise RuntimeError(_errors[-1])
    plan = taskplace.plan({**problem.to_dict(), "config": {}})
    return {name: {"active": roles.active, "standby": roles.standby} for name, roles in plan.target.items()}


@pytest.fixture
def errors() -> Iterator[list[str]]:
    _errors.clear()
    yield _errors
    _errors.clear()


def test_an_assignor_that_begins_to_fail_is_named_once(world, caplog, errors):
    caplog.set_level(logging.WARNING, "taskplace.spark.driver.rebalancer")
    placed = world.open(counts(world), config={"task.assignor.class": f"{__name__}:assign"})
    world.batch(placed, 0, **{"in": words("a")})
    assert not caplog.messages
    batch = 0

    def plan_again(times: int) -> list[str]:
        """Plan so many times, and return what was logged."""
        nonlocal batch
        caplog.clear()
        for _ in range(times):
            batch += 1
            world.come(1)  # a reason to plan
            world.follow(placed)
            world.batch(placed, batch, **{"in": words("a")})
        return caplog.messages

    errors.append("out of order")
    (logged,) = plan_again(3)
    assert "is rejected: RuntimeError: out of order; high_availability is used" in logged
    errors.append("still out of order")
    (logged,) = plan_again(2)
    assert "RuntimeError: still out of order" in logged, "a new warning"
    errors.clear()
    assert plan_again(1) == []
    errors.append("out of order")
    assert len(plan_again(1)) == 1, "a warning that has come back"
