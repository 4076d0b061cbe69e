"""Prices of racks: any that the configuration allows, any size, and problems with nothing to place."""

from __future__ import annotations

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.assign.costs import Costs
from taskplace.errors import ConfigError


def _problem(n: int, m: int, traffic: int | None, move: int | None) -> Problem:
    tasks = [Task(TaskId(q % 8, q // 8), end_offset=100_000, racks=((f"r{q % 3}",),)) for q in range(n)]
    instances = [
        Instance(
            f"e{k:04}",
            tags={"rack": f"r{k % 3}"},
            active=[t.id for t in tasks[k::m]],
            lags={t.id: 0 for t in tasks[k::m]},
        )
        for k in range(m)
    ]
    config = PlacementConfig(
        rack_aware_assignment_strategy="balance_subtopology",
        rack_aware_assignment_traffic_cost=traffic,
        rack_aware_assignment_non_overlap_cost=move,
    )
    return Problem(tasks, instances, config)


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
@pytest.mark.parametrize("tasks", [[], [{"id": "0_0", "stateful": False, "racks": [["r0"]]}]])
def test_racks_without_a_stateful_task(strategy: str, tasks: list[dict[str, object]]) -> None:
    problem = {
        "config": {"rack.aware.assignment.strategy": strategy},
        "tasks": tasks,
        "instances": [{"id": "a", "tags": {"rack": "r0"}}],
    }
    assert len(taskplace.plan(problem).assignment["a"].active) == len(tasks)


@pytest.mark.parametrize(("traffic", "move"), [(1_000_000, 1), (1_000_000, 999_999), (1, 1_000_000)])
def test_the_dearest_prices_are_placed_like_small_ones_in_proportion(traffic: int, move: int) -> None:
    small = taskplace.plan(_problem(600, 6, *((10, 1) if traffic > move else (1, 10))))
    dear = taskplace.plan(_problem(600, 6, traffic, move))
    if move in (1, 1_000_000):
        assert dear.optimality == small.optimality
    assert not dear.warnings


def test_prices_with_a_common_factor_are_the_same_prices() -> None:
    one, many = taskplace.plan(_problem(90, 5, 3, 2)), taskplace.plan(_problem(90, 5, 600_000, 400_000))
    assert one.target == many.target


def test_a_problem_too_large_for_fine_levels_is_still_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = taskplace.plan(_problem(90, 5, None, None))
    monkeypatch.setattr("taskplace.assign.costs.cost_budget", lambda nodes: 4 * 91 * 40)
    coarse = taskplace.plan(_problem(90, 5, None, None))
    assert coarse.optimality.moves == fine.optimality.moves
    c = _problem(90, 5, None, None).columns
    assert Costs(c, 90, 100, share=21).fits


def test_prices_that_cannot_be_added_up_are_refused_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("costs", "traffic"):
        monkeypatch.setattr(f"taskplace.assign.{where}.cost_budget", lambda nodes: 364 * 1000)
    with pytest.raises(ConfigError, match=r"traffic_cost: found 5000, expected at most 999 for 90 tasks"):
        taskplace.plan(_problem(90, 5, 5000, 1))
    assert taskplace.plan(_problem(90, 5, 999, 1)).assignment


def test_a_tag_that_no_instance_has_is_named_once_with_the_nearest() -> None:
    problem = {
        "config": {"rack.aware.assignment.tags": ["zon"], "num.standby.replicas": 1},
        "tasks": [{"id": f"0_{q}"} for q in range(4)],
        "instances": [{"id": x, "tags": {"zone": x}} for x in "abc"],
    }
    (warning,) = taskplace.plan(problem).warnings
    assert "no instance has the tag 'zon'" in warning
    assert "did you mean 'zone'?" in warning
