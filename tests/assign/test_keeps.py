"""Tasks with state that only one instance has stay with it, unless it drains; all else is planned as ever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.model.placement import RACK_TAG
from taskplace.verify import verify
from tests.support.targets import counts, small_problems

A, B = TaskId(0, 0), TaskId(0, 1)
ASSIGNORS = ["high_availability", "sticky"]


@pytest.mark.parametrize(
    ("assignor", "strategy"), [*((name, "none") for name in ASSIGNORS), (ASSIGNORS[0], "min_traffic")]
)
@given(problem=small_problems(), data=st.data())
def test_a_kept_task_is_active_where_it_is_kept_and_nowhere_else(problem, data, assignor, strategy):
    kept: dict[str, list[TaskId]] = {}
    holders = {t.id: [i for i in problem.instances if i.lags.get(t.id) == 0] for t in problem.tasks}
    for task, able in holders.items():
        if able and data.draw(st.booleans()):
            kept.setdefault(data.draw(st.sampled_from(able)).id, []).append(task)
    config = PlacementConfig(
        acceptable_recovery_lag=100,
        num_standby_replicas=data.draw(st.integers(0, 2)),
        task_assignor_class=assignor,
        rack_aware_assignment_strategy=strategy,
    )
    instances = [
        replace(i, keeps=tuple(kept.get(i.id, ())), tags={RACK_TAG: i.id}) for i in problem.instances
    ]
    problem = Problem([t._replace(racks=(("a",),)) for t in problem.tasks], instances, config)
    assert Problem.from_dict(problem.to_dict()).columns.fingerprint == problem.columns.fingerprint
    found = taskplace.plan(problem)
    assert not verify(problem, found)
    for one in instances:
        for task in one.keeps if not one.draining else ():
            assert found.active(task) == one.id, found
            assert task in found.target[one.id].active


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_the_others_make_room_for_tasks_that_stay(assignor):
    """Their load counts: a new instance gets what may move."""
    tasks = [TaskId(0, p) for p in range(6)]
    lags = dict.fromkeys(tasks, 0)
    owner = Instance("a", active=tasks, lags=lags, keeps=tasks[:3])
    problem = [Task(task, end_offset=9) for task in tasks]
    config = PlacementConfig(task_assignor_class=assignor)
    stays = replace(owner, keeps=tuple(tasks[:4]))
    for first, a in ((owner, 3), (stays, 4), (replace(stays, draining=True), 0)):
        found = taskplace.plan(Problem(problem, [first, Instance("b", lags=lags)], config))
        assert counts(found) == {"a": a, "b": 6 - a}
