"""A stream on Spark that writes to a Kafka topic: tasks check rows, an executor dies, and each row is there once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from taskplace.spark import KafkaSink, Placed
from taskplace.spark.processors import Count
from tests.support.executors import executor_processes
from tests.support.kafka_topics import read
from topology import Topology

KEYS, BATCHES = 20, 4


def test_a_stream_to_a_topic(cluster, kafka, tmp_path):
    (tmp_path / "in").mkdir()
    for batch in range(BATCHES):
        rows = pa.table({"k": [f"k{i % KEYS}" for i in range(100)]})
        pq.write_table(rows, tmp_path / "in" / f"{batch}.parquet")
    topic = kafka.topic("counts", 3)
    topo = Topology("to-kafka")
    counts = topo.source("in", key="k", partitions=4).process(
        Count("counts", by={"k": "string"}), name="counts"
    )
    counts.sink(
        "out", target=KafkaSink(topic, servers=kafka.bootstrap, key="k", marker_topic=kafka.unique("markers"))
    )
    placed = Placed(
        cluster,
        topo,
        checkpoint=tmp_path / "checkpoint",
        state_dir=tmp_path / "state",
        config={"num.standby.replicas": 1},
    )
    killed: list[str] = []

    def kill_one(batch: int, subtopology: int) -> None:
        if batch == 1 and not killed:
            name, process = min(executor_processes().items())
            process.kill()
            killed.append(name)

    placed.on_stage = kill_one
    source = (
        cluster.readStream.schema("k string").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    )
    try:
        placed.start({"in": source}, trigger={"availableNow": True}).awaitTermination()
    finally:
        placed.close()
    assert len(killed) == 1
    found: dict[str, list[int]] = {}
    for _, key, value in read(kafka.bootstrap, topic):
        found.setdefault((key or b"").decode(), []).append(value["count"])
    assert found == {f"k{i}": [5 * (batch + 1) for batch in range(BATCHES)] for i in range(KEYS)}
