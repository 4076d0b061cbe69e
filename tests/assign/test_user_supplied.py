"""Custom assignors: found by name or entry point; they decide the target, and a bad answer stops nothing."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Roles, Task, TaskId
from taskplace.errors import ConfigError
from taskplace.simulation import Cluster, Event
from taskplace.simulation.run import settle
from tests.support.scenarios import KINDS, scenario
from tests.support.stateful_tasks import configured, ids, rests, stateful


@pytest.fixture
def module(monkeypatch):
    found = types.ModuleType("own_assignors")
    monkeypatch.setitem(sys.modules, "own_assignors", found)
    return found


def by_turns(problem: Problem) -> Mapping[str, Roles]:
    """Actives in turn, standbys on the next instance."""
    names = [i.id for i in problem.instances]
    roles: dict[str, tuple[list[TaskId], list[TaskId]]] = {n: ([], []) for n in names}
    for k, t in enumerate(problem.tasks):
        roles[names[k % len(names)]][0].append(t.id)
        for s in range(problem.config.num_standby_replicas if t.stateful else 0):
            roles[names[(k + 1 + s) % len(names)]][1].append(t.id)
    return {n: Roles(tuple(a), tuple(b)) for n, (a, b) in roles.items()}


def own_problem(standbys: int = 1) -> Problem:
    tasks = stateful(*ids(0, 4))
    config = PlacementConfig(task_assignor_class="own_assignors:chosen", num_standby_replicas=standbys)
    ran = Instance("a", active=ids(0, 4), lags=dict.fromkeys(ids(0, 4), 0))
    other = Instance("b", standby=ids(0, 4), lags=dict.fromkeys(ids(0, 4), 0))
    return Problem(tasks, (ran, other, Instance("c")), config)


class ByTurns:
    def assign(self, problem: Problem) -> Mapping[str, Roles]:
        return by_turns(problem)


@pytest.mark.parametrize("chosen", [by_turns, ByTurns, ByTurns()])
def test_an_own_assignor_decides_the_target_and_the_refiner_how(module, chosen):
    module.chosen = chosen
    problem = own_problem()
    plan = taskplace.plan(problem)
    wanted = by_turns(problem)
    assert {n: (r.active, r.standby) for n, r in plan.target.items()} == {
        n: (r.active, tuple(sorted(r.standby))) for n, r in wanted.items()
    }
    assert plan.followup
    cluster = Cluster.of(problem)
    rounds = settle(cluster, limit=30, watch=taskplace.check)
    assert rounds[-1].plan.assignment == rounds[-1].plan.target
    assert not rounds[-1].plan.followup


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "it returned NoneType"),
        ({"z": Roles()}, "'z' is not an instance"),
        ({"a": Roles((TaskId(9, 9),))}, "9_9 is not a task"),
        ({"a": Roles(tuple(ids(0, 3)))}, "1 tasks have no active copy, e.g. 0_3"),
        ({"a": Roles(tuple(ids(0, 4))), "b": Roles(tuple(ids(0, 1)))}, "0_0 is active twice"),
        ({"a": Roles(tuple(ids(0, 4)), tuple(ids(0, 1)))}, "0_0 is active and standby on a"),
        ({"a": Roles(tuple(ids(0, 4)))}, "4 tasks have fewer than 1 standbys"),
        ({"a": Roles((), tuple(ids(0, 1)))}, "4 tasks have no active copy"),
        ({"a": {"active": ["0_0", "0-1"]}}, "0-1 is not a task"),
        ({"a": {"active": "0_0"}}, "a gets '0_0' as active, expected a list of tasks"),
        ({"a": {"active": [3]}}, "3 is not a task"),
        ({"a": {"actives": []}}, "a gets the role 'actives', expected 'active' or 'standby'"),
        ({"a": ["0_0"]}, "a gets list, expected Roles or a dict"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)  # fmt: skip
def test_after_a_bad_answer_the_built_in_target_is_used_and_the_plan_says_why(module, answer, why):
    def chosen(problem):
        if isinstance(answer, BaseException):
            raise answer
        return answer

    module.chosen = chosen
    problem = own_problem()
    plan = taskplace.plan(problem)
    built_in = taskplace.plan(configured(problem, task__assignor__class="high_availability"))
    assert (plan.assignment, plan.target) == (built_in.assignment, built_in.target)
    warning = next(w for w in plan.warnings if "own_assignors:chosen" in w)
    assert why in warning and "high_availability is used" in warning


def test_beside_an_own_assignor_the_bound_is_the_flows(module):
    module.chosen = by_turns
    for assignor, moves in (("own_assignors:chosen", 2), ("sticky", 2)):
        o = taskplace.plan(configured(own_problem(), task__assignor__class=assignor)).optimality
        assert (o.moves, o.lower_bound) == (moves, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_an_assignor_that_fails_all_the_time_stops_nothing(module, kind, seed):
    def chosen(problem):
        raise RuntimeError("never")

    module.chosen = chosen
    s = scenario(kind, seed, largest=0.5)
    cluster = Cluster.of(configured(s.problem, task__assignor__class="own_assignors:chosen"))
    for plan in rests(cluster, *s.events):
        assert "RuntimeError: never" in " ".join(plan.warnings)


@pytest.mark.parametrize("role", ["active", "standby"])
def test_an_answer_that_wants_a_parked_copy_is_not_followed_and_planning_ends(module, role):
    t = ids(0, 1)[0]

    def chosen(problem):
        other = "standby" if role == "active" else "active"
        if any(i.id == "bad" for i in problem.instances):
            return {"bad": {role: [t]}, "a": {other: [t]}}
        return {"a": {"active": [t]}, "b": {"standby": [t]}}

    module.chosen = chosen
    config = PlacementConfig(task_assignor_class="own_assignors:chosen", num_standby_replicas=1)
    cluster = Cluster(stateful(t), config)
    for name in ("a", "b"):
        cluster.add(name)
    settle(cluster)
    events = [Event("add", "bad"), Event("stick", "bad", {"task": str(t)})]
    plan = settle(cluster, events, limit=60, watch=taskplace.check)[-1].plan
    assert not plan.followup
    assert plan.active(t) == "a"
    assert "0_0 is assigned to bad, where its copy is parked" in str(plan.warnings)


@pytest.mark.parametrize("error", [ZeroDivisionError("no"), SystemExit(4), SystemExit()])
@pytest.mark.parametrize("place", ["constructor", "module", "entry point"])
def test_an_assignor_that_cannot_be_made_is_one_configuration_error(
    module, error, place, monkeypatch, tmp_path
):
    def fail(*_):
        raise error

    name = "own_assignors:chosen"
    if place == "constructor":
        module.chosen = type("Chosen", (), {"__init__": fail})
    elif place == "module":
        code = f"raise {type(error).__name__}({error.args[0]!r})" if error.args else "raise SystemExit"
        (tmp_path / "broken_assignor.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
        name = "broken_assignor:chosen"
    else:
        name = "theirs"
        point = types.SimpleNamespace(load=fail)
        monkeypatch.setattr("taskplace.assign.registry.entry_points", lambda **_: (point,))
    problem = Problem(stateful(TaskId(0, 0)), (Instance("a"),), PlacementConfig(task_assignor_class=name))
    with pytest.raises(
        ConfigError, match=rf"config\.task\.assignor\.class: found '{name}'.*{type(error).__name__}"
    ):
        taskplace.plan(problem)


MODULE = """
def first_takes_all(problem):
    name = min(i.id for i in problem.instances)
    return {name: {"active": [str(t.id) for t in problem.tasks], "standby": []}}
"""


def _problem(assignor: str) -> dict[str, object]:
    return {
        "config": {"task.assignor.class": assignor},
        "tasks": [{"id": f"0_{p}"} for p in range(4)],
        "instances": [{"id": "a"}, {"id": "b"}],
    }


@pytest.fixture
def installed(tmp_path, monkeypatch):
    (tmp_path / "greedy_assignor.py").write_text(MODULE)
    info = tmp_path / "greedy_assignor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greedy-assignor\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[taskplace.assignors]\ngreedy = greedy_assignor:first_takes_all\nbroken = greedy_assignor:gone\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_an_installed_assignor_is_found_by_its_name():
    plan = taskplace.plan(_problem("greedy"))
    assert [len(plan.target[name].active) for name in "ab"] == [4, 0]
    assert plan.warnings == ()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gredy", "greedy"),
        ("broken", "gone"),
        ("no_such_module:x", "no_such_module"),
        ("taskplace:nothing", "nothing"),
        ("taskplace:plan_more", "plan_more"),
    ],
)
def test_an_assignor_that_does_not_exist_is_a_configuration_error(name, says):
    with pytest.raises(ConfigError, match=rf"config\.task\.assignor\.class.*{says}"):
        taskplace.plan(_problem(name))


def test_an_answer_has_tasks_where_there_is_room_and_standbys_of_stateful_ones(module):
    t, u = TaskId(0, 0), TaskId(1, 0)
    config = PlacementConfig(task_assignor_class="own_assignors:chosen")
    instances = (Instance("a", active=(t, u), lags={t: 0}), Instance("b"), Instance("full", capacity=0))
    problem = Problem((*stateful(t), Task(u, stateful=False)), instances, config)
    for answer, why in (
        ({"a": Roles((u,)), "full": Roles((t,))}, "0_0 is assigned to full, which is draining or has no"),
        ({"a": Roles((t, u)), "b": Roles((), (u,))}, "1_0 is stateless but has a standby on b"),
    ):
        module.chosen = lambda problem, answer=answer: answer
        assert why in str(taskplace.plan(problem).warnings)
