"""Actives where parked copies stand in the way of a balance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.assign import active
from taskplace.model.flow import Network
from taskplace.model.placement import bases
from tests.support.stateful_tasks import ids, stateful


def beside_parked() -> Problem:
    """Subtopology 0 has no copies; that of 1 are parked on a. Loads are level only if a gets all of 0."""
    free = [TaskId(0, p) for p in range(2)]
    parked = [TaskId(1, p) for p in range(4)]
    return Problem(
        [Task(t, end_offset=50_000) for t in free + parked],
        [Instance("a", parked=parked), Instance("b"), Instance("c")],
    )


def test_beside_parked_copies_the_share_of_a_subtopology_gives_way_to_level_loads() -> None:
    c = beside_parked().columns
    target = active.place_actives(c, bases(c))
    assert not target.balanced
    assert np.bincount(target.place, minlength=3).tolist() == [2, 2, 2]
    assert target.place[:2].tolist() == [0, 0]


@pytest.mark.parametrize("budget", [10**7, 10**12])
def test_a_missed_balance_costs_no_more_than_the_solver_takes(
    budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dearest = []

    class Weighed(Network):
        def arcs(self, tails: Any, heads: Any, high: Any, cost: Any, low: Any = 0) -> slice:
            dearest.append(int(np.max(cost, initial=0)))
            return super().arcs(tails, heads, high, cost, low)

    monkeypatch.setattr(active, "cost_budget", lambda nodes: budget)
    monkeypatch.setattr(active, "Network", Weighed)
    c = beside_parked().columns
    assert not active.place_actives(c, bases(c)).balanced
    assert max(dearest) <= budget


@pytest.mark.parametrize("assignor", ["high_availability", "sticky"])
def test_where_all_places_are_parked_each_standby_is_tried_again(assignor: str) -> None:
    tasks = ids(0, 3)
    lags = dict.fromkeys(tasks, 0)
    instances = [Instance("a", active=tasks, lags=lags), Instance("b", parked=tasks)]
    config = PlacementConfig(num_standby_replicas=1, task_assignor_class=assignor)
    target = taskplace.plan(Problem(stateful(*tasks), instances, config)).target
    copies = {
        t: sorted(n for n, roles in target.items() if t in (*roles.active, *roles.standby)) for t in tasks
    }
    assert set(copies) == set(tasks) and all(held == ["a", "b"] for held in copies.values())
