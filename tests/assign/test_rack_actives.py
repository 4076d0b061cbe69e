"""Actives near their input (KIP-925): less traffic, as much balance as the strategy promises, and at rest."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Task, TaskId
from taskplace.simulation import Cluster, Event
from tests.support.stateful_tasks import END, configured, rests


def racked(strategy: str, *, seed: int = 0, instances: int = 6, **config: object) -> Problem:
    rng = random.Random(seed)
    tasks = [
        Task(TaskId(s, p), end_offset=END, racks=(tuple(rng.sample("abc", 2)), (rng.choice("abc"),)))
        for s in range(3)
        for p in range(8)
    ]
    places = [Instance(f"i{k}", tags={"rack": "abc"[k % 3]}) for k in range(instances)]
    return Problem(tasks, places, PlacementConfig(rack_aware_assignment_strategy=strategy, **config))


def reads_across(problem: Problem, plan: Plan) -> int:
    rack = {i.id: i.tags["rack"] for i in problem.instances}
    racks = {t.id: t.racks for t in problem.tasks}
    return sum(rack[n] not in served for n, r in plan.target.items() for t in r.active for served in racks[t])


@pytest.mark.parametrize("seed", range(6))
def test_less_traffic_the_less_balance_is_kept(seed):
    plans = {}
    for strategy in ("none", "balance_subtopology", "min_traffic"):
        problem = racked(strategy, seed=seed)
        plans[strategy] = reads_across(problem, taskplace.check(problem, taskplace.plan(problem)))
    assert plans["min_traffic"] <= plans["balance_subtopology"] <= plans["none"]
    assert plans["min_traffic"] < plans["none"]


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
@pytest.mark.parametrize("seed", range(4))
def test_placed_near_input_it_comes_to_rest_and_stays(strategy, seed):
    cluster = Cluster.of(racked(strategy, seed=seed, num_standby_replicas=1))
    events = Event("add", "new", {"tags": {"rack": "b"}}), Event("kill", "i0"), Event("drain", "i1")
    assert len([*rests(cluster, *([event] for event in events))]) == 4


def test_moves_dearer_than_reads_stay_where_they_are():
    for traffic, overlap, moved in ((1, 1000, False), (1000, 1, True)):
        problem = racked(
            "balance_subtopology",
            rack_aware_assignment_traffic_cost=traffic,
            rack_aware_assignment_non_overlap_cost=overlap,
        )
        start = taskplace.plan(configured(problem, rack__aware__assignment__strategy="none"))
        active = {name: roles.active for name, roles in start.assignment.items()}
        held = [
            replace(i, active=active[i.id], lags=dict.fromkeys(active[i.id], 0)) for i in problem.instances
        ]
        plan = taskplace.plan(Problem(problem.tasks, held, problem.config))
        assert (plan.optimality.moves > 0) == moved
        assert plan.optimality.lower_bound == 0


def test_unknown_racks_are_said_and_not_looked_at():
    problem = racked("min_traffic")
    plan = taskplace.plan(Problem(problem.tasks, (*problem.instances, Instance("bare")), problem.config))
    assert any("needs a tag 'rack' on every instance" in w for w in plan.warnings)
