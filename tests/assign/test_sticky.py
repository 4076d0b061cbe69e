"""Other assignors and preferences: sticky, user-supplied, racks, weights, slots; each converges through the refiner."""

from __future__ import annotations

import dataclasses
import random
import sys
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Roles, Task, TaskId
from taskplace.assign.slots import over_slots
from taskplace.assign.weights import load_and_bound
from taskplace.errors import ConfigError, InputError
from taskplace.model.shares import floors_and_ceilings, is_even, level_loads
from taskplace.simulation import Cluster, Event
from taskplace.simulation.run import settle
from taskplace.simulation.scenarios import KINDS, scenario
from taskplace.verify import verify

END = 50_000


def ids(subtopology: int, count: int) -> list[TaskId]:
    return [TaskId(subtopology, p) for p in range(count)]


def stateful(*tasks: TaskId, **fields: object) -> list[Task]:
    return [Task(t, end_offset=END, **fields) for t in tasks]  # type: ignore[arg-type]


def configured(problem: Problem, **config: object) -> Problem:
    properties = {**problem.config.to_properties(), **{k.replace("__", "."): v for k, v in config.items()}}
    return Problem(problem.tasks, problem.instances, PlacementConfig.from_properties(properties))


# --- sticky --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_sticky_is_level_valid_and_comes_to_rest(kind: str, seed: int) -> None:
    s = scenario(kind, seed, largest=0.5)
    cluster = Cluster.of(configured(s.problem, task__assignor__class="sticky"))
    for group in ((), *s.events):
        rounds = settle(cluster, group, limit=300, watch=taskplace.check)
        assert not rounds[-1].plan.followup
        problem = cluster.problem()
        assert taskplace.plan(problem).stable
        c = problem.columns
        low, high = floors_and_ceilings(int(c.stateful.sum()), c.open_slots)
        n = np.bincount(c.owner[c.stateful], minlength=c.m)
        assert ((low <= n) & (n <= high)).all()


def test_sticky_keeps_the_owner_then_a_holder_of_state() -> None:
    a, b, c, d = ids(0, 4)
    config = PlacementConfig(task_assignor_class="sticky")
    one = Instance("a", active=(a, b), lags={a: 0, b: 0})
    two = Instance("b", lags={c: 0})
    plan = taskplace.plan(Problem(stateful(a, b, c, d), (one, two), config))
    assert plan.assignment["a"].active == (a, b)
    assert plan.assignment["b"].active == (c, d)


@pytest.mark.parametrize("lag", [0, 7, 50_000])
@pytest.mark.parametrize("holder", ["a", "b", "c"])
def test_sticky_gives_a_task_without_owner_to_whom_has_some_of_its_state(holder: str, lag: int) -> None:
    (task,) = ids(0, 1)
    instances = [Instance(name, lags={task: lag} if name == holder else {}) for name in "abc"]
    plan = taskplace.plan(Problem(stateful(task), instances, PlacementConfig(task_assignor_class="sticky")))
    assert plan.target[holder].active == (task,)


def test_sticky_does_not_repeat_pairs_where_it_can_be_avoided() -> None:
    config = PlacementConfig(task_assignor_class="sticky", num_standby_replicas=1)
    plan = taskplace.plan(Problem(stateful(*ids(0, 4)), [Instance(f"i{k}") for k in range(4)], config))
    pairs = Counter(frozenset((t, u)) for r in plan.assignment.values() for t in r.active for u in r.standby)
    assert max(pairs.values()) == 1


def sticky(**config: object) -> PlacementConfig:
    return PlacementConfig(task_assignor_class="sticky", **config)  # type: ignore[arg-type]


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("assignor", ["sticky", "high_availability"])
def test_an_instance_that_never_catches_up_is_planned_around(assignor: str, standbys: int) -> None:
    config = PlacementConfig(task_assignor_class=assignor, num_standby_replicas=standbys)
    cluster = Cluster(stateful(*ids(0, 4), *ids(1, 3)), config)
    for name in ("a", "b"):
        cluster.add(name)
    settle(cluster)
    stuck = [Event("stick", "bad", {"task": str(t)}) for t in cluster.tasks]
    rounds = settle(cluster, [Event("add", "bad"), *stuck], limit=60, watch=taskplace.check)
    assert not rounds[-1].plan.followup
    assert rounds[-1].plan.assignment["bad"].active == ()
    assert "parked" in str(rounds[-1].plan.warnings)


def test_sticky_uses_no_parked_place_as_long_as_there_is_another() -> None:
    a, b = ids(0, 2)
    ran = Instance("a", active=(a,), lags={a: 0}, draining=True)
    full = Instance("b", active=(b,), lags={b: 0})
    plan = taskplace.plan(Problem(stateful(a, b), (ran, full, Instance("c", parked=(a,))), sticky()))
    assert plan.target["b"].active == (a, b)  # beyond its share
    plan = taskplace.plan(
        Problem(stateful(a, b), (ran, Instance("b", parked=(a, b)), Instance("c", parked=(a, b))), sticky())
    )
    assert sorted(len(r.active) for r in plan.target.values()) == [0, 1, 1]


@pytest.mark.parametrize("standbys", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_sticky_keeps_copies_in_different_zones(standbys: int, seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    config = sticky(
        num_standby_replicas=standbys, rack_aware_assignment_tags=("zone",), max_warmup_replicas=4
    )
    cluster = Cluster(stateful(*ids(0, rng.randint(3, 20)), *ids(1, 5)), config)
    for i in zoned(rng.randint(6, 9)):
        cluster.add(i.id, tags=i.tags)
    for event in (
        None,
        Event("kill", "i03"),
        Event("add", "new", {"tags": {"zone": "b"}}),
        Event("drain", "i01"),
    ):
        rounds = settle(cluster, [event] if event else [], limit=200, watch=taskplace.check)
        assert not rounds[-1].plan.followup
        for zones in zones_of(rounds[-1].plan, list(cluster.problem().instances)).values():
            assert len(set(zones)) == 1 + standbys
        assert taskplace.plan(cluster.problem()).stable


def test_sticky_says_when_there_are_too_few_zones() -> None:
    config = sticky(num_standby_replicas=1, rack_aware_assignment_tags=("zone",))
    plan = taskplace.plan(Problem(stateful(*ids(0, 6)), zoned(3, "a"), config))
    assert any("6 of 6 stateful tasks have two copies in one zone" in w for w in plan.warnings)


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
def test_sticky_beside_a_rack_strategy_is_refused(strategy: str) -> None:
    properties = {"task.assignor": "sticky", "rack.aware.assignment.strategy": strategy}
    with pytest.raises(
        ConfigError, match=r"^placement\.rack\.aware\.assignment\.strategy: found .*'sticky' does not"
    ):
        PlacementConfig.from_properties(properties, path="placement")
    with pytest.raises(ConfigError, match=r"^config\.rack\.aware\.assignment\.strategy"):
        sticky(rack_aware_assignment_strategy=strategy)


def test_sticky_spreads_an_instances_standbys_over_many() -> None:
    config = sticky(num_standby_replicas=1)
    instances = [Instance(f"i{k:02}") for k in range(50)]
    plan = taskplace.plan(Problem(stateful(*ids(0, 1000), *ids(1, 1000)), instances, config))
    where: dict[TaskId, set[str]] = {}
    for name, roles in plan.assignment.items():
        for t in (*roles.active, *roles.standby):
            where.setdefault(t, set()).add(name)
    for first in range(0, 46, 5):
        lost = {f"i{k:02}" for k in range(first, first + 5)}
        # Evenly spread it would be 2000 * 5/50 * 4/49 = 16; with standbys on few neighbours it was some 150.
        assert sum(places <= lost for places in where.values()) <= 32


def test_sticky_loads_are_level_even_if_only_a_tasks_own_instances_have_room() -> None:
    for seed in range(30):
        problem = configured(scenario("rolling-bounce", seed, 0.5).problem, task__assignor__class="sticky")
        plan = taskplace.plan(problem)
        c = problem.columns
        n = int(c.stateful.sum())
        actives, copies = (
            np.array(
                [sum(problem.columns.stateful[c.ids.index(t)] for t in part(plan.target[x])) for x in c.names]
            )
            for part in (lambda r: r.active, lambda r: (*r.active, *r.standby))
        )
        low, high = level_loads(int(copies.sum()), n, actives, c.open_slots)
        assert ((low <= copies) & (copies <= high)).all(), seed


# --- user-supplied -------------------------------------------------------------------------------------------------


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    found = types.ModuleType("own_assignors")
    sys.modules["own_assignors"] = found
    yield found
    del sys.modules["own_assignors"]


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
def test_an_own_assignor_decides_the_target_and_the_refiner_how(
    module: types.ModuleType, chosen: object
) -> None:
    module.chosen = chosen  # type: ignore[attr-defined]
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
        ({"z": Roles()}, "'z' is no instance"),
        ({"a": Roles((TaskId(9, 9),))}, "9_9 is no task"),
        ({"a": Roles(tuple(ids(0, 3)))}, "1 tasks are active nowhere, e.g. 0_3"),
        ({"a": Roles(tuple(ids(0, 4))), "b": Roles(tuple(ids(0, 1)))}, "0_0 is active twice"),
        ({"a": Roles(tuple(ids(0, 4)), tuple(ids(0, 1)))}, "0_0 is active and standby on a"),
        ({"a": Roles(tuple(ids(0, 4)))}, "4 tasks have fewer than 1 standbys"),
        ({"a": Roles((), tuple(ids(0, 1)))}, "4 tasks are active nowhere"),
        ({"a": {"active": ["0_0", "0-1"]}}, "0-1 is no task"),
        ({"a": {"active": "0_0"}}, "a gets '0_0' as active, expected a list of tasks"),
        ({"a": {"active": [3]}}, "3 is no task"),
        ({"a": {"actives": []}}, "a gets the role 'actives', expected 'active' or 'standby'"),
        ({"a": ["0_0"]}, "a gets list, expected Roles or a dict"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_a_bad_answer_keeps_what_is_in_force_and_says_why(
    module: types.ModuleType, answer: object, why: str
) -> None:
    def chosen(problem: Problem) -> object:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    module.chosen = chosen  # type: ignore[attr-defined]
    problem = own_problem()
    plan = taskplace.plan(problem)
    assert plan.stable
    assert plan.assignment["a"].active == tuple(ids(0, 4))
    warning = next(w for w in plan.warnings if "own_assignors:chosen" in w)
    assert why in warning and "the assignment in force is kept" in warning


def test_a_bad_answer_with_nothing_in_force_uses_the_built_in_target(module: types.ModuleType) -> None:
    module.chosen = lambda problem: {}  # type: ignore[attr-defined]
    p = own_problem()
    plan = taskplace.plan(Problem(p.tasks, (Instance("a"), Instance("b")), p.config))
    assert any("high_availability is used" in w for w in plan.warnings)
    assert sorted(len(r.active) for r in plan.assignment.values()) == [2, 2]


def test_a_dict_with_ids_as_text_is_an_answer(module: types.ModuleType) -> None:
    def as_text(problem: Problem) -> object:
        return {
            name: {"active": [str(t) for t in r.active], "standby": [str(t) for t in r.standby], "warmup": []}
            for name, r in by_turns(problem).items()
        }

    problem = own_problem()
    module.chosen = by_turns  # type: ignore[attr-defined]
    typed = taskplace.plan(problem)
    module.chosen = as_text  # type: ignore[attr-defined]
    assert taskplace.plan(problem) == typed
    assert not typed.warnings


def test_beside_an_own_assignor_the_bound_is_the_flows(module: types.ModuleType) -> None:
    module.chosen = by_turns  # type: ignore[attr-defined]
    for assignor, moves in (("own_assignors:chosen", 2), ("sticky", 2)):
        o = taskplace.plan(configured(own_problem(), task__assignor__class=assignor)).optimality
        assert (o.moves, o.lower_bound) == (moves, 2)


def test_a_bad_answer_keeps_what_is_good_and_fills_the_holes(module: types.ModuleType) -> None:
    module.chosen = lambda problem: {}  # type: ignore[attr-defined]
    t = ids(0, 6)
    lags = dict.fromkeys(t, 0)
    a = Instance("a", active=t[:4], standby=t[4:], lags=lags)
    b = Instance("b", standby=t[:3], lags=dict.fromkeys(t[:3], 0))  # t[4:] ran on an instance that is gone
    plan = taskplace.plan(Problem(stateful(*t), (a, b, Instance("c")), own_problem().config))
    assert set(plan.target["a"].active) >= set(t[:4])  # kept, although it is more than a's share
    assert {plan.active(x) for x in t[4:]} == {"a"}  # the only copies that are caught up
    assert set(plan.target["b"].standby) >= set(t[:3])
    assert plan.warnings[0].endswith(
        "6 tasks are active nowhere, e.g. 0_0; 4 of 6 actives are kept where they are, "
        "high_availability places 2 actives and 1 standby"
    )
    cluster = Cluster.of(Problem(stateful(*t), (a, b, Instance("c")), own_problem().config))
    rounds = settle(cluster, limit=30, watch=taskplace.check)
    assert not rounds[-1].plan.followup
    assert taskplace.plan(cluster.problem()).stable


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_an_assignor_that_fails_all_the_time_stops_nothing(
    module: types.ModuleType, kind: str, seed: int
) -> None:
    def chosen(problem: Problem) -> object:
        raise RuntimeError("never")

    module.chosen = chosen  # type: ignore[attr-defined]
    s = scenario(kind, seed, largest=0.5)
    cluster = Cluster.of(configured(s.problem, task__assignor__class="own_assignors:chosen"))
    for group in ((), *s.events):
        rounds = settle(cluster, group, limit=300, watch=taskplace.check)
        assert not rounds[-1].plan.followup
        assert "RuntimeError: never" in " ".join(rounds[-1].plan.warnings)
        assert taskplace.plan(cluster.problem()).stable


@pytest.mark.parametrize("role", ["active", "standby"])
def test_an_answer_that_wants_a_parked_copy_is_not_followed_and_planning_ends(
    module: types.ModuleType, role: str
) -> None:
    t = ids(0, 1)[0]

    def chosen(problem: Problem) -> object:
        other = "standby" if role == "active" else "active"
        names = {i.id for i in problem.instances}
        return (
            {"bad": {role: [t]}, "a": {other: [t]}}
            if "bad" in names
            else {"a": {"active": [t]}, "b": {"standby": [t]}}
        )

    module.chosen = chosen  # type: ignore[attr-defined]
    config = PlacementConfig(task_assignor_class="own_assignors:chosen", num_standby_replicas=1)
    cluster = Cluster(stateful(t), config)
    for name in ("a", "b"):
        cluster.add(name)
    settle(cluster)
    events = [Event("add", "bad"), Event("stick", "bad", {"task": str(t)})]
    rounds = settle(cluster, events, limit=60, watch=taskplace.check)
    assert not rounds[-1].plan.followup
    assert rounds[-1].plan.active(t) == "a"
    assert "0_0 is put on bad, where it is parked" in str(rounds[-1].plan.warnings)


@pytest.mark.parametrize("error", [ZeroDivisionError("no"), SystemExit(4), SystemExit()])
@pytest.mark.parametrize("place", ["constructor", "module", "entry point"])
def test_an_assignor_that_cannot_be_made_is_one_configuration_error(
    module: types.ModuleType,
    error: BaseException,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def fail(*_: object) -> None:
        raise error

    name = "own_assignors:chosen"
    if place == "constructor":
        module.chosen = type("Chosen", (), {"__init__": fail})  # type: ignore[attr-defined]
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


@pytest.mark.parametrize("name", ["nobody", "no_such_module:x", "taskplace:nothing", "taskplace:__version__"])
def test_an_assignor_that_does_not_exist_is_a_configuration_error(name: str) -> None:
    problem = Problem(stateful(TaskId(0, 0)), (Instance("a"),), PlacementConfig(task_assignor_class=name))
    with pytest.raises(ConfigError, match=r"config\.task\.assignor\.class"):
        taskplace.plan(problem)


# --- standbys away from the rack (KIP-708) -------------------------------------------------------------------------


def zoned(count: int, zones: str = "abc", **more: str) -> list[Instance]:
    return [Instance(f"i{k:02}", tags={"zone": zones[k % len(zones)], **more}) for k in range(count)]


def zones_of(plan: Plan, instances: list[Instance], tag: str = "zone") -> dict[TaskId, list[str]]:
    tags = {i.id: i.tags.get(tag, "") for i in instances}
    out: dict[TaskId, list[str]] = {}
    for name, roles in plan.target.items():
        for t in (*roles.active, *roles.standby):
            out.setdefault(t, []).append(tags[name])
    return out


@pytest.mark.parametrize("standbys", [1, 2])
@pytest.mark.parametrize("count", [3, 6, 7, 10])
def test_copies_are_in_different_zones(standbys: int, count: int) -> None:
    config = PlacementConfig(num_standby_replicas=standbys, rack_aware_assignment_tags=("zone",))
    instances = zoned(count)
    plan = taskplace.plan(Problem(stateful(*ids(0, 17), *ids(1, 5)), instances, config))
    for zones in zones_of(plan, instances).values():
        assert len(set(zones)) == 1 + standbys
    assert not [w for w in plan.warnings if "zone" in w]


@pytest.mark.parametrize("standbys", [1, 2])
def test_copies_are_in_different_zones_also_with_few_arcs(
    standbys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskplace.assign.rack_standbys.FULL_NETWORK", 0)
    config = PlacementConfig(num_standby_replicas=standbys, rack_aware_assignment_tags=("zone",))
    cluster = Cluster(stateful(*ids(0, 90), *ids(1, 30)), config)
    for i in zoned(30):
        cluster.add(i.id, tags=i.tags)
    for event in (None, Event("kill", "i03"), Event("add", "new", {"tags": {"zone": "b"}})):
        rounds = settle(cluster, [event] if event else [], limit=200, watch=taskplace.check)
        assert not rounds[-1].plan.followup
        instances = list(cluster.problem().instances)
        for zones in zones_of(rounds[-1].plan, instances).values():
            assert len(set(zones)) == 1 + standbys
        assert taskplace.plan(cluster.problem()).stable


def test_too_few_zones_is_one_warning_and_all_standbys_are_placed() -> None:
    config = PlacementConfig(num_standby_replicas=2, rack_aware_assignment_tags=("zone",))
    instances = zoned(6, "ab")
    plan = taskplace.plan(Problem(stateful(*ids(0, 12)), instances, config))
    zones = zones_of(plan, instances)
    assert all(len(z) == 3 and len(set(z)) == 2 for z in zones.values())
    assert [w for w in plan.warnings if "zone" in w] == [
        "12 of 12 stateful tasks have two copies in one zone: there are 2 values of this tag (a, b); "
        "add instances elsewhere to set them apart"
    ]


def test_two_tags_are_both_looked_at() -> None:
    config = PlacementConfig(num_standby_replicas=1, rack_aware_assignment_tags=("zone", "cluster"))
    instances = [
        Instance(f"i{k}", tags={"zone": z, "cluster": cl})
        for k, (z, cl) in enumerate([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")])
    ]
    plan = taskplace.plan(Problem(stateful(*ids(0, 8)), instances, config))
    for tag in ("zone", "cluster"):
        assert all(len(set(values)) == 2 for values in zones_of(plan, instances, tag).values())


@pytest.mark.parametrize("seed", range(12))
def test_zones_converge_and_stay(seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    config = PlacementConfig(
        num_standby_replicas=rng.randint(1, 2), rack_aware_assignment_tags=("zone",), max_warmup_replicas=3
    )
    cluster = Cluster(stateful(*ids(0, rng.randint(1, 20)), *ids(1, rng.randint(1, 10))), config)
    for k in range(rng.randint(3, 8)):
        cluster.add(f"i{k}", rng.randint(1, 3), {"zone": rng.choice("abc")})
    for event in (
        None,
        Event("add", "new", {"tags": {"zone": "a"}}),
        Event("kill", "i0"),
        Event("drain", "i1"),
    ):
        rounds = settle(cluster, [event] if event else [], limit=200, watch=taskplace.check)
        assert not rounds[-1].plan.followup
        assert taskplace.plan(cluster.problem()).stable


# --- actives near their input (KIP-925) ----------------------------------------------------------------------------


def racked(strategy: str, *, seed: int = 0, instances: int = 6, **config: object) -> Problem:
    rng = random.Random(seed)
    tasks = [
        Task(TaskId(s, p), end_offset=END, racks=(tuple(rng.sample("abc", 2)), (rng.choice("abc"),)))
        for s in range(3)
        for p in range(8)
    ]
    places = [Instance(f"i{k}", tags={"rack": "abc"[k % 3]}) for k in range(instances)]
    return Problem(
        tasks,
        places,
        PlacementConfig(rack_aware_assignment_strategy=strategy, **config),  # type: ignore[arg-type]
    )


def reads_across(problem: Problem, plan: Plan) -> int:
    rack = {i.id: i.tags["rack"] for i in problem.instances}
    racks = {t.id: t.racks for t in problem.tasks}
    return sum(rack[n] not in served for n, r in plan.target.items() for t in r.active for served in racks[t])


@pytest.mark.parametrize("seed", range(6))
def test_less_traffic_the_less_balance_is_kept(seed: int) -> None:
    plans = {}
    for strategy in ("none", "balance_subtopology", "min_traffic"):
        problem = racked(strategy, seed=seed)
        plans[strategy] = reads_across(problem, taskplace.check(problem, taskplace.plan(problem)))
    assert plans["min_traffic"] <= plans["balance_subtopology"] <= plans["none"]
    assert plans["min_traffic"] < plans["none"]


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
@pytest.mark.parametrize("seed", range(4))
def test_placed_near_input_it_comes_to_rest_and_stays(strategy: str, seed: int) -> None:
    cluster = Cluster.of(racked(strategy, seed=seed, num_standby_replicas=1))
    for event in (
        None,
        Event("add", "new", {"tags": {"rack": "b"}}),
        Event("kill", "i0"),
        Event("drain", "i1"),
    ):
        rounds = settle(cluster, [event] if event else [], limit=300, watch=taskplace.check)
        assert not rounds[-1].plan.followup
        assert taskplace.plan(cluster.problem()).stable


def test_moves_dearer_than_reads_stay_where_they_are() -> None:
    for traffic, overlap, moved in ((1, 1000, False), (1000, 1, True)):
        problem = racked(
            "balance_subtopology",
            rack_aware_assignment_traffic_cost=traffic,
            rack_aware_assignment_non_overlap_cost=overlap,
        )
        start = taskplace.plan(configured(problem, rack__aware__assignment__strategy="none"))
        held = [
            Instance(
                i.id,
                tags=i.tags,
                active=start.assignment[i.id].active,
                lags=dict.fromkeys(start.assignment[i.id].active, 0),
            )
            for i in problem.instances
        ]
        plan = taskplace.plan(Problem(problem.tasks, held, problem.config))
        assert (plan.optimality.moves > 0) == moved
        assert plan.optimality.lower_bound == 0


def test_unknown_racks_are_said_and_not_looked_at() -> None:
    problem = racked("min_traffic")
    plan = taskplace.plan(Problem(problem.tasks, (*problem.instances, Instance("bare")), problem.config))
    assert any("needs a tag 'rack' on every instance" in w for w in plan.warnings)


# --- weights -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_weighted_loads_are_within_one_task_of_their_share_or_say_how_far(seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    tasks = [
        Task(t, end_offset=END, weight=rng.choice([1.0, 1.0, 2.0, 5.0, rng.uniform(0.5, 4)]))
        for t in (*ids(0, 40), *ids(1, 12))
    ]
    cluster = Cluster(tasks, PlacementConfig(max_warmup_replicas=4))
    for k in range(rng.randint(2, 6)):
        cluster.add(f"i{k}", rng.randint(1, 3))
    for event in (None, Event("add", "new", {"capacity": 2}), Event("kill", "i0")):
        rounds = settle(cluster, [event] if event else [], limit=200, watch=taskplace.check)
        plan = rounds[-1].plan
        assert not plan.followup
        assert taskplace.plan(cluster.problem()).stable
        m = plan.metrics
        c = cluster.problem().columns
        load, bound = load_and_bound(c, c.owner)
        assert (m["weighted_load_max"], m["weighted_load_bound"]) == (round(load, 9), round(bound, 9))
        assert m["weighted_load_gap"] >= 0
        loads = np.bincount(c.owner, weights=c.weight, minlength=c.m)
        share = c.weight.sum() * c.open_slots / c.open_slots.sum()
        assert (np.abs(loads - share) <= c.weight.max() + 1e-9).all()


def test_equal_weights_need_no_exchange_and_no_figures() -> None:
    plan = taskplace.plan(Problem(stateful(*ids(0, 9), weight=3.0), [Instance("a"), Instance("b")]))
    assert "weighted_load_gap" not in plan.metrics


# --- slots ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 40])
def test_slots_are_even_in_all_and_per_subtopology_and_sticky(slots: int) -> None:
    tasks = [*ids(0, 7), *ids(1, 3), *ids(2, 16)]
    now = over_slots(tasks, slots)
    assert sorted(t for slot in now for t in slot) == sorted(tasks)
    for group in (tasks, ids(0, 7), ids(1, 3), ids(2, 16)):
        n = [len(set(slot) & set(group)) for slot in now]
        assert max(n) - min(n) <= 1
    assert over_slots(tasks, slots, now) == now


def test_slots_that_come_and_go_move_few_tasks() -> None:
    tasks = ids(0, 12)
    three = over_slots(tasks, 3)
    four = over_slots(tasks, 4, three)
    assert sum(len(set(a) - set(b)) for a, b in zip(three, four, strict=False)) == 3
    assert [len(slot) for slot in over_slots(tasks, 3, four)] == [4, 4, 4]
    with pytest.raises(InputError, match="slots: found 0"):
        over_slots(tasks, 0)


@pytest.mark.parametrize("kind", ["scale-out", "several", "drain"])
@pytest.mark.parametrize("seed", range(4))
def test_a_plan_deals_actives_to_slots_evenly_and_moves_few_of_them(kind: str, seed: int) -> None:
    s = scenario(kind, seed, largest=0.5)
    cluster = Cluster.of(s.problem)
    slots: Mapping[str, tuple[tuple[TaskId, ...], ...]] = {}
    for group in ((), *s.events):
        for event in group:
            event.apply(cluster)
        for _ in range(3):
            bare = cluster.problem()
            known = [dataclasses.replace(i, slots=slots.get(i.id, ())) for i in bare.instances]
            problem = Problem(bare.tasks, known, bare.config)
            assert Problem.from_dict(problem.to_dict()) == problem
            plan = taskplace.check(problem, taskplace.plan(problem))
            assert Plan.from_dict(plan.to_dict()) == plan
            for i in problem.instances:
                held = plan.assignment[i.id].active
                if i.capacity < 2 or not held:
                    assert i.id not in plan.slots
                    continue
                assert len(plan.slots[i.id]) == i.capacity
                assert is_even(plan.slots[i.id], held)
                if i.slots and is_even(i.slots, held):
                    assert plan.slots[i.id] == i.slots
            slots = plan.slots
            cluster.apply(plan)
            cluster.advance(600_000)


def test_slots_of_a_plan_are_verified() -> None:
    tasks = ids(0, 4)
    problem = Problem(stateful(*tasks), (Instance("a", 2, active=tasks, lags=dict.fromkeys(tasks, 0)),))
    plan = taskplace.plan(problem)
    assert plan.slots == {"a": ((tasks[0], tasks[2]), (tasks[1], tasks[3]))}
    for wrong in (
        {"a": ((tasks[0],), (tasks[1], tasks[2], tasks[3]))},
        {"a": ((tasks[0], tasks[2]), (tasks[1],))},
        {"a": ((tasks[0],), (tasks[1],), tuple(tasks[2:]))},
    ):
        assert [v.invariant for v in verify(problem, dataclasses.replace(plan, slots=wrong))] == ["slots"]
    found = verify(problem, dataclasses.replace(plan, slots={"z": ()}))
    assert [v.invariant for v in found] == ["known"]
    old = plan.to_dict()
    del old["slots"]
    assert verify(problem, Plan.from_dict(old)) == ()
