"""Who is caught up: KIP-441's ranks and special cases."""

from __future__ import annotations

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.model.placement import FIXED, FORCED, OPEN, RESUME, bases
from taskplace.model.problem_columns import UNKNOWN

T = TaskId(0, 0)


def caught(task: Task, *instances: Instance, **config: object) -> dict[str, bool]:
    c = Problem([task], instances, PlacementConfig(**config)).columns  # type: ignore[arg-type]
    return {c.names[int(i)]: bool(ok) for i, ok in zip(c.inst, c.caught, strict=True)}


def test_caught_up_is_a_lag_of_at_most_the_acceptable_one() -> None:
    task = Task(T, end_offset=50_000)
    found = caught(task, *(Instance(str(lag), lags={T: lag}) for lag in (0, 10_000, 10_001)))
    assert found == {"0": True, "10000": True, "10001": False}


def test_a_role_without_a_copy_is_not_caught_up() -> None:
    assert caught(Task(T, end_offset=5), Instance("a", active=[T])) == {"a": False}


def test_an_empty_changelog_makes_everybody_caught_up() -> None:
    assert caught(Task(T, end_offset=0), Instance("a", active=[T])) == {"a": True}


def test_a_store_that_is_not_logged_makes_everybody_caught_up() -> None:
    assert caught(Task(T, end_offset=10**6, logged=False), Instance("a", active=[T])) == {"a": True}


def test_an_unknown_end_offset_leaves_lags_alone_and_helps_nobody_else() -> None:
    found = caught(
        Task(T, end_offset=None),
        Instance("a", lags={T: 10}),
        Instance("b", standby=[T]),
        Instance("c", lags={T: 10**9}),
    )
    assert found == {"a": True, "b": False, "c": False}


@pytest.mark.parametrize("order", [1, -1])
def test_an_end_offset_of_0_is_one_beside_others_that_are_unknown(order: int) -> None:
    tasks = [Task(TaskId(0, 0), end_offset=0), Task(TaskId(0, 1), end_offset=None)]
    columns = Problem(tasks[::order], [Instance("a"), Instance("b", standby=[TaskId(0, 0)])]).columns
    assert dict(zip(columns.ids, columns.end.tolist(), strict=True)) == {tasks[0].id: 0, tasks[1].id: UNKNOWN}


def test_a_copy_of_a_changelog_that_was_reset_is_no_copy() -> None:
    problem = Problem([Task(T, end_offset=500)], [Instance("a", lags={T: 700}), Instance("b", lags={T: 400})])
    plan = taskplace.plan(problem)
    assert plan.active(T) == "b"
    assert any("reset" in w and "0_0 on a" in w for w in plan.warnings)


def test_readiness_in_time_uses_the_measured_rate() -> None:
    task = Task(T, end_offset=10**7)
    instances = [
        Instance("fast", lags={T: 50_000}, restore_rate=100_000.0),
        Instance("slow", lags={T: 5_000}, restore_rate=100.0),
        Instance("unmeasured", lags={T: 5_000}),
    ]
    assert caught(task, *instances, acceptable_recovery_seconds=1.0) == {
        "fast": True,
        "slow": False,
        "unmeasured": True,  # offsets, where there is no rate
    }


@pytest.mark.parametrize(
    ("instances", "base"),
    [
        ([Instance("a", active=[T], lags={T: 0})], FIXED),
        ([Instance("a", active=[T], lags={T: 40_000})], FIXED),
        ([Instance("a", active=[T], lags={T: 40_000}), Instance("b", lags={T: 0})], FORCED),
        ([Instance("b", standby=[T], lags={T: 0})], FORCED),
        ([Instance("b", standby=[T], lags={T: 40_000})], RESUME),
        ([Instance("a", active=[T], lags={T: 40_000}), Instance("b", lags={T: 29_999})], RESUME),
        ([Instance("a", active=[T], lags={T: 40_000}), Instance("b", lags={T: 30_000})], FIXED),
        ([Instance("a", active=[T]), Instance("b", lags={T: 30_000})], RESUME),
        ([Instance("a", active=[T]), Instance("b", lags={T: 50_000})], FIXED),
        ([Instance("b", standby=[T], lags={T: 50_000})], OPEN),
        ([Instance("b")], OPEN),
    ],
)
def test_the_base_of_a_task(instances: list[Instance], base: int) -> None:
    c = Problem([Task(T, end_offset=50_000)], instances).columns
    assert bases(c).tolist() == [base]


def test_a_lead_counts_if_it_is_more_than_acceptable_and_than_a_tenth_of_what_is_lacking() -> None:
    for acceptable, ahead, base in (
        (0, 4_000, FIXED), (0, 4_001, RESUME), (4_000, 4_001, RESUME), (5_000, 5_000, FIXED), (5_000, 5_001, RESUME)
    ):  # fmt: skip
        instances = [Instance("a", active=[T], lags={T: 40_000}), Instance("b", lags={T: 40_000 - ahead})]
        config = PlacementConfig(acceptable_recovery_lag=acceptable)
        c = Problem([Task(T, end_offset=50_000)], instances, config).columns
        assert bases(c).tolist() == [base], (acceptable, ahead)


def test_copies_of_unknown_tasks_are_ignored_and_listed() -> None:
    gone = TaskId(9, 9)
    plan = taskplace.plan(Problem([Task(T)], [Instance("a", standby=[gone], lags={gone: 0})]))
    assert any("9_9 on a" in w and "cleaned up" in w for w in plan.warnings)
    assert all(gone not in role for roles in plan.assignment.values() for role in roles)


def test_of_two_owners_the_better_copy_counts() -> None:
    problem = Problem(
        [Task(T, end_offset=50_000)],
        [Instance("a", active=[T], lags={T: 50_000}), Instance("b", active=[T], lags={T: 0})],
    )
    plan = taskplace.plan(problem)
    assert plan.active(T) == "b"
    assert any("active twice" in w for w in plan.warnings)


def test_sparse_ids_are_found_as_well_as_dense_ones() -> None:
    far = [TaskId(0, 0), TaskId(1_000_000, 5), TaskId(2_000_000_000, 2_000_000_000)]
    problem = Problem(
        [Task(t, end_offset=9) for t in far], [Instance("a", active=far, lags=dict.fromkeys(far, 0))]
    )
    assert problem.columns.owner.tolist() == [0, 0, 0]
    assert taskplace.plan(problem).stable


def test_the_fingerprint_tells_problems_apart() -> None:
    base = Problem([Task(T, end_offset=5)], [Instance("a", lags={T: 3})])
    others = [
        Problem([Task(T, end_offset=6)], [Instance("a", lags={T: 3})]),
        Problem([Task(T, end_offset=5)], [Instance("a", lags={T: 4})]),
        Problem([Task(T, end_offset=5)], [Instance("b", lags={T: 3})]),
        Problem([Task(T, end_offset=5)], [Instance("a", lags={T: 3}, tags={"zone": "a"})]),
        Problem(
            [Task(T, end_offset=5)], [Instance("a", lags={T: 3})], PlacementConfig(max_warmup_replicas=3)
        ),
        Problem([Task(T, end_offset=5, stateful=False)], [Instance("a", lags={T: 3})]),
    ]
    prints = {p.fingerprint for p in (base, *others)}
    assert len(prints) == 1 + len(others)
