"""Explanations: every case says why, with names and figures."""

from __future__ import annotations

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.errors import InputError
from taskplace.explain import can_remove, explain_plan
from taskplace.simulate.scenarios import KINDS, scenario

A, B = TaskId(0, 0), TaskId(0, 1)
END = 50_000


def explained(*instances: Instance, task: TaskId = A, **fields: object) -> str:
    tasks = (Task(A, end_offset=END, **fields), Task(B, end_offset=END))  # type: ignore[arg-type]
    problem = Problem(tasks, instances, PlacementConfig())
    text = taskplace.explain(problem, taskplace.plan(problem), task)
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("instances", "part"),
    [
        ([Instance("a", active=(A, B), lags={A: 0, B: 0})], "both balances allow it to stay"),
        ([Instance("a")], "it ran nowhere"),
        ([Instance("b", standby=(A,), lags={A: 0})], "its owner is gone, and the copy on b is caught up"),
        (
            [Instance("a", active=(A,), lags={A: 30_000}), Instance("b", standby=(A,), lags={A: 0})],
            "a lags, and the copy on b is caught up: a forced promotion",
        ),
        (
            [Instance("a", active=(A,), lags={A: 0}, draining=True), Instance("b")],
            "b is not caught up and a is, so a keeps the active while b warms up (50000 records to go)",
        ),
        (
            [Instance("a", active=(A,), lags={A: 0}, draining=True), Instance("b", lags={A: 5})],
            "a is draining, and b can take over now",
        ),
    ],
)
def test_the_reason_is_given(instances: list[Instance], part: str) -> None:
    assert part in explained(*instances)


def test_the_nature_of_the_task_is_given() -> None:
    assert "0_0: stateless" in explained(Instance("a"), stateful=False)
    assert "every instance counts as caught up" in explained(Instance("a"), logged=False)


def test_copies_are_listed_with_what_they_lack() -> None:
    text = explained(
        Instance("a", active=(A,), lags={A: 0}), Instance("b", standby=(A,)), Instance("c", lags={A: 20_000})
    )
    assert "copy a: caught up, active" in text
    assert "copy b: none yet, standby" in text
    assert "copy c: 20000 records behind, left over" in text


@pytest.mark.parametrize("task", ["9_9", "zero", TaskId(3, 3)])
def test_an_unknown_task_is_an_error(task: object) -> None:
    problem = Problem((Task(A),), (Instance("a"),))
    with pytest.raises(InputError, match="expected one of 1 tasks; such as 0_0"):
        taskplace.explain(problem, taskplace.plan(problem), task)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_of_every_scenario_can_be_explained(kind: str) -> None:
    problem = scenario(kind, 2, largest=0.4).problem
    plan = taskplace.plan(problem)
    for task in problem.tasks:
        assert str(task.id) in taskplace.explain(problem, plan, task.id)
    assert f"{len(problem.tasks)} task" in explain_plan(problem, plan)


def test_an_instance_can_go_when_every_task_is_caught_up_elsewhere() -> None:
    a = Instance("a", active=(A, B), lags={A: 0, B: 0})
    tasks = (Task(A, end_offset=END), Task(B, end_offset=END))
    ready = can_remove(Problem(tasks, (a, Instance("b", lags={A: 0, B: 3}))), "a")
    assert ready.can_remove and ready.text.startswith("yes")
    # The same number of tasks, but not the same tasks.
    other = can_remove(Problem(tasks, (a, Instance("b", lags={A: 0}))), "a")
    assert (other.can_remove, other.blocking) == (False, (B,))
    assert other.text == "no: 1 task must catch up elsewhere first: 0_1 (no other copy)"
    assert not can_remove(Problem(tasks, (a,)), "a").can_remove
    with pytest.raises(InputError, match="instance: found 'z'"):
        can_remove(Problem(tasks, (a,)), "z")
