"""Prices of racks: any that the configuration allows, any size, and problems with nothing to place."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import taskplace
from taskplace import Instance, Problem, Task, TaskId
from taskplace.assign.active import ActiveCosts
from taskplace.errors import ConfigError
from taskplace.model.shares import floors_and_ceilings, level_loads
from tests.assign.test_rack_standbys import STRATEGIES, configured


def _problem(n: int, m: int, traffic: int | None, move: int | None) -> Problem:
    tasks = [Task(TaskId(q % 8, q // 8), end_offset=100_000, racks=((f"r{q % 3}",),)) for q in range(n)]
    instances = []
    for k in range(m):
        active = [t.id for t in tasks[k::m]]
        tags, lags = {"rack": f"r{k % 3}"}, dict.fromkeys(active, 0)
        instances.append(Instance(f"e{k:04}", tags=tags, active=active, lags=lags))
    return Problem(tasks, instances, configured("balance_subtopology", 0, (traffic, move)))


@pytest.mark.parametrize(("traffic", "move"), [(1_000_000, 1), (1_000_000, 999_999), (1, 1_000_000)])
def test_the_dearest_prices_are_placed_like_small_ones_in_proportion(traffic, move):
    small = taskplace.plan(_problem(600, 6, *((10, 1) if traffic > move else (1, 10))))
    dear = taskplace.plan(_problem(600, 6, traffic, move))
    if move in (1, 1_000_000):
        assert dear.optimality == small.optimality
    assert not dear.warnings


def test_a_problem_too_large_for_fine_levels_is_still_placed(monkeypatch):
    fine = taskplace.plan(_problem(90, 5, None, None))
    monkeypatch.setattr("taskplace.assign.active.cost_budget", lambda nodes: 4 * 91 * 40)
    coarse = taskplace.plan(_problem(90, 5, None, None))
    assert coarse.optimality.moves == fine.optimality.moves
    c = _problem(90, 5, None, None).columns
    assert ActiveCosts(c, 90, 100, share=21).fits


def test_prices_that_cannot_be_added_up_are_refused_with_the_limit(monkeypatch):
    for where in ("active", "rack_actives"):
        monkeypatch.setattr(f"taskplace.assign.{where}.cost_budget", lambda nodes: 364 * 1000)
    with pytest.raises(ConfigError, match=r"traffic_cost: found 5000, expected at most 999 for 90 tasks"):
        taskplace.plan(_problem(90, 5, 5000, 1))
    assert taskplace.plan(_problem(90, 5, 999, 1)).assignment


def test_a_tag_that_no_instance_has_is_named_once_with_the_nearest():
    problem = {
        "config": {"rack.aware.assignment.tags": ["zon"], "num.standby.replicas": 1},
        "tasks": [{"id": f"0_{q}"} for q in range(4)],
        "instances": [{"id": x, "tags": {"zone": x}} for x in "abc"],
    }
    (warning,) = taskplace.plan(problem).warnings
    assert "no instance has the tag 'zon'" in warning
    assert "did you mean 'zone'?" in warning


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_stateless_tasks_are_level_first_and_then_near_their_input_and_stay_there(data):
    """Against all placements: level loads, then the least price of reads and moves; and at rest nothing moves.

    With balance_subtopology, stateless tasks are level by themselves and per subtopology, if any placement has that.
    """
    racks = ["r0", "r1", "r2"][: data.draw(st.integers(2, 3))]
    names = [f"i{k}" for k in range(data.draw(st.integers(1, 3)))]
    some_racks = st.lists(st.lists(st.sampled_from(racks), min_size=1, max_size=2, unique=True), max_size=2)
    ids = [TaskId(p % 2, p // 2) for p in range(data.draw(st.integers(2, 6)))]
    tasks = [Task(t, t == ids[0], 0, racks=tuple(map(tuple, data.draw(some_racks)))) for t in ids]
    owner = {t: data.draw(st.sampled_from([*names, ""])) for t in ids}
    instances = []
    for name in names:
        tags = {"rack": data.draw(st.sampled_from(racks))}
        held = [t for t in ids if owner[t] == name]
        instances.append(Instance(name, data.draw(st.integers(1, 2)), tags, active=held))
    costs = data.draw(st.sampled_from([(10, 1), (1, 0), (0, 1), (2, 3), (1_000_000, 7)]))
    config = configured(data.draw(st.sampled_from(STRATEGIES)), 0, costs)
    problem = Problem(tasks, instances, config)
    made = taskplace.plan(problem)
    where = {t: k for k, i in enumerate(problem.instances) for t in made.assignment[i.id].active}
    free = [t for t in problem.tasks if not t.stateful]
    room = np.array([i.capacity for i in problem.instances])
    busy = np.bincount([where[t.id] for t in problem.tasks if t.stateful], minlength=len(names))
    low, high = level_loads(len(tasks), len(tasks), busy, room)

    def price(places):
        total = 0
        for t, k in zip(free, places, strict=True):
            i = problem.instances[k]
            total += costs[0] * sum(i.tags["rack"] not in served for served in t.racks)
            total += costs[1] * (owner[t.id] not in ("", i.id))
        return total

    def level(places):
        load = busy + np.bincount(list(places), minlength=len(names))
        return bool(((low <= load) & (load <= high)).all())

    def alike(places):
        for s in (None, 0, 1):
            mine = [k for t, k in zip(free, places, strict=True) if s in (None, t.id.subtopology)]
            counts = np.bincount(mine, minlength=len(names))
            low, high = floors_and_ceilings(int(counts.sum()), room)
            if ((counts < low) | (counts > high)).any():
                return False
        return True

    mine = [where[t.id] for t in free]
    assert level(mine)
    options = [p for p in product(range(len(names)), repeat=len(free)) if level(p)]
    if config.rack_aware_assignment_strategy == "balance_subtopology":
        options = [p for p in options if alike(p)] or options
        assert tuple(mine) in options
    if any(t.racks for t in free):
        assert price(mine) == min(map(price, options))
    now = [replace(i, active=made.assignment[i.id].active) for i in problem.instances]
    assert taskplace.plan(Problem(tasks, now, config)).stable


def test_coarse_levels_each_outweigh_the_lower_ones(monkeypatch):
    """A new copy costs more than a copy that has not begun to warm up, a move more than both for all tasks."""
    c = _problem(40, 4, 1, 1).columns
    for budget, fits in ((4 * 41, True), (4 * 41 - 1, False)):
        monkeypatch.setattr("taskplace.assign.active.cost_budget", lambda nodes, budget=budget: budget)
        costs = ActiveCosts(c, 40, 10)
        assert costs.fits is fits
        assert 0 < costs.begun < costs.copy
        assert 40 * (costs.begun + costs.copy) < costs.move
        assert 2 * c.m * costs.move < costs.miss
        assert costs.tie(np.arange(40)).tolist() == [0] * 40
        assert costs.lag(np.array([-1, 0, 100_000])).tolist() == [0, 0, 0]
