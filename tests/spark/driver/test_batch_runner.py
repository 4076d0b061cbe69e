"""The steps of a batch: their order, what is there between them, who is told, what is counted; no Spark needed."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from taskplace.record.events import TOTALS, BatchDone, LateRows, Totals
from taskplace.record.words import summary_rows
from taskplace.spark.driver.batch import Listeners
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Aggregate, Count, count
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import Frame, World
from tests.support.windows import KEY, clicks, quarters
from topology import Topology


class Listener:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.batches: list[BatchDone] = []
        self.batch, self.rebalance, self.failure = self.batches.append, lambda event: None, lambda event: None


def counts(world: World) -> Topology:
    """Return words that are counted, and their counts counted: two subtopologies."""
    topo = Topology("t")
    words = topo.source("in", key="k", partitions=2).process(Count("words", by={"k": "string"}), name="words")
    words.sink("out", target=ParquetSink(world.folder / "out"))
    again = words.repartition(key="count", name="by-count", partitions=2)
    again.process(Aggregate("counts", by={"count": "int64"}, over_changes=True, n=count()), name="counts")
    return topo


def words(*keys: str) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.string())})


def test_between_its_steps_a_batch_is_staged_then_committed_then_published(world):
    placed = world.open(counts(world))
    seen: list[tuple[str, int, set[int]]] = []
    world.at = lambda point: (
        seen.append((point, placed.journal.newest_batch(), set(world.sent("out"))))
        if point.startswith("batch.")
        else None
    )
    world.batch(placed, 0, **{"in": words("a")})
    assert seen == [
        ("batch.staged", -1, set()),
        ("batch.checked", -1, set()),
        ("batch.committed", 0, set()),
        ("batch.published", 0, {0}),
    ]


@pytest.mark.parametrize(
    ("point", "runs"),
    [("batch.staged", 2), ("batch.checked", 2), ("batch.committed", 1), ("batch.published", 1)],
)
def test_a_batch_is_run_again_until_it_is_committed_and_then_only_published(world, point, runs):
    placed, stages = world.open(counts(world)), []
    placed.on_stage = lambda *stage: stages.append(stage)

    def fail(passed: str) -> None:
        if passed == point:
            raise ZeroDivisionError

    world.at = fail
    with pytest.raises(ZeroDivisionError):
        world.batch(placed, 0, **{"in": words("a", "a")})
    assert isinstance(placed.error, ZeroDivisionError)
    world.at = lambda passed: None
    world.batch(placed, 0, **{"in": words("a", "a")})
    assert stages == [(0, 0), (0, 1)] * runs
    world.batch(placed, 1, **{"in": words("a")})
    assert world.sent("out") == {0: [("a", 2)], 1: [("a", 3)]}
    assert world.stored(placed, "counts") == [(2, 1), (3, 1)]


def test_the_reporter_is_told_of_a_batch_when_it_is_published(world):
    listener = Listener()
    placed = world.open(counts(world), reporter=listener)
    placed.total_batches = 7
    world.batch(placed, 0, **{"in": words("a", "b", "a")})
    [told] = listener.batches
    assert (told.batch_id, told.total, told.rows, told.generation) == (0, 7, 3, placed.loop.generation)
    assert list(told.phases) == ["rebalance", "subtopology 0", "subtopology 1", "commit", "publish", "prune"]
    assert told.placement == placed.placement()
    world.batch(placed, 0, **{"in": words("a", "b", "a")})  # again: nothing new has happened
    assert listener.batches == [told]


def test_followers_are_served_from_the_first_batch_on_and_not_after_the_stream_has_ended(world):
    placed = world.open(counts(world))
    assert world.threads == []
    for batch in range(2):
        world.batch(placed, batch, **{"in": words("a")})
    assert [thread.ended for thread in world.threads] == [False]
    placed.close()
    assert [thread.ended for thread in world.threads] == [True]


# -- a batch that Spark repeats is compared with what was committed for it; no Spark needed


@pytest.fixture
def placed(world: World) -> Placed:
    topo = Topology("t")
    counted = topo.source("in", key="k", partitions=2).process(Count("n", by={"k": "string"}), name="n")
    counted.sink("out", target=ParquetSink(world.folder / "out"))
    placed = world.open(topo)
    placed.repeat = lambda *keys: world.batch(
        placed, 0, **{"in": pa.table({"k": pa.array(keys, pa.string())})}
    )
    placed.repeat("a", "b")
    placed.sent = lambda: world.sent("out")
    return placed


def test_a_batch_that_has_grown_is_told_and_published_as_it_was_committed(placed, caplog):
    placed.repeat("a", "b", "c")
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert f"{placed.checkpoint}: batch 0 was committed with 2 rows, found 3 rows for it now" in caplog.text
    assert placed.sent() == {0: [("a", 1), ("b", 1)]}


@pytest.mark.parametrize("keys", [("a", "b"), ("a",), ()])
def test_a_batch_of_as_many_rows_or_fewer_is_not(placed, caplog, keys):
    placed.repeat(*keys)
    assert not caplog.records
    assert placed.sent() == {0: [("a", 1), ("b", 1)]}


def test_rows_that_cannot_be_counted_are_told_and_stop_nothing(placed, caplog, monkeypatch):
    def gone(_frame: Frame) -> int:
        raise FileNotFoundError("the file is gone")

    monkeypatch.setattr(Frame, "count", gone)
    placed.repeat("a", "b", "c")
    assert (
        "batch 0 is committed and published, but its rows cannot be counted again: FileNotFoundError, raised in "
        in caplog.text
    )
    assert placed.sent() == {0: [("a", 1), ("b", 1)]}


# -- rows and late rows are counted once, over restarts, failed batches and repeated ones


def counted(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=2, event_time="at")
    source.process(Count("n", by=KEY, window=quarters()), name="n").sink(
        "out", target=ParquetSink(world.folder / "out")
    )
    return topo


def totals(placed):
    found = placed.metrics()
    assert placed.stats.totals == Totals(0, found["rows-total"], found["late-rows-total"])
    return found["batches-total"], found["rows-total"], found["late-rows-total"]


EARLY = clicks(("a", 0)), clicks(("a", 60), ("b", 61))
LATE = clicks(("a", 2), ("b", 3), ("a", 62))


def test_totals_continue_over_restarts_and_counters_of_the_driver_do_not(world):
    placed = world.open(counted(world))
    for number, rows in enumerate(EARLY):
        world.batch(placed, number, **{"in": rows})
    assert totals(placed) == (2, 3, 0)
    world.batch(placed, 2, **{"in": clicks()})
    world.batch(placed, 3, **{"in": LATE})
    assert totals(placed) == (4, 6, 2)
    assert placed.stats.late == 2
    placed.close()
    placed = world.open(counted(world))
    assert totals(placed) == (4, 6, 2)
    assert (placed.stats.late, placed.stats.rows) == (0, 0)
    world.batch(placed, 4, **{"in": LATE})
    assert totals(placed) == (5, 9, 4)
    assert (placed.stats.late, placed.stats.rows) == (2, 3)
    assert placed.summary().late == placed.stats.late_rows == LateRows(total=4, here=2)
    found = dict(summary_rows(placed.summary()))
    assert found["late rows since the checkpoint was created"] == "4"
    assert found["late rows since this driver started"] == "2"
    status = placed._runner.operations.status()
    assert (status.totals, status.late_here) == (Totals(since=0, rows=9, late=4), 2)


@pytest.mark.parametrize("point", ["batch.staged", "batch.checked", "batch.committed", "batch.published"])
def test_a_batch_that_is_tried_twice_counts_once(world, point):
    placed = world.open(counted(world))
    for number, rows in enumerate((*EARLY, clicks())):
        world.batch(placed, number, **{"in": rows})
    failed = []

    def fail(name):
        if name == point and not failed:
            failed.append(name)
            raise OSError("the disk is gone")

    world.at = fail
    with pytest.raises(OSError, match="the disk is gone"):
        world.batch(placed, 3, **{"in": LATE})
    world.batch(placed, 3, **{"in": LATE})
    assert totals(placed) == (4, 6, 2)
    assert placed.stats.late == 2
    placed.close()
    assert totals(world.open(counted(world))) == (4, 6, 2)


def test_a_driver_that_takes_over_counts_on_from_what_the_other_has_committed(world):
    first = world.open(counted(world))
    world.batch(first, 0, **{"in": EARLY[0]})
    second = world.open(counted(world))
    for number, rows in enumerate((EARLY[1], clicks(), LATE), 1):
        world.batch(first, number, **{"in": rows})
    world.batch(second, 4, **{"in": LATE})
    assert totals(second) == (5, 9, 4)
    assert second.stats.late == 2, "the late rows of its own batch"


def test_a_checkpoint_of_an_older_version_is_counted_from_now_on(world):
    placed = world.open(counted(world))
    world.batch(placed, 0, **{"in": EARLY[0]})
    last = placed.journal.last
    old = replace(last, identity={name: value for name, value in last.identity.items() if name != TOTALS})
    assert Totals.of(old) == Totals(since=1, rows=0, late=0)
    assert Totals.of(last) == Totals(since=0, rows=1, late=0)
    assert Totals.of(None) == Totals()


# -- the warning of late rows: how many, why, and what to set


@pytest.mark.parametrize(
    "readers, remedy",
    [
        (("a", "b"), "raise it, or a window's `grace`"),
        (("a",), "What Spark has not read yet of 'b' is not known here"),
    ],
)
def test_a_warning_says_how_many_rows_why_and_what_to_set(caplog, readers, remedy):
    definition: Any = SimpleNamespace(
        checkpoint="/c", event_times=dict.fromkeys("ab"), readers=dict.fromkeys(readers)
    )
    listeners = Listeners(definition, None)
    with caplog.at_level(logging.WARNING):
        for batch, late in enumerate((0, 1200, 5, 7)):
            reports = {0: SimpleNamespace(late=late), 1: SimpleNamespace(late=0)}
            done: Any = SimpleNamespace(id=batch, reports=reports)
            listeners.warn_of_late_rows(done, Totals(0, 9000, 1200))
    (text,) = caplog.messages  # damped: a line at once, the next after a while
    assert text.startswith(
        "/c: batch 1 dropped 1,200 late rows, which the watermark had passed; 1,200 since the"
    )
    assert remedy in text and "sources.a.delay, sources.b.delay" in text
