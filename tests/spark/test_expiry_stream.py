"""State that is forgotten by event time, on a real local-cluster."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone

import pyarrow.parquet as pq
import pytest

from taskplace.spark import ParquetSink, Placed
from taskplace.spark.processors import Count, Deduplicate, Tumbling
from tests.support.placed_harness import kill_executor
from topology import Topology

pytestmark = pytest.mark.spark


@pytest.mark.everyday("Time", "What the cutting of batches may change")
def test_expired_state_goes_with_the_watermark_on_every_copy(cluster, tmp_path):
    """Windows that close and keys that are forgotten, over losses of executors and of the driver."""
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def opened():
        topo = Topology("clicks")
        clicks = topo.source("clicks", key=["user"], partitions=4, event_time="at", delay="10 minutes")
        once = clicks.process(
            Deduplicate("seen", by={"user": "string", "id": "long"}, ttl="1 hour", time="at"), name="once"
        )
        window = Tumbling("at", "30 minutes", emit="final")
        closed = once.process(Count("clicks-by-user", by={"user": "string"}, window=window), name="by-user")
        closed.sink("out", target=ParquetSink(tmp_path / "out"))
        config = {"num.standby.replicas": 1, "acceptable.recovery.lag": 0}
        where = {"checkpoint": tmp_path / "checkpoint", "state_dir": tmp_path / "state"}
        return Placed(cluster, topo, config=config, snapshot_interval=3, **where)

    def batch(number):
        rows = [
            (number * 100 + i, f"u{i % 7}", start + timedelta(minutes=12 * number + i % 12))
            for i in range(100)
        ]
        return rows + rows[:20]

    placed = opened()
    truth = Counter()
    try:
        for number in range(11):
            if number in (3, 7):
                kill_executor(placed, sorted(placed.state.members)[0])
            if number == 5:
                placed.close()
                placed = opened()
            rows = batch(number) if number < 10 else [(-1, "u0", start + timedelta(days=2))]
            placed.process_batch(cluster.createDataFrame(rows, "id long, user string, at timestamp"), number)
            for _, user, at in {row[0]: row for row in rows}.values():
                truth[(user, at - timedelta(minutes=at.minute % 30))] += 1
        assert placed.watermark == int((start + timedelta(days=2, minutes=-10)).timestamp()) * 10**6
        placed.process_batch(cluster.createDataFrame([], "id long, user string, at timestamp"), 11)
        found = pq.ParquetDataset(tmp_path / "out").read(["user", "window_start", "count"]).to_pylist()
        got = {(row["user"], row["window_start"]): row["count"] for row in found}
        assert len(got) == len(found), "a window was sent twice"
        del truth[("u0", start + timedelta(days=2))]  # is still open
        assert got == truth
        assert placed.store("seen").to_df().count() == 1
        assert placed.store("seen").get({"user": "u0", "id": 1000}) is None
        assert placed.stats.late == 0
    finally:
        placed.close()
