"""Loads of weighted tasks: within the heaviest task of their share, or a warning says how far off."""

from __future__ import annotations

import random

import numpy as np
import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task
from taskplace.assign.weights import load_and_bound
from taskplace.simulation import Cluster, Event
from taskplace.simulation.run import settle
from tests.support.stateful_tasks import END, ids, stateful


@pytest.mark.parametrize("seed", range(12))
def test_weighted_loads_are_within_one_task_of_their_share_or_say_how_far(seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    tasks = [
        Task(t, end_offset=END, weight=rng.choice([1.0, 1.0, 2.0, 5.0, rng.uniform(0.5, 4)]))
        for t in (*ids(0, 40), *ids(1, 12))
    ]
    cluster = Cluster(tasks, PlacementConfig(max_warmup_replicas=4))
    for k in range(rng.randint(2, 6)):
        cluster.add(f"i{k}", rng.randint(1, 3))
    for event in (None, Event("add", "new", {"capacity": 2}), Event("kill", "i0")):
        rounds = settle(cluster, [event] if event else [], limit=200, watch=taskplace.check)
        plan = rounds[-1].plan
        assert not plan.followup
        assert taskplace.plan(cluster.problem()).stable
        m = plan.metrics
        c = cluster.problem().columns
        load, bound = load_and_bound(c, c.owner)
        assert (m["weighted_load_max"], m["weighted_load_bound"]) == (round(load, 9), round(bound, 9))
        assert m["weighted_load_gap"] >= 0
        loads = np.bincount(c.owner, weights=c.weight, minlength=c.m)
        share = c.weight.sum() * c.open_slots / c.open_slots.sum()
        assert (np.abs(loads - share) <= c.weight.max() + 1e-9).all()


def test_equal_weights_need_no_exchange_and_no_figures() -> None:
    plan = taskplace.plan(Problem(stateful(*ids(0, 9), weight=3.0), [Instance("a"), Instance("b")]))
    assert "weighted_load_gap" not in plan.metrics
