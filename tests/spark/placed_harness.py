"""A small keyed pipeline with known answers, and waiting for events."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

EXECUTORS = 3


def wait_until(condition, what: str, seconds: float = 60.0) -> None:
    """Wait for an event, and fail with its name if it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.05)


def kill_executor(placed, instance: str) -> None:
    os.kill(placed.members.by_instance[instance].pid, signal.SIGKILL)


def data(batch: int, rows: int = 600) -> list[tuple[str, str, int]]:
    return [(f"k{i * 7 % 97}", f"g{(i + batch) % 11}", i * (batch + 1)) for i in range(rows)]


def check(folder: Path, rows: list[tuple[str, str, int]]) -> None:
    """The newest row of every key in the sinks is the truth, and no batch directory holds a key twice."""
    for sink, column in (("keys", 0), ("groups", 1)):
        counts, sums = Counter(), Counter()
        for row in rows:
            counts[row[column]] += 1
            sums[row[column]] += row[2]
        truth = {key: (counts[key], sums[key]) for key in counts}
        assert result(folder, sink) == truth, f"sink {sink}"


def result(folder: Path, sink: str) -> dict[str, tuple[int, int]]:
    name = {"keys": "key", "groups": "group"}[sink]
    newest: dict[str, tuple[int, int, int]] = {}
    for path in sorted((folder / sink).glob("batch_id=*")):
        batch = int(path.name.split("=")[1])
        seen = set()
        for file in sorted(path.glob("*.parquet")):
            for row in pq.ParquetFile(file).read().to_pylist():
                assert row[name] not in seen, f"{row[name]} twice in {path}"
                seen.add(row[name])
                if row[name] not in newest or newest[row[name]][0] < batch:
                    newest[row[name]] = (batch, row["n"], row["total"])
    return {key: (n, total) for key, (_, n, total) in newest.items()}


class Pipeline:
    """Counts and sums by key, repartitions by group, counts and sums again; the truth is kept beside it."""

    def __init__(self, spark, folder: Path, *, partitions: int = 6, reporter=None, **options) -> None:
        self.spark, self.folder, self.partitions = spark, folder, partitions
        self.rows: list[tuple[str, str, int]] = []
        self.sink = "keys-out"
        self.placed = self.open(reporter=reporter, **options)

    def topology(self):
        from taskplace.spark.processors import Aggregate, count, sum_
        from taskplace.spark.sinks import ParquetSink
        from topology import Topology

        topo = Topology("counts")
        source = topo.source("events", key=["key"], partitions=self.partitions)
        by_key = source.process(
            Aggregate("by-key", by={"key": "string"}, n=count(), total=sum_("value", "int64")), name="keys"
        )
        by_key.sink(self.sink, target=ParquetSink(self.folder / "keys"))
        groups = source.repartition(key=["group"], name="by-group", partitions=self.partitions).process(
            Aggregate("by-group", by={"group": "string"}, n=count(), total=sum_("value", "int64")),
            name="groups",
        )
        groups.sink("groups-out", target=ParquetSink(self.folder / "groups"))
        return topo

    def open(self, reporter=None, config=None, **options):
        from taskplace.spark import Placed

        defaults = {
            "num.standby.replicas": 1,
            "acceptable.recovery.lag": 0,
            "probing.rebalance.interval.ms": 500,
        }
        return Placed(
            self.spark,
            self.topology(),
            checkpoint=self.folder / "checkpoint",
            state_dir=self.folder / "state",
            config={**defaults, **(config or {})},
            reporter=reporter,
            **{"snapshot_interval": 4, **options},
        )

    def reopen(self, **options) -> None:
        """What a restarted driver does."""
        self.placed.close()
        self.placed = self.open(**options)

    def data(self, batch: int, rows: int = 600) -> list[tuple[str, str, int]]:
        return data(batch, rows)

    def frame(self, rows):
        return self.spark.createDataFrame(rows, "key string, `group` string, value bigint").coalesce(2)

    def run(self, batch: int, rows: int = 600) -> None:
        data = self.data(batch, rows)
        self.placed.process_batch(self.frame(data), batch)
        self.rows.extend(data)

    def check(self) -> None:
        check(self.folder, self.rows)

    def followers_caught_up(self) -> bool:
        placed = self.placed
        with placed.cluster.lock:
            return all(
                placed.members.by_instance[name].copies.get(str(task))
                == placed.journal.history[str(task)].end
                for name, roles in placed.loop.plan.assignment.items()
                if name in placed.members.by_instance
                for task in (*roles.standby, *roles.warmup)
                if str(task) in placed.journal.history
            )

    def settle(self) -> None:
        wait_until(self.followers_caught_up, "all followers have caught up")
