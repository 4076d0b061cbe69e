"""Standbys: complete, distinct, as level as can be, the fewest copies; against plain implementations of the same."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.assign.active import place_actives
from taskplace.assign.standby import place_standbys
from taskplace.model.placement import bases
from taskplace.model.plan import Roles
from taskplace.model.problem_columns import NONE, STANDBY
from taskplace.model.shares import level_loads
from taskplace.simulation import Cluster
from tests.support.scenarios import KINDS, scenario
from tests.support.targets import END, ids, small_problems


@settings(max_examples=100, deadline=None)
@given(small_problems(), st.integers(0, 3))
def test_standbys_are_complete_distinct_and_level(problem, wanted):
    c = problem.columns
    active = place_actives(c, bases(c)).place
    found = place_standbys(c, active, wanted)
    usable = int((c.open_slots > 0).sum())
    assert found.replicas == max(0, min(wanted, usable - 1))
    assert len(found.task) == found.replicas * int(c.stateful.sum())
    pairs = set(zip(found.task.tolist(), found.inst.tolist(), strict=True))
    assert len(pairs) == len(found.task)
    assert not pairs & set(enumerate(active.tolist()))
    assert (c.open_slots[found.inst] > 0).all()


@settings(max_examples=60, deadline=None)
@given(small_problems(), st.integers(1, 2))
def test_no_other_standbys_are_as_level_with_fewer_new_copies(problem, wanted):
    c = problem.columns
    active = place_actives(c, bases(c)).place
    found = place_standbys(c, active, wanted)
    tasks = np.flatnonzero(c.stateful)
    if not found.replicas or len(tasks) > 4:
        return
    places = np.flatnonzero(c.open_slots > 0).tolist()
    actives = np.bincount(active[tasks], minlength=c.m)
    low, high = level_loads(len(tasks) * (1 + found.replicas), len(tasks), actives, c.open_slots)
    rows = [*zip(c.task.tolist(), c.inst.tolist(), c.caught.tolist(), c.role.tolist(), strict=True)]
    held = {(t, i) for t, i, caught, role in rows if caught or role != NONE}
    now = {(t, i) for t, i, _, role in rows if role == STANDBY}
    universal = set(np.flatnonzero(c.universal).tolist())

    def rank(pairs):
        load = actives.copy()
        for _, i in pairs:
            load[i] += 1
        if ((load < low) | (load > high)).any():
            return None
        new = sum(p not in held and p[0] not in universal for p in pairs)
        return new, sum(p not in now for p in pairs)

    of_task = ([(t, i) for i in places if i != active[t]] for t in tasks.tolist())
    each = [list(itertools.combinations(pairs, found.replicas)) for pairs in of_task]
    ranks = [rank({p for group in choice for p in group}) for choice in itertools.product(*each)]
    best = min((r for r in ranks if r is not None), default=None)
    mine = rank(set(zip(found.task.tolist(), found.inst.tolist(), strict=True)))
    if best is not None:
        assert mine is not None and mine[0] == best[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_the_sparse_network_is_as_good_as_the_full_one(kind, seed):
    s = scenario(kind, seed, largest=0.5)
    cluster = Cluster.of(s.problem, restore_rate=100.0)
    for group in ((), *s.events):
        for event in group:
            event.apply(cluster)
        problem = cluster.problem()
        c = problem.columns
        active = place_actives(c, bases(c)).place
        wanted = problem.config.num_standby_replicas
        full, sparse = (place_standbys(c, active, wanted, full=limit) for limit in (10**9, 0))
        held = (c.task * c.m + c.inst)[c.caught | (c.role != NONE)]
        for found in (full, sparse):
            assert (active[found.task] != found.inst).all()
        pairs = [np.unique(found.task * c.m + found.inst) for found in (full, sparse)]
        assert len(pairs[0]) == len(pairs[1]) == full.replicas * int(c.stateful.sum())
        new = [int((~np.isin(p, held) & ~c.universal[p // c.m]).sum()) for p in pairs]
        assert new[0] == new[1]
        stateful = int(c.stateful.sum())
        if stateful and full.replicas:
            actives = np.bincount(active[c.stateful], minlength=c.m)
            low, high = level_loads(stateful * (1 + full.replicas), stateful, actives, c.open_slots)
            for p in pairs:
                load = actives + np.bincount(p % c.m, minlength=c.m)
                assert ((low <= load) & (load <= high)).all()
        cluster.apply(taskplace.plan(problem))
        cluster.advance(60_000)


def test_more_standbys_than_instances_is_one_warning_with_counts_and_remedy():
    tasks = [Task(t, end_offset=END) for t in ids(0, 6)]
    config = PlacementConfig(num_standby_replicas=3)
    plan = taskplace.plan(Problem(tasks, [Instance("a"), Instance("b")], config))
    assert [w for w in plan.warnings if "standby" in w] == [
        "6 of 6 stateful tasks get 1 of the 3 configured standby replicas: 2 instances can take work; "
        "add 2 to place all of them"
    ]
    assert all(len(r.standby) == 3 for r in plan.assignment.values())


def test_a_task_that_has_lost_its_stores_loses_its_standby():
    kept, changed = TaskId(0, 0), TaskId(1, 0)
    tasks = [Task(kept, end_offset=90_000), Task(changed, stateful=False)]
    instances = [
        Instance("a", active=[kept], lags={kept: 0}),
        Instance("b", active=[changed]),
        Instance("c", standby=[changed], lags={changed: 0}),
    ]
    plan = taskplace.plan(Problem(tasks, instances))
    assert plan.assignment == {"a": Roles((kept,)), "b": Roles((changed,)), "c": Roles()}
