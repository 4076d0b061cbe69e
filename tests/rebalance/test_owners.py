"""Owners that lag while others follow: the plan asks for a follow-up, and an event says when one is overtaken."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Task, TaskId
from taskplace.rebalance import RebalanceLoop
from taskplace.simulation import Cluster
from taskplace.simulation.run import settle
from taskplace.verify import verify

T, U = TaskId(0, 0), TaskId(0, 1)
TASKS = [Task(T, end_offset=1_000_000)]
ONE = PlacementConfig(num_standby_replicas=1)


def _pair(owner: int, other: int) -> list[Instance]:
    return [Instance("a", active=[T], lags={T: owner}), Instance("b", standby=[T], lags={T: other})]


def test_a_plan_asks_for_a_follow_up_while_an_owner_lags_and_another_copy_follows():
    now = taskplace.plan(Problem(TASKS, _pair(500_000, 480_000), ONE))
    assert (now.moves, now.followup, now.metrics["owners_behind"]) == ((), True, 1)
    ready = taskplace.plan(Problem(TASKS, _pair(500, 480_000), ONE))
    assert (ready.moves, ready.followup, ready.metrics["owners_behind"]) == ((), False, 0)


@pytest.mark.parametrize("lags", [(500_000, 480_000), (480_000, 500_000)])
def test_an_owner_that_is_overtaken_is_an_event(lags):
    clock = [0.0]
    loop = RebalanceLoop(ONE, clock=lambda: clock[0])
    first = loop.rebalance_if_needed(TASKS, _pair(*lags))
    owner = first.plan.active(T)
    other = "b" if owner == "a" else "a"

    def found(behind, ahead):
        return [Instance(owner, lags={T: behind}), Instance(other, lags={T: ahead})]

    assert loop.rebalance_if_needed(TASKS, found(30_000, 28_000)) is None
    clock[0] += 1.0  # long before the timer
    decision = loop.rebalance_if_needed(TASKS, found(29_000, 9_000))
    assert [t.kind for t in decision.triggers] == ["overtaken"]
    assert decision.plan.active(T) == other
    assert (
        loop.rebalance_if_needed(TASKS, found(29_000, 9_000)) is None
    )  # the owner is ready: nothing follows


def test_a_warm_up_is_caught_up_for_the_trigger_when_it_is_for_the_engine():
    config = PlacementConfig(acceptable_recovery_seconds=60, acceptable_recovery_lag=0)
    tasks = [Task(T, end_offset=10**6), Task(U, end_offset=10**6)]
    loop = RebalanceLoop(config, clock=lambda: 0.0)
    a = Instance("a", lags={T: 0, U: 0}, restore_rate=1000.0)
    assert loop.rebalance_if_needed(tasks, [a])
    started = loop.rebalance_if_needed(tasks, [a, Instance("b", restore_rate=1000.0)])
    (warm,) = started.plan.assignment["b"].warmup
    far, near = (Instance("b", lags={warm: lag}, restore_rate=1000.0) for lag in (60_001, 60_000))
    assert loop.rebalance_if_needed(tasks, [a, far]) is None
    moved = loop.rebalance_if_needed(tasks, [a, near])
    assert [t.kind for t in moved.triggers] == ["caught up"]
    assert moved.plan.active(warm) == "b"


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_once_stable_time_alone_stalls_nothing(data):
    """Instances restore at rates of their own; whoever is told "stable" may stop planning."""
    names = [f"i{k}" for k in range(data.draw(st.integers(2, 4)))]
    tasks = [Task(TaskId(0, p), end_offset=200_000) for p in range(data.draw(st.integers(1, 6)))]
    instances = []
    for name in names:
        lags = {t.id: data.draw(st.integers(0, 200_000)) for t in tasks if data.draw(st.booleans())}
        rate = data.draw(st.sampled_from([40.0, 100.0, 700.0]))
        instances.append(Instance(name, lags=lags, restore_rate=rate))
    config = PlacementConfig(num_standby_replicas=data.draw(st.integers(0, 2)), acceptable_recovery_lag=1_000)
    cluster = Cluster.of(Problem(tasks, instances, config))
    rounds = settle(cluster, limit=300, watch=taskplace.check)
    assert not rounds[-1].plan.followup
    for _ in range(12):
        now = taskplace.plan(cluster.problem())
        assert not [m for m in now.moves if m.forced]
        found = verify(cluster.problem(), Plan(rounds[-1].plan.assignment, {}))
        assert all(v.invariant != "no-stall" for v in found)
        cluster.advance(300_000)
