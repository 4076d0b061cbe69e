"""A listener that puts a stream's metrics beside Spark's progress."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from taskplace.errors import InputError
from taskplace.spark import MetricsListener
from tests.support.placed_harness import wait_until


class Stream:
    query_id: str | None = "a"

    def metrics(self):
        return {"batches-total": 3}


def event(query, batch=2):
    return SimpleNamespace(progress=SimpleNamespace(id=query, batchId=batch))


def test_only_events_of_the_own_query_are_passed_on():
    seen = []
    stream = Stream()
    listener = MetricsListener(stream, lambda progress, metrics: seen.append((progress.batchId, metrics)))
    listener.onQueryStarted(event("a"))
    for query in ("b", "a", "c"):
        listener.onQueryProgress(event(query))
    listener.onQueryTerminated(event("a"))
    assert seen == [(2, {"batches-total": 3})]
    stream.query_id = None  # before the first batch
    listener.onQueryProgress(event("None"))
    assert len(seen) == 1


def test_an_error_of_the_function_is_logged(caplog):
    def fail(progress, metrics):
        raise KeyError("no such metric")

    with caplog.at_level(logging.WARNING, "taskplace"):
        MetricsListener(Stream(), fail).onQueryProgress(event("a", batch=7))
    (line,) = caplog.records
    assert line.getMessage() == "the listener of batch 7 failed"
    assert line.exc_info[0] is KeyError


@pytest.mark.parametrize("function", [None, lambda: None, lambda progress: None])
def test_a_function_of_other_arguments_is_refused(function):
    expected = r"expected a function of \(progress, metrics\)"
    with pytest.raises(InputError, match=rf"^MetricsListener.on_progress: .*{expected}"):
        MetricsListener(Stream(), function)


def test_a_stream_on_spark_has_its_metrics_beside_its_progress(cluster, pipeline, tmp_path):
    placed = pipeline().placed
    rows = cluster.createDataFrame(
        [(f"k{i}", "g", i) for i in range(100)], "key string, `group` string, value bigint"
    )
    rows.write.parquet(str(tmp_path / "in"))
    seen = []
    listener = MetricsListener(placed, lambda progress, metrics: seen.append((progress, metrics)))
    cluster.streams.addListener(listener)
    try:
        source = cluster.readStream.schema(rows.schema).parquet(str(tmp_path / "in"))
        query = placed.start({"events": source}, trigger={"availableNow": True})
        query.awaitTermination()
        wait_until(lambda: seen, "Spark calls the listener")
    finally:
        cluster.streams.removeListener(listener)
    progress, metrics = seen[0]
    assert str(progress.id) == placed.query_id == query.id
    assert metrics["batches-total"] >= progress.batchId + 1
    assert progress.numInputRows == metrics["rows-total"] == 100
    assert metrics["executors"] == 3
