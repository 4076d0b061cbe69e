"""Rack strategies against every placement there is, on small problems: no balanced one costs less."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.model.shares import floors_and_ceilings


@settings(max_examples=80, deadline=None)
@given(data=st.data(), strategy=st.sampled_from(["min_traffic", "balance_subtopology"]))
def test_no_balanced_placement_costs_less(data: st.DataObject, strategy: str) -> None:
    racks = "xyz"[: data.draw(st.integers(2, 3))]
    names = [f"i{k}" for k in range(data.draw(st.integers(2, 3)))]
    served = st.lists(st.sampled_from(racks), min_size=1, max_size=3, unique=True).map(tuple)
    tasks = [
        Task(
            TaskId(data.draw(st.integers(0, 1)), p),
            end_offset=100_000,
            racks=tuple(data.draw(st.lists(served, min_size=1, max_size=3))),
        )
        for p in range(data.draw(st.integers(2, 6)))
    ]
    owner = {t.id: data.draw(st.sampled_from(["", *names])) for t in tasks}
    instances = []
    for name in names:
        held = [t.id for t in tasks if owner[t.id] == name]
        tags, lags = {"rack": data.draw(st.sampled_from(racks))}, dict.fromkeys(held, 0)
        instances.append(Instance(name, data.draw(st.integers(1, 2)), tags, active=held, lags=lags))
    traffic, move = data.draw(
        st.sampled_from([(10, 1), (1, 10), (0, 1), (1, 0), (3, 2), (1_000_000, 999_999)])
    )
    config = PlacementConfig(
        rack_aware_assignment_strategy=strategy,
        rack_aware_assignment_traffic_cost=traffic,
        rack_aware_assignment_non_overlap_cost=move,
    )
    problem = Problem(tasks, instances, config)
    plan = taskplace.plan(problem)
    room = np.array([i.capacity for i in problem.instances])
    groups = [list(range(len(tasks)))]
    if strategy == "balance_subtopology":
        groups += [[k for k, t in enumerate(problem.tasks) if t.id.subtopology == s] for s in (0, 1)]

    def cost(places: Sequence[int]) -> int:
        total = 0
        for t, k in zip(problem.tasks, places, strict=True):
            i = problem.instances[k]
            total += traffic * sum(i.tags["rack"] not in replicas for replicas in t.racks)
            total += move * (owner[t.id] not in ("", i.id))
        return total

    def balanced(places: Sequence[int]) -> bool:
        for group in groups:
            low, high = floors_and_ceilings(len(group), room)
            n = np.bincount([places[k] for k in group], minlength=len(names))
            if ((n < low) | (n > high)).any():
                return False
        return True

    where = {t: k for k, i in enumerate(problem.instances) for t in plan.target[i.id].active}
    mine = [where[t.id] for t in problem.tasks]
    assert balanced(mine)
    assert cost(mine) == min(map(cost, filter(balanced, product(range(len(names)), repeat=len(tasks)))))
