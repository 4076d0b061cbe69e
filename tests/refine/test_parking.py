"""A copy that makes no progress is named, parked, and planned elsewhere; the loop ends."""

from __future__ import annotations

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.refine.parking import ProgressWatch
from taskplace.simulation import Cluster, Event
from taskplace.simulation.run import settle

END = 50_000


def cluster(standbys: int = 0, instances: int = 2, tasks: int = 4) -> Cluster:
    config = PlacementConfig(num_standby_replicas=standbys)
    c = Cluster([Task(TaskId(0, p), end_offset=END) for p in range(tasks)], config)
    for k in range(instances):
        c.add(f"i{k}")
    settle(c)
    return c


def stick_everything(c: Cluster, name: str) -> None:
    for t in c.tasks:
        Event("stick", name, {"task": str(t)}).apply(c)


@pytest.mark.parametrize("standbys", [0, 1])
def test_an_instance_that_never_catches_up_ends_without_follow_up_and_is_named(standbys):
    c = cluster(standbys)
    c.add("bad")
    stick_everything(c, "bad")
    rounds = settle(c, limit=60)
    last = rounds[-1].plan
    assert not last.followup
    assert len(rounds) < 60
    assert "bad" in str(last.warnings) and "parked" in str(last.warnings)
    assert last.assignment["bad"].active == ()
    taskplace.check(ProgressWatch().observe(c.problem()), taskplace.plan(c.problem()))


def test_progress_is_what_was_applied_not_the_lag():
    t = TaskId(0, 0)
    watch = ProgressWatch(patience=2)
    for k in range(6):  # the stream grows as fast as the copy reads: the lag stands still
        end = END + 1000 * k
        problem = Problem((Task(t, end_offset=end),), (Instance("a", warmup=(t,), lags={t: END - 1}),))
        assert watch.observe(problem).instances[0].parked == ()


def test_a_first_report_is_progress_though_nothing_has_been_applied():
    t = TaskId(0, 0)
    watch = ProgressWatch(patience=2)

    def parked(**lags):
        problem = Problem((Task(t, end_offset=END),), (Instance("a", warmup=(t,), **lags),))
        return len(watch.observe(problem).instances[0].parked)

    assert [parked(), parked()] == [0, 0]
    assert [parked(lags={t: END}) for _ in range(3)] == [0, 0, 1]


def test_a_copy_that_was_parked_can_be_released_and_is_forgotten_with_its_instance():
    t = TaskId(0, 0)
    stuck = Instance("a", warmup=(t,), lags={t: END})
    problem = Problem((Task(t, end_offset=END),), (stuck, Instance("b")))
    watch = ProgressWatch(patience=1)
    watch.observe(problem)
    assert watch.observe(problem).instances[0].parked == (t,)
    watch.release("b")
    assert watch.parked == {("a", t)}
    watch.release("a")
    assert watch.observe(problem).instances[0].parked == ()
    assert watch.observe(problem).instances[0].parked == (t,)
    watch.observe(Problem(problem.tasks, (Instance("b"),)))
    assert watch.parked == set()


@pytest.mark.parametrize("assignor", ["high_availability", "sticky"])
@pytest.mark.parametrize("standbys", [0, 1])
def test_a_task_that_is_parked_everywhere_is_tried_again_and_named(assignor, standbys):
    t, u = TaskId(0, 0), TaskId(0, 1)
    ran = Instance("a", active=(t, u), lags={t: 0, u: 0}, draining=True)
    config = PlacementConfig(task_assignor_class=assignor, num_standby_replicas=standbys)
    tasks = (Task(t, end_offset=END), Task(u, end_offset=END))
    problem = Problem(tasks, (ran, Instance("b", parked=(t,)), Instance("c", parked=(t,))), config)
    plan = taskplace.check(problem, taskplace.plan(problem))
    assert any("1 task is parked on every instance" in w and "0_0" in w for w in plan.warnings)
    assert sorted(len(r.active) for r in plan.target.values()) == [0, 1, 1]
