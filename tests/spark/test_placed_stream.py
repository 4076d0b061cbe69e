"""Placed batches on a real local-cluster: pinning, commit, followers."""

from __future__ import annotations

import json

import pytest

from taskplace.spark.bridge import Bridge
from taskplace.spark.codec import unsealed

pytestmark = pytest.mark.spark


def executor_of(elements):
    from taskplace.spark.worker import identity

    for element in elements:
        yield f"{bytes(element).decode()} {identity.executor()[0]}"


def test_pinned_partitions_run_where_they_belong_round_after_round(cluster):
    bridge = Bridge(cluster)
    executors = bridge.executors()
    for round_ in range(3):
        wanted = [executors[(i + round_) % len(executors)] for i in range(12)]
        rdd = bridge.pinned([e.id.encode() for e in wanted], [e.location for e in wanted], executor_of)
        answers = bridge.run(rdd, range(12), tag=f"pinning-{round_}")
        assert [a.split()[0] for a in answers] == [a.split()[1] for a in answers]


def test_batches_commit_one_manifest_each_and_the_result_is_right(pipeline):
    p = pipeline()
    for batch in range(4):
        p.run(batch)
    p.check()
    manifests = sorted((p.folder / "checkpoint" / "manifests").glob("*.json"))
    assert [json.loads(unsealed(m.read_bytes()))["batch"] for m in manifests] == [0, 1, 2, 3]
    assert p.placed.stats.elsewhere == 0
    views = p.placed.placement()
    assert {(v.active, v.standby) for v in views} == {(4, 4)}  # 12 tasks, one standby each, three executors


def test_tasks_that_run_elsewhere_are_right_and_counted(pipeline, monkeypatch):
    p = pipeline()
    p.run(0)
    owners = type(p.placed.state).owners

    def shifted(cluster):
        """Pin every task to the next executor, while its descriptor still names the planned one."""
        found = owners(cluster)
        executors = sorted({e for e in found.values() if e is not None})
        after = dict(zip(executors, [*executors[1:], executors[0]], strict=True))
        return {task: Misplaced(e, after[e]) for task, e in found.items()}

    monkeypatch.setattr(type(p.placed.state), "owners", shifted)
    p.run(1)
    monkeypatch.undo()
    assert p.placed.stats.elsewhere == 12
    p.run(2)
    p.check()


class Misplaced:
    """An owner whose tasks Spark takes somewhere else."""

    def __init__(self, planned, actual):
        self.instance, self.id, self.location = planned.instance, planned.id, actual.location
        self.cores = actual.cores


def test_an_executor_lost_while_it_is_welcomed_does_not_end_the_stream(pipeline, monkeypatch):
    from taskplace.spark.driver.followers import Replicator

    executors_now, losses = Replicator._executors_now, [frozenset({"no-executor-of-now"})]
    monkeypatch.setattr(
        Replicator, "_executors_now", lambda visits: losses.pop() if losses else executors_now(visits)
    )
    p = pipeline()
    p.run(0)
    p.check()
    assert not losses


def test_column_names_with_dots_pass(cluster, tmp_path):
    from taskplace.spark import ForeachBatch, Placed
    from topology import Topology

    seen = []
    topo = Topology("dots")
    source = topo.source("s", key=["a.b"], partitions=2)
    target = ForeachBatch(lambda df, batch: seen.extend(df.collect()))
    source.process(lambda context, rows: rows, name="same").sink("out", target=target)
    placed = Placed(cluster, topo, checkpoint=tmp_path / "cp", state_dir=tmp_path / "state")
    placed.process_batch(cluster.createDataFrame([("x", 1), ("y", 2)], "`a.b` string, `c.d` int"), 0)
    placed.close()
    assert sorted(tuple(row) for row in seen) == [("x", 1), ("y", 2)]
