"""A steady cluster is recognised without solving anything, also with tags and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.model.flow import Network
from taskplace.simulation import Cluster
from taskplace.simulation.run import settle


def _at_rest(instances: list[Instance], weights: list[float], config: PlacementConfig) -> Problem:
    tasks = [Task(TaskId(q % 2, q // 2), end_offset=50_000, weight=w) for q, w in enumerate(weights)]
    cluster = Cluster.of(Problem(tasks, instances, config))
    assert not settle(cluster, limit=50)[-1].plan.followup
    return cluster.problem()


def _forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def solve(self: Network) -> Any:
        raise RuntimeError("it was solved")

    monkeypatch.setattr(Network, "solve", solve)


SPREAD = PlacementConfig(num_standby_replicas=1, rack_aware_assignment_tags=("zone", "host"))


@pytest.mark.parametrize("weights", [[1.0] * 12, [2.0, 1.0, 1.0, 3.0] * 3])
@pytest.mark.parametrize("config", [SPREAD, PlacementConfig(num_standby_replicas=1)])
def test_tags_that_nobody_shares_and_loads_that_are_level_need_no_solver(
    weights: list[float], config: PlacementConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances = [Instance(f"i{k}", tags={"zone": "abc"[k % 3], "host": f"h{k}"}) for k in range(6)]
    problem = _at_rest(instances, weights, config)
    _forbid(monkeypatch)
    assert taskplace.plan(problem).stable


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_is_recognised_is_what_solving_finds(data: st.DataObject) -> None:
    """The short cut is sound: with it, and without it, a cluster at rest gets the same plan."""
    names = range(data.draw(st.integers(2, 6)))
    instances = [Instance(f"i{k}", tags={"zone": data.draw(st.sampled_from("abc"))}) for k in names]
    weights = data.draw(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=10))
    config = PlacementConfig(
        num_standby_replicas=data.draw(st.integers(0, 2)), rack_aware_assignment_tags=("zone",)
    )
    problem = _at_rest(instances, weights, config)
    with pytest.MonkeyPatch.context() as patch:
        short = taskplace.plan(problem)
        patch.setattr("taskplace.assign.target._steady", lambda *_: None)
        solved = taskplace.plan(problem)
    assert replace(short, metrics={}) == replace(solved, metrics={})
    assert short.stable
