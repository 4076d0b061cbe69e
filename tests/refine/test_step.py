"""The step: grant now, or stage behind a warm-up; one test per rule."""

from __future__ import annotations

from typing import Any

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Task, TaskId
from taskplace.refine.step import _copies
from tests.support.steps import A, B, C, holds, place


def roles_of(plan: Plan, task: TaskId) -> dict[str, str]:
    return {
        name: role
        for name, roles in plan.assignment.items()
        for role in roles._fields
        if task in getattr(roles, role)
    }


def test_a_target_without_a_copy_warms_up_while_the_owner_goes_on() -> None:
    plan = place(holds("a", active=[A, B]), Instance("b"))
    moved = next(m.task for m in plan.moves)
    assert roles_of(plan, moved) == {"a": "active", "b": "warmup"}
    assert plan.followup
    assert [m.role for m in plan.moves] == ["warmup"]


def test_a_target_that_is_caught_up_takes_over_now() -> None:
    plan = place(holds("a", active=[A, B]), holds("b", warmup=[B]))
    assert roles_of(plan, B) == {"b": "active"}
    assert [(m.role, m.from_, m.to, m.why) for m in plan.moves] == [("active", "a", "b", "balance")]
    assert not plan.followup


def test_a_task_waits_for_its_place_on_an_instance_that_stays() -> None:
    # d and y have A's state, z is where it belongs: y has its share already, and d is about to go.
    plan = place(
        Instance("d", draining=True, lags={A: 0}), holds("y", active=[B, C], lags={A: 0}), Instance("z"),
        tasks=(A, B, C),
    )  # fmt: skip
    assert plan.target["z"].active == (A,)
    assert roles_of(plan, A) == {"y": "active", "z": "warmup"}


def test_what_is_kept_are_the_actives_that_stay_with_a_caught_up_owner() -> None:
    staying = place(holds("a", active=[A, B]), Instance("b"))
    assert staying.metrics["actives_kept"] == 2
    handing_over = place(holds("a", active=[A, B], lags={B: 30_000}), holds("b", standby=[B]))
    assert handing_over.metrics["actives_kept"] == 1
    starting = place(Instance("a"), Instance("b"))
    assert starting.metrics["actives_kept"] == 0


def test_a_target_has_no_warm_ups() -> None:
    plan = place(holds("a", active=[A, B]), Instance("b"))
    assert plan.followup
    assert [roles.warmup for roles in plan.target.values()] == [(), ()]
    assert sorted(len(roles.active) for roles in plan.target.values()) == [1, 1]


def test_missing_standbys_are_made_at_once_whatever_the_budget() -> None:
    tasks = tuple(TaskId(0, p) for p in range(6))
    plan = place(
        holds("a", active=tasks[:3]),
        holds("b", active=tasks[3:]),
        tasks=tasks,
        num_standby_replicas=1,
        max_warmup_replicas=1,
    )
    assert sum(len(r.standby) for r in plan.assignment.values()) == 6
    assert not plan.followup


def test_a_standby_moves_behind_a_warm_up() -> None:
    tasks = tuple(TaskId(0, p) for p in range(6))
    a = holds("a", active=tasks[:3], standby=tasks[3:])
    b = holds("b", active=tasks[3:], standby=tasks[:3])
    plan = place(a, b, Instance("c"), tasks=tasks, num_standby_replicas=1, max_warmup_replicas=2)
    assert sum(len(r.standby) for r in plan.assignment.values()) == 6
    assert len(plan.assignment["c"].warmup) == 2
    assert not plan.assignment["c"].standby
    assert len(plan.target["c"].standby) == 2


def test_a_warm_up_comes_from_whom_it_relieves() -> None:
    tasks = tuple(TaskId(0, p) for p in range(6))
    a = holds("a", active=tasks[:3], standby=tasks[3:])
    b = holds("b", active=tasks[3:], standby=tasks[:3])
    plan = place(a, b, Instance("c"), tasks=tasks, num_standby_replicas=1, max_warmup_replicas=4)
    runs = {t: name for name, r in plan.assignment.items() for t in r.active}
    follows = {t: name for name, r in plan.assignment.items() for t in r.standby}
    assert sorted((m.why, m.from_) for m in plan.moves) == sorted(
        (m.why, runs[m.task] if m.why == "balance" else follows[m.task]) for m in plan.moves
    )
    assert {m.why for m in plan.moves} == {"balance", "standby move"}


def test_warm_ups_of_two_standbys_relieve_one_each() -> None:
    held = {"lags": {A: 0}}
    plan = place(
        holds("a", active=[A]), Instance("b", standby=[A], draining=True, **held),
        Instance("c", standby=[A], draining=True, **held), Instance("d"), Instance("e"),
        tasks=(A,), num_standby_replicas=2,
    )  # fmt: skip
    assert sorted((m.role, m.from_, m.to) for m in plan.moves) == [("warmup", "b", "d"), ("warmup", "c", "e")]


def test_a_caught_up_standby_is_kept_until_its_successor_is() -> None:
    # c is where the standby belongs (b is draining), it exists there, but it lags: b stays beside it.
    a, b = holds("a", active=[A]), holds("b", standby=[A], draining=True)
    plan = place(a, b, holds("c", standby=[A], lags={A: 30_000}), tasks=(A,), num_standby_replicas=1)
    assert roles_of(plan, A) == {"a": "active", "b": "standby", "c": "standby"}
    assert plan.followup
    plan = place(a, b, holds("c", standby=[A]), tasks=(A,), num_standby_replicas=1)
    assert roles_of(plan, A) == {"a": "active", "c": "standby"}
    assert not plan.followup


def test_the_old_owner_keeps_the_copy_until_the_standby_has_moved() -> None:
    a = holds("a", active=[A], draining=True)
    plan = place(a, holds("b", standby=[A]), Instance("c"), tasks=(A,), num_standby_replicas=1)
    assert roles_of(plan, A) == {"a": "standby", "b": "active", "c": "warmup"}
    assert [m.why for m in plan.moves] == ["drain", "keeps its copy", "standby move"]


def test_a_draining_instance_serves_until_it_is_relieved_and_gets_nothing_new() -> None:
    plan = place(holds("a", active=[A, B], draining=True), Instance("b"), max_warmup_replicas=1)
    assert set(plan.assignment["a"].active) == {A, B}
    assert len(plan.assignment["b"].warmup) == 1
    assert plan.target["a"] == ((), (), ())
    assert {m.why for m in plan.moves} == {"drain"}


def test_more_standbys_by_configuration_are_made_at_once_and_fewer_dropped() -> None:
    a, b = holds("a", active=[A]), holds("b", active=[B])
    more = place(a, b, num_standby_replicas=1)
    assert roles_of(more, A) == {"a": "active", "b": "standby"}
    assert not more.followup
    fewer = place(holds("a", active=[A], standby=[B]), holds("b", active=[B], standby=[A]))
    assert roles_of(fewer, A) == {"a": "active"}
    assert not fewer.followup


def test_a_task_that_appears_starts_and_one_that_disappears_is_let_go() -> None:
    gone = TaskId(5, 0)
    plan = place(holds("a", active=[A], standby=[gone]), holds("b", active=[gone]))
    assert plan.active(B) == "b"
    assert any("do not exist" in w for w in plan.warnings)


def test_empty_changelogs_move_at_once() -> None:
    plan = place(holds("a", active=[A, B]), Instance("b"), end=0)
    assert sorted(len(r.active) for r in plan.assignment.values()) == [1, 1]
    assert not plan.followup


def test_only_tasks_that_differ_from_the_target_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a step costs what has changed, and not what there is."""
    decided: list[int] = []

    def noted(c: Any, target: Any, tasks: Any) -> Any:
        decided.extend(tasks.tolist())
        return _copies(c, target, tasks)

    monkeypatch.setattr("taskplace.refine.step._copies", noted)
    settled = holds("a", active=[A], standby=[B]), holds("b", active=[B], standby=[A])
    place(*settled, num_standby_replicas=1)
    assert decided == []
    place(settled[0], holds("b", active=[B]), num_standby_replicas=1)
    assert decided == [0], "A has no standby"


@pytest.mark.parametrize("leaving", ["b", "d"])
def test_of_two_standbys_that_stand_in_the_one_that_stays_is_kept(leaving: str) -> None:
    """The target wants a copy in the other zone, which has yet to be made."""
    t = TaskId(0, 0)
    zones = {"a": "1", "b": "1", "c": "2", "d": "1"}
    instances = [
        Instance("a", tags={"zone": "1"}, active=(t,), lags={t: 0}),
        Instance("c", tags={"zone": "2"}),
    ]
    instances += [
        Instance(name, tags={"zone": zones[name]}, standby=(t,), lags={t: 0}, draining=name == leaving)
        for name in "bd"
    ]
    config = PlacementConfig(num_standby_replicas=1, rack_aware_assignment_tags=("zone",))
    plan = taskplace.plan(Problem([Task(t, end_offset=50_000)], instances, config))
    assert plan.target["c"].standby == (t,)
    (stays,) = {"b", "d"} - {leaving}
    assert (plan.assignment[stays].standby, plan.assignment[leaving].standby) == ((t,), ())
