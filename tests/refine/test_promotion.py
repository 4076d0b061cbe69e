"""Promotions: who takes over when the owner is gone, lags, or no copy is caught up; level for now."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.model.plan import Optimality
from taskplace.refine.step import _level
from tests.support.steps import END, A, B, C, D, holds, place


def test_nobody_has_a_copy_so_the_target_starts_now() -> None:
    plan = place(Instance("a", active=[A, B], lags={A: END}), Instance("b"))
    assert sorted(len(r.active) for r in plan.assignment.values()) == [1, 1]
    assert not plan.followup


def test_nobody_is_caught_up_so_the_one_that_lacks_least_goes_on() -> None:
    # Else b would start from nothing, fall behind a's copy, and give the task back as soon as a has caught up.
    plan = place(holds("a", active=[A, B], lags={A: 20_000, B: 20_000}), Instance("b"))
    assert set(plan.assignment["a"].active) == {A, B}
    assert len(plan.assignment["b"].warmup) == 1


def test_a_restart_resumes_with_the_copies_that_lack_least() -> None:
    plan = place(Instance("a", lags={A: 30_000, B: 20_000}), Instance("b", lags={A: 20_000}), Instance("c"))
    assert (plan.active(A), plan.active(B)) == ("b", "a")
    assert plan.optimality.forced_promotions == 0
    assert {m.why for m in plan.moves} == {"start, with the copy that lacks least"}
    assert not plan.followup


def test_an_owner_that_lacks_far_more_than_another_hands_over_which_is_counted() -> None:
    plan = place(
        Instance("a", active=[A], lags={A: 30_001}), Instance("b", standby=[A], lags={A: 20_000}), tasks=(A,)
    )
    assert plan.active(A) == "b"
    assert [str(m) for m in plan.moves] == [
        "0_0: b takes over from a (no copy is caught up, and the owner lacks far more)"
    ]
    assert plan.optimality == Optimality(0, 0, 1)


def test_an_owner_stays_while_another_is_ahead_by_no_more_than_is_acceptable() -> None:
    plan = place(
        Instance("a", active=[A], lags={A: 30_000}), Instance("b", standby=[A], lags={A: 20_000}), tasks=(A,),
        num_standby_replicas=1,
    )  # fmt: skip
    assert (plan.moves, plan.followup) == ((), True)  # nothing changes, but b may be ready first


@pytest.mark.parametrize("acceptable", [0, 1_000])
@pytest.mark.parametrize("seed", range(5))
def test_copies_that_catch_up_side_by_side_do_not_hand_the_task_to_and_fro(
    acceptable: int, seed: int
) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    lags = {"a": END, "b": END - 10}
    owner, handed = "a", 0
    while min(lags.values()) > acceptable:
        other = "b" if owner == "a" else "a"
        plan = place(
            Instance(owner, active=[A], lags={A: lags[owner]}),
            Instance(other, standby=[A], lags={A: lags[other]}),
            tasks=(A,), num_standby_replicas=1, acceptable_recovery_lag=acceptable,
        )  # fmt: skip
        handed += plan.active(A) != owner
        assert plan.optimality.forced_promotions == (plan.active(A) != owner)
        owner = plan.active(A)
        lags = {name: max(0, lag - rng.randint(500, 1_000)) for name, lag in lags.items()}
    assert handed <= 3  # if every lead counted, it would be up to 9 times


def test_a_standby_is_promoted_when_the_owner_is_gone() -> None:
    plan = place(holds("a", active=[A]), holds("b", standby=[A, B]), num_standby_replicas=1)
    assert plan.active(B) == "b"
    assert plan.optimality.forced_promotions == 1
    assert next((m.role, m.from_, m.forced) for m in plan.moves if m.task == B) == ("promotion", None, True)


def test_a_standby_is_promoted_when_the_owner_lags() -> None:
    plan = place(holds("a", active=[A, B], lags={B: 30_000}), holds("b", standby=[B]))
    assert plan.active(B) == "b"
    assert [(m.from_, m.why) for m in plan.moves if m.role == "promotion"] == [("a", "the owner lags")]


def test_a_forced_promotion_chooses_the_copy_that_need_not_move_again() -> None:
    # Both b and c could take the three tasks over; only two each are balanced.
    lost = (A, B, C, D)
    plan = place(holds("b", standby=lost), holds("c", standby=[D, C]), tasks=lost)
    assert plan.optimality.moves == 0
    assert {len(r.active) for r in plan.assignment.values()} == {2}
    assert not plan.followup


def test_promotions_for_the_time_being_are_spread_over_the_standbys() -> None:
    """Six tasks lose their owner. d, just come, is to have some; until it is caught up, b and c share the work."""
    tasks = [TaskId(0, p) for p in range(6)]
    lags = dict.fromkeys(tasks, 0)
    b, c = (Instance(name, standby=tasks, lags=lags) for name in "bc")
    config = PlacementConfig(num_standby_replicas=2, max_warmup_replicas=9, acceptable_recovery_lag=10)
    problem = Problem([Task(t, end_offset=END) for t in tasks], [b, c, Instance("d"), Instance("e")], config)
    plan = taskplace.check(problem, taskplace.plan(problem))
    assert [len(r.active) for r in plan.assignment.values()] == [3, 3, 0, 0]
    assert plan.optimality.forced_promotions == 6


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4).flatmap(
        lambda room: st.tuples(
            st.just(room),
            st.lists(st.integers(0, 5), min_size=len(room), max_size=len(room)),
            st.lists(
                st.lists(st.integers(0, len(room) - 1), min_size=1, unique=True), min_size=1, max_size=6
            ),
        )
    )
)
def test_no_choice_of_copies_to_promote_is_more_level(
    drawn: tuple[list[int], list[int], list[list[int]]],
) -> None:
    """Against all choices: the sum of actives^2 / capacity, to a thousandth of a task."""
    room, load, options = drawn
    c = Problem([], [Instance(f"i{k}", r) for k, r in enumerate(room)]).columns

    def uneven(chosen: Sequence[int]) -> float:
        counts = np.array(load) + np.bincount(list(chosen), minlength=len(room))
        return float((counts**2 / np.array(room)).sum())

    mine = _level(c, options, np.array(load))
    assert all(i in of for i, of in zip(mine, options, strict=True))
    assert uneven(mine) <= min(map(uneven, product(*options))) + len(options) / 1000
    assert mine == _level(c, options, np.array(load))


def test_of_equally_level_choices_the_least_lag_is_promoted() -> None:
    c = Problem([], [Instance("a"), Instance("b")]).columns
    assert _level(c, [[1, 0]], np.array([2, 2])) == [1]
    assert _level(c, [[0, 1]], np.array([2, 2])) == [0]
    assert _level(c, [[1, 0]], np.array([1, 2])) == [0]


def test_of_many_choices_the_most_level_one_is_promoted_however_much_it_lags() -> None:
    """The first choice is the least step of a load from the last one, which is the most level."""
    room = [512, *[256] * 8, 1024]
    c = Problem([], [Instance(f"i{k}", r) for k, r in enumerate(room)]).columns
    assert _level(c, [list(range(10))], np.zeros(10, np.int64)) == [9]


def test_a_problem_too_large_for_ties_is_levelled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Problem([], [Instance("a"), Instance("b")]).columns
    for budget in (1 << 14, 1 << 8):
        monkeypatch.setattr("taskplace.refine.step.cost_budget", lambda nodes, budget=budget: budget)
        assert sorted(_level(c, [[0, 1]] * 6, np.array([4, 0]))) == [0] + [1] * 5
