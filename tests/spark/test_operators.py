"""A real stream answers `status`, `can-remove` and `drain` from another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from taskplace.cli import main
from taskplace.spark.operator_messages import STATUS_FILE, Status, read
from tests.support.placed_harness import data, wait_until

pytestmark = pytest.mark.spark

COMMAND = "import sys; from taskplace.cli import main; sys.exit(main())"
MOST_BATCHES = 20


def command(*arguments: object) -> tuple[int, str]:
    """Run `taskplace` in a process of its own; return its exit code and what it has printed."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    line = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def shown(path: Path) -> dict:
    """Return the status of a running stream."""
    code, out = command("status", path, "--watch", "--count", "1", "--output", "json")
    assert code == 0, out
    return json.loads(out)


def write_events(folder: Path, batch: int) -> None:
    """Add the file of a batch."""
    keys, groups, values = zip(*data(batch), strict=True)
    file = folder / f".{batch}.parquet"  # Spark does not read it before it is renamed
    pq.write_table(pa.table({"key": keys, "group": groups, "value": values}), file)
    file.rename(folder / f"{batch}.parquet")


def test_an_operator_empties_an_executor_from_another_process(pipeline, cluster, tmp_path):
    events = tmp_path / "events"
    events.mkdir()
    placed, path = pipeline().placed, tmp_path / "checkpoint"
    files = cluster.readStream.schema("key string, `group` string, value bigint").parquet(str(events))
    query = placed.start({"events": files})
    try:
        write_events(events, 0)
        query.processAllAvailable()
        wait_until(lambda: shown(path)["status"]["batch"] == 0, "the status shows the batch")
        seen = shown(path)
        views = {view.id: view for view in placed.placement()}
        assert seen["status"]["executors"].keys() == views.keys()
        (name, *_) = (name for name, view in views.items() if view.active)

        code, out = command("drain", path, name)
        assert code == 3, out
        assert f"moves from {name} to " in out
        assert command("can-remove", path, name)[0] == 3
        code, out = command("drain", path, name, "--yes")
        assert code == 0, out
        assert f"draining: {name}" in out

        for batch in range(1, MOST_BATCHES):
            write_events(events, batch)
            query.processAllAvailable()
            code, out = command("can-remove", path, name)
            if code == 0:
                break
            assert code == 3, out
        assert (code, placed.can_remove(name)) == (0, True), out
        assert not any(placed.state.roles(name))
    finally:
        query.stop()
    code, out = command("status", path)
    assert code == 4, out
    assert "has ended" in out
    code, out = command("inspect", path, "--verify")
    assert code == 0, out


# -- A query that is stopped within a batch is no failure; a batch that fails is one


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
