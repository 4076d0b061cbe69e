"""A query that is stopped within a batch is no failure; a batch that fails is one."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from taskplace.cli import main
from taskplace.spark.operator_messages import STATUS_FILE, Status, read
from tests.spark.test_operators import write_events
from tests.support.placed_harness import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(pipeline, cluster, tmp_path):
    """A stream of files, which has not started, with its source."""
    events = tmp_path / "events"
    events.mkdir()
    files = cluster.readStream.schema("key string, `group` string, value bigint").parquet(str(events))
    write_events(events, 0)
    return pipeline().placed, files


@pytest.mark.parametrize("how", ["handle", "Spark"])
def test_a_query_that_is_stopped_within_a_batch_has_not_failed(
    stream, cluster, tmp_path, fault_orders, capsys, how
):
    placed, files = stream
    (fault_orders / "attempt.processed").write_text("hold")
    held = fault_orders / "attempt.processed.held"
    query = placed.start({"events": files})
    try:
        wait_until(held.exists, "an attempt is held")
        if how == "Spark":
            cluster.streams.get(query.id).stop()
    finally:
        query.stop()
    assert query.exception() is None
    status = read(tmp_path / "checkpoint" / STATUS_FILE, Status)
    assert (status.ended, status.batch, status.failed) == (True, -1, None)
    assert status.stopped is not None and status.stopped.batch == 0

    assert main(["status", str(tmp_path / "checkpoint")]) == 4
    out = capsys.readouterr().out
    assert "\nstopped during batch 0; the next start runs it again\n" in out
    assert "failed" not in out
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "checkpoint"), "--out", str(page)]) == 0
    assert "stopped during batch 0" in page.read_text()


def test_ctrl_c_cancels_all_jobs_before_the_query_is_stopped(stream, cluster, tmp_path, fault_orders):
    """PySpark's handler of the signal does, and raises KeyboardInterrupt then."""
    placed, files = stream
    (fault_orders / "attempt.processed").write_text("hold")
    query = placed.start({"events": files})
    try:
        wait_until((fault_orders / "attempt.processed.held").exists, "an attempt is held")
        cluster.sparkContext.cancelAllJobs()
        wait_until(lambda: placed._runner.rebalancer.events.running is None, "the batch has ended")
    finally:
        query.stop()
    status = read(tmp_path / "checkpoint" / STATUS_FILE, Status)
    assert status.failed is None
    assert status.stopped is not None and status.stopped.batch == 0


def test_a_batch_that_fails_is_a_failure_also_if_the_query_is_stopped_later(stream, tmp_path):
    placed, files = stream

    def fails(batch: int, subtopology: int) -> None:
        raise ValueError("a row")

    placed.on_stage = fails
    query = placed.start({"events": files})
    try:
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
    finally:
        query.stop()
    status = read(tmp_path / "checkpoint" / STATUS_FILE, Status)
    assert status.failed is not None and (status.failed.batch, status.failed.error) == (0, "ValueError")
    assert status.stopped is None
