"""Small stateful queries with known answers, fed one batch at a time, with or without steering."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from tests.support.executors import executor_processes
from tests.support.placed_harness import wait_until as wait_until

PARTITIONS = 6
KEYS = 60
HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def kill(instance: str) -> None:
    os.kill(executor_processes()[instance].pid, signal.SIGKILL)


def want_executors(bridge, count: int) -> None:
    """Set the number of executors that this application requests. Surplus executors continue, but are not replaced."""
    nothing = bridge._jvm.PythonUtils.toScalaMap(bridge._jvm.java.util.HashMap())
    bridge._jsc.requestTotalExecutors(count, 0, nothing)


# ----------------------------------------------------------------------------------------------- the queries


def aggregation(rows, other):
    from pyspark.sql import functions as F  # noqa: N812

    return rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total")), "complete"


def join(rows, other):
    from pyspark.sql import functions as F  # noqa: N812

    left, right = rows.withWatermark("at", "1 hour"), other.withWatermark("other_at", "1 hour")
    close = F.expr(
        "key = other_key and value = other_value and other_at between at and at + interval 1 minute"
    )
    return left.join(right, close).select("key", "value", "other_value"), "append"


def once(rows, other):
    """Keep each key once. Every row is exchanged, so the partitions' input is as skewed as the keys."""
    return rows.dropDuplicates(["key"]).select("key"), "append"


def chained(rows, other):
    """De-duplicate and aggregate in one stage, and aggregate again in the next."""
    from pyspark.sql import functions as F  # noqa: N812

    once = rows.withWatermark("at", "1 minute").dropDuplicates(["key", "at"])
    per_key = once.groupBy("key", F.window("at", "1 minute")).agg(F.sum("value").alias("total"))
    by_window = per_key.groupBy("window").agg(F.sum("total").alias("total"))
    return by_window.select(F.col("window.start").cast("string"), "total"), "append"


def total(rows, other):
    """Aggregate without keys, which Spark runs in one task, after a de-duplication in all tasks."""
    from pyspark.sql import functions as F  # noqa: N812

    return rows.dropDuplicates(["key", "value"]).groupBy().agg(F.count("*").alias("n")), "complete"


def arbitrary(rows, other):
    """Apply a function to groups: rows and sum by key."""

    def count(key, frames, state):
        n, sum_ = state.get if state.exists else (0, 0)
        for frame in frames:
            n, sum_ = n + len(frame), sum_ + int(frame["value"].sum())
        state.update((n, sum_))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [sum_]})

    keyed = rows.groupBy("key").applyInPandasWithState(
        count, "key string, n long, total long", "n long, total long", "update", "NoTimeout"
    )
    return keyed, "update"


def stateless(rows, other):
    return rows, "append"


class Count:
    """The processor of `transform`: rows and sum by key."""

    def init(self, handle) -> None:
        self.state = handle.getValueState("count", "n long, total long")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:  # noqa: N803
        n, total = self.state.get() if self.state.exists() else (0, 0)
        for frame in rows:
            n, total = n + len(frame), total + int(frame["value"].sum())
        self.state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    def handleInitialState(self, key, initial, timerValues) -> None:  # noqa: N803
        pass

    def handleExpiredTimer(self, key, timerValues, expired) -> Iterator[pd.DataFrame]:  # noqa: N803
        return iter(())

    def close(self) -> None:
        pass


def transform(rows, other):
    from pyspark.sql.streaming import StatefulProcessor

    processor = type("Counting", (Count, StatefulProcessor), {})()
    keyed = rows.groupBy("key").transformWithStateInPandas(
        processor, "key string, n long, total long", "Update", "None"
    )
    return keyed, "update"


class Stream:
    """One query over two streams of files, with a file of each per batch. `feed` returns when the batch has ended."""

    def __init__(
        self, spark, folder: Path, make, *, name: str, conf=(), files: int = 1, hot: int = 0
    ) -> None:
        self.spark, self.folder, self.name, self.make = spark.newSession(), folder / name, name, make
        self.files = files
        self.hot = hot  # the number of additional rows of the first key
        self.conf = {
            "spark.sql.shuffle.partitions": str(PARTITIONS),
            # Test both providers: the one on the heap is faster with so little state.
            "spark.sql.streaming.stateStore.providerClass": HEAP if make is aggregation else ROCKSDB,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            **dict(conf),
        }
        for key, value in self.conf.items():
            self.spark.conf.set(key, value)
        for side in ("rows", "other"):
            (self.folder / side).mkdir(parents=True, exist_ok=True)
        self.fed = 0
        self.steering = None
        self._bridge = self._layout = None
        self.query = self.start()

    def start(self):
        schema = "key string, value long, at timestamp"
        sides = [
            self.spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", self.files)
            .json(str(self.folder / side))
            for side in ("rows", "other")
        ]
        other = sides[1].toDF("other_key", "other_value", "other_at")
        frame, mode = self.make(sides[0], other)
        return (
            frame.writeStream.format("memory")
            .queryName(self.name)
            .outputMode(mode)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )

    def steer(self, **config):
        from taskplace.spark import steer

        self.steering = steer(self.query, {key.replace("_", "."): value for key, value in config.items()})
        return self.steering

    def write(self) -> None:
        """Write the next file of each side. The files are the same for every stream."""
        batch = self.fed
        self.fed += 1
        rows = [
            {"key": f"k{i % KEYS}", "value": i * (batch + 1), "at": f"2026-01-01 00:{batch:02d}:{i % 60:02d}"}
            for i in range(2 * KEYS)
        ]
        rows += rows[:1] * self.hot
        for side in ("rows", "other"):
            draft = self.folder / f".{side}-{batch}.json"
            draft.write_text("\n".join(map(json.dumps, rows)))
            draft.rename(self.folder / side / f"{batch:04d}.json")

    def feed(self, batches: int = 1) -> None:
        for _ in range(batches):
            self.write()
            self.query.processAllAvailable()
            self.observed()

    def feed_as_much_as(self, other: Stream) -> None:
        """Process the same input as another stream, in as few batches as possible."""
        while self.fed < other.fed:
            self.write()
        self.query.processAllAvailable()

    def observed(self) -> None:
        """Wait until steering has completed a round after the last batch."""
        steering = self.steering
        if steering is not None and steering.status().state in ("steering", "waiting for the first batch"):
            last = self.bridge().finished_batch()
            wait_until(lambda: steering.status().batch == last, f"steering has seen batch {last}")

    def bridge(self):
        from taskplace.spark.steering.bridge import StateBridge

        if (
            self._bridge is None or self._bridge.run_id != self.query.runId
        ):  # probing Spark takes hundreds of calls
            self._bridge, self._layout = StateBridge(self.query), None
        return self._bridge

    def layout(self):
        """Return the layout of this run. Reading it runs a job, so the result is kept."""
        bridge = self.bridge()
        self._layout = self._layout or bridge.layout(planned=True)
        return self._layout

    def ran_on(self) -> Counter[str]:
        """Return the number of tasks that each executor ran in the last batch, from the scheduler."""
        bridge = self.bridge()
        layout, store = self.layout(), bridge._jsc.statusStore()
        tracker = bridge._jsc.statusTracker()
        job = max(tracker.getJobIdsForGroup(self.query.runId))
        stages = [s for s in tracker.getJobInfo(job).get().stageIds() if bridge._has_state(store, s)]
        found = Counter(
            f"executor-{task['executorId']}" for s in stages for task in bridge._tasks(store, s).values()
        )
        assert found.total() == len(layout.tasks)
        return found

    def put(self, *instances: str) -> None:
        """Distribute all state over these executors in turn, and run a batch there."""
        bridge = self.bridge()
        layout = self.layout()
        known = {executor.instance: executor for executor in bridge.executors()}
        places = [known[name] for name in instances]
        bridge.send(layout, [(t, places[t.partition % len(places)]) for t in layout.tasks])
        self.feed()
        assert set(self.ran_on()) == set(instances)

    def even(self) -> bool:
        """Return whether the executors' numbers of tasks differ by at most one."""
        found = self.ran_on()
        counts = [found[e.instance] for e in self.bridge().executors()]
        return max(counts) - min(counts) <= 1

    def result(self) -> list[tuple]:
        rows = {tuple(row) for row in self.spark.table(self.name).collect()}
        if self.make in (transform, arbitrary):  # the output has all updates; a key's last one has most rows
            last = {}
            for key, n, total in sorted(rows, key=lambda row: row[1]):
                last[key] = (key, n, total)
            rows = set(last.values())
        return sorted(rows)

    def stop(self) -> None:
        if self.steering is not None:
            self.steering.stop()
        self.query.stop()
