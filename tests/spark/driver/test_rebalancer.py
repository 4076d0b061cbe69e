"""What a driver plans with."""

from __future__ import annotations

import pyarrow as pa

from taskplace.spark.cluster import Executor
from taskplace.spark.processors import Count
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from topology import Topology


def test_the_copies_of_a_task_are_on_different_hosts(tmp_path, monkeypatch):
    """Six executors on three hosts: no tag is named in the configuration."""
    world = World(tmp_path, monkeypatch, executors=6)
    world.there = {name: Executor(name, f"host-{int(name) % 3}", 1) for name in world.there}
    topology = Topology("t")
    counted = topology.source("in", key="k", partitions=24).process(Count("n", by={"k": "string"}))
    counted.sink("out", target=ParquetSink(tmp_path / "out"))
    placed = world.open(topology, config={"num.standby.replicas": 1})
    world.batch(placed, 0, **{"in": pa.table({"k": [str(n) for n in range(200)]})})
    host = {name: member.executor.host for name, member in placed.state.members.items()}
    copies = {}
    for name, roles in placed.state.assignment.items():
        for task in (*roles.active, *roles.standby):
            copies.setdefault(task, []).append(host[name])
    assert len(copies) == 24
    assert {len(set(hosts)) for hosts in copies.values()} == {2}, copies
    placed.close()
