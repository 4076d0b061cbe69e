"""The budget of warm-ups: never more than allowed, and which go first."""

from __future__ import annotations

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.refine.step import Want, within_budget
from tests.support.steps import A, B, C, D, holds, place


def test_never_more_warm_ups_than_allowed_and_the_cheapest_first() -> None:
    tasks = tuple(TaskId(0, p) for p in range(8))
    a = holds("a", active=tasks)
    b = holds("b", lags={tasks[k]: 20_000 + k for k in (5, 6, 7)})
    plan = place(a, b, tasks=tasks, max_warmup_replicas=2)
    assert plan.assignment["b"].warmup == (tasks[5], tasks[6])
    assert plan.metrics["warmups_waiting"] == 2
    assert plan.metrics["copies_to_warm"] == 4


def test_of_copies_from_nothing_the_shortest_changelog_goes_first() -> None:
    ends = {A: 90_000, B: 80_000, C: 70_000, D: 60_000}
    tasks = [Task(t, end_offset=end) for t, end in ends.items()]
    problem = Problem(
        tasks, [holds("a", active=list(ends)), Instance("b")], PlacementConfig(max_warmup_replicas=4)
    )
    wanted = {m.task for m in taskplace.plan(problem).moves}
    one = Problem(tasks, problem.instances, PlacementConfig(max_warmup_replicas=1))
    assert len(wanted) == 2
    assert taskplace.plan(one).assignment["b"].warmup == (min(wanted, key=ends.__getitem__),)


def test_a_copy_from_nothing_of_unknown_length_goes_last() -> None:
    ends = {A: None, B: None, TaskId(1, 0): 90_000, TaskId(1, 1): 90_000}
    tasks = [Task(t, end_offset=end) for t, end in ends.items()]
    instances = [holds("a", active=list(ends)), Instance("c")]
    moves = taskplace.plan(Problem(tasks, instances, PlacementConfig(max_warmup_replicas=4))).moves
    assert {ends[m.task] for m in moves} == {None, 90_000}
    one = Problem(tasks, instances, PlacementConfig(max_warmup_replicas=1))
    (first,) = taskplace.plan(one).assignment["c"].warmup
    assert ends[first] == 90_000


def test_a_warm_up_under_way_is_kept_whatever_else_is_cheaper() -> None:
    tasks = tuple(TaskId(0, p) for p in range(4))
    a = holds("a", active=tasks)
    b = holds("b", warmup=[tasks[3]], lags={tasks[3]: 49_999, tasks[0]: 10_001, tasks[1]: 10_001})
    plan = place(a, b, tasks=tasks, max_warmup_replicas=1)
    assert plan.assignment["b"].warmup == (tasks[3],)


def test_the_budget_puts_work_under_way_first_then_drains_then_actives_then_the_cheapest() -> None:
    def want(task: int, **fields: object) -> Want:
        base = {"under_way": False, "drains": False, "for_active": True, "behind": 5, "task": task, "inst": 0}
        return Want(**{**base, "origin": 1, **fields})  # type: ignore[arg-type]

    wants = [
        want(0, behind=3),
        want(1, for_active=False, behind=1),
        want(2, drains=True, behind=99),
        want(3, under_way=True, behind=100),
        want(4, behind=2),
    ]
    begun, waiting = within_budget(wants, 4)
    assert [w.task for w in begun] == [3, 2, 4, 0]
    assert [w.task for w in waiting] == [1]
