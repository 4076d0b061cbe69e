"""A batch that brings a task more bytes than it may have in memory, with the default options: it gets through."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer

from taskplace.model.placed_options import PlacedOptions
from taskplace.spark import ParquetSink
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.source import stream_of
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from topology import Topology

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]
SIZE = 900_000
COUNT = PlacedOptions().bytes_per_task // SIZE + 20


class Sizes:
    """Leaves the number and the size of each record."""

    def process(self, context, rows):
        sizes = pc.binary_length(rows["text"])
        return pa.table({"n": pc.utf8_slice_codeunits(rows["text"], 0, 5), "size": sizes})


def test_more_bytes_than_a_task_may_have_in_memory_get_through(cluster, kafka, tmp_path):
    topic = kafka.topic("large-batch")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for number in range(COUNT):
        producer.produce(topic, key=f"k{number % 7}", value=f"{number:05d}" + "x" * (SIZE - 5))
        producer.poll(0)
        if number % 20 == 0:
            producer.flush(60)
    assert producer.flush(120) == 0
    reads = KafkaRecords(topic, kafka.bootstrap, Decoder(key=Raw("k", "string"), value=Raw("text", "string")))
    topo = Topology("large")
    source = topo.source("in", key="k", partitions=1, reads=reads)
    source.process(Count("seen", by={"k": "string"}), name="count")
    source.process(Sizes(), name="sizes").sink("out", target=ParquetSink(tmp_path / "out"))
    placed = Placed(cluster, topo, checkpoint=tmp_path / "checkpoint", state_dir=tmp_path / "state")
    try:
        frame = stream_of(reads, placed)
        placed.start({"in": frame}, trigger={"availableNow": True}).awaitTermination()
        assert (placed.journal.last_batch, placed.journal.last.rows) == (0, COUNT)  # one range, one task
    finally:
        placed.close()
    out = cluster.read.parquet(str(tmp_path / "out")).toPandas()
    assert sorted(map(int, out["n"])) == list(range(COUNT))
    assert set(out["size"]) == {SIZE}
    assert not any(path.is_file() for path in (tmp_path / "state").rglob("tmp*"))
