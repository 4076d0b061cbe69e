"""Placed batches on a real local-cluster: pinning, commit, followers, restarts, refusals."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.spark.bridge import Bridge
from taskplace.spark.codec import unsealed
from taskplace.spark.driver.programs import PARTITION, unite
from taskplace.spark.state.copy import Copy
from taskplace.spark.worker.hashing import partition_of
from topology import TaskId

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


def test_spark_and_workers_agree_on_the_partition_of_a_key(cluster, pipeline):
    placed = pipeline().placed
    rows = [(f"k{i}" if i % 9 else None, "g", i) for i in range(500)]
    df = cluster.createDataFrame(rows, "key string, `group` string, value bigint")
    united = unite(placed.built, {"events": df}).select(PARTITION, "events.value").collect()
    found = {row["value"]: row[PARTITION] for row in united}
    expected = partition_of([pa.array([key for key, _, _ in rows])], 6).tolist()
    assert found == dict(enumerate(expected))


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


def test_standbys_hold_what_actives_hold(pipeline):
    p = pipeline()
    for batch in range(3):
        p.run(batch)
    p.settle()
    p.placed.close()
    copies: dict[str, list] = {}
    for path in p.placed.state_root.glob("*/*_*"):
        store = {"0": "by-key", "1": "by-group"}[path.name[0]]
        with Copy(path, [store]) as copy:
            copy.bring_to(p.placed.journal.history[TaskId.parse(path.name)], p.folder / "checkpoint")
            copies.setdefault(path.name, []).append(dict(copy.scan(store)))
    assert len(copies) == 12
    for task, states in copies.items():
        assert len(states) == 2, task
        assert states[0] == states[1], task


def test_an_empty_batch_changes_no_state_and_writes_no_changelog(pipeline):
    p = pipeline()
    p.run(0)
    before = {task: history.end for task, history in p.placed.journal.history.items()}
    p.run(1, rows=0)
    assert {task: history.end for task, history in p.placed.journal.history.items()} == before
    assert p.placed.journal.last.changes == {}
    p.run(2)
    p.check()


def test_snapshots_are_made_and_what_they_cover_is_pruned(pipeline):
    p = pipeline(snapshot_interval=2)
    for batch in range(12):
        p.run(batch, rows=60)
        p.settle()
    for history in p.placed.journal.history.values():
        assert len(history.snapshots) == 2
        assert len(history.changes) < 10
    assert len(list((p.folder / "checkpoint" / "manifests").glob("*.json"))) < 12
    p.check()


def test_a_restarted_driver_continues_with_the_copies_it_finds(pipeline):
    p = pipeline()
    for batch in range(3):
        p.run(batch)
    p.settle()
    p.reopen()
    assert p.placed.journal.last_batch == 2
    for batch in range(3, 5):
        p.run(batch)
    p.check()
    assert p.placed.stats.scratch == 0
    assert p.placed.loop.generation >= 2  # generations go on where they were


def test_a_crash_after_the_manifest_publishes_again_and_counts_nothing_twice(pipeline, monkeypatch):
    p = pipeline()
    p.run(0)
    data = p.data(1)
    monkeypatch.setattr(type(p.placed), "_publish", fail)
    with pytest.raises(ZeroDivisionError):
        p.placed.process_batch(p.frame(data), 1)
    monkeypatch.undo()
    p.rows.extend(data)
    assert not (p.folder / "keys" / "batch_id=1").exists()
    p.reopen()
    p.placed.process_batch(p.frame(data), 1)  # Spark repeats what it has not seen end
    p.check()
    p.run(2)
    p.check()


def test_output_that_was_not_published_is_not_lost_with_its_sink(pipeline, monkeypatch):
    p = pipeline()
    p.run(0)
    data = p.data(1)
    monkeypatch.setattr(type(p.placed), "_publish", fail)
    with pytest.raises(ZeroDivisionError):
        p.placed.process_batch(p.frame(data), 1)
    monkeypatch.undo()
    p.rows.extend(data)
    p.sink = "renamed"
    p.reopen()
    with pytest.raises(CheckpointError, match="batch 1 is committed and has output for sink 'keys-out'"):
        p.placed.process_batch(p.frame(data), 1)
    p.sink = "keys-out"
    p.reopen()
    p.placed.process_batch(p.frame(data), 1)
    p.check()


def test_a_crash_before_the_manifest_rolls_every_copy_back(pipeline, monkeypatch):
    p = pipeline()
    p.run(0)
    monkeypatch.setattr(type(p.placed.journal), "commit", fail)
    with pytest.raises(ZeroDivisionError):
        p.placed.process_batch(p.frame([("k1", "g1", 10**6)] * 500), 1)
    monkeypatch.undo()
    p.reopen()
    p.run(1)
    p.run(2)
    p.check()
    assert p.placed.stats.scratch == 0


def fail(*_args, **_kwargs):
    return 1 // 0


def test_a_second_driver_fences_the_first(pipeline):
    p = pipeline()
    p.run(0)
    first = p.placed
    p.placed = p.open()
    p.run(1)
    with pytest.raises(Fenced):
        first.process_batch(p.frame(p.data(7)), 1)
    with pytest.raises(Fenced):
        first.process_batch(p.frame(p.data(7)), 1)
    first.close()
    p.run(2)
    p.check()


def test_a_start_that_is_refused_takes_nothing_over(pipeline):
    p = pipeline()
    p.run(0)
    with pytest.raises(InputError, match=r"weights"):
        p.open(weights={"0_17": 2.0})
    with pytest.raises(
        CheckpointError, match=r"the key of topic 'events' was of \['string'\], is of \['int'\]"
    ):
        p.open().unite({"events": p.frame(p.data(1)).withColumn("key", F.lit(1))})
    with pytest.raises(CheckpointError, match=r"the key of topic 'events'"):
        p.open().process_batch(p.frame(p.data(1)).withColumn("key", F.lit(1)), 1)
    (p.folder / "groups" / ".checkpoint").write_text("another")
    with pytest.raises(CheckpointError, match="holds the output of another checkpoint"):
        p.open()
    p.run(1)
    p.check()


def test_a_committed_batch_is_published_also_when_its_rows_are_gone_from_the_source(
    pipeline, monkeypatch, caplog
):
    p = pipeline()
    p.run(0)
    monkeypatch.setattr(type(p.placed._publisher), "publish", fail)
    with pytest.raises(ZeroDivisionError):
        p.run(1)
    monkeypatch.undo()
    p.reopen()
    gone = p.frame(p.data(1)).where(F.raise_error(F.lit("the file is gone")).isNull())
    p.placed.process_batch(gone, 1)
    assert "the file is gone" in caplog.text
    p.rows.extend(p.data(1))
    p.check()


def test_a_batch_before_the_last_one_is_refused_and_one_that_has_grown_is_told(pipeline, caplog):
    """Spark's checkpoint was set back: it would cut the batch anew, maybe with rows that were never seen."""
    p = pipeline()
    for batch in range(3):
        p.run(batch)
    p.placed.process_batch(p.frame(p.data(2)), 2)  # the last one is published again
    with pytest.raises(
        CheckpointError, match="Spark's checkpoint is at batch 1, the placed state at batch 2"
    ):
        p.placed.process_batch(p.frame(p.data(1)), 1)
    p.check()
    more = [*p.data(2), *p.data(3)]
    p.placed.process_batch(p.frame(more), 2)
    assert f"committed with {len(p.data(2))} rows, and Spark brings {len(more)}" in caplog.text
    p.check()


def test_tasks_that_run_elsewhere_are_right_and_counted(pipeline, monkeypatch):
    p = pipeline()
    p.run(0)
    owners = type(p.placed.rebalancer).owners

    def shifted(cluster):
        """Pin every task to the next executor, while its descriptor still names the planned one."""
        found = owners(cluster)
        executors = sorted({e for e in found.values() if e is not None})
        after = dict(zip(executors, [*executors[1:], executors[0]], strict=True))
        return {task: Misplaced(e, after[e]) for task, e in found.items()}

    monkeypatch.setattr(type(p.placed.rebalancer), "owners", shifted)
    p.run(1)
    monkeypatch.undo()
    assert p.placed.stats.elsewhere == 12
    p.run(2)
    p.check()


class Misplaced:
    """An owner whose tasks Spark takes somewhere else."""

    def __init__(self, planned, actual):
        self.instance, self.id, self.location = planned.instance, planned.id, actual.location


def test_two_attempts_of_one_task_count_once(pipeline, monkeypatch):
    """Every stage runs twice, as with a duplicate attempt; the second one's reports win."""
    from taskplace.spark.driver import stages

    p = pipeline()
    once = stages.run

    def twice(*args, **kwargs):
        once(*args, **kwargs)
        return once(*args, **kwargs)

    monkeypatch.setattr(stages, "run", twice)
    for batch in range(3):
        p.run(batch)
    p.check()
    p.settle()


def test_draining_moves_everything_away_and_stalls_nothing(pipeline):
    p = pipeline()
    p.run(0)
    drained = p.placed.placement()[1].id
    p.placed.drain(drained.removeprefix("executor-"))
    assert not p.placed.can_remove(drained)
    assert p.placed.removal(drained).text.startswith("no: ")
    batch = 1
    while not p.placed.can_remove(drained):
        assert batch < 40, "the drained executor never became free"
        p.settle()
        p.run(batch, rows=60)
        batch += 1
    p.check()
    assert p.placed.stats.scratch == 0
    views = {v.id: (v.active, v.standby, v.warmup) for v in p.placed.placement()}
    assert views[drained] == (0, 0, 0)
    assert p.placed.removal(drained).text.startswith("yes")
    assert p.placed.state.generation == p.placed.loop.generation > 1
    copies = {task for instance in p.placed.state.instances() for task in instance.lags}
    assert copies == {task for task, history in p.placed.journal.history.items() if history.changes}
    with pytest.raises(InputError, match="executor: found 'no-such', expected one of"):
        p.placed.drain("no-such")


def test_it_embeds_in_foreach_batch_and_survives_a_restart_of_the_query(pipeline, cluster):
    p = pipeline()
    source = p.folder / "source"

    def arrive(batch):
        p.rows.extend(p.data(batch))
        p.frame(p.data(batch)).coalesce(1).write.mode("append").parquet(str(source))

    def stream():
        df = cluster.readStream.schema("key string, `group` string, value bigint").parquet(str(source))
        writer = df.writeStream.foreachBatch(p.placed.process_batch).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(p.folder / "spark-checkpoint")).start()
        query.awaitTermination()

    arrive(0)
    stream()
    p.check()
    p.reopen()
    arrive(1)
    stream()
    p.check()


def test_spark_and_placed_checkpoints_belong_together(pipeline, cluster):
    p = pipeline()
    rows = p.folder / "source"
    p.frame(p.data(0)).write.parquet(str(rows))

    def stream(checkpoint):
        df = cluster.readStream.schema("key string, `group` string, value bigint").parquet(str(rows))
        writer = df.writeStream.foreachBatch(p.placed.process_batch).trigger(availableNow=True)
        writer.option("checkpointLocation", str(p.folder / checkpoint)).start().awaitTermination()

    stream("one")
    p.reopen()
    with pytest.raises(Exception, match=r"belongs to query .* keep both, or start both anew"):
        stream("another")  # Spark's checkpoint is gone, the placed one is there
    p.placed.close()

    import shutil

    for what in ("checkpoint", "keys", "groups"):
        shutil.rmtree(p.folder / what)
    p.frame(p.data(1)).write.mode("append").parquet(str(rows))
    p.placed = p.open()
    with pytest.raises(Exception, match="Spark's checkpoint is at batch 1, the placed state at batch -1"):
        stream("one")


def test_a_checkpoint_of_another_topology_is_refused_before_anything_runs(pipeline):
    p = pipeline()
    p.run(0)
    p.placed.close()
    before = sorted(str(f) for f in (p.folder / "checkpoint").rglob("*"))
    p.partitions = 4
    with pytest.raises(CheckpointError, match="made with another topology: existing state cannot be kept"):
        p.open()
    assert sorted(str(f) for f in (p.folder / "checkpoint").rglob("*")) == before


def test_keys_of_different_types_are_refused(cluster):
    from topology import Topology

    topo = Topology("t")
    a = topo.source("a", key=["id"], partitions=2)
    b = topo.source("b", key=["id"], partitions=2)
    a.join_table(b, lambda context, x, y: x, name="j")
    built = topo.build()
    longs, ints = cluster.range(3), cluster.range(3).select(F.col("id").cast("int"))
    with pytest.raises(
        InputError, match=r"co-partitioned keys of different types.*bigint.*int.*cast the keys"
    ):
        unite(built, {"a": longs, "b": ints})
    with pytest.raises(InputError, match=r"sources\.c: found 'c', expected a source of the topology"):
        unite(built, {"a": longs, "b": longs, "c": longs})
    with pytest.raises(InputError, match=r"also \['b'\]"):
        unite(built, {"a": longs})


def test_after_close_it_can_be_used_again_and_follows(pipeline):
    p = pipeline()
    p.run(0)
    p.placed.close()
    p.run(1)
    p.settle()
    p.check()


def test_the_output_of_another_checkpoint_is_refused(pipeline):
    import shutil

    p = pipeline()
    p.run(0)
    p.placed.close()
    shutil.rmtree(p.folder / "checkpoint")
    with pytest.raises(
        CheckpointError, match="holds the output of another checkpoint; name another directory"
    ):
        p.open()


def test_a_new_checkpoint_on_an_old_state_directory_starts_anew(pipeline):
    import shutil

    p = pipeline()
    for batch in range(3):
        p.run(batch)
    p.placed.close()
    for what in ("checkpoint", "keys", "groups"):
        shutil.rmtree(p.folder / what)
    p.placed, p.rows = p.open(), []
    for batch in range(3):
        p.run(batch, rows=50)
    p.check()


def test_an_executor_lost_while_it_is_welcomed_does_not_end_the_stream(pipeline, monkeypatch):
    from taskplace.spark.bridge import JobLostError
    from taskplace.spark.driver import followers

    send, losses = followers.send, [JobLostError(frozenset({"9"}))]

    def lose_once(*args, **kwargs):
        if losses:
            raise losses.pop()
        return send(*args, **kwargs)

    monkeypatch.setattr(followers, "send", lose_once)
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
    source.process(lambda context, rows: rows, name="same").sink(
        "out", target=ForeachBatch(lambda df, batch: seen.extend(df.collect()))
    )
    placed = Placed(cluster, topo, checkpoint=tmp_path / "cp", state_dir=tmp_path / "state")
    placed.process_batch(cluster.createDataFrame([("x", 1), ("y", 2)], "`a.b` string, `c.d` int"), 0)
    placed.close()
    assert sorted(tuple(row) for row in seen) == [("x", 1), ("y", 2)]
