"""Who is caught up: KIP-441's ranks and special cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.model.placement import FIXED, FORCED, OPEN, RESUME, bases
from taskplace.model.problem_columns import UNKNOWN

T = TaskId(0, 0)


def caught(task: Task, *instances: Instance, **config: object) -> dict[str, bool]:
    c = Problem([task], instances, PlacementConfig(**config)).columns
    return {c.names[int(i)]: bool(ok) for i, ok in zip(c.inst, c.caught, strict=True)}


@pytest.mark.parametrize("order", [1, -1])
def test_an_end_offset_of_0_is_one_beside_others_that_are_unknown(order):
    tasks = [Task(TaskId(0, 0), end_offset=0), Task(TaskId(0, 1), end_offset=None)]
    columns = Problem(tasks[::order], [Instance("a"), Instance("b", standby=[TaskId(0, 0)])]).columns
    assert dict(zip(columns.ids, columns.end.tolist(), strict=True)) == {tasks[0].id: 0, tasks[1].id: UNKNOWN}


def test_a_copy_of_a_changelog_that_was_reset_is_no_copy():
    problem = Problem([Task(T, end_offset=500)], [Instance("a", lags={T: 700}), Instance("b", lags={T: 400})])
    plan = taskplace.plan(problem)
    assert plan.active(T) == "b"
    assert any("reset" in w and "0_0 on a" in w for w in plan.warnings)


@pytest.mark.parametrize(
    ("instances", "base"),
    [
        ([Instance("a", active=[T], lags={T: 0})], FIXED),
        ([Instance("a", active=[T], lags={T: 40_000})], FIXED),
        ([Instance("a", active=[T], lags={T: 40_000}), Instance("b", lags={T: 0})], FORCED),
        ([Instance("b", standby=[T], lags={T: 0})], FORCED),
        ([Instance("b", standby=[T], lags={T: 40_000})], RESUME),
        ([Instance("a", active=[T], lags={T: 40_000}), Instance("b", lags={T: 29_999})], RESUME),
        ([Instance("a", active=[T], lags={T: 40_000}), Instance("b", lags={T: 30_000})], FIXED),
        ([Instance("a", active=[T]), Instance("b", lags={T: 30_000})], RESUME),
        ([Instance("a", active=[T]), Instance("b", lags={T: 50_000})], FIXED),
        ([Instance("b", standby=[T], lags={T: 50_000})], OPEN),
        ([Instance("b")], OPEN),
    ],
)
def test_the_base_of_a_task(instances, base):
    c = Problem([Task(T, end_offset=50_000)], instances).columns
    assert bases(c).tolist() == [base]


def test_copies_of_unknown_tasks_are_ignored_and_listed():
    gone = TaskId(9, 9)
    plan = taskplace.plan(Problem([Task(T)], [Instance("a", standby=[gone], lags={gone: 0})]))
    assert any("9_9 on a" in w and "cleaned up" in w for w in plan.warnings)
    assert all(gone not in role for roles in plan.assignment.values() for role in roles)


def test_of_two_owners_the_better_copy_counts():
    problem = Problem(
        [Task(T, end_offset=50_000)],
        [Instance("a", active=[T], lags={T: 50_000}), Instance("b", active=[T], lags={T: 0})],
    )
    plan = taskplace.plan(problem)
    assert plan.active(T) == "b"
    assert any("active twice" in w for w in plan.warnings)


def test_the_fingerprint_tells_problems_apart():
    base = Problem([Task(T, end_offset=5)], [Instance("a", lags={T: 3})])
    others = [
        replace(base, tasks=[t]) for t in (Task(T, end_offset=6), Task(T, end_offset=5, stateful=False))
    ]
    others += [
        replace(base, instances=[i])
        for i in (
            Instance("a", lags={T: 4}),
            Instance("b", lags={T: 3}),
            Instance("a", 1, {"z": "a"}, lags={T: 3}),
        )
    ]
    others.append(replace(base, config=PlacementConfig(max_warmup_replicas=3)))
    prints = {p.fingerprint for p in (base, *others)}
    assert len(prints) == 1 + len(others)
