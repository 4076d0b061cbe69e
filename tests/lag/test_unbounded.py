"""`acceptable.recovery.lag` of 2^63 - 1: everybody counts as caught up, and nothing warms up."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from msgspec import structs

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Task, TaskId
from taskplace.rebalance.triggers import Situation, overtaken
from taskplace.simulation import Cluster
from taskplace.simulation.run import settle
from taskplace.validation import MOST

END = 50_000
TASKS = tuple(TaskId(0, p) for p in range(6))
UNBOUNDED = {"acceptable.recovery.lag": MOST}


def problem(config: dict[str, Any], *more: Instance, lags: dict[TaskId, int] | None = None) -> Problem:
    """Six tasks, all on a; others have nothing, unless `lags` says what b has."""
    tasks = [Task(t, end_offset=END) for t in TASKS]
    a = Instance("a", active=TASKS, lags=dict.fromkeys(TASKS, 0))
    return Problem(tasks, [a, Instance("b", lags=lags or {}), *more], PlacementConfig.from_properties(config))


def checked(p: Problem) -> Plan:
    return taskplace.check(p, taskplace.plan(p))


def active(plan: Plan) -> dict[str, int]:
    return {n: len(r.active) for n, r in plan.assignment.items()}


@pytest.mark.parametrize(
    "config",
    [
        UNBOUNDED,
        {"acceptable.recovery.lag": str(MOST)},  # as a properties file has it
        json.loads(json.dumps(UNBOUNDED)),
        UNBOUNDED | {"acceptable.recovery.seconds": 0.001},
        UNBOUNDED | {"task.assignor.class": "sticky"},
    ],
)
@pytest.mark.parametrize("lags", [{}, dict.fromkeys(TASKS, END), dict.fromkeys(TASKS, END + 1)])
def test_tasks_move_at_once_and_nothing_warms_up(config, lags):
    """No copy, a copy that lacks all, and one of another changelog: it is all the same."""
    plan = checked(problem(config, Instance("c", restore_rate=1.0), lags=lags))
    assert active(plan) == {"a": 2, "b": 2, "c": 2}
    assert not plan.followup
    assert {m.role for m in plan.moves} == {"active"}
    assert all(not r.warmup for r in plan.assignment.values())


def test_copies_are_used_all_the_same():
    """The owner of all is gone. b has three copies and c the other three: each gets what it need not restore."""
    config = PlacementConfig(acceptable_recovery_lag=MOST)
    b = Instance("b", standby=TASKS[1::2], lags=dict.fromkeys(TASKS[1::2], 20))
    c = Instance("c", lags=dict.fromkeys(TASKS[::2], 20))
    plan = checked(Problem([Task(t, end_offset=END) for t in TASKS], [b, c], config))
    assert {n: r.active for n, r in plan.assignment.items()} == {"b": TASKS[1::2], "c": TASKS[::2]}
    # Of two copies the nearer one, also where both would be far from caught up otherwise.
    near = Instance("b", lags={TASKS[0]: 40_000, TASKS[1]: 30_000})
    far = Instance("c", lags={TASKS[0]: 30_000, TASKS[1]: 40_000})
    plan = checked(Problem([Task(t, end_offset=END) for t in TASKS[:2]], [near, far], config))
    assert [r.active for r in plan.assignment.values()] == [(TASKS[1],), (TASKS[0],)]


def test_an_owner_never_counts_as_lagging():
    config = PlacementConfig(acceptable_recovery_lag=MOST, num_standby_replicas=1)
    a = Instance("a", active=TASKS[:1], lags={TASKS[0]: END})
    b = Instance("b", standby=TASKS[:1], lags={TASKS[0]: 0})
    p = Problem([Task(TASKS[0], end_offset=END)], [a, b], config)
    plan = checked(p)
    assert plan.stable
    assert plan.metrics["owners_behind"] == 0
    silent = Instance("a", active=TASKS[:1])  # it has not reported yet
    ahead = Situation(config, plan, (a, b), frozenset(TASKS[:1]), (silent, b), p.tasks, probing_due=False)
    assert not list(overtaken(ahead))
    assert list(overtaken(replace(ahead, config=structs.replace(config, acceptable_recovery_lag=MOST - 1))))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_change_is_over_after_one_step(data):
    """Whatever the roles, lags and tags are: one plan without warm-ups, and then the cluster comes to rest."""
    rack = st.sampled_from(["x", "y"])
    n = data.draw(st.integers(1, 7))
    ends = [data.draw(st.sampled_from([None, 0, END])) for _ in range(n)]
    tasks = [Task(TaskId(k % 2, k // 2), k % 2 == 0 or k < 5, end) for k, end in enumerate(ends)]
    count = data.draw(st.integers(1, 4))
    roles: list[dict[str, list[TaskId]]] = [{"active": [], "standby": [], "warmup": []} for _ in range(count)]
    lags: list[dict[TaskId, int]] = [{} for _ in range(count)]
    for t in tasks:
        for k in data.draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count)):
            if t.stateful:
                lags[k][t.id] = data.draw(st.integers(0, END + 5))
            name = data.draw(st.sampled_from(["active", "standby", "warmup", "none"]))
            if name == "active" and any(t.id in r["active"] for r in roles):
                continue
            if name == "active" or (t.stateful and name != "none"):
                roles[k][name].append(t.id)
    instances = [
        Instance(
            f"i{k}", data.draw(st.integers(1, 2)), tags={"rack": data.draw(rack)}, lags=lags[k], **roles[k]
        )
        for k in range(count)
    ]
    config = PlacementConfig(
        acceptable_recovery_lag=MOST,
        num_standby_replicas=data.draw(st.integers(0, 2)),
        rack_aware_assignment_tags=data.draw(st.sampled_from([(), ("rack",)])),
        task_assignor_class=data.draw(st.sampled_from(["high_availability", "sticky"])),
    )
    cluster = Cluster.of(Problem(tasks, instances, config))
    plan = checked(cluster.problem())
    assert not plan.followup
    assert not any(r.warmup for r in plan.assignment.values())
    cluster.apply(plan)
    if config.promises.fewest_moves:
        assert checked(cluster.problem()).stable
    # The target of other assignors may change on the way: docs/placement.md, "Other assignors".
    assert len(settle(cluster, limit=4)) == 1 or not config.promises.fewest_moves
