"""When an instance can be removed, what must catch up elsewhere first, how long that takes, and what is stuck."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from taskplace.errors import InputError
from taskplace.explanation import Held, Removal, Seen, Stuck, Wait, can_remove
from taskplace.model.config import PlacementConfig
from taskplace.model.placement import any_caught
from taskplace.model.plan import Roles
from taskplace.model.problem import Instance, Problem, Task
from taskplace.model.schema import schema
from taskplace.planner import plan
from taskplace.simulation import Cluster
from taskplace.simulation.run import settle
from tests.support.scenarios import scenario
from topology.tasks import TaskId

A, B = TaskId(0, 0), TaskId(0, 1)
END = 50_000
ONE = (Task(A, end_offset=END),)
BOTH = (Task(A, end_offset=END), Task(B, end_offset=END))
HOLDS = Instance("a", active=(A, B), lags={A: 0, B: 0})
NONE_WAITS = "no task has to catch up elsewhere first"
DRAINS = "it drains, so they move with the next plans"


def removal(*instances: Instance, tasks: tuple[Task, ...] = ONE) -> Removal:
    return can_remove(Problem(tasks, instances), "a")


@pytest.mark.parametrize(
    ("instances", "tasks", "text"),
    [
        ([HOLDS, Instance("b", lags={A: 0, B: 3})], BOTH,
            f"no: it still has 2 active tasks; {NONE_WAITS}; drain it first"),
        # The same number of tasks, but not the same tasks.
        ([HOLDS, Instance("b", lags={A: 0})], BOTH,
            "no: 1 task must catch up elsewhere first: 0_1 (no other copy); drain it first"),
        ([HOLDS], BOTH, "no: there is no other instance that stays and can take work"),
        ([Instance("a", lags={A: 0, B: 3}), replace(HOLDS, id="b")], BOTH,
            "yes: it has no task, and no copy that the others lack"),
        ([Instance("a", active=(A,), lags={A: 0}, draining=True), Instance("b", lags={A: 0})], ONE,
            f"no: it still has 1 active task; {NONE_WAITS}; {DRAINS}"),
        ([Instance("a", lags={A: 0}, draining=True), Instance("b", active=(A,))], ONE,
            f"no: 1 task must catch up elsewhere first: 0_0 (b has read nothing yet); {DRAINS}"),
        ([Instance("a", active=(A,)), Instance("b", lags={A: 20_000})], ONE,
            "no: 1 task must catch up elsewhere first: 0_0 (b is 20,000 records behind); drain it first"),
    ],
)  # fmt: skip
def test_the_answer_in_words(instances: list[Instance], tasks: tuple[Task, ...], text: str) -> None:
    found = removal(*instances, tasks=tasks)
    assert (found.text, found.can_remove) == (text, text.startswith("yes"))
    assert found.safe == (NONE_WAITS in text or found.can_remove)


def test_an_unknown_instance_is_an_error() -> None:
    with pytest.raises(InputError, match="instance: found 'z'"):
        can_remove(Problem(BOTH, (HOLDS,)), "z")


@pytest.mark.parametrize("lag", [None, END, 20_000])
@pytest.mark.parametrize("mine", [{A: 0}, {A: 30_000}, {A: 10_001}])
@pytest.mark.parametrize("role", ["active", "standby", "warmup"])
def test_a_copy_that_lags_or_has_read_nothing_is_no_reason_to_go(lag: Any, mine: Any, role: str) -> None:
    b = Instance("b", standby=(A,), lags={} if lag is None else {A: lag})
    found = removal(Instance("a", lags=mine, **{role: (A,)}), b)  # type: ignore[arg-type]
    assert (found.can_remove, found.waits) == (False, (Wait(str(A), role, "b", lag),))


@pytest.mark.parametrize("leaving", [{"draining": True}, {"capacity": 0}])
def test_a_copy_on_an_instance_that_does_not_stay_does_not_count(leaving: dict[str, Any]) -> None:
    a, b = Instance("a", active=(A,), lags={A: 0}), Instance("b", standby=(A,), lags={A: 0}, **leaving)
    assert removal(a, b, Instance("c")).waits == (Wait(str(A), "active", None, None),)
    assert removal(a, b).alone
    assert removal(a, b, Instance("c", lags={A: 9})).safe


@pytest.mark.parametrize(
    ("mine", "other", "may"),
    [
        (20_000, {"active": (A,), "lags": {A: 20_000}}, True),
        (20_000, {"active": (A,), "lags": {A: 20_001}}, False),
        (20_000, {"active": (A,)}, False),
        (0, {"active": (A,), "lags": {A: 10_001}}, False),
        (0, {"active": (A,), "lags": {A: 10_000}}, True),
    ],
)
def test_a_copy_without_a_role_may_go_unless_it_is_the_best(mine: int, other: Any, may: bool) -> None:
    assert removal(Instance("a", lags={A: mine}), Instance("b", **other)).can_remove == may


@pytest.mark.parametrize("task", [Task(A, stateful=False), Task(A, logged=False, end_offset=9), Task(A)])
def test_tasks_that_need_no_copy_only_need_another_instance(task: Task) -> None:
    found = removal(Instance("a", active=(A,)), Instance("b"), tasks=(task,))
    assert found.safe and found.held == Held(active=1)
    assert not removal(Instance("a", active=(A,)), tasks=(task,)).safe


@pytest.mark.parametrize("seed", range(20))
def test_going_when_it_may_stalls_nobody_and_a_drained_instance_may_go(seed: int) -> None:
    s = scenario("several", seed, largest=0.5)
    cluster = Cluster.of(s.problem, restore_rate=300.0)
    for group in ((), *s.events):
        for event in group:
            event.apply(cluster)
        problem = cluster.problem()
        c = problem.columns
        for name in c.names:
            if len(c.names) > 1 and can_remove(problem, name).safe:
                rest = Problem(problem.tasks, [i for i in problem.instances if i.id != name], problem.config)
                hurt = any_caught(c) & ~any_caught(rest.columns) & c.stateful
                assert not hurt.any(), (s, name)
        settle(cluster, limit=300)
    name, *others = sorted(cluster.hosts)
    if any(cluster.hosts[other].capacity and not cluster.hosts[other].draining for other in others):
        cluster.drain(name)
        settle(cluster, limit=300)
        assert can_remove(cluster.problem(), name).can_remove


# -- how long it takes


def follower(rate: float | None, **more: Any) -> Instance:
    return Instance("b", standby=(A, B), lags={A: 11_000, B: 3_000}, restore_rate=rate, **more)


LAG = PlacementConfig(acceptable_recovery_lag=1_000)


@pytest.mark.parametrize(
    ("other", "known", "seconds"),
    [
        (follower(100.0), {}, 130.0),  # the copies take turns
        (follower(100.0), {"rates": {"b": 13.0}}, 1_000.0),
        (follower(100.0), {"rates": {"b": None}}, None),
        (follower(100.0), {"seen": {("b", A): Seen(7.0)}}, 130.0),
        (follower(100.0), {"seen": {("b", A): Seen(500.0)}}, 500.0),
        (follower(100.0), {"seen": {("b", A): Seen(None)}}, None),
        (follower(100.0), {"seen": {("b", A): Seen(7.0, stalled="its disk is full")}}, None),
        (follower(None), {}, None),
        (Instance("b", lags={A: 9_000, B: 9_000}, restore_rate=1e6), {}, None),  # they do not follow
    ],
)
def test_the_time_until_the_last_copy_has_caught_up(other: Instance, known: Any, seconds: Any) -> None:
    found = can_remove(Problem(BOTH, (HOLDS, other), LAG), "a", **known)
    assert (len(found.waits), found.seconds) == (2, seconds)
    assert ("which takes" in found.text) == (seconds is not None)


# -- copies that are stuck

TASKS = [TaskId(0, k) for k in range(6)]
CAUSE, REMEDY = "c cannot follow: CheckpointError: /x: damaged", "restore it from a backup"
STUCK = Seen(stalled=CAUSE, remedy=REMEDY)
EVERY = {("c", task): STUCK for task in TASKS}
CONFIG = PlacementConfig(num_standby_replicas=1, acceptable_recovery_lag=0, max_warmup_replicas=10)


def draining(a: Any = None, b: Any = None, c: Any = None) -> Problem:
    """`a` drains. `b` has a caught-up standby of each of its tasks, and `c` has joined with warm-ups of all tasks."""
    lags = dict.fromkeys(TASKS, 0)
    instances = [
        replace(Instance("a", active=TASKS[:3], standby=TASKS[3:], lags=lags, draining=True), **(a or {})),
        replace(Instance("b", active=TASKS[3:], standby=TASKS[:3], lags=lags), **(b or {})),
        replace(Instance("c", warmup=TASKS, lags=dict.fromkeys(TASKS, 100)), **(c or {})),
    ]
    return Problem([Task(task, end_offset=100) for task in TASKS], instances, CONFIG)


def test_a_drain_waits_for_the_target_although_a_standby_is_caught_up() -> None:
    found = plan(draining())
    assert set(found.target["c"].active) == set(TASKS[:3]), "balance: b has its share"
    assert set(found.assignment["a"].active) == set(TASKS[:3])
    assert plan(draining(c={"lags": dict.fromkeys(TASKS, 0)})).assignment["a"] == Roles()


def test_the_answer_names_the_copy_with_cause_and_remedy() -> None:
    seen = {("c", TASKS[4]): STUCK, ("c", TASKS[1]): Seen(remaining=3.0)}
    found = can_remove(draining(), "a", seen=seen)
    assert found.safe and found.stuck == (Stuck("0_4", "c", CAUSE, REMEDY),)
    has = f"no: it still has 3 active and 3 standby tasks; {NONE_WAITS}"
    assert found.text == f"{has}; it drains, but the copy of 0_4 on c is stuck: {CAUSE}; {REMEDY}"
    written = json.loads(json.dumps(found.to_dict()))
    jsonschema.validate(written, schema("removal"), cls=jsonschema.Draft202012Validator)
    assert written["stuck"] == [{"task": "0_4", "at": "c", "cause": CAUSE, "remedy": REMEDY}]
    several = f"6 copies that it waits for are stuck, such as that of 0_0 on c: {CAUSE}; {REMEDY}"
    assert can_remove(draining(), "a", seen=EVERY).text.endswith(f"but {several}")
    before = can_remove(draining(a={"draining": False}), "a", seen={("c", TASKS[0]): STUCK}).text
    assert before.endswith(f"; drain it first; the copy of 0_0 on c is stuck: {CAUSE}; {REMEDY}")


@pytest.mark.parametrize(
    ("problem", "target", "stuck"),
    [
        (draining(c={"lags": dict.fromkeys(TASKS, 0)}), None, []),  # caught up
        (draining(c={"draining": True}), None, []),
        (draining(a={"standby": ()}), None, ["0_0", "0_1", "0_2"]),  # it does not have the others
        # The target has given c up for some, and some only move their active.
        (draining(), {"b": Roles(active=TASKS[1:]), "c": Roles(TASKS[:1], (TASKS[1], TASKS[4]))}, ["0_0", "0_4"]),
        (draining(), {"b": Roles(active=TASKS)}, []),
    ],
)  # fmt: skip
def test_only_copies_that_the_drain_waits_for_are_named(
    problem: Problem, target: Any, stuck: list[str]
) -> None:
    assert [one.task for one in can_remove(problem, "a", seen=EVERY, target=target).stuck] == stuck


def test_before_a_drain_the_best_copy_elsewhere_is_named_if_it_is_stuck() -> None:
    late = {"standby": (), "lags": dict.fromkeys(TASKS[3:], 0)}
    problem, seen = draining(a={"draining": False}, b=late), {("c", TASKS[0]): STUCK}
    found = can_remove(problem, "a", seen=seen, target={"a": Roles(active=TASKS[:3])})
    assert [(wait.task, wait.at) for wait in found.waits] == [(str(task), "c") for task in TASKS[:3]]
    assert [one.task for one in found.stuck] == ["0_0"]
