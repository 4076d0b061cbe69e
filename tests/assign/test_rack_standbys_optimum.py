"""Rack strategies against every placement there is, on small problems: no balanced one costs less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings
from msgspec import structs

import taskplace
from taskplace import Instance, Plan, Problem, Task, TaskId
from taskplace.assign.rack_standbys import place_rack_standbys, shared_values
from taskplace.assign.standby import Traffic, place_standbys
from taskplace.model.problem_columns import Columns
from taskplace.model.proofs import detour
from taskplace.model.shares import floors_and_ceilings, level_loads
from taskplace.simulation import Cluster
from taskplace.verify import verify
from tests.assign.test_rack_standbys import STRATEGIES, configured

COSTS = st.sampled_from([(10, 1), (1, 10), (0, 1), (1, 0), (3, 2), (1_000_000, 999_999)])


@st.composite
def problems(draw: st.DrawFn, most_standbys: int = 2, tags: Sequence[str] = ()) -> Problem:
    """Small clusters, with standbys in force here and there, and changelogs in some racks."""
    racks = "xyz"[: draw(st.integers(2, 3))]
    m = draw(st.integers(2, 4))
    served = st.lists(st.sampled_from(racks), min_size=0, max_size=2, unique=True).map(tuple)
    n = draw(st.integers(1, 6 if m < 4 else 4))
    tasks = []
    for p in range(n):
        end, logs = draw(st.sampled_from([0, 1_000, 100_000])), tuple(draw(st.lists(served, max_size=3)))
        tasks.append(Task(TaskId(draw(st.integers(0, 1)), p), end_offset=end, changelog_racks=logs))
    held: list[dict[str, list[TaskId]]] = [{"active": [], "standby": []} for _ in range(m)]
    lags: list[dict[TaskId, int]] = [{} for _ in range(m)]
    for t in tasks:
        order = draw(st.permutations(range(m)))
        for role, k in zip(("active", "standby", "standby"), order, strict=False):
            if draw(st.booleans()):
                held[k][role].append(t.id)
                lags[k][t.id] = min(draw(st.sampled_from([0, 50, 900])), t.end_offset or 0)
    instances = []
    for k in range(m):
        tags = {"rack": draw(st.sampled_from(racks)), "zone": draw(st.sampled_from("ab"))}
        instances.append(Instance(f"i{k}", draw(st.integers(1, 2)), tags, **held[k], lags=lags[k]))
    config = configured(
        draw(st.sampled_from(STRATEGIES)), draw(st.integers(1, most_standbys)), draw(COSTS), tags
    )
    return Problem(tasks, instances, config)


def _price(problem: Problem, standbys: Sequence[Sequence[int]]) -> int:
    """What standbys cost, said once more and plainly: [tasks][replicas] instances."""
    config = problem.config
    read, move = config.rack_aware_assignment_traffic_cost, config.rack_aware_assignment_non_overlap_cost
    assert read is not None and move is not None
    total = 0
    for t, places in zip(problem.tasks, standbys, strict=True):
        for k in places:
            i = problem.instances[k]
            total += read * sum(bool(racks) and i.tags["rack"] not in racks for racks in t.changelog_racks)
            total += move * (t.id not in i.standby)
    return total


def _all(problem: Problem, active: Sequence[int], replicas: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    m = len(problem.instances)
    each = [list(combinations([k for k in range(m) if k != a], replicas)) for a in active]
    yield from product(*each)


def _load(standbys: Sequence[Sequence[int]], m: int) -> np.ndarray:
    return np.bincount([k for places in standbys for k in places], minlength=m)


def _apart(problem: Problem, active: Sequence[int], load: np.ndarray, replicas: int) -> int:
    room = np.array([i.capacity for i in problem.instances])
    actives = np.bincount(active, minlength=len(room))
    low, high = level_loads(len(active) * (1 + replicas), len(active), actives, room)
    total = actives + load
    return int(np.maximum(low - total, 0).sum() + np.maximum(total - high, 0).sum())


def _rows(c: Columns, task: np.ndarray, inst: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(inst[task == t].tolist()) for t in range(c.n)]


@settings(max_examples=150, deadline=None)
@given(problem=problems(), data=st.data())
def test_no_level_placement_of_standbys_costs_less(problem, data):
    c = problem.columns
    active = np.array([data.draw(st.integers(0, c.m - 1)) for _ in range(c.n)], np.int64)
    traffic = Traffic.of(c, problem.config)
    if traffic is None:
        return
    options = list(_all(problem, active.tolist(), min(problem.config.num_standby_replicas, c.m - 1)))
    for full in (10**9, 0):  # both networks
        found = place_standbys(c, active, problem.config.num_standby_replicas, full, traffic)
        mine = _rows(c, found.task, found.inst)
        assert all(len(set(places)) == found.replicas for places in mine)
        level = [s for s in options if _apart(problem, active.tolist(), _load(s, c.m), found.replicas) == 0]
        if level:
            assert _apart(problem, active.tolist(), _load(mine, c.m), found.replicas) == 0
        else:  # loads come first: then traffic is least for the loads that were found
            level = [s for s in options if (_load(s, c.m) == _load(mine, c.m)).all()]
        assert _price(problem, mine) == min(_price(problem, s) for s in level)


@settings(max_examples=150, deadline=None)
@given(problem=problems(), data=st.data())
def test_the_verifier_finds_a_saving_if_and_only_if_there_is_one(problem, data):
    c = problem.columns
    replicas = min(problem.config.num_standby_replicas, c.m - 1)
    active = [data.draw(st.integers(0, c.m - 1)) for _ in range(c.n)]
    if not any(c.changelog_racks):
        return
    options = list(_all(problem, active, replicas))
    mine = data.draw(st.sampled_from(options))
    level = [s for s in options if _apart(problem, active, _load(s, c.m), replicas) == 0]
    if mine not in level:
        level = [s for s in options if (_load(s, c.m) == _load(mine, c.m)).all()]
    task = np.repeat(np.arange(c.n), replicas)
    inst = np.array([k for places in mine for k in places], np.int64)
    found = detour(c, problem.config, np.array(active, np.int64), task, inst)
    assert found == (_price(problem, mine) > min(_price(problem, s) for s in level))


@settings(max_examples=150, deadline=None)
@given(problem=problems(most_standbys=1, tags=["zone"]), data=st.data())
def test_shared_tags_come_first_then_level_loads_then_traffic(problem, data):
    c = problem.columns
    active = np.array([data.draw(st.integers(0, c.m - 1)) for _ in range(c.n)], np.int64)
    traffic = Traffic.of(c, problem.config)
    if traffic is None:
        return
    zones = [i.tags["zone"] for i in problem.instances]
    task, inst = place_rack_standbys(c, active, 1, shared_values(c.tags, ["zone"]), traffic)
    mine = _rows(c, task, inst)

    def sharing(standbys):
        return sum(zones[a] == zones[s[0]] for a, s in zip(active.tolist(), standbys, strict=True))

    options = list(_all(problem, active.tolist(), 1))
    fewest = min(map(sharing, options))
    assert sharing(mine) == fewest
    spread = [s for s in options if sharing(s) == fewest]
    level = [s for s in spread if _apart(problem, active.tolist(), _load(s, c.m), 1) == 0]
    if not level:
        level = [s for s in spread if (_load(s, c.m) == _load(mine, c.m)).all()]
    else:
        assert _apart(problem, active.tolist(), _load(mine, c.m), 1) == 0
    assert _price(problem, mine) == min(_price(problem, s) for s in level)


@settings(max_examples=60, deadline=None)
@given(problem=problems(), tags=st.sampled_from([(), ("zone",)]))
def test_a_change_comes_to_rest_and_stays_there(problem, tags):
    problem = replace(problem, config=structs.replace(problem.config, rack_aware_assignment_tags=tags))
    cluster = Cluster.of(problem)
    for _ in range(4 * len(problem.tasks) + 4):
        now: Plan = taskplace.plan(cluster.problem())
        assert not verify(cluster.problem(), now)
        if now.stable:
            break
        cluster.apply(now)
        cluster.advance(600_000)
    assert taskplace.plan(cluster.problem()).stable


@settings(max_examples=80, deadline=None)
@given(data=st.data(), strategy=st.sampled_from(["min_traffic", "balance_subtopology"]))
def test_no_balanced_placement_costs_less(data, strategy):
    racks = "xyz"[: data.draw(st.integers(2, 3))]
    names = [f"i{k}" for k in range(data.draw(st.integers(2, 3)))]
    served = st.lists(st.sampled_from(racks), min_size=1, max_size=3, unique=True).map(tuple)
    tasks = []
    for p in range(data.draw(st.integers(2, 6))):
        near = tuple(data.draw(st.lists(served, min_size=1, max_size=3)))
        tasks.append(Task(TaskId(data.draw(st.integers(0, 1)), p), end_offset=100_000, racks=near))
    owner = {t.id: data.draw(st.sampled_from(["", *names])) for t in tasks}
    instances = []
    for name in names:
        held = [t.id for t in tasks if owner[t.id] == name]
        tags, lags = {"rack": data.draw(st.sampled_from(racks))}, dict.fromkeys(held, 0)
        instances.append(Instance(name, data.draw(st.integers(1, 2)), tags, active=held, lags=lags))
    traffic, move = data.draw(COSTS)
    config = configured(strategy, 0, (traffic, move))
    problem = Problem(tasks, instances, config)
    plan = taskplace.plan(problem)
    room = np.array([i.capacity for i in problem.instances])
    groups = [list(range(len(tasks)))]
    if strategy == "balance_subtopology":
        groups += [[k for k, t in enumerate(problem.tasks) if t.id.subtopology == s] for s in (0, 1)]

    def cost(places):
        total = 0
        for t, k in zip(problem.tasks, places, strict=True):
            i = problem.instances[k]
            total += traffic * sum(i.tags["rack"] not in replicas for replicas in t.racks)
            total += move * (owner[t.id] not in ("", i.id))
        return total

    def balanced(places):
        for group in groups:
            low, high = floors_and_ceilings(len(group), room)
            n = np.bincount([places[k] for k in group], minlength=len(names))
            if ((n < low) | (n > high)).any():
                return False
        return True

    where = {t: k for k, i in enumerate(problem.instances) for t in plan.target[i.id].active}
    mine = [where[t.id] for t in problem.tasks]
    assert balanced(mine)
    assert cost(mine) == min(map(cost, filter(balanced, product(range(len(names)), repeat=len(tasks)))))
