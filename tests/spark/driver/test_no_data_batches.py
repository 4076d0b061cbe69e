"""What is due by event time happens though no source brings rows."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from taskplace.errors import InputError
from taskplace.spark import Placed
from taskplace.spark.driver import no_data_batches as idle_sources
from taskplace.spark.driver.no_data_batches import OFFSET, TickSource, carries_ticks
from taskplace.spark.processors import Count, Tumbling
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.state import expiry
from tests.support.placed_harness import wait_until
from tests.support.placed_without_spark import World
from topology import Topology

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = pa.schema({"user": pa.string(), "at": pa.timestamp("us", "UTC")})


def rows(*clicks: tuple[str, int]) -> pa.Table:
    """Return clicks: the user, and the minute."""
    users, minutes = [user for user, _ in clicks], [minute for _, minute in clicks]
    return pa.table([users, [START + timedelta(minutes=m) for m in minutes]], schema=SCHEMA)


def hours(folder, *, windows: bool = True) -> Topology:
    """Return the counting of clicks by user and hour; each hour is sent once, when it has closed."""
    topo = Topology("hours")
    clicks = topo.source("clicks", key="user", partitions=2, event_time="at", delay="10 minutes")
    window = Tumbling("at", "1 hour", emit="final") if windows else None
    counted = clicks.process(Count("hours", by={"user": "string"}, window=window), name="count")
    counted.sink("out", target=ParquetSink(folder / "out"))
    return topo


def sent(folder) -> Counter:
    """Return the windows that were sent, by user and hour, with the count; each must have come once."""
    found: Counter = Counter()
    for file in (folder / "out").glob("batch_id=*/*.parquet"):
        for row in pq.ParquetFile(file).read().to_pylist():
            key = (row["user"], (row["window_start"] - START) // timedelta(hours=1))
            assert key not in found, f"{key} was sent twice"
            found[key] = row["count"]
    return found


# ------------------------------------------------------------------------- without Spark


def quiet(world: World, placed: Placed, most: int = 10) -> int:
    """Run batches without rows as long as something is due, and return how many."""
    for number in range(most):
        if not placed.due():
            return number
        world.batch(placed, placed.journal.last_batch + 1, clicks=rows())
    pytest.fail(f"something is still due after {most} batches")


def test_a_batch_is_due_when_the_watermark_has_moved_and_then_no_more(world):
    placed = world.open(hours(world.folder))
    assert not placed.due(), "no batch was ever committed"
    world.batch(placed, 0, clicks=rows(("a", 1), ("a", 2), ("b", 3)))
    assert quiet(world, placed) == 1
    assert not sent(world.folder)
    world.batch(placed, 2, clicks=rows(("a", 100)))
    assert quiet(world, placed) == 1
    assert sent(world.folder) == {("a", 0): 2, ("b", 0): 1}
    world.batch(placed, 4, clicks=rows(("a", 50), ("a", 99)))
    assert not placed.due(), "the watermark is where it was"


def test_a_batch_is_due_while_there_is_more_to_remove_than_one_may(world, monkeypatch):
    monkeypatch.setattr(expiry, "REMOVED_PER_BATCH", 10)
    placed = world.open(hours(world.folder))
    users = [f"u{i}" for i in range(60)]
    world.batch(placed, 0, clicks=rows(*((user, 1) for user in users)))
    world.batch(placed, 1, clicks=rows(("late", 500)))
    assert quiet(world, placed) > 2
    assert sent(world.folder) == {(user, 0): 1 for user in users}


def test_a_driver_that_starts_does_not_know_whether_all_was_removed(world):
    placed = world.open(hours(world.folder))
    world.batch(placed, 0, clicks=rows(("a", 1)))
    assert quiet(world, placed) == 1
    placed = world.open(hours(world.folder))
    assert quiet(world, placed) == 1


def offsets(folder, number: int, *lines: str, version: str = "v1") -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / str(number)).write_text("\n".join((version, '{"batchWatermarkMs":0}', *lines)))


def test_spark_s_offsets_say_whether_a_checkpoint_has_ticks(tmp_path):
    assert carries_ticks(tmp_path) is None
    (tmp_path / "offsets").mkdir()
    assert carries_ticks(tmp_path) is None
    offsets(tmp_path, 9, '{"logOffset":3}', "-", '{"topic":{"0":17}}', '{"taskplace-tick":{"0":17}}', "5")
    assert carries_ticks(tmp_path) is False
    offsets(tmp_path, 10, '{"logOffset":3}', json.dumps({OFFSET: 0}))
    assert carries_ticks(tmp_path) is True
    offsets(tmp_path, 11, 'mine:{"logOffset":3}', version="v2")
    assert carries_ticks(tmp_path) is False
    offsets(tmp_path, 12, 'mine:{"logOffset":3}', f"taskplace_ticks:{json.dumps({OFFSET: 7})}", version="v2")
    assert carries_ticks(tmp_path) is True
    (tmp_path / "offsets" / "13").write_text("")
    (tmp_path / "offsets" / ".14.crc").write_text("...")
    assert carries_ticks(tmp_path) is True


def test_a_tick_never_goes_back_and_is_private(tmp_path):
    ticks = TickSource(tmp_path)
    for batch in (3, 12, 7):
        ticks.ask(batch)
    assert (tmp_path / "tick").read_text() == "12\n"
    assert (tmp_path / "tick").stat().st_mode & 0o777 == 0o600


# ------------------------------------------------------------------------- silence


class Clock:
    """Stands for the module `time`; begins some hours after the first clicks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def time_ns(self) -> int:
        return int((START + timedelta(hours=5)).timestamp() + self.seconds) * 10**9


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(idle_sources, "time", found := Clock())
    return found


def test_silence_closes_windows_by_the_clock_and_ends(world, clock):
    placed = world.open(hours(world.folder), idle_closing="10 minutes")
    placed._runner.no_data_batches.ticks = TickSource(placed.checkpoint)
    world.batch(placed, 0, clicks=rows(("a", 1), ("b", 290)))
    assert quiet(world, placed) == 1
    assert sent(world.folder) == {("a", 0): 1}
    runs = 0
    while placed._runner.no_data_batches._timer is not None:
        world.batch(placed, placed.journal.last_batch + 1, clicks=rows())
        assert not placed.due(), "too early"
        clock.seconds += 600
        world.batch(placed, placed.journal.last_batch + 1, clicks=rows())
        assert quiet(world, placed) == 1
        assert placed.watermark == clock.time_ns() // 1000 - 600 * 10**6, "the clock, less the delay"
        runs += 1
    assert sent(world.folder) == {("a", 0): 1, ("b", 4): 1}
    assert 1 < runs < 12
    watermark = placed.watermark
    placed.close()
    placed = world.open(hours(world.folder))
    assert placed.watermark == watermark, "a driver that has no clock goes on from there"
    world.batch(placed, placed.journal.last_batch + 1, clicks=rows(("c", 295)))
    assert placed.stats.late == 1


def test_without_being_asked_for_nothing_goes_by_the_clock(world, clock):
    placed = world.open(hours(world.folder))
    world.batch(placed, 0, clicks=rows(("a", 1)))
    assert quiet(world, placed) == 1
    clock.seconds += 10**6
    world.batch(placed, 2, clicks=rows())
    assert not placed.due()


def test_silence_is_asked_for_with_a_time_and_where_there_is_time(world):
    with pytest.raises(InputError, match="idle_closing: found '-1 s', expected a duration above 0"):
        world.open(hours(world.folder), idle_closing="-1 s")
    with pytest.raises(InputError, match=r"idle_closing: .* expected a topology with windows"):
        world.open(hours(world.folder, windows=False), idle_closing="1 s")


# ------------------------------------------------------------------------- with Spark


class Stream:
    """Hours of clicks that come as files; each file is a batch."""

    def __init__(self, spark, folder) -> None:
        self.spark, self.folder = spark, folder
        self.checkpoint, self.files = folder / "checkpoint", 0
        self.placed: Placed | None = None
        (folder / "in").mkdir()
        self.open()

    def open(self, *, windows: bool = True, **options) -> Placed:
        """Make the next driver."""
        if self.placed is not None:
            self.placed.close()
        self.placed = Placed(
            self.spark,
            hours(self.folder, windows=windows),
            checkpoint=self.checkpoint,
            state_dir=self.folder / "state",
            config={"num.standby.replicas": 0},
            **options,
        )
        return self.placed

    def put(self, *clicks: tuple[str, int]) -> None:
        """Have a file with clicks arrive."""
        self.files += 1
        pq.write_table(rows(*clicks), staged := self.folder / "staged.parquet")
        staged.rename(self.folder / "in" / f"{self.files}.parquet")

    def source(self):
        read = self.spark.readStream.schema("user string, at timestamp").option("maxFilesPerTrigger", 1)
        return {"clicks": read.parquet(str(self.folder / "in"))}

    def start(self, **trigger):
        return self.placed.start(self.source(), trigger=trigger or None)

    def to_the_end(self, **trigger) -> int:
        """Run what there is, and return the last batch."""
        query = self.start(**trigger or {"availableNow": True})
        query.awaitTermination()
        return self.placed.journal.last_batch


@pytest.fixture
def stream(cluster, tmp_path):
    made = Stream(cluster, tmp_path)
    yield made
    made.placed.close()


@pytest.mark.spark
def test_available_now_ends_when_nothing_is_due(stream):
    stream.put(("a", 1))
    stream.put(("a", 100), ("b", 100))
    assert stream.to_the_end() == 2, "a tick and rows that are there make one batch"
    assert sent(stream.folder) == {("a", 0): 1}
    stream.open()
    stream.put(("c", 200))
    assert stream.to_the_end() == 4
    assert sent(stream.folder) == {("a", 0): 1, ("a", 1): 1, ("b", 1): 1}
    assert carries_ticks(stream.checkpoint / "spark") is True


@pytest.mark.spark
def test_a_tick_outlives_its_driver_before_and_within_its_batch(stream):
    stream.put(("a", 1), ("a", 100))
    assert stream.to_the_end(once=True) == 0
    assert (stream.checkpoint / "tick").read_text() == "1\n"

    def fail(batch, subtopology):
        raise RuntimeError(f"the driver ends in batch {batch}")

    stream.open().on_stage = fail
    with pytest.raises(StreamingQueryException, match="the driver ends in batch 1"):
        stream.to_the_end()
    assert not sent(stream.folder)
    stream.open()
    assert stream.to_the_end() == 1
    assert sent(stream.folder) == {("a", 0): 1}


@pytest.mark.spark
def test_a_checkpoint_without_ticks_goes_on_without_them(stream, caplog):
    def embedded(**ticks):
        writer = stream.placed.unite(stream.source(), **ticks).writeStream.foreachBatch(
            stream.placed.process_batch
        )
        writer = writer.option("checkpointLocation", str(stream.checkpoint / "spark"))
        writer.trigger(availableNow=True).start().awaitTermination()

    stream.put(("a", 1), ("a", 100))
    embedded()
    assert "without the source of ticks" not in caplog.text
    stream.open()
    assert stream.to_the_end() == 0
    assert not sent(stream.folder)
    assert (
        caplog.text.count("without the source of ticks, and Spark cannot add a source to a checkpoint") == 1
    )
    stream.open()
    stream.put(("a", 101))
    assert stream.to_the_end() == 1
    assert sent(stream.folder) == {("a", 0): 1}
    assert not (stream.checkpoint / "tick").exists()
    shutil.rmtree(stream.checkpoint)
    shutil.rmtree(stream.folder / "out")
    stream.open()
    embedded(ticks=True)
    assert sent(stream.folder) == {("a", 0): 1}


@pytest.mark.spark
def test_silence_makes_a_batch_run(stream):
    stream.open(idle_closing="1 second")
    query = stream.start()
    try:
        stream.put(("a", 1))
        wait_until(lambda: sent(stream.folder) == {("a", 0): 1}, "the clock closes the window")
        wait_until(lambda: not stream.placed.due(), "all is done")
    finally:
        query.stop()


# -- whether a query reads the source of ticks, and when a batch is requested; no Spark needed


def spark_checkpoint(world: World, *offsets: str):
    """Return a checkpoint of Spark's with these offsets of its sources in batch 0; none: of no batch."""
    folder = world.folder / "spark-checkpoint"
    (folder / "offsets").mkdir(parents=True)
    if offsets:
        (folder / "offsets" / "0").write_text("\n".join(("v1", "{}", *offsets)))
    return folder


@pytest.mark.parametrize("windows", [True, False])
def test_a_new_query_reads_ticks_if_time_leaves_something_to_do_and_one_that_has_read_them_goes_on(
    world, caplog, windows
):
    batches = world.open(hours(world.folder, windows=windows))._runner.no_data_batches
    folder = spark_checkpoint(world)
    assert batches.wants_ticks(folder) is windows
    offsets(folder, 0, '{"logOffset":3}', json.dumps({OFFSET: 1}))
    assert batches.wants_ticks(folder) is True
    assert not caplog.records


@pytest.mark.parametrize("windows", [True, False])
def test_a_query_that_was_made_without_ticks_goes_on_without_and_is_told_once_what_waits(
    world, caplog, windows
):
    placed = world.open(hours(world.folder, windows=windows))
    assert placed._runner.no_data_batches.wants_ticks(spark_checkpoint(world, '{"logOffset":3}')) is False
    for batch in range(2):
        world.batch(placed, batch, clicks=rows(("a", 100 * batch)))
        assert placed.due() is windows
    assert ["without the source of ticks" in record.message for record in caplog.records] == [True] * windows


def test_the_next_batch_is_requested_while_something_is_due(world):
    placed = world.open(hours(world.folder))
    placed._runner.no_data_batches.ticks = TickSource(placed.checkpoint)
    tick = placed.checkpoint / "tick"
    world.batch(placed, 0, clicks=rows(("a", 1)))
    assert tick.read_text() == "1\n"
    world.batch(placed, 1, clicks=rows())
    assert not placed.due()
    assert tick.read_text() == "1\n"
