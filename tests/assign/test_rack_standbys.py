"""Standbys near their changelogs (KIP-925) and away from the rack of their active (KIP-708); the optimum has a file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.assign.rack_standbys import _RackStandbys
from taskplace.assign.standby import StandbyCosts, Traffic, place_standbys
from taskplace.errors import ConfigError
from taskplace.model.problem_columns import STANDBY
from taskplace.simulation import Cluster, Event
from taskplace.verify import verify
from tests.support.stateful_tasks import ids, rests, stateful, zoned, zones_of

STRATEGIES = ("min_traffic", "balance_subtopology")


def configured(
    strategy: str = "balance_subtopology",
    standbys: int = 1,
    costs: tuple[int | None, int | None] = (None, None),
    tags: Sequence[str] = (),
) -> PlacementConfig:
    return PlacementConfig(
        num_standby_replicas=standbys,
        rack_aware_assignment_strategy=strategy,
        rack_aware_assignment_traffic_cost=costs[0],
        rack_aware_assignment_non_overlap_cost=costs[1],
        rack_aware_assignment_tags=tuple(tags),
        acceptable_recovery_lag=100,
    )


def _spread_over_racks(n: int, m: int, standbys: int, config: PlacementConfig, step: int = 1) -> Problem:
    tasks = [Task(TaskId(0, q), end_offset=1_000, changelog_racks=((f"r{q % 3}",),)) for q in range(n)]
    instances = [
        Instance(
            f"e{k:03}",
            tags={"rack": f"r{k % 3}", "zone": f"z{k % 2}"},
            active=tuple(t.id for t in tasks[k::m]),
            standby=tuple(t.id for j in range(1, standbys + 1) for t in tasks[(k - step * j) % m :: m]),
        )
        for k in range(m)
    ]
    instances = [replace(i, lags=dict.fromkeys([*i.active, *i.standby], 0)) for i in instances]
    return Problem(tasks, instances, config)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_standbys_go_to_the_rack_of_their_changelog_and_loads_stay_level(strategy):
    """Task q runs in rack q % 3, where its changelog is; there is another instance of that rack for its standby."""
    problem = _spread_over_racks(24, 6, 1, configured(strategy))
    made = taskplace.plan(problem)
    racks = {i.id: i.tags["rack"] for i in problem.instances}
    for name, roles in made.target.items():
        assert len(roles.active) == len(roles.standby) == 4
        for t in roles.standby:
            assert (f"{racks[name]}",) in next(x for x in problem.tasks if x.id == t).changelog_racks
    assert made.followup
    assert made.metrics["standby_reads_across_racks"] == 0


@pytest.mark.parametrize("standbys", [1, 2])
def test_both_networks_find_the_same_price_in_a_large_problem(standbys):
    problem = _spread_over_racks(300, 15, standbys, configured(standbys=standbys))
    c = problem.columns
    traffic = Traffic.of(c, problem.config)
    assert traffic is not None
    found = [place_standbys(c, c.owner, standbys, full, traffic) for full in (10**9, 0)]
    assert len({traffic.total(c, one.task, one.inst) for one in found}) == 1
    now = c.role == STANDBY
    assert traffic.total(c, found[0].task, found[0].inst) < traffic.total(c, c.task[now], c.inst[now])


def test_a_few_candidates_of_many_instances_are_near_ones_too(monkeypatch):
    problem = _spread_over_racks(120, 24, 1, configured(tags=["zone"]))
    exact = taskplace.plan(problem)
    monkeypatch.setattr("taskplace.assign.rack_standbys.FULL_NETWORK", 0)
    few = taskplace.plan(problem)
    reads = "standby_reads_across_racks"
    assert few.metrics[reads] == exact.metrics[reads] == 0
    assert not any("two copies in one zone" in w for w in few.warnings)


def test_racks_that_are_not_known_are_named_once_and_known_ones_count():
    problem = _spread_over_racks(6, 3, 1, configured())
    bare = Problem([t._replace(changelog_racks=()) for t in problem.tasks], problem.instances, problem.config)
    half = [t if t.id.partition % 2 else t._replace(changelog_racks=()) for t in problem.tasks]
    untagged = [replace(problem.instances[0], tags={}), *problem.instances[1:]]

    def warnings(problem):
        return [w for w in taskplace.plan(problem).warnings if "standbys" in w]

    (warning,) = warnings(bare)
    assert warning.startswith("standbys are placed without racks") and "changelog_racks" in warning
    assert warnings(problem) == warnings(replace(problem, tasks=half)) == []
    assert warnings(replace(problem, instances=untagged))


def test_prices_that_do_not_fit_are_refused_with_the_largest_that_do(monkeypatch):
    problem = _spread_over_racks(24, 6, 1, configured(costs=(5_000, 1)))
    c = problem.columns
    tasks = np.arange(c.n)

    def made(read):
        traffic = Traffic.of(c, configured(costs=(read, 1)))
        return StandbyCosts(c, c.owner, tasks, 1, strict=True, parked=False, traffic=traffic)

    monkeypatch.setattr("taskplace.assign.standby.cost_budget", lambda nodes: 8 * 25 * 1_000)
    with pytest.raises(
        ConfigError, match=r"traffic_cost: found 5000, expected at most (\d+) for 24"
    ) as caught:
        made(5_000)
    largest = int(str(caught.value.expected).split()[2])
    assert 0 < largest < 1_000
    assert made(largest).unit * (largest + 2) <= 8 * 25 * 1_000
    with pytest.raises(ConfigError):
        made(largest + 1)


def test_coarse_levels_still_keep_standbys_where_traffic_is_equal(monkeypatch):
    problem = _spread_over_racks(24, 6, 1, configured(), step=3)  # each standby is where its changelog is
    monkeypatch.setattr("taskplace.assign.standby.cost_budget", lambda nodes: 8 * 25 * 20)
    assert taskplace.plan(problem).stable


def test_a_needless_read_across_racks_is_found_by_the_verifier():
    problem = _spread_over_racks(24, 6, 1, configured(costs=(1, 10)))
    at_rest = taskplace.plan(problem)
    dear = Problem(problem.tasks, problem.instances, configured(costs=(10, 1)))
    found = verify(dear, replace(at_rest, fingerprint="", optimality=taskplace.plan(dear).optimality))
    assert "traffic" in {v.invariant for v in found}
    assert not verify(dear, taskplace.plan(dear))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_shared_value_outweighs_the_dearest_standby(strategy, monkeypatch):
    """Also in the first network, so that no second one is needed, which has no prices of traffic."""
    strict: list[bool] = []
    flow = _RackStandbys._flow

    def counted(self, p, *rest):
        strict.append(p.strict)
        return flow(self, p, *rest)

    monkeypatch.setattr(_RackStandbys, "_flow", counted)
    t = TaskId(0, 0)
    instances = [
        Instance("a", tags={"rack": "x", "zone": "1"}, active=(t,), lags={t: 0}),
        Instance("b", tags={"rack": "x", "zone": "1"}, standby=(t,), lags={t: 0}),  # costs nothing
        Instance("c", tags={"rack": "y", "zone": "2"}),  # a new copy, which reads from another rack
    ]
    task = Task(t, end_offset=1_000, racks=(("x",),), changelog_racks=(("x",),))
    plan = taskplace.plan(Problem([task], instances, configured(strategy, 1, tags=["zone"])))
    assert plan.target["c"].standby == (t,)
    assert strict == [True]


# ------------------------------------------------------------------------------------- copies in different zones


@pytest.mark.parametrize("standbys", [1, 2])
def test_copies_are_in_different_zones_also_with_few_arcs(standbys, monkeypatch):
    monkeypatch.setattr("taskplace.assign.rack_standbys.FULL_NETWORK", 0)
    config = PlacementConfig(num_standby_replicas=standbys, rack_aware_assignment_tags=("zone",))
    cluster = Cluster(stateful(*ids(0, 90), *ids(1, 30)), config)
    for i in zoned(30):
        cluster.add(i.id, tags=i.tags)
    events = Event("kill", "i03"), Event("add", "new", {"tags": {"zone": "b"}})
    for plan in rests(cluster, *([event] for event in events)):
        for zones in zones_of(plan, list(cluster.problem().instances)).values():
            assert len(set(zones)) == 1 + standbys


def test_too_few_zones_is_one_warning_and_all_standbys_are_placed():
    config = PlacementConfig(num_standby_replicas=2, rack_aware_assignment_tags=("zone",))
    instances = zoned(6, "ab")
    plan = taskplace.plan(Problem(stateful(*ids(0, 12)), instances, config))
    zones = zones_of(plan, instances)
    assert all(len(z) == 3 and len(set(z)) == 2 for z in zones.values())
    assert [w for w in plan.warnings if "zone" in w] == [
        "12 of 12 stateful tasks have two copies in one zone: there are 2 values of this tag (a, b); "
        "add instances with other values"
    ]


@pytest.mark.parametrize("seed", range(12))
def test_zones_converge_and_stay(seed):
    rng = random.Random(seed)
    config = PlacementConfig(
        num_standby_replicas=rng.randint(1, 2), rack_aware_assignment_tags=("zone",), max_warmup_replicas=3
    )
    cluster = Cluster(stateful(*ids(0, rng.randint(1, 20)), *ids(1, rng.randint(1, 10))), config)
    for k in range(rng.randint(3, 8)):
        cluster.add(f"i{k}", rng.randint(1, 3), {"zone": rng.choice("abc")})
    events = Event("add", "new", {"tags": {"zone": "a"}}), Event("kill", "i0"), Event("drain", "i1")
    assert len([*rests(cluster, *([event] for event in events))]) == 4
