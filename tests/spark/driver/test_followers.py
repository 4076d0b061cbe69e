"""Visits as the driver orders them: whose turn it is, and when; nothing waits for ever."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from taskplace.model.placed_options import PlacedOptions
from taskplace.spark.checkpoint.files import RecordFile
from taskplace.spark.driver import followers
from taskplace.spark.driver.cluster_state import ClusterState
from taskplace.spark.driver.followers import Followers
from taskplace.spark.messages import FollowReport, History
from taskplace.spark.state.catching_up import CheckpointFiles
from taskplace.spark.worker import follow
from tests.support.visits import orders, visit
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
        self.followers = Followers(
            rebalancer,
            programs,
            checkpoint=ran.checkpoint,
            state_root=ran.state,
            options=PlacedOptions(
                snapshot_interval=snapshot_interval,
                snapshot_bytes=1 << 40,
                follower_share=share,
                compression=None,
            ),
        )

    def requests(self):
        """Make orders, and return their requests."""
        return [job.request for job in self.followers.jobs()]

    def visit(self, ran, budget):
        """Make the orders, and have them carried out with that budget."""
        (given,) = self.requests()
        done = visit(ran, replace(given, budget=budget))
        assert not done.errors
        served = {task for task, at in done.copies.items() if at != self.member.copies.get(task)}
        self.member.copies = dict(done.copies)
        return served, set(done.snapshots)


def test_with_time_for_one_task_a_visit_all_that_are_always_behind_are_served_in_turn(ran):
    follows = sorted(ran.history)
    assert len(follows) > 3
    driver = Driver(ran, follows)
    turns = []
    for _ in range(3 * len(follows)):
        behind = set(follows)
        while behind:  # every task gets something new before every visit
            ran.run_batch([(f"N{i}", ran.batch * 7 + i) for i in range(12)])
            behind -= {t for t in follows if ran.history[t].end != driver.member.copies.get(t)}
        (served,), _ = driver.visit(ran, budget=-1.0)
        turns.append(served)
    for start in range(len(turns) - len(follows) + 1):
        assert sorted(turns[start : start + len(follows)]) == follows


def test_a_task_that_joins_those_that_wait_has_its_turn_within_as_many_visits(ran):
    follows = sorted(ran.history)[:-1]
    late = sorted(ran.history)[-1]
    driver = Driver(ran, follows)
    for joins in range(1, 4):
        for _ in range(joins):
            ran.run_batch([(f"N{i}", ran.batch * 7 + i) for i in range(12)])
            driver.visit(ran, budget=-1.0)
        follows.append(late)
        served = set()
        for _ in follows:
            ran.run_batch([(f"N{i}", ran.batch * 7 + i) for i in range(12)])
            served |= driver.visit(ran, budget=-1.0)[0]
        assert late in served
        follows.remove(late)


def test_snapshots_have_their_turn_though_followers_use_all_the_time_up(ran, monkeypatch):
    """A copy of the active's is due, and the followers beside it never catch up."""
    due, *follows = sorted(ran.history)
    driver = Driver(ran, follows)
    visit(ran, orders(ran, follow={due: ran.history[due]}))
    monkeypatch.setattr(driver.followers, "_snapshots_due", lambda: {"executor-2": [due]})
    made = 0
    for _ in range(2 * (len(follows) + 1)):
        ran.run_batch([("N1", 1000 + ran.batch)])
        visit(ran, orders(ran, follow={due: ran.history[due]}))
        (given,) = driver.requests()
        # A follower that is far behind takes all the time there is.
        done = visit(ran, replace(given, budget=-1.0 if given.follow else 5.0))
        made += bool(done.snapshots)
    assert made == 2


# -- when
@pytest.fixture
def clock(monkeypatch):
    """Sets the time by which the driver visits."""
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(followers, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_while_a_batch_runs_visits_take_no_more_than_their_share_of_the_slots(ran, clock):
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
    made = visit(ran, orders(ran, "executor-1", snapshot=ran.history), executor="1")
    snapshot = made.snapshots[TaskId(0, 0)]
    assert len(RecordFile((ran.checkpoint / snapshot.file).read_bytes())) == 2
    ran.history[TaskId(0, 0)] = History((), (snapshot,))
    driver = Driver(ran, [TaskId(0, 0)])
    journal = driver.followers._journal

    def come():
        (given,) = driver.requests()
        done = visit(ran, replace(given, budget=-1.0))
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


def test_reading_a_large_snapshot_is_not_most_of_a_visit(ran, monkeypatch):
    """Whoever has read and checked it loads more than the one piece that each visit loads at least."""
    made = visit(ran, orders(ran, "executor-1", snapshot=ran.history), executor="1")
    ran.history[TaskId(0, 0)] = History((), (made.snapshots[TaskId(0, 0)],))
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    read = CheckpointFiles.read

    def slowly(files, part):
        now.seconds += 10.0
        return read(files, part)

    monkeypatch.setattr(CheckpointFiles, "read", slowly)
    done = visit(ran, orders(ran, follow={TaskId(0, 0): ran.history[TaskId(0, 0)]}, budget=0.5))
    assert not done.unfinished and done.copies == {TaskId(0, 0): made.snapshots[TaskId(0, 0)].position}
