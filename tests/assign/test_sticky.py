"""The `sticky` assignor: level and valid, tasks stay where their state is, and it comes to rest."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, TaskId
from taskplace.model.shares import floors_and_ceilings, level_loads
from taskplace.simulation import Cluster, Event
from taskplace.simulation.run import settle
from tests.support.scenarios import KINDS, scenario
from tests.support.stateful_tasks import configured, ids, rests, stateful, sticky, zoned, zones_of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_sticky_is_level_valid_and_comes_to_rest(kind, seed):
    s = scenario(kind, seed, largest=0.5)
    cluster = Cluster.of(configured(s.problem, task__assignor__class="sticky"))
    for _ in rests(cluster, *s.events):
        c = cluster.problem().columns
        low, high = floors_and_ceilings(int(c.stateful.sum()), c.open_slots)
        n = np.bincount(c.owner[c.stateful], minlength=c.m)
        assert ((low <= n) & (n <= high)).all()


@pytest.mark.parametrize("lag", [0, 7, 50_000])
@pytest.mark.parametrize("holder", ["a", "b", "c"])
def test_sticky_gives_a_task_without_owner_to_whom_has_some_of_its_state(holder, lag):
    (task,) = ids(0, 1)
    instances = [Instance(name, lags={task: lag} if name == holder else {}) for name in "abc"]
    plan = taskplace.plan(Problem(stateful(task), instances, PlacementConfig(task_assignor_class="sticky")))
    assert plan.target[holder].active == (task,)


@pytest.mark.parametrize(("role", "holder"), [("standby", "b"), ("warmup", "a")])
def test_sticky_takes_a_standby_for_a_holder_though_its_lag_is_not_known(role, holder):
    t = TaskId(0, 0)
    problem = Problem(stateful(t), (Instance("a"), Instance("b", **{role: (t,)})), sticky())
    assert taskplace.plan(problem).target[holder].active == (t,)


def test_sticky_does_not_repeat_pairs_where_it_can_be_avoided():
    config = PlacementConfig(task_assignor_class="sticky", num_standby_replicas=1)
    plan = taskplace.plan(Problem(stateful(*ids(0, 4)), [Instance(f"i{k}") for k in range(4)], config))
    pairs = Counter(frozenset((t, u)) for r in plan.assignment.values() for t in r.active for u in r.standby)
    assert max(pairs.values()) == 1


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("assignor", ["sticky", "high_availability"])
def test_an_instance_that_never_catches_up_is_planned_around(assignor, standbys):
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


def test_sticky_uses_no_parked_place_as_long_as_there_is_another():
    a, b = ids(0, 2)
    ran = Instance("a", active=(a,), lags={a: 0}, draining=True)
    full = Instance("b", active=(b,), lags={b: 0})
    plan = taskplace.plan(Problem(stateful(a, b), (ran, full, Instance("c", parked=(a,))), sticky()))
    assert plan.target["b"].active == (a, b)  # beyond its share
    parked = (Instance("b", parked=(a, b)), Instance("c", parked=(a, b)))
    plan = taskplace.plan(Problem(stateful(a, b), (ran, *parked), sticky()))
    assert sorted(len(r.active) for r in plan.target.values()) == [0, 1, 1]


@pytest.mark.parametrize("standbys", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_sticky_keeps_copies_in_different_zones(standbys, seed):
    rng = random.Random(seed)
    config = sticky(
        num_standby_replicas=standbys, rack_aware_assignment_tags=("zone",), max_warmup_replicas=4
    )
    cluster = Cluster(stateful(*ids(0, rng.randint(3, 20)), *ids(1, 5)), config)
    for i in zoned(rng.randint(6, 9)):
        cluster.add(i.id, tags=i.tags)
    events = Event("kill", "i03"), Event("add", "new", {"tags": {"zone": "b"}}), Event("drain", "i01")
    for plan in rests(cluster, *([event] for event in events)):
        for zones in zones_of(plan, list(cluster.problem().instances)).values():
            assert len(set(zones)) == 1 + standbys


def test_sticky_spreads_an_instances_standbys_over_many():
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


def test_sticky_loads_are_level_even_if_only_a_tasks_own_instances_have_room():
    for seed in range(30):
        problem = configured(scenario("rolling-bounce", seed, 0.5).problem, task__assignor__class="sticky")
        plan = taskplace.plan(problem)
        c = problem.columns
        kept = {t.id for t in problem.tasks if t.stateful}
        roles = [plan.target[name] for name in c.names]
        actives = np.array([sum(t in kept for t in r.active) for r in roles])
        copies = actives + [len(r.standby) for r in roles]
        low, high = level_loads(int(copies.sum()), len(kept), actives, c.open_slots)
        assert ((low <= copies) & (copies <= high)).all(), seed
