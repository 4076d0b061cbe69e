"""Visits that run at the same time: none waits for another, and each ends for itself."""

from __future__ import annotations

import threading
import uuid

import pytest

from taskplace.spark.checkpoint.files import SectionFile
from taskplace.spark.cluster import JobLostError
from taskplace.spark.driver.followers import FollowJob
from taskplace.spark.messages import segment_file
from taskplace.spark.worker import bin_context as bin_files
from tests.support.ended_jobs import Ended
from tests.support.held_visits import HeldVisits
from tests.support.word_counts import counts, words

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
    """Begin visits, and return the ids of the executors."""
    runner = placed._runner
    return [visit.executor.id for visit in runner.jobs.begin(runner.followers.jobs)]


def behind(placed) -> set[str]:
    """Return the ids of the executors with a follower that is not at the end."""
    state, history = placed.state, placed.journal.history
    return {
        member.executor.id
        for name, member in state.members.items()
        for task in state.following(name)
        if task in history and member.copies.get(task) != history[task].end
    }


def test_a_visit_that_hangs_holds_up_no_other_and_its_executor_gets_no_second_one(world, placed, monkeypatch):
    held, visits = HeldVisits(world, monkeypatch, "1"), placed._runner.jobs
    assert behind(placed) == {"1", "2", "3"}
    assert begin(placed) == ["1", "2", "3"]
    assert [visit.executor.id for visit in visits.collect()] == ["2", "3"]
    assert behind(placed) == {"1"}
    for batch in range(1, 4):
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        assert begin(placed) == ["2", "3"]
        visits.collect()
        assert behind(placed) == {"1"}
    held.jobs["1"].go_on()
    assert [visit.executor.id for visit in visits.collect()] == ["1"]
    held.executors.clear()
    assert begin(placed)[0] == "1"
    visits.collect()
    assert behind(placed) == set()


def test_a_loss_ends_the_visit_to_the_lost_executor_and_the_reports_of_the_others_count(
    world, placed, monkeypatch
):
    held, visits = HeldVisits(world, monkeypatch, "1", "3"), placed._runner.jobs
    begin(placed)
    world.lose("1")
    ended = visits.collect()
    assert [(visit.executor.id, visit.lost, visit.error) for visit in ended] == [
        ("1", True, None),
        ("2", False, None),
    ]
    assert held.jobs["1"].cancelled.is_set()
    assert visits.running() == {"executor-3"}
    held.jobs["3"].go_on()
    visits.collect()
    assert behind(placed) == {"1"}, "it is a member until the next batch"
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    assert placed.stats.scratch == 0


def test_an_executor_that_is_decommissioned_is_looked_for_at_times(world, placed, monkeypatch):
    HeldVisits(world, monkeypatch, "1")
    begin(placed)
    world.leave("1")
    visits = placed._runner.jobs
    assert any(visit.lost for _ in range(10) for visit in visits.collect())


def test_a_job_that_fails_with_its_executor_is_no_error(world, placed, monkeypatch):
    def die(job, *_, **__):
        world.lose(job.locations[0].rpartition("_")[2])
        return Ended([], RuntimeError("Connection reset"))

    monkeypatch.setattr(world, "start", die)
    begin(placed)
    assert [(visit.lost, visit.error) for visit in placed._runner.jobs.collect()] == [(True, None)] * 3


def named(placed, file: str) -> bool:
    return any(change.file == file for one in placed.journal.history.values() for change in one.changes)


@snapshots_often
def test_files_that_a_visit_reads_stay_until_it_ends(world, placed, monkeypatch):
    held, runner = HeldVisits(world, monkeypatch, "1"), placed._runner
    (visit, *_) = runner.jobs.begin(runner.followers.jobs)
    history = next(iter(visit.request.follow.values()))
    read = world.folder / "checkpoint" / history.changes[0].file
    batch = 1
    while named(placed, history.changes[0].file):
        runner.jobs.collect()
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        begin(placed)
        batch += 1
        assert batch < 20, "no snapshots cover the changes"
    world.batch(placed, batch, **{"in": words("a")})
    assert read.exists()
    held.jobs["1"].go_on()
    runner.jobs.collect()
    world.batch(placed, batch + 1, **{"in": words("a")})
    assert not read.exists()


@snapshots_often
def test_a_snapshot_that_a_visit_makes_is_ordered_from_no_other(world, placed, monkeypatch):
    world.follow(placed)
    held, runner, asked = HeldVisits(world, monkeypatch, "1", "2", "3"), placed._runner, []
    for batch in range(1, 4):
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        for _ in range(3):  # who has followed could make the snapshot, too
            for visit in runner.jobs.begin(runner.followers.jobs):
                asked += visit.request.snapshot
                if not visit.request.snapshot:
                    held.jobs[visit.executor.id].go_on()
            runner.jobs.collect()
    assert asked
    assert len(asked) == len(set(asked))


def test_the_answers_of_the_others_are_not_lost_with_an_executor_that_is_lost_at_its_first_visit(
    world, monkeypatch
):
    world.come(2)
    placed = world.open(counts(world))
    start, members, visited = world.start, [], []

    def lose_one(job, *args, **kwargs):
        id = job.locations[0].rpartition("_")[2]
        visited.append(id)
        members.append(set(placed.state.members))
        if id == "2" and id in world.there:
            world.lose(id)
            return Ended([], JobLostError(frozenset(id)))
        return start(job, *args, **kwargs)

    monkeypatch.setattr(world, "start", lose_one)
    world.batch(placed, 0, **{"in": words("a")})
    assert visited == ["1", "2", "3", "1", "3"]
    assert members[3] == {"executor-1", "executor-3"}


def test_visits_that_are_made_wait_for_one_that_runs_already(world, placed, monkeypatch):
    held, runner = HeldVisits(world, monkeypatch, "1"), placed._runner
    begin(placed)
    runner.jobs.collect()
    others = runner.followers.jobs()
    made = []
    thread = threading.Thread(
        target=lambda: made.extend(runner.jobs.make([FollowJob(world.there["1"], None), *others]))
    )
    thread.start()
    assert held.begun.count("1") == 1
    held.jobs["1"].go_on()
    thread.join(SECONDS)
    assert held.begun.count("1") == 1
    assert made[0].executor.id == "1"
    assert behind(placed) == set()
