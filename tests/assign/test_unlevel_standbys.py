"""Standbys where level loads cannot be had: as level as can be; and roles that tasks have from another life."""

from __future__ import annotations

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.model.plan import Roles

TASKS = [TaskId(0, p) for p in range(8)]


def test_standbys_that_only_two_may_take_are_shared_by_them_though_one_has_them_all() -> None:
    on = {name: TASKS[2 * k : 2 * k + 2] for k, name in enumerate("abcd")}
    others = on["c"] + on["d"]
    instances = [
        Instance("a", active=on["a"], standby=on["b"] + others, lags=dict.fromkeys(TASKS, 0)),
        Instance("b", active=on["b"], standby=on["a"], lags=dict.fromkeys(on["a"] + on["b"], 0)),
        *(
            Instance(
                n, active=on[n], lags=dict.fromkeys(on[n], 0), parked=[t for t in TASKS if t not in on[n]]
            )
            for n in "cd"
        ),
    ]
    plan = taskplace.plan(
        Problem(
            [Task(t, end_offset=90_000) for t in TASKS], instances, PlacementConfig(num_standby_replicas=1)
        )
    )
    loads = {n: len(roles.standby) for n, roles in plan.target.items()}
    assert loads["c"] == loads["d"] == 0
    assert abs(loads["a"] - loads["b"]) <= 2  # it was six and two


def test_a_task_that_has_lost_its_stores_loses_its_standby() -> None:
    kept, changed = TaskId(0, 0), TaskId(1, 0)
    tasks = [Task(kept, end_offset=90_000), Task(changed, stateful=False)]
    instances = [
        Instance("a", active=[kept], lags={kept: 0}),
        Instance("b", active=[changed]),
        Instance("c", standby=[changed], lags={changed: 0}),
    ]
    plan = taskplace.plan(Problem(tasks, instances))
    assert plan.assignment == {"a": Roles((kept,)), "b": Roles((changed,)), "c": Roles()}
