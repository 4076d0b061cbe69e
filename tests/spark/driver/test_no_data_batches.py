"""Whether a query reads the source of ticks, and when a batch is requested; no Spark needed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from taskplace.spark.driver.no_data_batches import OFFSET, TickSource
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count, Tumbling
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from topology import Topology

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema({"user": pa.string(), "at": pa.timestamp("us", "UTC")})


def opened(world: World, *, windows: bool) -> Placed:
    topo = Topology("hours")
    clicks = topo.source("clicks", key="user", partitions=2, event_time="at", delay="10 minutes")
    window = Tumbling("at", "1 hour", emit="final") if windows else None
    counted = clicks.process(Count("hours", by={"user": "string"}, window=window), name="count")
    counted.sink("out", target=ParquetSink(world.folder / "out"))
    return world.open(topo)


def click(minute: int) -> pa.Table:
    return pa.table([["a"], [START + timedelta(minutes=minute)]], schema=SCHEMA)


def spark_checkpoint(world: World, *offsets: str):
    """Return a checkpoint of Spark's with these offsets of its sources in batch 0; none: of no batch."""
    folder = world.folder / "spark-checkpoint"
    (folder / "offsets").mkdir(parents=True)
    if offsets:
        (folder / "offsets" / "0").write_text("\n".join(("v1", "{}", *offsets)))
    return folder


@pytest.mark.parametrize("windows", [True, False])
def test_a_new_query_reads_ticks_if_time_leaves_something_to_do(world, windows):
    assert (
        opened(world, windows=windows)._runner.no_data_batches.wants_ticks(spark_checkpoint(world)) is windows
    )


@pytest.mark.parametrize("windows", [True, False])
def test_a_query_that_has_read_ticks_goes_on_reading_them(world, caplog, windows):
    folder = spark_checkpoint(world, '{"logOffset":3}', json.dumps({OFFSET: 1}))
    assert opened(world, windows=windows)._runner.no_data_batches.wants_ticks(folder) is True
    assert not caplog.records


@pytest.mark.parametrize("windows", [True, False])
def test_a_query_that_was_made_without_ticks_goes_on_without_and_is_told_once_what_waits(
    world, caplog, windows
):
    placed = opened(world, windows=windows)
    assert placed._runner.no_data_batches.wants_ticks(spark_checkpoint(world, '{"logOffset":3}')) is False
    for batch in range(2):
        world.batch(placed, batch, clicks=click(100 * batch))
        assert placed.due() is windows
    assert ["without the source of ticks" in record.message for record in caplog.records] == [True] * windows


def test_the_next_batch_is_requested_while_something_is_due(world):
    placed = opened(world, windows=True)
    placed._runner.no_data_batches.ticks = TickSource(placed.checkpoint)
    tick = placed.checkpoint / "tick"
    world.batch(placed, 0, clicks=click(1))
    assert tick.read_text() == "1\n"
    world.batch(placed, 1, clicks=click(1).slice(1))
    assert not placed.due()
    assert tick.read_text() == "1\n"
