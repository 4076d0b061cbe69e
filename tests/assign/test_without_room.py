"""Instances without room, and parked copies in the way of a balance, change nothing for the others."""

from __future__ import annotations

import random

import numpy as np
import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.assign import active
from taskplace.model.flow import Network
from taskplace.model.placement import bases
from tests.support.stateful_tasks import END, ids, stateful

RACKS = "abc"


def drawn(seed: int, **config: object) -> tuple[list[Task], list[Instance], PlacementConfig]:
    rng = random.Random(seed)
    weights = [1.0, 1.0, 2.0, 9.0] if seed % 2 else [1.0]
    tasks = [
        Task(t, end_offset=END, weight=rng.choice(weights), racks=((rng.choice(RACKS),),))
        for t in (*ids(0, 12), *ids(1, 5))
    ]
    tasks += [Task(t, stateful=False, end_offset=None) for t in ids(2, 6)]
    instances = [Instance(f"i{k}", capacity=rng.randint(1, 3), tags={"rack": RACKS[k % 3]}) for k in range(4)]
    return tasks, instances, PlacementConfig(num_standby_replicas=1, **config)


@pytest.mark.parametrize("room", [{"capacity": 0}, {"draining": True}])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"task_assignor_class": "sticky"},
        {"rack_aware_assignment_tags": ("rack",)},
        {"rack_aware_assignment_strategy": "min_traffic"},
        {"rack_aware_assignment_strategy": "balance_subtopology", "rack_aware_assignment_tags": ("rack",)},
    ],
    ids=str,
)
def test_an_instance_without_room_gets_nothing_and_shifts_nothing(config, seed, room):
    tasks, instances, settings = drawn(seed, **config)
    alone = taskplace.plan(Problem(tasks, instances, settings))
    idle = Instance("zz", tags={"rack": "a"}, **room)
    problem = Problem(tasks, [*instances, idle], settings)
    beside = taskplace.plan(problem)
    taskplace.check(problem, beside)
    assert not any(beside.target["zz"]) and not any(beside.assignment["zz"])
    for figure in ("weighted_load_bound", "active_balance"):
        assert beside.metrics.get(figure) == alone.metrics.get(figure), figure


def beside_parked() -> Problem:
    """Subtopology 0 has no copies; that of 1 are parked on a. Loads are level only if a gets all of 0."""
    free = [TaskId(0, p) for p in range(2)]
    parked = [TaskId(1, p) for p in range(4)]
    return Problem(
        [Task(t, end_offset=50_000) for t in free + parked],
        [Instance("a", parked=parked), Instance("b"), Instance("c")],
    )


def test_beside_parked_copies_the_share_of_a_subtopology_gives_way_to_level_loads():
    c = beside_parked().columns
    target = active.place_actives(c, bases(c))
    assert not target.balanced
    assert np.bincount(target.place, minlength=3).tolist() == [2, 2, 2]
    assert target.place[:2].tolist() == [0, 0]


@pytest.mark.parametrize("budget", [10**7, 10**12])
def test_a_missed_balance_costs_no_more_than_the_solver_takes(budget, monkeypatch):
    dearest = []

    class Weighed(Network):
        def arcs(self, tails, heads, high, cost, low=0):
            dearest.append(int(np.max(cost, initial=0)))
            return super().arcs(tails, heads, high, cost, low)

    monkeypatch.setattr(active, "cost_budget", lambda nodes: budget)
    monkeypatch.setattr(active, "Network", Weighed)
    c = beside_parked().columns
    assert not active.place_actives(c, bases(c)).balanced
    assert max(dearest) <= budget


@pytest.mark.parametrize("assignor", ["high_availability", "sticky"])
def test_where_all_places_are_parked_each_standby_is_tried_again(assignor):
    tasks = ids(0, 3)
    lags = dict.fromkeys(tasks, 0)
    instances = [Instance("a", active=tasks, lags=lags), Instance("b", parked=tasks)]
    config = PlacementConfig(num_standby_replicas=1, task_assignor_class=assignor)
    target = taskplace.plan(Problem(stateful(*tasks), instances, config)).target
    assert (
        all({*roles.active, *roles.standby} == set(tasks) for roles in target.values()) and len(target) == 2
    )
