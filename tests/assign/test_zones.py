"""Standbys away from the rack of their active (KIP-708): copies in different zones, and at rest."""

from __future__ import annotations

import random

import pytest

import taskplace
from taskplace import PlacementConfig, Problem
from taskplace.simulation import Cluster, Event
from taskplace.simulation.run import settle
from tests.support.stateful_tasks import ids, stateful, zoned, zones_of


@pytest.mark.parametrize("standbys", [1, 2])
def test_copies_are_in_different_zones_also_with_few_arcs(standbys, monkeypatch):
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
