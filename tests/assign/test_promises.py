"""A built-in assignor is in all the places that have to know of it, and keeps what it promises."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import taskplace
from taskplace.assign.target import PLACES
from taskplace.model.assignors import BUILT_IN, OWN, Promises, promises
from taskplace.model.config import PlacementConfig
from taskplace.model.problem import Instance, Problem, Task, TaskId
from taskplace.verify import verify

ROOT = Path(__file__).parents[2]
RACKS = "rack.aware.assignment.strategy"


def problem(name: str) -> Problem:
    """Two subtopologies of five tasks that all began on one of three instances."""
    tasks = [Task(TaskId(s, p), end_offset=100) for s in (0, 1) for p in range(5)]
    return Problem(
        tasks,
        [Instance(i) for i in "abc"],
        config=PlacementConfig.from_properties({"task.assignor.class": name, "num.standby.replicas": 1}),
    )


def test_each_built_in_assignor_computes_and_is_in_the_docs():
    assert set(PLACES) == set(BUILT_IN), "taskplace.assign.target.PLACES"
    page = (ROOT / "docs" / "placement.md").read_text(encoding="utf-8").partition("\n## Other assignors\n")[2]
    assert [name for name in BUILT_IN if f"`{name}`" not in page] == [], "docs/placement.md, Other assignors"
    key = next(key for key in PlacementConfig.declared_keys() if key.name == "task.assignor.class")
    assert all(name in key.values for name in BUILT_IN)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_a_plan_keeps_the_promises_of_its_assignor(name):
    given = problem(name)
    plan = taskplace.plan(given)
    assert verify(given, plan) == ()
    if promises(name).fewest_moves:
        assert plan.optimality.moves == plan.optimality.lower_bound


def test_an_assignor_of_ones_own_promises_nothing_and_may_weigh_racks():
    assert (
        PlacementConfig.from_properties({"task.assignor.class": "m:a", RACKS: "min_traffic"}).promises is OWN
    )
    assert not any(getattr(OWN, field.name) for field in fields(Promises))
