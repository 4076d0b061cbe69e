"""The triggers about copies go by the same ranking as a plan: what is caught up for one is for the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taskplace import Instance, PlacementConfig, Plan, Problem, Roles, Task, TaskId
from taskplace.model.problem import indexed_lags
from taskplace.rebalance.triggers import Situation, caught_up, overtaken

T, U = TaskId(0, 0), TaskId(0, 1)
CONFIG = PlacementConfig(acceptable_recovery_lag=100)


def situation(task: Task, assignment: dict[str, Roles], *instances: Instance) -> Situation:
    plan = Plan(assignment, assignment)
    return Situation(
        config=CONFIG,
        plan=plan,
        planned_instances=instances,
        planned_tasks=frozenset({task.id}),
        instances=instances,
        tasks=(task,),
        probing_due=False,
    )


WARMING = {"a": Roles(active=(T,)), "b": Roles(warmup=(T,))}
FOLLOWED = {"a": Roles(active=(T,)), "b": Roles(standby=(T,))}


def said(now: Situation) -> list[str]:
    return [str(trigger) for rule in (caught_up, overtaken) for trigger in rule(now)]


def test_a_warm_up_is_ready_within_the_acceptable_lag() -> None:
    task, a = Task(T, end_offset=500), Instance("a", lags={T: 0})
    assert said(situation(task, WARMING, a, Instance("b", lags={T: 100}))) == ["caught up: 0_0 on b"]
    assert said(situation(task, WARMING, a, Instance("b", lags={T: 101}))) == []
    assert said(situation(task, WARMING, a, Instance("b"))) == []


def test_a_copy_of_a_changelog_that_was_reset_is_not_ready_however_small_its_lag() -> None:
    task, a = Task(T, end_offset=50), Instance("a", lags={T: 0})
    assert said(situation(task, WARMING, a, Instance("b", lags={T: 51}))) == []
    assert said(situation(task, WARMING, a, Instance("b", lags={T: 50}))) == ["caught up: 0_0 on b"]


def test_an_owner_whose_copy_is_of_another_changelog_is_overtaken() -> None:
    now = situation(
        Task(T, end_offset=50), FOLLOWED, Instance("a", lags={T: 51}), Instance("b", lags={T: 20})
    )
    assert said(now) == ["overtaken: 0_0 on b is ahead of a"]


def test_nobody_is_overtaken_where_no_copy_is_needed() -> None:
    for task in (Task(T, end_offset=0), Task(T, end_offset=500, logged=False), Task(T, stateful=False)):
        now = situation(task, FOLLOWED, Instance("a", lags={T: 400}), Instance("b", lags={T: 0}))
        assert said(now) == [], task


def test_the_roles_are_those_of_the_plan_in_force() -> None:
    """Whoever looks may hand in instances that say something else, or nothing."""
    a, b = Instance("a", standby=[T], lags={T: 400}), Instance("b", active=[T], lags={T: 0})
    now = situation(Task(T, end_offset=500), FOLLOWED, a, b)
    assert said(now) == ["overtaken: 0_0 on b is ahead of a"]


def test_all_that_are_ready_are_named_by_instance() -> None:
    roles = {"a": Roles(active=(T, U)), "b": Roles(warmup=(U,)), "c": Roles(warmup=(T,))}
    ready = [Instance("b", lags={U: 0}), Instance("c", lags={T: 1})]
    now = situation(Task(T, end_offset=500), roles, Instance("a", lags={T: 0, U: 0}), *ready)
    now = Situation(**{**vars(now), "tasks": (Task(T, end_offset=500), Task(U, end_offset=500))})
    assert said(now) == ["caught up: 0_1 on b, 0_0 on c"]


def test_an_index_that_is_kept_up_to_date_is_asked_and_no_problem_is_ranked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = situation(
        Task(T, end_offset=500), FOLLOWED, Instance("a", lags={T: 101}), Instance("b", lags={T: 9})
    )
    index = indexed_lags(now.tasks, now.instances, CONFIG)
    monkeypatch.setattr(Problem, "columns", property(lambda problem: pytest.fail("a problem was ranked")))
    assert said(replace(now, lags=index)) == ["overtaken: 0_0 on b is ahead of a"]
    index.report("b", T, 101)
    assert said(replace(now, lags=index)) == []
    index.report("a", T, 100)
    assert said(replace(now, lags=index)) == []
