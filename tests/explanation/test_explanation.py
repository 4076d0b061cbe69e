"""Explanations: every case says why, with names and figures."""

from __future__ import annotations

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.errors import InputError
from taskplace.explanation import Explainer, explain_plan, plan_explanation
from taskplace.simulation import Cluster
from tests.support.scenarios import KINDS, scenario

A, B = TaskId(0, 0), TaskId(0, 1)
END = 50_000


@pytest.mark.parametrize("task", ["9_9", "zero", TaskId(3, 3)])
def test_an_unknown_task_is_an_error(task: object) -> None:
    problem = Problem((Task(A),), (Instance("a"),))
    with pytest.raises(InputError, match="expected 0_0, the only task"):
        taskplace.explain(problem, taskplace.plan(problem), task)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_of_every_scenario_can_be_explained(kind: str) -> None:
    problem = scenario(kind, 2, largest=0.4).problem
    plan = taskplace.plan(problem)
    explainer = Explainer(problem, plan)
    for task in problem.tasks:
        assert explainer.task(task.id).text.startswith(f"{task.id} ")
    assert f"{len(problem.tasks)} task" in explain_plan(problem, plan)


ONE = (Task(A, end_offset=END),)


# --- for programs --------------------------------------------------------------------------------------------------


def test_an_explanation_has_parts() -> None:
    ran, other = Instance("a", active=(A, B), lags={A: 0, B: 0}), Instance("b", standby=(A,), lags={A: 0})
    tasks = (Task(A, end_offset=END), Task(B, end_offset=END))
    config = PlacementConfig(num_standby_replicas=1)
    problem = Problem(tasks, (ran, other, Instance("c", draining=True, lags={A: 3})), config)
    plan = taskplace.plan(problem)
    found = Explainer(problem, plan).task("0_0")
    assert (found.role, found.instance) == ("active", "b")
    assert found.why.startswith(
        "it moves so that a has 1 of the 2 tasks (it has 2 now), and b can take over now"
    )
    assert [(r.role, r.instance, r.why) for r in found.roles[1:]] == [
        ("standby", "a", "its copy is caught up")
    ]
    assert [r.instance for r in found.refused] == ["a", "c"]
    assert found.refused[1].why == "it is draining"
    whole = plan_explanation(problem, plan)
    assert [t["task"] for t in whole["tasks"]] == ["0_0", "0_1"]
    assert whole["tasks"][0] == found.to_dict()
    assert whole["optimality"] == {"moves": 1, "lower_bound": 1, "forced_promotions": 0}
    assert whole["moves"] == plan.to_dict()["moves"]


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_has_a_copy_and_is_not_active_is_refused_for_a_reason(kind: str) -> None:
    s = scenario(kind, 5, largest=0.4)
    cluster = Cluster.of(s.problem, restore_rate=300.0)
    for group in ((), *s.events):
        for event in group:
            event.apply(cluster)
        problem = cluster.problem()
        plan = taskplace.plan(problem)
        explainer = Explainer(problem, plan)
        holders: dict[TaskId, set[str]] = {}
        for i in problem.instances:
            for t in i.lags:
                holders.setdefault(t, set()).add(i.id)
        for task in problem.tasks:
            found = explainer.task(task.id)
            assert (found.role, found.instance) == ("active", plan.active(task.id))
            if task.stateful:
                refused = {r.instance for r in found.refused}
                assert holders.get(task.id, set()) - {found.instance} <= refused
                assert all(r.why for r in found.refused)
        cluster.apply(plan)
        cluster.advance(60_000)


def test_a_plan_of_another_cluster_is_not_explained() -> None:
    plan = taskplace.plan(Problem(ONE, (Instance("z"),)))
    with pytest.raises(InputError, match="plan: found 'z', expected only instances of the problem"):
        taskplace.explain(Problem(ONE, (Instance("a"),)), plan, A)
