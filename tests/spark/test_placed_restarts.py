"""Placed batches on a real local-cluster: restarts, crashes around the manifest, second drivers, refusals."""

from __future__ import annotations

import shutil

import pytest
from pyspark.sql import functions as F  # noqa: N812

from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.spark.compile.programs import unite

pytestmark = pytest.mark.spark


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
    monkeypatch.setattr(type(p.placed._runner), "_publish", fail)
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
    monkeypatch.setattr(type(p.placed._runner), "_publish", fail)
    with pytest.raises(ZeroDivisionError):
        p.placed.process_batch(p.frame(data), 1)
    monkeypatch.undo()
    p.rows.extend(data)
    p.sink = "renamed"
    p.reopen()
    with pytest.raises(
        CheckpointError, match="batch 1 is committed and may have unpublished output for sink 'keys-out'"
    ):
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
    with pytest.raises(CheckpointError, match=r"the key of topic 'events' had the types string, found int"):
        p.open().unite({"events": p.frame(p.data(1)).withColumn("key", F.lit(1))})
    with pytest.raises(CheckpointError, match=r"the key of topic 'events'"):
        p.open().process_batch(p.frame(p.data(1)).withColumn("key", F.lit(1)), 1)
    (p.folder / "groups" / ".checkpoint").write_text("another")
    with pytest.raises(CheckpointError, match="the directory has output of another checkpoint"):
        p.open()
    p.run(1)
    p.check()


def test_a_committed_batch_is_published_also_when_its_rows_are_gone_from_the_source(
    pipeline, monkeypatch, caplog
):
    p = pipeline()
    p.run(0)
    monkeypatch.setattr(type(p.placed._runner.publisher), "publish", fail)
    with pytest.raises(ZeroDivisionError):
        p.run(1)
    monkeypatch.undo()
    p.reopen()
    gone = p.frame(p.data(1)).where(F.raise_error(F.lit("the file is gone")).isNull())
    p.placed.process_batch(gone, 1)
    assert "its rows cannot be counted again: SparkRuntimeException" in caplog.text
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
    assert f"committed with {len(p.data(2))} rows, found {len(more)} rows for it now" in caplog.text
    p.check()


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
    log = p.folder / "spark-checkpoint" / "offsets"
    assert p.placed.journal.last.offsets, "the log of a query of one's own is found"
    shutil.copy(log / "0", log / "1")
    (log / ".1.crc").unlink(missing_ok=True)
    p.reopen()
    with pytest.raises(
        Exception, match="offsets/1: these are not the offsets that batch 1 was committed with"
    ):
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
    with pytest.raises(Exception, match=r"belongs to query .* keep both, or start a new checkpoint for both"):
        stream("another")  # Spark's checkpoint is gone, the placed one is there
    p.placed.close()

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
    with pytest.raises(CheckpointError, match="created with another topology: "):
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
        InputError, match=r"co-partitioned keys of different types.*int64.*int32.*cast the keys"
    ):
        unite(built, {"a": longs, "b": ints})
    with pytest.raises(InputError, match=r"sources: found .*'c'"):
        unite(built, {"a": longs, "b": longs, "c": longs})
    with pytest.raises(InputError, match=r"expected a data frame for each of \['a', 'b'\]"):
        unite(built, {"a": longs})


def test_the_output_of_another_checkpoint_is_refused(pipeline):
    p = pipeline()
    p.run(0)
    p.placed.close()
    shutil.rmtree(p.folder / "checkpoint")
    with pytest.raises(
        CheckpointError, match="the directory has output of another checkpoint; set another directory"
    ):
        p.open()


def test_a_new_checkpoint_on_an_old_state_directory_starts_anew(pipeline):
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
