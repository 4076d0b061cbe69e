"""The loop and its timer, under a clock of the test: what the timer alone does, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.errors import InvalidPlan
from taskplace.rebalance import RebalanceLoop
from taskplace.rebalance.triggers import Trigger

A, B = TaskId(0, 0), TaskId(0, 1)
TASKS = [Task(A, end_offset=50_000), Task(B, end_offset=50_000)]
MINUTE = PlacementConfig(probing_rebalance_interval_ms=60_000)


def _moving(now: list[float]) -> tuple[RebalanceLoop, list[Instance]]:
    """A loop that warms up a copy on b, and the instances as they are then: b has not got anywhere yet."""
    loop = RebalanceLoop(MINUTE, clock=lambda: now[0])
    a = Instance("a", lags={A: 0, B: 0})
    assert loop.rebalance_if_needed(TASKS, [a])
    both = [a, Instance("b")]
    decision = loop.rebalance_if_needed(TASKS, both)
    assert decision is not None and decision.plan.followup
    return loop, both


def test_the_timer_alone_makes_the_next_plan_when_the_interval_is_over() -> None:
    now = [1_000.0]
    loop, both = _moving(now)
    now[0] += 59.9
    assert loop.rebalance_if_needed(TASKS, both) is None
    now[0] = 1_060.0
    decision = loop.rebalance_if_needed(TASKS, both)
    assert decision is not None
    assert [t.kind for t in decision.triggers] == ["probing"]
    assert (decision.changed, decision.generation) == (False, 2)


def test_each_plan_arms_the_timer_anew() -> None:
    now = [1_000.0]
    loop, both = _moving(now)
    now[0] = 1_100.0
    assert loop.rebalance_if_needed(TASKS, both)
    assert loop.rebalance_if_needed(TASKS, both) is None
    now[0] = 1_159.9
    assert loop.rebalance_if_needed(TASKS, both) is None
    now[0] = 1_160.0
    assert loop.rebalance_if_needed(TASKS, both)


def test_a_copy_that_stood_still_for_ten_intervals_is_parked_and_plans_between_them_do_not_count() -> None:
    now = [1_000.0]
    loop, both = _moving(now)
    assert loop.plan is not None
    (stuck,) = loop.plan.assignment["b"].warmup
    looks = 0
    while stuck in loop.plan.assignment["b"].warmup:
        now[0] += 60.0
        looks += 1
        assert loop.rebalance_if_needed(TASKS, both)
        assert loop.rebalance_if_needed(TASKS, both, because=[Trigger("asked", "by a test")])
        assert looks < 20
    assert looks == 11  # the first one sees where it stands


def test_the_timer_is_silent_once_nothing_is_pending() -> None:
    now = [1_000.0]
    loop, both = _moving(now)
    assert loop.plan is not None
    (warm,) = loop.plan.assignment["b"].warmup
    ready = [both[0], Instance("b", lags={warm: 0})]
    decision = loop.rebalance_if_needed(TASKS, ready)
    assert decision is not None and [t.kind for t in decision.triggers] == ["caught up"]
    assert not decision.plan.followup
    now[0] += 10_000.0
    assert loop.rebalance_if_needed(TASKS, ready) is None


def test_the_first_plan_has_its_reason() -> None:
    decision = RebalanceLoop(MINUTE, clock=lambda: 0.0).rebalance_if_needed(TASKS, [Instance("a")])
    assert decision is not None and decision.reason == "start: 2 tasks on 1 instance"


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ([Instance("a")], "membership: b left"),
        ([Instance("a"), Instance("b"), Instance("c")], "membership: c joined"),
        ([Instance("a", capacity=2), Instance("b")], "membership: a changed its capacity or tags"),
        ([Instance("a"), Instance("b", tags={"zone": "z"})], "membership: b changed its capacity or tags"),
        ([Instance("a"), Instance("b", draining=True)], "drain: b drains"),
    ],
)
def test_each_change_of_the_instances_has_its_reason(now: list[Instance], reason: str) -> None:
    loop = RebalanceLoop(MINUTE, clock=lambda: 0.0)
    assert loop.rebalance_if_needed(TASKS, [Instance("a"), Instance("b")])
    lags = {t.id: 0 for t in TASKS}
    decision = loop.rebalance_if_needed(TASKS, [replace(i, lags=lags) for i in now])
    assert decision is not None and decision.reason == reason


def test_a_copy_that_has_caught_up_in_vain_is_a_reason_only_once() -> None:
    def stubborn(problem: Problem) -> taskplace.Plan:
        """Never finish a move."""
        away = [replace(i, lags={t: n for t, n in i.lags.items() if i.id == "a"}) for i in problem.instances]
        return taskplace.plan(Problem(problem.tasks, away, problem.config))

    loop = RebalanceLoop(MINUTE, clock=lambda: 0.0, planner=stubborn)
    a = Instance("a", lags={A: 0, B: 0})
    assert loop.rebalance_if_needed(TASKS, [a]) and loop.rebalance_if_needed(TASKS, [a, Instance("b")])
    assert loop.plan is not None
    ready = [a, Instance("b", lags=dict.fromkeys(loop.plan.assignment["b"].warmup, 0))]
    decision = loop.rebalance_if_needed(TASKS, ready)
    assert decision is not None and not decision.changed
    assert [t.kind for t in decision.triggers] == ["caught up"]
    assert loop.rebalance_if_needed(TASKS, ready) is None


@pytest.fixture
def failing() -> tuple[RebalanceLoop, list[float], list[int]]:
    """A loop, its clock, and how many of its next plans are invalid."""
    now, left = [1_000.0], [0]

    def planner(problem: Problem) -> taskplace.Plan:
        if left[0]:
            left[0] -= 1
            raise InvalidPlan("once: 1 of 2 tasks is not active")
        return taskplace.plan(problem)

    return RebalanceLoop(MINUTE, planner=planner, clock=lambda: now[0]), now, left


def test_an_invalid_plan_leaves_the_one_in_force_says_so_and_is_made_again_after_the_interval(
    failing: tuple[RebalanceLoop, list[float], list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    loop, now, left = failing
    settled = [Instance(name, lags={A: 0, B: 0}) for name in "ab"]
    assert loop.rebalance_if_needed(TASKS, settled)
    assert loop.rebalance_if_needed(TASKS, settled) is None
    assert loop.plan is not None and loop.problem is not None
    assert loop.problem.columns.fingerprint == loop.plan.fingerprint
    before, left[0] = (loop.plan, loop.problem, loop.generation), 1
    assert (
        loop.rebalance_if_needed(TASKS, [*settled, Instance("c")], because=[Trigger("asked", "for a test")])
        is None
    )
    assert (loop.plan, loop.problem, loop.generation) == before
    (record,) = caplog.records
    assert record.levelname == "ERROR" and "once: 1 of 2 tasks is not active" in record.getMessage()
    assert not loop.probing.due()
    now[0] += 60
    assert loop.probing.due()
    decision = loop.rebalance_if_needed(TASKS, [*settled, Instance("c")])
    assert decision is not None and decision.plan is loop.plan
    assert "the plan is valid again (after 1 failure since " in caplog.text


def test_without_a_plan_in_force_an_invalid_one_is_raised(
    failing: tuple[RebalanceLoop, list[float], list[int]],
) -> None:
    loop, _, left = failing
    left[0] = 1
    with pytest.raises(InvalidPlan, match="not active"):
        loop.rebalance_if_needed(TASKS, [Instance("a")])
    assert (loop.plan, loop.problem) == (None, None) and loop.rebalance_if_needed(TASKS, [Instance("a")])
