"""Explanations: every case says why, with names and figures."""

from __future__ import annotations

from typing import Any

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.errors import InputError
from taskplace.explanation import Explainer, Held, Removal, Wait, can_remove, explain_plan, plan_explanation
from taskplace.model.placement import any_caught
from taskplace.simulation import Cluster
from taskplace.simulation.run import settle
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


def test_an_instance_can_go_when_every_task_is_caught_up_elsewhere() -> None:
    a = Instance("a", active=(A, B), lags={A: 0, B: 0})
    tasks = (Task(A, end_offset=END), Task(B, end_offset=END))
    ready = can_remove(Problem(tasks, (a, Instance("b", lags={A: 0, B: 3}))), "a")
    assert (ready.safe, ready.can_remove) == (True, False)
    assert ready.text == (
        "no: it still has 2 active tasks; no task has to catch up elsewhere first; drain it first"
    )
    empty = can_remove(Problem(tasks, (a, Instance("b", lags={A: 0, B: 3}))), "b")
    assert (empty.can_remove, empty.text) == (True, "yes: it has no task, and no copy that the others lack")
    # The same number of tasks, but not the same tasks.
    other = can_remove(Problem(tasks, (a, Instance("b", lags={A: 0}))), "a")
    assert (other.can_remove, other.blocking) == (False, (B,))
    assert other.text == "no: 1 task must catch up elsewhere first: 0_1 (no other copy); drain it first"
    assert not can_remove(Problem(tasks, (a,)), "a").can_remove
    with pytest.raises(InputError, match="instance: found 'z'"):
        can_remove(Problem(tasks, (a,)), "z")


ONE = (Task(A, end_offset=END),)


def removal(*instances: Instance, tasks: tuple[Task, ...] = ONE) -> Removal:
    return can_remove(Problem(tasks, instances), "a")


@pytest.mark.parametrize("lag", [None, END, 20_000])
@pytest.mark.parametrize("mine", [{A: 0}, {A: 30_000}, {A: 10_001}])
@pytest.mark.parametrize("role", ["active", "standby", "warmup"])
def test_a_copy_that_lags_or_has_read_nothing_is_no_reason_to_go(
    lag: int | None, mine: dict[TaskId, int], role: str
) -> None:
    b = Instance("b", standby=(A,), lags={} if lag is None else {A: lag})
    found = removal(Instance("a", lags=mine, **{role: (A,)}), b)  # type: ignore[arg-type]
    assert not found.can_remove
    assert found.waits == (Wait(str(A), role, "b", lag),)


@pytest.mark.parametrize("leaving", [{"draining": True}, {"capacity": 0}])
def test_a_copy_on_an_instance_that_does_not_stay_does_not_count(leaving: dict[str, Any]) -> None:
    a, b = Instance("a", active=(A,), lags={A: 0}), Instance("b", standby=(A,), lags={A: 0}, **leaving)
    found = removal(a, b, Instance("c"))
    assert (found.can_remove, found.waits) == (False, (Wait(str(A), "active", None, None),))
    assert found.text == "no: 1 task must catch up elsewhere first: 0_0 (no other copy); drain it first"
    assert removal(a, b).text == "no: there is no other instance that stays and can take work"
    assert removal(a, b, Instance("c", lags={A: 9})).safe


def test_a_copy_without_a_role_may_go_unless_it_is_the_best() -> None:
    left = Instance("a", lags={A: 20_000})
    assert removal(left, Instance("b", active=(A,), lags={A: 20_000})).can_remove
    assert not removal(left, Instance("b", active=(A,), lags={A: 20_001})).can_remove
    assert not removal(left, Instance("b", active=(A,))).can_remove
    assert not removal(Instance("a", lags={A: 0}), Instance("b", active=(A,), lags={A: 10_001})).can_remove
    assert removal(Instance("a", lags={A: 0}), Instance("b", active=(A,), lags={A: 10_000})).can_remove


@pytest.mark.parametrize("task", [Task(A, stateful=False), Task(A, logged=False, end_offset=9), Task(A)])
def test_tasks_that_need_no_copy_only_need_another_instance(task: Task) -> None:
    assert removal(Instance("a", active=(A,)), Instance("b"), tasks=(task,)).safe
    assert not removal(Instance("a", active=(A,)), tasks=(task,)).safe


def test_a_drain_is_the_remedy_until_the_instance_is_empty() -> None:
    b = Instance("b", lags={A: 0})
    full = removal(Instance("a", active=(A,), lags={A: 0}), b)
    assert (full.held, full.text.endswith("; drain it first")) == (Held(active=1), True)
    drains = removal(Instance("a", active=(A,), lags={A: 0}, draining=True), b)
    assert drains.text == (
        "no: it still has 1 active task; no task has to catch up elsewhere first; it drains, so they "
        "move with the next plans"
    )
    behind = removal(Instance("a", lags={A: 0}, draining=True), Instance("b", active=(A,)))
    assert behind.text == (
        "no: 1 task must catch up elsewhere first: 0_0 (b has read nothing yet); it drains, so they move with the next "
        "plans"
    )


@pytest.mark.parametrize("seed", range(20))
def test_going_when_it_may_stalls_nobody_and_a_drained_instance_may_go(seed: int) -> None:
    s = scenario("several", seed, largest=0.5)
    cluster = Cluster.of(s.problem, restore_rate=300.0)
    for group in ((), *s.events):
        for event in group:
            event.apply(cluster)
        problem = cluster.problem()
        c = problem.columns
        for name in c.names:
            if len(c.names) > 1 and can_remove(problem, name).safe:
                rest = Problem(problem.tasks, [i for i in problem.instances if i.id != name], problem.config)
                d = rest.columns
                hurt = any_caught(c) & ~any_caught(d) & c.stateful
                assert not hurt.any(), (s, name)
        settle(cluster, limit=300)
    name = sorted(cluster.hosts)[0]
    if len(cluster.hosts) > 1 and any(
        h.capacity and not h.draining for n, h in cluster.hosts.items() if n != name
    ):
        cluster.drain(name)
        settle(cluster, limit=300)
        assert can_remove(cluster.problem(), name).can_remove


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
