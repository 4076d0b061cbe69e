"""State rows per executor and batch times, steered and not, side by side: `make bench-steering`.

Two equal aggregations run in turn on the same local-cluster, a batch each, over the same rows. One is steered. Both
begin with all state on one executor: what is left when an application has started before its executors were there.
Then an executor is killed and replaced. Executors have one slot, so that a machine of two cores can show a difference.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from taskplace.spark import steer
from taskplace.spark.steering.bridge import StateBridge

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
EXECUTORS = 3


def session(partitions: int) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,1024]").appName("bench-steering")
    for key, value in {
        "spark.executor.memory": "900m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Query:
    """A running aggregation that is fed a file a batch."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, args: argparse.Namespace) -> None:
        self.spark, self.folder, self.name, self.args = spark, folder / name, name, args
        (self.folder / "in").mkdir(parents=True)
        self.fed, self.seconds, self.steering = 0, [], None
        rows = spark.readStream.schema("key long, value long").option("maxFilesPerTrigger", 1)
        counts = rows.parquet(str(self.folder / "in")).groupBy("key").agg(F.count("*"), F.sum("value"))
        self.query = (
            counts.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )

    def feed(self) -> None:
        random = np.random.default_rng(self.fed)
        keys = random.integers(0, self.args.keys, self.args.rows)
        draft = self.folder / "draft.parquet"
        pq.write_table(pa.table({"key": keys, "value": np.arange(self.args.rows)}), draft)
        draft.rename(self.folder / "in" / f"{self.fed:05d}.parquet")
        self.fed += 1
        self.query.processAllAvailable()
        self.seconds.append(self.query.lastProgress["durationMs"]["triggerExecution"] / 1000)
        last = StateBridge(self.query).finished_batch()
        while self.steering is not None and self.steering.status().batch != last:
            time.sleep(0.02)

    def put(self, executor: str) -> None:
        bridge = StateBridge(self.query)
        layout = bridge.layout(planned=True)
        there = next(e for e in bridge.executors() if e.instance == executor)
        bridge.send(layout, [(task, there) for task in layout.tasks])

    def rows_per_executor(self) -> dict[str, int]:
        bridge = StateBridge(self.query)
        places = bridge.places(bridge.layout(planned=True))
        read = self.spark.read.format("statestore").load(str(self.folder / "checkpoint"))
        rows = {r["partition_id"]: r["count"] for r in read.groupBy("partition_id").count().collect()}
        found = Counter({e.instance: 0 for e in bridge.executors()})
        for task, place in places.items():
            found[str(place)] += rows.get(task.partition, 0)
        return dict(sorted(found.items()))


def measure(queries: list[Query], batches: int, phase: str) -> None:
    for _ in range(batches):
        for query in queries:
            query.feed()
    for query in queries:
        rows = query.rows_per_executor()
        mean = sum(rows.values()) / len(rows)
        spread = " ".join(f"{n:>7,}" for n in rows.values())
        print(
            f"| {phase:<32} | {query.name:<9} | {spread:<23} | {max(rows.values()) / mean:>8.2f} "
            f"| {statistics.median(query.seconds[-batches:]):>7.2f} | {max(query.seconds[-batches:]):>7.2f} |",
            flush=True,
        )


def kill_one(bridge: StateBridge) -> None:
    """Kill the executor with the highest id, and wait until it is replaced."""
    before = {e.instance for e in bridge.executors()}
    lost = max(before)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has just ended
            line = process.cmdline()
            if "--executor-id" in line and f"executor-{line[line.index('--executor-id') + 1]}" == lost:
                os.kill(process.pid, signal.SIGKILL)
    while lost in {e.instance for e in bridge.executors()}:
        time.sleep(0.05)


def wait_for_all(bridge: StateBridge) -> None:
    while len(bridge.executors()) < EXECUTORS:
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=300_000, help="different keys, which is rows of state")
    parser.add_argument("--rows", type=int, default=200_000, help="input rows of a batch")
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--batches", type=int, default=6, help="batches of each phase")
    args = parser.parse_args()
    spark = session(args.partitions)
    with tempfile.TemporaryDirectory() as folder:
        queries = [Query(spark, Path(folder), name, args) for name in ("plain", "steered")]
        plain, steered = queries
        bridge = StateBridge(plain.query)
        wait_for_all(bridge)
        print(
            f"{args.keys:,} keys, {args.rows:,} rows a batch, {args.partitions} partitions, {EXECUTORS} executors of 1 "
            f"slot, {args.batches} batches a phase, {os.cpu_count()} cores, PySpark {spark.version}\n"
        )
        print(
            f"| {'phase':<32} | {'query':<9} | {'state rows per executor':<23} | max/mean | median s |   max s |"
        )
        print("|---|---|---|---|---|---|")
        first = min(e.instance for e in bridge.executors())
        for query in queries:
            for _ in range(3):  # the first ones fill the state
                query.feed()
            query.put(first)
            query.feed()
        measure(queries, args.batches, "all on one executor, before")
        steered.steering = steer(steered.query)
        measure(queries, args.batches, "steering switched on")
        measure(queries, args.batches, "after")
        kill_one(bridge)
        measure(queries, 1, "an executor lost")
        wait_for_all(bridge)
        measure(queries, args.batches, "replaced")
        measure(queries, args.batches, "after that")
        print(f"\n{steered.steering.status()}")
        for query in queries:
            query.query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
