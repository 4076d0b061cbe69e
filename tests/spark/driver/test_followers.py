"""Follow jobs: whose turn it is, and when; none waits for another, and nothing waits for ever."""

from __future__ import annotations

import dataclasses
import shutil
import threading
import uuid
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from taskplace.errors import TaskplaceError
from taskplace.model.placed_options import PlacedOptions
from taskplace.spark.checkpoint.files import RecordFile, SectionFile
from taskplace.spark.cluster import JobLostError
from taskplace.spark.driver import followers
from taskplace.spark.driver.cluster_state import ClusterState
from taskplace.spark.driver.followers import Followers, FollowJob
from taskplace.spark.messages import FollowReport, History, segment_file
from taskplace.spark.state.catching_up import CheckpointFiles
from taskplace.spark.worker import bin_context as bin_files
from taskplace.spark.worker import follow
from tests.support.ended_jobs import Ended
from tests.support.follow_jobs import orders, run_job
from tests.support.held_jobs import HeldJobs
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
