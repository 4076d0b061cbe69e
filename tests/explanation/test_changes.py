"""What would have to change: a claim is made only if the plan of the changed problem does what it says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scenarios import KINDS, scenario

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.errors import InputError
from taskplace.explanation import Change, Edit, Explainer
from taskplace.explanation import changes as module
from taskplace.explanation.changes import Changes
from taskplace.explanation.outlook import Timetable
from taskplace.model.plan import Plan
from taskplace.simulation import Cluster

A, B = TaskId(0, 0), TaskId(0, 1)
END = 50_000


def holders(plan: Plan, task: TaskId, role: str, *, target: bool = False) -> set[str]:
    roles = plan.target if target and plan.target else plan.assignment
    return {name for name, each in roles.items() if task in getattr(each, role)}


def holds(kind: str, name: str, task: TaskId, plan: Plan) -> bool:
    """Whether a plan does what an effect says, read from the plan alone."""
    (now,), (goal,) = holders(plan, task, "active"), holders(plan, task, "active", target=True)
    match kind:
        case "runs":
            return now == name
        case "stays":
            return now == goal == name
        case "belongs":
            return goal == name != now
        case "warm-up":
            return name in holders(plan, task, "warmup")
    standbys = holders(plan, task, "standby") | holders(plan, task, "standby", target=True)
    return name in standbys


def names(change: Change) -> tuple[str, ...]:
    return module.NEW if change.edit.kind == "join" else (change.edit.instance,)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_claimed_change_when_made_does_what_was_said(data: st.DataObject) -> None:
    s = scenario(data.draw(st.sampled_from(KINDS)), data.draw(st.integers(0, 30)), largest=0.3)
    cluster = Cluster.of(s.problem, restore_rate=300.0)
    for group in s.events[: data.draw(st.integers(0, len(s.events)))]:
        for event in group:
            event.apply(cluster)
        cluster.apply(taskplace.plan(cluster.problem()))
        cluster.advance(60_000)
    problem = cluster.problem()
    if not problem.tasks:
        return
    plan = taskplace.plan(problem)
    task = data.draw(st.sampled_from(problem.tasks)).id
    found = Explainer(problem, plan).in_full(task)
    assert found.changes is not None
    for change in found.changes:
        kind, instance, _ = change.effect
        for name in names(change):
            edit = Edit("join", name, value=change.edit.value) if change.edit.kind == "join" else change.edit
            there = name if change.edit.kind == "join" else instance
            changed = taskplace.plan(edit.apply(problem))
            assert holds(kind, there, task, changed), (str(change), name)
            assert not holds(kind, there, task, plan) or kind == "standby", str(change)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(KINDS), st.integers(0, 10))
def test_the_work_for_a_task_is_bounded_and_shared(kind: str, seed: int) -> None:
    problem = scenario(kind, seed, largest=0.3).problem
    planned: list[Problem] = []

    def planner(changed: Problem) -> Plan:
        planned.append(changed)
        return taskplace.plan(changed)

    changes = Changes(problem, taskplace.plan(problem), Timetable(problem), planner=planner)
    for task in problem.tasks[:3]:
        before = len(planned)
        found = changes.of(task.id)
        assert len(planned) - before <= module.MOST_PLANS
        assert changes.of(task.id) == found


def test_changes_that_name_no_task_are_planned_once() -> None:
    planned: list[Problem] = []

    def planner(changed: Problem) -> Plan:
        planned.append(changed)
        return taskplace.plan(changed)

    tasks = [Task(t, end_offset=END) for t in (A, B)]
    problem = Problem(tasks, [RAN])
    changes = Changes(problem, taskplace.plan(problem), Timetable(problem), planner=planner)
    changes.of(A)
    before = len(planned)
    assert before
    changes.of(B)
    assert len(planned) == before


def found(*instances: Instance, **config: object) -> tuple[Change, ...]:
    properties = {key.replace("_", "."): value for key, value in config.items()}
    tasks = [Task(A, end_offset=END), Task(B, end_offset=END)]
    problem = Problem(tasks, instances, PlacementConfig.from_properties(properties))
    changes = Explainer(problem, taskplace.plan(problem)).in_full(A).changes
    assert changes is not None
    return changes


RAN = Instance("a", active=(A, B), lags={A: 0, B: 0})


def test_a_move_waits_for_the_lag_that_is_named() -> None:
    first, *_ = found(RAN, Instance("b", warmup=(A,), lags={A: 30_000}), acceptable_recovery_lag=500)
    assert first.to_dict() == {
        "edit": {"kind": "lag", "instance": "b", "task": "0_0", "value": 500},
        "effect": {"kind": "runs", "instance": "b"},
        "text": "if b lacks at most 500 records, it moves to b at once",
    }


def test_a_loss_without_another_copy_says_what_is_restored() -> None:
    texts = [str(change) for change in found(RAN, Instance("b"))]
    assert "if a is lost, b takes it over after it has read 50,000 records" in texts


def test_a_parked_copy_would_be_taken_up_again() -> None:
    kinds = {
        change.edit.kind: str(change) for change in found(RAN, Instance("b", parked=(A, B), lags={A: END}))
    }
    assert kinds["release"] == "if its copy on b is released, it moves to b, which catches up first"


def test_the_end_of_a_drain_keeps_the_task() -> None:
    drains = Instance("a", active=(A, B), lags={A: 0, B: 0}, draining=True)
    texts = [str(change) for change in found(drains, Instance("b", active=(), lags={}))]
    assert "if a no longer drains, it stays on a" in texts


def test_a_plan_of_another_problem_has_no_changes() -> None:
    problem = Problem([Task(A, end_offset=END)], [Instance("a"), Instance("b")])
    plan = Plan.from_dict({"assignment": {"a": {"active": ["0_0"]}}})
    explained = Explainer(problem, plan).in_full(A)
    assert (explained.changes, explained.outlook) == (None, None)
    assert explained.text.startswith("0_0 becomes active on a.")


def test_an_edit_of_an_unknown_kind_or_instance_is_refused() -> None:
    with pytest.raises(InputError, match="expected one of lag, lags, config, drain"):
        Edit("grow")
    with pytest.raises(InputError, match="instance: found 'z'"):
        Edit("drain", "z").apply(Problem([Task(A)], [Instance("a")]))


def test_a_plan_explains_its_tasks_and_one_from_a_file_needs_the_problem() -> None:
    problem = Problem([Task(A, end_offset=END)], [Instance("a"), Instance("b")])
    plan = taskplace.plan(problem)
    text = taskplace.explain(problem, plan, A)
    assert plan.explain("0_0") == text
    again = Plan.from_dict(plan.to_dict())
    assert again == plan
    with pytest.raises(InputError, match="a plan without its problem"):
        again.explain("0_0")
    assert again.explain("0_0", problem) == text
    assert " ".join(text.partition("\n  task")[0].split()) == Explainer(problem, plan).in_full(A).text
