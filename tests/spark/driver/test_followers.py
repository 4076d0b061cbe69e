"""Follow jobs: whose turn it is, and when; none waits for another, and nothing waits for ever."""

from __future__ import annotations

import dataclasses
import logging
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

import taskplace
from taskplace.errors import InputError, TaskplaceError
from taskplace.logs import RepeatedWarnings
from taskplace.model.placed_options import PlacedOptions
from taskplace.model.problem import Problem
from taskplace.spark.checkpoint.files import RecordFile, SectionFile
from taskplace.spark.cluster import JobLostError
from taskplace.spark.driver import followers, rebalancer
from taskplace.spark.driver.cluster_state import ClusterState
from taskplace.spark.driver.followers import Followers, FollowJob
from taskplace.spark.messages import FollowReport, History, segment_file
from taskplace.spark.state.catching_up import CheckpointFiles
from taskplace.spark.worker import bin_context as bin_files
from taskplace.spark.worker import follow
from tests.support.ended_jobs import Ended
from tests.support.follow_jobs import orders, run_job
from tests.support.held_jobs import HeldJobs
from tests.support.placed_harness import wait_until
from tests.support.word_counts import counts, words
from topology import TaskId


# -- whose turn it is
class Driver:
    """As much of a driver as makes orders: one executor, which follows some tasks and never gets all of it done."""

    def __init__(self, ran, follows, snapshot_interval=10**6, share=1.0, cleanup_ms=0):
        stores = {program.subtopology: tuple(sorted(program.stores)) for program in (ran.first, ran.second)}
        self.executor = SimpleNamespace(instance="executor-2", cores=2)
        self.busy = False
        self.member = SimpleNamespace(copies={})
        journal = SimpleNamespace(
            history=ran.history,
            snapshot_pending=lambda task: False,
            snapshot_running=lambda task: False,
            snapshots_running=lambda: 0,
            add_snapshots=lambda made: None,
            protected=nullcontext,
        )
        rebalancer = SimpleNamespace(
            journal=journal,
            lock=nullcontext(),
            busy=lambda: self.busy,
            stats=SimpleNamespace(followed=0),
            loop=SimpleNamespace(
                config=SimpleNamespace(state_cleanup_delay_ms=cleanup_ms), parked=frozenset()
            ),
            bridge=SimpleNamespace(app_id="app", executors=lambda: [self.executor]),
            state=SimpleNamespace(
                members={"executor-2": self.member},
                loads={},
                without_role=lambda seconds: {},
                join=lambda *_: None,
                caught_up_by=lambda *_: None,
                following=lambda name: follows,
            ),
            task_ids=set(ran.history),
        )
        programs = [
            SimpleNamespace(subtopology=number, databases=names, logged=names)
            for number, names in stores.items()
        ]
        options = PlacedOptions(
            snapshot_interval=snapshot_interval,
            snapshot_bytes=1 << 40,
            follower_share=share,
            compression=None,
        )
        self.followers = Followers(
            rebalancer,
            SimpleNamespace(
                programs=programs, checkpoint=ran.checkpoint, state_root=ran.state, options=options
            ),
        )

    def requests(self):
        """Make orders, and return their requests."""
        return [job.request for job in self.followers.jobs()]

    def run(self, ran, budget):
        """Make the orders, and have them carried out with that budget."""
        (given,) = self.requests()
        done = run_job(ran, replace(given, budget=budget))
        assert not done.errors
        served = {task for task, at in done.copies.items() if at != self.member.copies.get(task)}
        self.member.copies = dict(done.copies)
        return served, set(done.snapshots)


def test_with_time_for_one_task_a_job_all_that_are_always_behind_are_served_in_turn(ran):
    follows = sorted(ran.history)
    assert len(follows) > 3
    driver = Driver(ran, follows)
    turns = []
    for _ in range(3 * len(follows)):
        behind = set(follows)
        while behind:  # every task gets something new before every job
            ran.run_batch([(f"N{i}", ran.batch * 7 + i) for i in range(12)])
            behind -= {t for t in follows if ran.history[t].end != driver.member.copies.get(t)}
        (served,), _ = driver.run(ran, budget=-1.0)
        turns.append(served)
    for start in range(len(turns) - len(follows) + 1):
        assert sorted(turns[start : start + len(follows)]) == follows


def test_a_task_that_joins_those_that_wait_has_its_turn_within_as_many_jobs(ran):
    follows = sorted(ran.history)[:-1]
    late = sorted(ran.history)[-1]
    driver = Driver(ran, follows)
    for joins in range(1, 4):
        for _ in range(joins):
            ran.run_batch([(f"N{i}", ran.batch * 7 + i) for i in range(12)])
            driver.run(ran, budget=-1.0)
        follows.append(late)
        served = set()
        for _ in follows:
            ran.run_batch([(f"N{i}", ran.batch * 7 + i) for i in range(12)])
            served |= driver.run(ran, budget=-1.0)[0]
        assert late in served
        follows.remove(late)


def test_snapshots_have_their_turn_though_followers_use_all_the_time_up(ran, monkeypatch):
    """A copy of the active's is due, and the followers beside it never catch up."""
    due, *follows = sorted(ran.history)
    driver = Driver(ran, follows)
    run_job(ran, orders(ran, follow={due: ran.history[due]}))
    monkeypatch.setattr(driver.followers, "_snapshots_due", lambda: {"executor-2": [due]})
    made = 0
    for _ in range(2 * (len(follows) + 1)):
        ran.run_batch([("N1", 1000 + ran.batch)])
        run_job(ran, orders(ran, follow={due: ran.history[due]}))
        (given,) = driver.requests()
        # A follower that is far behind takes all the time there is.
        done = run_job(ran, replace(given, budget=-1.0 if given.follow else 5.0))
        made += bool(done.snapshots)
    assert made == 2


# -- when
@pytest.fixture
def clock(monkeypatch):
    """Sets the time by which the driver makes jobs."""
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(followers, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_while_a_batch_runs_jobs_take_no_more_than_their_share_of_the_slots(ran, clock):
    driver = Driver(ran, sorted(ran.history), share=0.1)
    (given,) = driver.requests()
    assert given.follow
    driver.followers.absorb([FollowReport("executor-2", here=True, seconds=3.0)])  # one of two slots
    driver.busy = True
    clock.seconds += 11.9  # of 15 s of two slots, a tenth is 3 s of one
    assert driver.requests() == []
    clock.seconds += 0.2
    assert driver.requests()
    driver.followers.absorb([FollowReport("executor-2", here=True, seconds=3.0)])
    assert driver.requests() == []
    driver.busy = False
    assert driver.requests(), "nobody is in the way"


def test_directories_of_dead_executors_are_looked_for_as_long_as_the_stream_runs(ran, clock):
    driver = Driver(ran, [], cleanup_ms=600_000)
    for _ in range(3):
        (given,) = driver.requests()
        assert given.orphans_after == 600.0
        clock.seconds += 599.0
        assert driver.requests() == []
        clock.seconds += 2.0


def test_a_snapshot_that_a_follower_has_begun_to_restore_is_spared_until_it_is_done(ran):
    made = run_job(ran, orders(ran, "executor-1", snapshot=ran.history), executor="1")
    snapshot = made.snapshots[TaskId(0, 0)]
    assert len(RecordFile((ran.checkpoint / snapshot.file).read_bytes())) == 2
    ran.history[TaskId(0, 0)] = History((), (snapshot,))
    driver = Driver(ran, [TaskId(0, 0)])
    journal = driver.followers._journal

    def come():
        (given,) = driver.requests()
        done = run_job(ran, replace(given, budget=-1.0))
        driver.followers.absorb([done])
        return done.restoring

    def left(lag):
        """Return what a copy with this lag lacks of its changelog, less what it has loaded."""
        state = SimpleNamespace(
            loads=driver.followers._state.loads, _journal=journal, lag=lambda instance, task: lag
        )
        return ClusterState.left(state, "executor-2", TaskId(0, 0))

    assert come() == {TaskId(0, 0): snapshot.attempt}
    assert journal.spared == {(TaskId(0, 0), snapshot.attempt)}
    assert left(snapshot.offset) == snapshot.offset - snapshot.offset // 2  # one of two pieces is loaded
    assert left(snapshot.offset + 10) == left(snapshot.offset) + 10
    assert come() == {}
    assert journal.spared == set()
    assert left(10) == 10

    shutil.rmtree(ran.copy(TaskId(0, 0), "2"))
    assert come() == {TaskId(0, 0): snapshot.attempt}
    driver.followers._state.members.clear()  # its executor is gone
    driver.requests()
    assert journal.spared == set()


def test_reading_a_large_snapshot_is_not_most_of_a_job(ran, monkeypatch):
    """Whoever has read and checked it loads more than the one piece that each job loads at least."""
    made = run_job(ran, orders(ran, "executor-1", snapshot=ran.history), executor="1")
    ran.history[TaskId(0, 0)] = History((), (made.snapshots[TaskId(0, 0)],))
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    read = CheckpointFiles.read

    def slowly(files, part):
        now.seconds += 10.0
        return read(files, part)

    monkeypatch.setattr(CheckpointFiles, "read", slowly)
    done = run_job(ran, orders(ran, follow={TaskId(0, 0): ran.history[TaskId(0, 0)]}, budget=0.5))
    assert not done.unfinished and done.copies == {TaskId(0, 0): made.snapshots[TaskId(0, 0)].position}


# -- jobs that run at the same time: none waits for another, and each ends for itself


SECONDS = 30


@pytest.fixture
def placed(world, request):
    """A stream on three executors that has run a batch. Nobody has followed yet."""
    world.come(2)
    options = getattr(request, "param", {})
    opened = world.open(counts(world), config={"num.standby.replicas": 2}, **options)
    world.batch(opened, 0, **{"in": words(*"abcdefgh")})
    return opened


snapshots_often = pytest.mark.parametrize("placed", [{"snapshot_interval": 1}], indirect=True)


@pytest.fixture(autouse=True)
def a_segment_for_each_bin(monkeypatch):
    """So a change's segment can go as soon as the change is not needed."""

    def segment(root, batch, epoch):
        return SectionFile(root, segment_file(batch, epoch, uuid.uuid4().hex))

    monkeypatch.setattr(bin_files, "segment", segment)


def begin(placed) -> list[str]:
    """Begin jobs, and return the ids of the executors."""
    runner = placed._runner
    return [job.executor.id for job in runner.replicator.begin()]


def behind(placed) -> set[str]:
    """Return the ids of the executors with a follower that is not at the end."""
    state, history = placed.state, placed.journal.history
    return {
        member.executor.id
        for name, member in state.members.items()
        for task in state.following(name)
        if task in history and member.copies.get(task) != history[task].end
    }


def test_a_loss_ends_the_job_on_the_lost_executor_and_the_reports_of_the_others_count(
    world, placed, monkeypatch
):
    held, jobs = HeldJobs(world, monkeypatch, "1", "3"), placed._runner.replicator
    begin(placed)
    world.lose("1")
    ended = jobs.collect()
    assert [(job.executor.id, job.lost, job.error) for job in ended] == [
        ("1", True, None),
        ("2", False, None),
    ]
    assert held.jobs["1"].cancelled.is_set()
    assert jobs.running.keys() == {"executor-3"}
    held.jobs["3"].go_on()
    jobs.collect()
    assert behind(placed) == {"1"}, "it is a member until the next batch"
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    assert placed.stats.scratch == 0


def test_an_executor_that_is_decommissioned_is_looked_for_at_times(world, placed, monkeypatch):
    HeldJobs(world, monkeypatch, "1")
    begin(placed)
    world.leave("1")
    jobs = placed._runner.replicator
    assert any(job.lost for _ in range(10) for job in jobs.collect())


def test_a_job_that_fails_with_its_executor_is_no_error(world, placed, monkeypatch):
    def die(job, *_, **__):
        world.lose(job.locations[0].rpartition("_")[2])
        return Ended([], RuntimeError("Connection reset"))

    monkeypatch.setattr(world, "start", die)
    begin(placed)
    assert [(job.lost, job.error) for job in placed._runner.replicator.collect()] == [(True, None)] * 3


def named(placed, file: str) -> bool:
    return any(change.file == file for one in placed.journal.history.values() for change in one.changes)


@snapshots_often
def test_files_that_a_job_reads_stay_until_it_ends(world, placed, monkeypatch):
    held, runner = HeldJobs(world, monkeypatch, "1"), placed._runner
    (job, *_) = runner.replicator.begin()
    history = next(iter(job.request.follow.values()))
    read = world.folder / "checkpoint" / history.changes[0].file
    batch = 1
    while named(placed, history.changes[0].file):
        runner.replicator.collect()
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        begin(placed)
        batch += 1
        assert batch < 20, "no snapshots cover the changes"
    world.batch(placed, batch, **{"in": words("a")})
    assert read.exists()
    held.jobs["1"].go_on()
    runner.replicator.collect()
    world.batch(placed, batch + 1, **{"in": words("a")})
    assert not read.exists()


@snapshots_often
def test_a_snapshot_that_a_job_makes_is_ordered_from_no_other(world, placed, monkeypatch):
    world.follow(placed)
    held, runner, asked = HeldJobs(world, monkeypatch, "1", "2", "3"), placed._runner, []
    for batch in range(1, 4):
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        for _ in range(3):  # who has followed could make the snapshot, too
            for job in runner.replicator.begin():
                asked += job.request.snapshot
                if not job.request.snapshot:
                    held.jobs[job.executor.id].go_on()
            runner.replicator.collect()
    assert asked
    assert len(asked) == len(set(asked))


def test_the_answers_of_the_others_are_not_lost_with_an_executor_that_is_lost_at_its_first_job(
    world, monkeypatch
):
    world.come(2)
    placed = world.open(counts(world))
    start, members, asked = world.start, [], []

    def lose_one(job, *args, **kwargs):
        id = job.locations[0].rpartition("_")[2]
        asked.append(id)
        members.append(set(placed.state.members))
        if id == "2" and id in world.there:
            world.lose(id)
            return Ended([], JobLostError(frozenset(id)))
        return start(job, *args, **kwargs)

    monkeypatch.setattr(world, "start", lose_one)
    world.batch(placed, 0, **{"in": words("a")})
    assert asked == ["1", "2", "3", "1", "3"]
    assert members[3] == {"executor-1", "executor-3"}


def test_jobs_that_are_made_wait_for_one_that_runs_already(world, placed, monkeypatch):
    held, runner = HeldJobs(world, monkeypatch, "1"), placed._runner
    begin(placed)
    runner.replicator.collect()
    others = runner.followers.jobs()
    made = []
    thread = threading.Thread(
        target=lambda: made.extend(runner.replicator.make([FollowJob(world.there["1"], None), *others]))
    )
    thread.start()
    assert held.begun.count("1") == 1
    held.jobs["1"].go_on()
    thread.join(SECONDS)
    assert held.begun.count("1") == 1
    assert made[0].executor.id == "1"
    assert behind(placed) == set()


# -- executors are welcomed before the first batch; if none stays, the error names the true reason


def test_without_executors_the_error_has_the_time_that_was_waited(world):
    world.lose("1")
    placed = world.open(counts(world))
    with pytest.raises(TaskplaceError, match="no executor became available within 60 s"):
        world.batch(placed, 0, **{"in": words("a")})


def test_executors_that_are_lost_again_and_again_are_named_as_the_reason(world, monkeypatch):
    def lose(job, *_, **__):
        (id,) = world.there
        world.lose(id)
        world.come(1)
        return Ended([], JobLostError(frozenset({id})))

    monkeypatch.setattr(world, "start", lose)
    placed = world.open(counts(world))
    with pytest.raises(TaskplaceError, match=r"5 rounds of jobs.* executors lost: 1, 2, 3, 4, 5;") as error:
        world.batch(placed, 0, **{"in": words("a")})
    assert "60 s" not in str(error.value)


def test_jobs_that_run_elsewhere_are_named_as_the_reason(world, monkeypatch):
    monkeypatch.setattr(world, "start", lambda *_, **__: Ended([]))
    placed = world.open(counts(world))
    with pytest.raises(TaskplaceError, match=r"5 rounds of jobs.* no executor was lost") as error:
        world.batch(placed, 0, **{"in": words("a")})
    assert "60 s" not in str(error.value)


# -- what a restarted driver knows of the copies it finds: a copy's last attempt is committed if the journal says so


STANDBY = {"num.standby.replicas": 1}


def roles(placed):
    return {name: roles.active for name, roles in placed.loop.plan.assignment.items()}


@contextmanager
def no_commit(placed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(placed.journal), "commit", lambda *_, **__: 1 // 0)
        yield


def test_after_the_first_batch_the_copies_are_known_and_the_tasks_stay_where_they_are(world):
    world.come(1)
    first = world.open(counts(world), config=STANDBY)
    world.batch(first, 0, **{"in": words(*"abcdefgh")})
    world.follow(first)
    second = world.open(counts(world), config=STANDBY)
    world.welcome(second)
    assert {at.version for member in second.state.members.values() for at in member.copies.values()} == {0}
    world.batch(second, 1, **{"in": words(*"abcdefgh")})
    assert roles(second) == roles(first)
    assert (second.stats.scratch, second.stats.replayed) == (0, 0)


def test_a_crash_before_the_second_manifest_leaves_copies_that_roll_back(world):
    world.come(1)
    first = world.open(counts(world), config=STANDBY)
    world.batch(first, 0, **{"in": words(*"abcdefgh")})
    world.follow(first)
    with no_commit(first), pytest.raises(ZeroDivisionError):
        world.batch(first, 1, **{"in": words("a")})  # a part of the tasks has changes
    second = world.open(counts(world), config=STANDBY)
    world.batch(second, 1, **{"in": words(*"abcdefgh")})
    assert roles(second) == roles(first)
    assert (second.stats.scratch, second.stats.replayed) == (0, 0)


def test_an_executor_whose_job_ran_elsewhere_is_asked_again(world, monkeypatch):
    world.come(2)
    first = world.open(counts(world))
    world.batch(first, 0, **{"in": words(*"abcdefgh")})
    start, elsewhere = world.start, []

    def once_elsewhere(job, *args, **kwargs):
        other = world.there["1"].location
        if not elsewhere and job.locations != [other]:
            elsewhere.append(job.locations)
            job = dataclasses.replace(job, locations=[other])
        return start(job, *args, **kwargs)

    monkeypatch.setattr(world, "start", once_elsewhere)
    second = world.open(counts(world))
    world.batch(second, 1, **{"in": words(*"abcdefgh")})
    assert elsewhere
    assert roles(second) == roles(first)
    assert second.stats.scratch == 0


# -- the replicator's thread: when executors follow, how it ends; rebalances while no batch runs


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
def ticking(monkeypatch):
    """Sets the time by which jobs are made; each reading takes a moment. Nothing is waited for."""
    now = SimpleNamespace(seconds=time.monotonic())

    def monotonic() -> float:
        now.seconds += 1e-6
        return now.seconds

    monkeypatch.setattr(followers, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(followers.Replicator, "_wait", lambda *_: None)
    return now


def turn(replicator, held) -> list[str]:
    """Let the replicator check for work once, and return the ids of the executors that get a job."""
    before = len(held.begun)
    replicator._turn()
    return held.begun[before:]


def test_while_a_follow_job_hangs_the_others_follow_every_batch(world, placed, monkeypatch, ticking):
    held, replicator = HeldJobs(world, monkeypatch, "1"), placed._runner.replicator
    assert turn(replicator, held) == ["1", "2", "3"]
    for batch in range(1, 4):
        turn(replicator, held)
        assert not lag(placed, "2", "3")
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        ticking.seconds += 0.1
        assert turn(replicator, held) == ["2", "3"]
    held.executors.clear()
    held.jobs["1"].go_on()
    assert turn(replicator, held) == ["1"]
    turn(replicator, held)
    assert not lag(placed, "1", "2", "3")


def test_a_failed_job_makes_a_pause_for_its_executor_only(world, placed, monkeypatch, ticking, caplog):
    world.follow(placed)
    start = world.start

    def fail(job, *args, **kwargs):
        if job.locations == [world.there["1"].location]:
            return Ended([], OSError("no slot"))
        return start(job, *args, **kwargs)

    monkeypatch.setattr(world, "start", fail)
    held, replicator = HeldJobs(world, monkeypatch), placed._runner.replicator
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    ticking.seconds += 1
    assert turn(replicator, held) == ["1", "2", "3"]
    with caplog.at_level(logging.WARNING):
        assert turn(replicator, held) == []
    assert "a follow job on executor-1 failed and is retried: OSError, raised in " in caplog.text
    assert "no slot" not in caplog.text
    assert not lag(placed, "2", "3")
    for batch in range(2, 4):
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        ticking.seconds += 0.3
        replicator.wake()
        assert turn(replicator, held) == ["2", "3"]
        turn(replicator, held)
    ticking.seconds += followers.PAUSE_SECONDS
    assert turn(replicator, held) == ["1"]


def test_a_follow_job_that_fails_again_and_again_is_logged_seldom_and_its_end_is_logged(
    world, placed, monkeypatch, ticking, caplog
):
    world.follow(placed)
    held, replicator = HeldJobs(world, monkeypatch), placed._runner.replicator
    replicator._repeated = RepeatedWarnings(clock=lambda: ticking.seconds)
    start, fails = world.start, [True]

    def fail(job, *args, **kwargs):
        if fails and job.locations == [world.there["1"].location]:
            return Ended([], OSError("no slot"))
        return start(job, *args, **kwargs)

    monkeypatch.setattr(world, "start", fail)
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    for _ in range(8):
        ticking.seconds += 1.01 * followers.PAUSE_SECONDS
        turn(replicator, held)
        turn(replicator, held)
    said = [line for line in caplog.messages if line.startswith("a follow job on executor-1 failed")]
    assert len(said) == 2 and " times since " in said[1]
    fails.clear()
    ticking.seconds += 1.01 * followers.PAUSE_SECONDS
    turn(replicator, held)
    turn(replicator, held)
    assert [line.partition(" (")[0] for line in caplog.messages if "again" in line.partition(" (")[0]] == [
        "follow jobs on executor-1 succeed again"
    ]


def test_an_executor_whose_job_made_no_progress_waits_for_a_wake_or_a_tick(
    world, placed, monkeypatch, ticking
):
    """A copy that cannot follow stays behind: each look for work finds it."""
    replicator = placed._runner.replicator
    monkeypatch.setattr(placed._runner.followers, "absorb", lambda reports: frozenset())
    held = HeldJobs(world, monkeypatch)
    ticking.seconds += 1
    assert turn(replicator, held) == ["1", "2", "3"]
    assert turn(replicator, held) == []
    ticking.seconds += 0.1
    assert turn(replicator, held) == []
    replicator.wake()
    ticking.seconds += 0.1
    assert turn(replicator, held) == ["1", "2", "3"]
    replicator.wake()  # while they run
    assert turn(replicator, held) == ["1", "2", "3"]
    assert turn(replicator, held) == []
    ticking.seconds += followers.TICK_SECONDS
    assert turn(replicator, held) == ["1", "2", "3"]


def test_a_wake_counts_for_a_follow_job_that_ends_after_it(world, placed, monkeypatch, ticking):
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
