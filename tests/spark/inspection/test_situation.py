"""The problem that is made of a status is the one that the driver plans; and what is known of stuck copies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_field

from taskplace.model.problem import Problem
from taskplace.refine.parking import with_parked
from taskplace.spark.inspection.checkpoint import committed
from taskplace.spark.inspection.situation import status_explainer
from taskplace.spark.operator_messages import STATUS_FILE, RunningBatch, Status, read, write
from taskplace.spark.state.copy import Copy
from tests.support.operators import STRICT
from tests.support.word_counts import counts, words
from topology import TaskId


def driver_problem(placed) -> Problem:
    rebalancer, loop = placed.rebalancer, placed.loop
    tasks, instances = rebalancer._measured(), loop.with_roles(rebalancer.state.instances())
    parked: dict[str, tuple[TaskId, ...]] = {}
    for name, task in sorted(loop.parked):
        parked[name] = (*parked.get(name, ()), task)
    return with_parked(Problem(tasks, instances, placed.config), parked)


def status_problem(placed) -> Problem:
    """Through the file, as another process reads it."""
    path = placed.checkpoint / STATUS_FILE
    write(path, placed._runner.operations.status())
    histories, _ = committed(placed.checkpoint)
    ends = {str(task): history.end.offset for task, history in histories.items()}
    return status_explainer(read(path, Status), ends).problem


def same(placed) -> None:
    mine, theirs = status_problem(placed), driver_problem(placed)
    assert mine.tasks == theirs.tasks
    for one, other in zip(mine.instances, theirs.instances, strict=True):
        assert replace(one, slots=()) == replace(other, slots=())
    assert mine.config == theirs.config
    assert mine.fingerprint == theirs.fingerprint


@pytest.mark.parametrize("standbys", [0, 1])
def test_the_problem_of_a_status_is_that_of_the_driver(world, standbys):
    world.come(1)
    config = {**STRICT, "num.standby.replicas": standbys, "max.warmup.replicas": 1}
    placed = world.open(counts(world), config=config, weights={"0_1": 2.5}, tags={"host-1": {"zone": "a"}})
    for batch in range(3):
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        same(placed)
        world.follow(placed)
        same(placed)
    world.come(1)
    world.follow(placed)
    world.batch(placed, 3, **{"in": words(*"abcdefgh")})
    same(placed)
    placed.drain("1")
    placed.loop._watch.parked = {("executor-3", TaskId(0, 0))}
    same(placed)
    world.follow(placed)
    world.batch(placed, 4, **{"in": words(*"abcdefgh")})
    same(placed)
    world.lose("2")
    world.batch(placed, 5, **{"in": words(*"abcdefgh")})
    same(placed)
    assert status_problem(placed).instance("executor-1").draining


@pytest.fixture
def moving(world):
    """A stream, and the task of it that warms up on executor-2, which has just joined."""
    placed = world.open(counts(world), config=STRICT)
    world.batch(placed, 0, **{"in": words(*"abcdefgh")})
    world.come(1)
    world.follow(placed)
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    (task,) = placed.state.roles("executor-2").warmup
    return placed, task


def test_a_copy_that_cannot_follow_is_named_until_it_does(world, moving, monkeypatch):
    placed, task = moving

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Copy, "follow", fails)
        world.follow(placed)
        status = placed._runner.operations.status()
        error = status.executors["executor-2"].errors[str(task)].partition(". ")[0]
        assert error.startswith("DiskFull: no space left")
        seen = status_explainer(status, {}).seen["executor-2", task]
        assert seen.stalled == f"executor-2 cannot follow: {error}"
        assert seen.remedy == "make room on the disk of executor-2 (host-2); the copy then goes on by itself"
        text = placed.explain(task).text
        assert (
            f" records. executor-2 cannot follow: {error}. It moves once executor-2 lacks no record. "
            "Make room on the disk of executor-2 (host-2)"
        ) in text
        placed.loop._watch.parked = {("executor-2", task)}
        world.batch(placed, 2, **{"in": words(*"abcdefgh")})
        world.follow(placed)
        parked = placed.explain(task).text
        assert (
            "Its copy on executor-2 made no progress and is parked: executor-2 could not follow (DiskFull: no space "
        ) in parked
        assert ' When the cause is gone, release it: `placed.release("executor-2")`' in parked
    placed.release()
    world.batch(placed, 3, **{"in": words(*"abcdefgh")})
    world.follow(placed)
    assert placed._runner.operations.status().executors["executor-2"].errors == {}


def test_a_visit_that_fails_as_a_whole_is_named_until_one_succeeds(world, moving, monkeypatch):
    placed, task = moving
    with monkeypatch.context() as patch:
        patch.setattr(
            "taskplace.spark.worker.follow.FollowWork.follow_all",
            lambda self: (_ for _ in ()).throw(ValueError("the row of k7 is bad")),
        )
        with pytest.raises(ValueError, match="k7"):
            world.follow(placed)
        status = placed._runner.operations.status()
        assert status.executors["executor-2"].error == "ValueError"
        assert (
            status_explainer(status, {}).seen["executor-2", task].stalled
            == "follow jobs on executor-2 fail: ValueError"
        )
    world.follow(placed)
    assert placed._runner.operations.status().executors["executor-2"].error == ""


def test_a_planned_step_says_what_it_waits_for(world):
    world.come(1)
    placed = world.open(counts(world), config={**STRICT, "num.standby.replicas": 1})
    for batch in range(3):
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})
        world.follow(placed)
    name, task = next((n, r.active[0]) for n, r in sorted(placed.state.assignment.items()) if r.active)
    placed.drain(name)
    status = placed._runner.operations.status()
    ends = {str(task): placed.journal.end_offset(task) for task in placed.rebalancer.task_ids}

    def explained(status, *, runs=True):
        return status_explainer(status, ends, runs=runs).task(task)

    at_once = explained(status)
    assert at_once.progress.state == "now"
    assert at_once.text.endswith(" The next rebalance moves it.")
    assert at_once.held[0] == ("active", name) != at_once.roles[0][:2]

    runs = replace_field(status, running=RunningBatch(3, status.written - 190))
    waiting = explained(runs)
    assert waiting.progress[:2] == ("waiting", None)
    until = "once batch 3, which has run for 3 min 10 s, has ended"
    assert waiting.text.endswith(f" The next rebalance moves it {until}.")
    shown = " ".join(str(waiting).split())
    assert f"now active on {name}, " in shown and f"next active on {waiting.instance}, " in shown
    assert until in shown.partition(" next ")[2].partition(" target ")[0]
    assert (waiting.to_dict()["waits_for"], waiting.to_dict()["held"][0]["instance"]) == (until, name)

    ended = explained(replace_field(status, ended=True), runs=False)
    assert f"moves it once the stream is started again and {name} is drained again" in ended.text
