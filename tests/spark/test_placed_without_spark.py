"""The stand-in for Spark is like Spark: what is read is what was sent, and an executor that dies is lost once."""

from __future__ import annotations

import pyarrow as pa

from taskplace.spark.processors import Aggregate, sum_
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.worker.hashing import partition_of
from tests.support.placed_without_spark import Died
from tests.support.word_counts import counts, words
from topology import TaskId, Topology


def test_what_is_read_from_outside_is_what_was_sent(world):
    topo = Topology("t")
    totals = Aggregate("totals", by={"k": "string"}, v=sum_("v", "int64"))
    topo.source("in", key="k", partitions=3).process(totals).sink(
        "o", target=ParquetSink(world.folder / "out")
    )
    world.come(2)
    placed = world.open(topo, config={"num.standby.replicas": 1})
    for batch in range(3):
        world.batch(
            placed, batch, **{"in": pa.table({"k": list("abcdefg"), "v": list(range(batch, batch + 7))})}
        )
    truth = [(key, 3 * i + 3) for i, key in enumerate("abcdefg")]
    assert world.sent("out")[2] == world.stored(placed, "totals") == truth
    assert world.follow(placed) < 20
    (partition,) = partition_of([pa.array(["a"])], 3)
    world.lose(placed.rebalancer.owners()[TaskId(0, partition)].id)
    world.batch(placed, 3, **{"in": pa.table({"k": ["a"], "v": [1]})})
    assert placed.stats.promotions
    assert placed.stats.scratch == 0
    assert world.stored(placed, "totals") == [("a", 4), *truth[1:]]


def test_an_executor_that_dies_within_a_batch_is_lost_once_and_its_directory_is_taken_over(world):
    world.come(1)
    placed = world.open(counts(world))
    world.batch(placed, 0, **{"in": words(*"abcdefgh")})
    died = []

    def die(point: str) -> None:
        if point == "attempt.sealed" and not died:
            died.append(world.running)
            world.lose(world.running)
            world.come(1)
            raise Died

    world.at = die
    world.batch(placed, 1, **{"in": words(*"abcdefgh")})
    assert placed.stats.losses == len(died) == 1
    world.batch(placed, 2, **{"in": words(*"ab")})
    assert world.sent("out")[2] == [("a", 3), ("b", 3)]
    assert world.follow(placed)
    assert world.adopted == 1
