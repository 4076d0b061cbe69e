"""Placed batches on a real local-cluster: restarts, crashes around the manifest, second drivers, refusals."""

from __future__ import annotations

import shutil

import pytest
from pyspark.sql import functions as F  # noqa: N812

pytestmark = pytest.mark.spark


def fail(*_args, **_kwargs):
    return 1 // 0


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
    with pytest.raises(Exception, match="offsets/1: these are not the offsets that batch 1 was committed"):
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
