"""Backlogs on a real broker: partitions of unequal length, and a table that is read before its stream."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer

from taskplace.spark import ParquetSink
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Json, Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.source import stream_of
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Aggregate, Facts, TableJoin, Tumbling, count
from taskplace.spark.worker.hashing import partitions_of
from topology import Topology

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
NAMES = [f"k{number}" for number in range(20)]
PARTITION = dict(
    zip(NAMES, partitions_of(pa.array(name.encode() for name in NAMES), "murmur2", 2).tolist(), strict=True)
)


def run(placed: Placed, reads: dict[str, KafkaRecords]) -> None:
    frames = {topic: stream_of(each, placed) for topic, each in reads.items()}
    placed.start(frames, trigger={"availableNow": True}).awaitTermination()


def send(kafka, topic: str, records) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for key, value in records:
        producer.produce(topic, key=key, value=value)
        producer.poll(0)
    assert producer.flush(60) == 0


def test_no_row_is_late_because_its_partition_is_longer(cluster, kafka, tmp_path):
    small, big = (next(name for name in NAMES if PARTITION[name] == p) for p in (0, 1))
    rows = [(small if n % 11 == 0 else big, BEGIN + timedelta(seconds=n)) for n in range(6000)]
    topic = kafka.topic("skewed", partitions=2)
    send(kafka, topic, ((key, f'{{"at": "{at.isoformat()}"}}') for key, at in rows))
    decoder = Decoder(key=Raw("k", "string"), value=Json({"at": "timestamp"}))
    reads = KafkaRecords(topic, kafka.bootstrap, decoder, most_records=500)
    topo = Topology("skewed")
    source = topo.source("in", key="k", partitions=2, reads=reads, event_time="at", delay="1 minute")
    window = Tumbling("at", "1 minute", emit="final")
    counted = source.process(Aggregate("n", by={"k": "string"}, window=window, n=count()), name="count")
    counted.sink("out", target=ParquetSink(tmp_path / "out"))
    placed = Placed(cluster, topo, checkpoint=tmp_path / "checkpoint", state_dir=tmp_path / "state")
    try:
        run(placed, {"in": reads})
        late = placed.stats.late
    finally:
        placed.close()
    closed = rows[-1][1] - timedelta(minutes=1)
    expected = Counter((key, at.replace(second=0)) for key, at in rows)
    out = cluster.read.parquet(str(tmp_path / "out")).toPandas()
    got = dict(
        zip(zip(out["k"], out["window_start"].dt.tz_localize("UTC"), strict=True), out["n"], strict=True)
    )
    assert late == 0 and len(out) == len(got)
    assert got == {w: n for w, n in expected.items() if w[1] + timedelta(minutes=1) <= closed}


def test_a_table_is_read_before_the_rows_of_its_stream(cluster, kafka, tmp_path):
    decoder = Decoder(key=Raw("k", "string"), value=Json({"v": "int64"}))
    reads = {
        name: KafkaRecords(kafka.topic(name), kafka.bootstrap, decoder, most_records=200)
        for name in ("table", "stream")
    }
    for name, order in (("table", range(1000)), ("stream", range(999, -1, -1))):
        send(kafka, reads[name].topic, ((f"k{n}", f'{{"v": {n}}}') for n in order))
    topo = Topology("joined")
    stream = topo.source("stream", key="k", partitions=1, reads=reads["stream"])
    table = topo.source("table", key="k", partitions=1, reads=reads["table"])
    join = TableJoin("t", by={"k": "string"}, columns={"v": "int64"})
    renamed = stream.process(Renamed(), name="renamed")
    renamed.join_table(table, join, name="join").sink("out", target=ParquetSink(tmp_path / "out"))
    placed = Placed(cluster, topo, checkpoint=tmp_path / "checkpoint", state_dir=tmp_path / "state")
    try:
        run(placed, {"stream": reads["stream"], "table": reads["table"]})
    finally:
        placed.close()
    out = cluster.read.parquet(str(tmp_path / "out")).toPandas()
    assert len(out) == 1000 and out["v"].isna().sum() == 0
    assert (out["k"] == "k" + out["v"].astype(int).astype(str)).all()


class Renamed:
    """Leaves only the key of a stream's row."""

    def infer(self, inputs):
        return Facts(routes=inputs[0].routes)

    def process(self, context, rows):
        return rows.select(["k"])
