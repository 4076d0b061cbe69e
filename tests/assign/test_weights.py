"""Weights: both balances hold, loads are within the heaviest task of their shares, or a warning says they are not."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.assign import weights
from taskplace.assign.weights import load_and_bound
from taskplace.simulation import Cluster, Event
from tests.support.stateful_tasks import END, ids, rests


def _excess(problem: Problem, plan: taskplace.Plan) -> float:
    """The largest distance of a load from its share, in heaviest tasks."""
    weight = {t.id: t.weight for t in problem.tasks}
    total, slots = sum(weight.values()), sum(i.capacity for i in problem.instances)
    far = [
        abs(sum(weight[t] for t in plan.target[i.id].active) - total * i.capacity / slots)
        for i in problem.instances
    ]
    return max(far) / max(weight.values())


def test_single_partitions_of_many_subtopologies_change_places():
    ids = [TaskId(s, 0) for s in range(8)]
    tasks = [Task(t, end_offset=10**6, weight=10.0 if t.subtopology < 4 else 1.0) for t in ids]
    ready = dict.fromkeys(ids, 0)
    a, b = Instance("a", active=ids[:4], lags=ready), Instance("b", active=ids[4:], lags=ready)
    problem = Problem(tasks, [a, b])
    plan = taskplace.plan(problem)
    assert _excess(problem, plan) <= 1
    assert plan.metrics["weighted_load_gap"] < 0.5
    assert plan.warnings == ()


def test_what_no_exchange_can_level_is_warned_of():
    """On i0 three heavy tasks of three subtopologies with two partitions each: each has to have one on each."""
    tasks = [Task(TaskId(s, p), weight=10.0 if p == 0 else 1.0) for s in range(3) for p in range(2)]
    held = [Instance(f"i{k}", active=[TaskId(s, k) for s in range(3)]) for k in range(2)]
    assert (
        taskplace.plan(Problem(tasks, held)).warnings == ()
    )  # heavy and light of a subtopology change places
    parked = [replace(i, parked=[t.id for t in tasks if t.id not in i.active]) for i in held]
    (warning,) = [w for w in taskplace.plan(Problem(tasks, parked)).warnings if w.startswith("weights")]
    assert "the largest load per slot is 30, the lower bound is 16.5" in warning


@settings(max_examples=80, deadline=None)
@given(
    partitions=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    capacities=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    data=st.data(),
)
def test_both_balances_hold_and_an_uneven_load_is_never_silent(partitions, capacities, data):
    tasks = [
        Task(TaskId(s, p), weight=data.draw(st.sampled_from([1.0, 5.0, 10.0])))
        for s, n in enumerate(partitions)
        for p in range(n)
    ]
    problem = Problem(tasks, [Instance(f"i{k}", n) for k, n in enumerate(capacities)])
    plan = taskplace.check(problem, taskplace.plan(problem))  # balances, among others
    assert (_excess(problem, plan) > 1 + 1e-9) == any(w.startswith("weights") for w in plan.warnings)


sizes = st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 7.25]), max_size=6)


@settings(max_examples=200, deadline=None)
@given(sizes, sizes, st.integers(-40, 40))
def test_the_pair_to_exchange_is_the_best_of_all_pairs(goes, comes, quarters):
    gap, weight = quarters / 4, np.array([*goes, *comes])
    columns = SimpleNamespace(weight=weight)
    split = np.split(np.arange(len(weight)), [len(goes)])
    found = weights._nearest(columns, *split, gap)
    gains = [abs(gap) - abs(gap - (one - other)) for one in goes for other in comes]
    assert (found is None) == (not gains)
    if found is not None:
        gain, one, other = found
        assert one in split[0] and other in split[1]
        assert gain == max(gains) == abs(gap) - abs(gap - (weight[one] - weight[other]))


@pytest.mark.parametrize("seed", range(12))
def test_weighted_loads_are_within_one_task_of_their_share_or_say_how_far(seed):
    rng = random.Random(seed)
    tasks = [
        Task(t, end_offset=END, weight=rng.choice([1.0, 1.0, 2.0, 5.0, rng.uniform(0.5, 4)]))
        for t in (*ids(0, 40), *ids(1, 12))
    ]
    cluster = Cluster(tasks, PlacementConfig(max_warmup_replicas=4))
    for k in range(rng.randint(2, 6)):
        cluster.add(f"i{k}", rng.randint(1, 3))
    for plan in rests(cluster, [Event("add", "new", {"capacity": 2})], [Event("kill", "i0")]):
        m = plan.metrics
        c = cluster.problem().columns
        load, bound = load_and_bound(c, c.owner)
        assert (m["weighted_load_max"], m["weighted_load_bound"]) == (round(load, 9), round(bound, 9))
        assert m["weighted_load_gap"] >= 0
        loads = np.bincount(c.owner, weights=c.weight, minlength=c.m)
        share = c.weight.sum() * c.open_slots / c.open_slots.sum()
        assert (np.abs(loads - share) <= c.weight.max() + 1e-9).all()
