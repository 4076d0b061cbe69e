"""A stream whose tasks read Kafka's records themselves, on a real cluster and a real broker."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from taskplace.errors import CheckpointError
from taskplace.spark import ParquetSink
from taskplace.spark.kafka.dead_letters import DeadLetters, GoodRecords
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Json, Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.source import stream_of
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from topology import Topology

pytestmark = pytest.mark.spark

KEYS = [f"N{number}" for number in range(40)]
DECODER = Decoder(
    key=Raw("tailnum", "string"),
    value=Json({"delay": "int64", "at": "timestamp"}),
    include=["key", "partition", "offset"],
    bad_records="dead_letters",
)


class Task:
    """Adds the task's partition to each row."""

    def process(self, context, rows):
        return rows.append_column("task", pa.array([context.partition] * len(rows), pa.int32()))


def send(kafka, topic: str, times: int) -> None:
    """Append so many records for each key, and for each time a value that is no JSON."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for number in range(times):
        for key in KEYS:
            producer.produce(
                topic, key=key, value=b'{"delay": %d, "at": "2013-01-01T01:00:00+01:00"}' % number
            )
        producer.produce(topic, key=KEYS[number], value=b"?")
    assert producer.flush(60) == 0


def opened(cluster, folder, reads: KafkaRecords) -> Placed:
    topo = Topology("flights")
    source = topo.source(
        "flights", key="tailnum", partitions=reads.partitions(), reads=reads, key_bytes="key"
    )
    source.process(DeadLetters(), name="letters").sink("bad", target=ParquetSink(folder / "bad"))
    good = source.process(GoodRecords(), name="good")
    good.process(Count("flown", by={"tailnum": "string"}), name="count")
    good.process(Task(), name="task").sink("out", target=ParquetSink(folder / "out"))
    return Placed(cluster, topo, checkpoint=folder / "checkpoint", state_dir=folder / "state")


def run(placed: Placed, frame) -> None:
    placed.start({"flights": frame}, trigger={"availableNow": True}).awaitTermination()


def set_back(spark_checkpoint, batch: int) -> None:
    """Remove a batch from Spark's checkpoint, as a crash of the host may."""
    for log in ("offsets", "commits"):
        for name in (str(batch), f".{batch}.crc"):
            (spark_checkpoint / log / name).unlink(missing_ok=True)


def test_a_stream_goes_on_after_a_restart(cluster, kafka, tmp_path):
    topic = kafka.topic("flights", partitions=4)
    reads = KafkaRecords(topic, kafka.bootstrap, DECODER, most_records=60)
    counts = []
    for times in (10, 5):
        send(kafka, topic, times)
        placed = opened(cluster, tmp_path, reads)
        run(placed, stream_of(reads, placed))
        found = placed.store("flown").get_many(pa.table({"tailnum": KEYS}))["value"].to_pylist()
        counts.append({value["count"] for value in found})
        batches = placed.journal.last_batch
        placed.close()
    assert counts == [{10}, {15}] and batches >= 4
    set_back(tmp_path / "checkpoint" / "spark", batches)
    send(kafka, topic, 1)
    reads = KafkaRecords(topic, kafka.bootstrap, DECODER)
    placed = opened(cluster, tmp_path, reads)
    with pytest.raises(StreamingQueryException):  # Spark has formed the batch anew, with more records
        run(placed, stream_of(reads, placed))
    placed.close()
    wrong = rf"offsets/{batches}: these are not the offsets that batch {batches} was committed with"
    assert re.search(wrong, str(placed.error))
    placed = opened(cluster, tmp_path, reads)
    with pytest.raises(CheckpointError, match=r"topic 'flights', partition \d: .* it is ahead"):
        run(placed, stream_of(reads, placed))  # Spark has kept the new offsets: nothing is started
    placed.close()
    out = cluster.read.parquet(str(tmp_path / "out")).toPandas()
    assert len(out) == 600 and (out["task"] == out["partition"]).all()
    assert not out.duplicated(["partition", "offset"]).any()
    for _, rows in out.groupby(["batch_id", "task"]):
        assert rows["offset"].is_monotonic_increasing
    assert cluster.read.parquet(str(tmp_path / "bad")).count() == 15
