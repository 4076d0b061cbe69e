"""A drain waits for copies at the target, also for those that are stuck; the answer names them."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from taskplace.explanation import Seen, Stuck, can_remove
from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Roles
from taskplace.model.problem import Instance, Problem, Task
from taskplace.model.schema import schema
from taskplace.planner import plan
from topology import TaskId

TASKS = [TaskId(0, k) for k in range(6)]
CAUSE, REMEDY = "c cannot follow: CheckpointError: /x: damaged", "restore it from a backup"
CONFIG = PlacementConfig(num_standby_replicas=1, acceptable_recovery_lag=0, max_warmup_replicas=10)


@pytest.fixture
def draining() -> Problem:
    """`a` drains. `b` has a caught-up standby of each of its tasks, and `c` has joined with warm-ups of all tasks."""
    lags = dict.fromkeys(TASKS, 0)
    a = Instance("a", active=TASKS[:3], standby=TASKS[3:], lags=lags, draining=True)
    b = Instance("b", active=TASKS[3:], standby=TASKS[:3], lags=lags)
    c = Instance("c", warmup=TASKS, lags=dict.fromkeys(TASKS, 100))
    return Problem([Task(task, end_offset=100) for task in TASKS], [a, b, c], CONFIG)


def test_a_drain_waits_for_the_target_although_a_standby_is_caught_up(draining: Problem) -> None:
    found = plan(draining)
    assert set(found.target["c"].active) == set(TASKS[:3]), "balance: b has its share"
    assert set(found.assignment["a"].active) == set(TASKS[:3])
    assert set(found.assignment["a"].standby) == set(TASKS[3:])
    behind, caught = draining.instances[-1], dict.fromkeys(TASKS, 0)
    done = plan(Problem(draining.tasks, [*draining.instances[:2], replace(behind, lags=caught)], CONFIG))
    assert done.assignment["a"] == Roles()


def test_the_answer_names_the_copy_with_cause_and_remedy(draining: Problem) -> None:
    assert can_remove(draining, "a").text.endswith("; it drains, so they move with the next plans")
    seen = {("c", TASKS[4]): Seen(stalled=CAUSE, remedy=REMEDY), ("c", TASKS[1]): Seen(remaining=3.0)}
    found = can_remove(draining, "a", seen=seen)
    assert found.safe and found.stuck == (Stuck("0_4", "c", CAUSE, REMEDY),)
    assert found.text == (
        "no: it still has 3 active and 3 standby tasks; no task has to catch up elsewhere first; it "
        f"drains, but the copy of 0_4 on c is stuck: {CAUSE}; {REMEDY}"
    )
    written = json.loads(json.dumps(found.to_dict()))
    jsonschema.validate(written, schema("removal"), cls=jsonschema.Draft202012Validator)
    assert written["stuck"] == [{"task": "0_4", "at": "c", "cause": CAUSE, "remedy": REMEDY}]


def test_several_stuck_copies_are_counted_and_one_is_named(draining: Problem) -> None:
    seen = {("c", task): Seen(stalled=CAUSE, remedy=REMEDY) for task in TASKS}
    text = can_remove(draining, "a", seen=seen).text
    assert text.endswith(
        f"but 6 copies that it waits for are stuck, such as that of 0_0 on c: {CAUSE}; {REMEDY}"
    )


def test_a_copy_that_nothing_waits_for_is_not_named(draining: Problem) -> None:
    """One that is caught up, one on another instance that drains, and one whose task the instance does not have."""
    a, b, c = draining.instances
    caught = replace(c, lags=dict.fromkeys(TASKS, 0))
    stuck = Seen(stalled=CAUSE, remedy=REMEDY)
    every = {("c", task): stuck for task in TASKS}
    assert can_remove(Problem(draining.tasks, [a, b, caught], CONFIG), "a", seen=every).stuck == ()
    leaves = Problem(draining.tasks, [a, b, replace(c, draining=True)], CONFIG)
    assert can_remove(leaves, "a", seen=every).stuck == ()
    fewer = Problem(draining.tasks, [replace(a, standby=()), b, c], CONFIG)
    assert {one.task for one in can_remove(fewer, "a", seen=every).stuck} == {"0_0", "0_1", "0_2"}


def test_before_a_drain_it_is_said_what_would_keep_it(draining: Problem) -> None:
    a, b, c = draining.instances
    problem = Problem(draining.tasks, [replace(a, draining=False), b, c], CONFIG)
    seen = {("c", TASKS[0]): Seen(stalled=CAUSE, remedy=REMEDY)}
    text = can_remove(problem, "a", seen=seen).text
    assert text.endswith(f"; drain it first; the copy of 0_0 on c is stuck: {CAUSE}; {REMEDY}")


def test_a_drain_does_not_wait_for_copies_that_are_not_in_the_target(draining: Problem) -> None:
    """One on an instance that the target has given up, and a standby of a task that only moves its active."""
    stuck = Seen(stalled=CAUSE, remedy=REMEDY)
    every = {("c", task): stuck for task in TASKS}
    target = {
        "a": Roles(),
        "b": Roles(active=TASKS[1:]),
        "c": Roles(active=TASKS[:1], standby=(TASKS[1], TASKS[4])),
    }
    found = can_remove(draining, "a", seen=every, target=target)
    assert [one.task for one in found.stuck] == ["0_0", "0_4"]
    assert can_remove(draining, "a", seen=every, target={"b": Roles(active=TASKS)}).text.endswith(
        "; it drains, so they move with the next plans"
    )


def test_before_a_drain_the_best_copy_elsewhere_is_named_if_it_is_stuck(draining: Problem) -> None:
    a, b, c = draining.instances
    stays = replace(a, draining=False)
    late = replace(b, standby=(), lags=dict.fromkeys(TASKS[3:], 0))
    problem = Problem(draining.tasks, [stays, late, c], CONFIG)
    seen = {("c", TASKS[0]): Seen(stalled=CAUSE, remedy=REMEDY)}
    found = can_remove(problem, "a", seen=seen, target={"a": Roles(active=TASKS[:3])})
    assert [(wait.task, wait.at) for wait in found.waits] == [(str(task), "c") for task in TASKS[:3]]
    assert [one.task for one in found.stuck] == ["0_0"]
