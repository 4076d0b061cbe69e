"""Shuffles whose map side runs before the jobs that read them, in ranges of their partitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from taskplace.spark.bridge.queries import temporary_conf
from taskplace.spark.cluster import ArrowInput
from taskplace.spark.session_conf import ROWS_OF_A_BATCH, WHILE_PLANNING
from taskplace.spark.versions import repartition_by_id, to_arrow_schema

#: An Arrow batch has so many bytes at most, if rows are about equally large, and so many rows.
BYTES_AT_ONCE, MOST_ROWS_AT_ONCE = 8 << 20, 10_000


@dataclass(frozen=True)
class Shuffle:
    """A shuffled data frame, the node of its plan whose map side has run, and the most rows of an Arrow batch."""

    df: DataFrame
    exchange: Any
    rows_at_once: int


class Shuffles:
    """Shuffles whose map side runs before the jobs that read them."""

    def __init__(self, jvm: Any) -> None:
        # Each step on the way to a class or a method is a call into the JVM. So they are taken once, not in each batch.
        self._await = jvm.org.apache.spark.util.ThreadUtils.awaitResult
        self._for_ever = jvm.scala.concurrent.duration.Duration.Inf()
        self._to_string = jvm.java.util.Arrays.toString
        self._new_array = jvm.java.lang.reflect.Array.newInstance
        self._specs = jvm.java.lang.Class.forName("org.apache.spark.sql.execution.ShufflePartitionSpec")
        self._spec = jvm.org.apache.spark.sql.execution.CoalescedPartitionSpec
        self._unknown = jvm.scala.Option.empty()

    def run(self, df: DataFrame, order: Sequence[int], partition_id: str) -> ArrowInput:
        """Run the map side of a shuffle; see `Cluster.arrow_input`."""
        position = {partition: at for at, partition in enumerate(order)}
        with temporary_conf(df.sparkSession, WHILE_PLANNING):
            placed = repartition_by_id(df, [position[p] for p in range(len(order))], partition_id)
            exchange = _exchange(placed)
        sizes = self._shuffled(exchange, len(order))
        schema = to_arrow_schema(placed.schema).serialize().to_pybytes()
        by_partition = tuple(sizes[position[partition]] for partition in range(len(order)))
        return ArrowInput(
            Shuffle(placed, exchange, _rows_at_once(exchange)), schema, tuple(order), by_partition
        )

    def _shuffled(self, exchange: Any, partitions: int) -> tuple[int, ...]:
        """Run the map side of a shuffle, and return the decoded size of each partition in bytes, as an estimate."""
        done = self._await(exchange.submitShuffleJob(), self._for_ever)
        if done is None:  # the input has no map task
            return (0,) * partitions
        written = json.loads(self._to_string(done.bytesByPartitionId()))
        decoded = exchange.metrics().apply("dataSize").value()
        scale = max(1.0, decoded / (sum(written) or 1))
        return tuple(int(size * scale) for size in written)

    def ranges(self, shuffle: Shuffle, ranges: Sequence[tuple[int, int]]) -> Any:
        """Return a Java RDD of Arrow batches, with one partition for each range of a shuffle."""
        specs = self._new_array(self._specs, len(ranges))
        for i, (start, end) in enumerate(ranges):
            specs[i] = self._spec(start, end, self._unknown)
        session = shuffle.df.sparkSession
        with temporary_conf(session, {**WHILE_PLANNING, ROWS_OF_A_BATCH: str(shuffle.rows_at_once)}):
            rows = session._jsparkSession.internalCreateDataFrame(
                shuffle.exchange.getShuffleRDD(specs), shuffle.df._jdf.schema(), False
            )
            return rows.toArrowBatchRdd().toJavaRDD()


def _exchange(df: DataFrame) -> Any:
    plan = df._jdf.queryExecution().executedPlan()
    while not plan.getClass().getSimpleName().startswith("ShuffleExchange"):
        plan = plan.children().head()
    return plan


def _rows_at_once(exchange: Any) -> int:
    """Return how many rows of a shuffle an Arrow batch may have: they are in the executor's heap at once."""
    rows = exchange.metrics().apply("shuffleRecordsWritten").value()
    decoded = exchange.metrics().apply("dataSize").value()
    return max(1, min(MOST_ROWS_AT_ONCE, rows * BYTES_AT_ONCE // (decoded or 1)))
