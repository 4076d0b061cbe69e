"""Parked copies that are released: they are planned again, at the next rebalance."""

from __future__ import annotations

from taskplace import Instance, PlacementConfig, Task, TaskId
from taskplace.rebalance import RebalanceLoop

A, B = TaskId(0, 0), TaskId(0, 1)
TASKS = [Task(A, end_offset=50_000), Task(B, end_offset=50_000)]
BOTH = [Instance("a", lags={A: 0, B: 0}), Instance("b")]


def _parked() -> RebalanceLoop:
    """Return a loop in which no copy on b has made progress, so that both are parked."""
    now = [1_000.0]
    config = PlacementConfig(probing_rebalance_interval_ms=60_000)
    loop = RebalanceLoop(config, patience=1, clock=lambda: now[0])
    assert loop.rebalance_if_needed(TASKS, BOTH[:1]) and loop.rebalance_if_needed(TASKS, BOTH)
    for _ in range(4):
        now[0] += 60.0
        loop.rebalance_if_needed(TASKS, BOTH)
    assert _warmups(loop) == ()
    return loop


def _warmups(loop: RebalanceLoop) -> tuple[TaskId, ...]:
    assert loop.plan is not None
    return loop.plan.assignment["b"].warmup


def test_released_copies_warm_up_again_without_waiting_for_the_timer() -> None:
    loop = _parked()
    assert loop.rebalance_if_needed(TASKS, BOTH) is None
    assert loop.release("b") == (("b", A), ("b", B))
    decision = loop.rebalance_if_needed(TASKS, BOTH)
    assert decision is not None and decision.changed
    assert decision.reason == "released: 0_0 on b, 0_1 on b"
    assert len(_warmups(loop)) == 1
    assert not any("parked" in warning for warning in decision.plan.warnings)
    assert loop.rebalance_if_needed(TASKS, BOTH) is None, "one plan for one release"


def test_without_a_parked_copy_on_an_instance_nothing_happens() -> None:
    loop = _parked()
    assert loop.release("a") == ()
    assert loop.rebalance_if_needed(TASKS, BOTH) is None
    assert loop.release() == (("b", A), ("b", B))
    assert loop.release() == ()


def test_the_warning_says_how_to_release() -> None:
    plan = _parked().plan
    assert plan is not None
    (warning,) = (text for text in plan.warnings if "copies are parked" in text)
    assert "0_0 on b, 0_1 on b" in warning and "call `release`" in warning
