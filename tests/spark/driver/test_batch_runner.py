"""The steps of a batch: their order, what is there between them, and who is told; no Spark needed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from taskplace.record.events import OF_TASKS, WHOLE, BatchDone
from taskplace.spark.processors import Aggregate, Count, count
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
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
    assert list(told.phases) == [
        "rebalance",
        "subtopology 0",
        "subtopology 1",
        "commit",
        "publish",
        "prune",
    ]
    assert told.placement == placed.placement()
    world.batch(placed, 0, **{"in": words("a", "b", "a")})  # again: nothing new has happened
    assert listener.batches == [told]


def test_the_summary_adds_up_batches_rows_and_the_seconds_of_phases_and_tasks(world):
    placed = world.open(counts(world))
    for batch in range(3):
        world.batch(placed, batch, **{"in": words("a", "b")})
    summary = placed.summary(seconds=5.0)
    assert (summary.batches, summary.rows, summary.seconds) == (3, 6, 5.0)
    assert {"rebalance", "commit", "publish", "prune", WHOLE} <= set(summary.phases)
    assert any(name.startswith(OF_TASKS) for name in summary.phases)


def test_followers_are_visited_from_the_first_batch_on_and_not_after_the_stream_has_ended(world):
    placed = world.open(counts(world))
    assert world.threads == []
    for batch in range(2):
        world.batch(placed, batch, **{"in": words("a")})
    assert [thread.ended for thread in world.threads] == [False]
    placed.close()
    assert [thread.ended for thread in world.threads] == [True]
