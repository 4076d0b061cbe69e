"""Kafka's records on a real cluster: decoded, split by Kafka's partition, and refused where a partition is wrong."""

from __future__ import annotations

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark import ParquetSink
from taskplace.spark.kafka.dead_letters import DeadLetters, GoodRecords
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Json, Raw
from taskplace.spark.kafka.source import decoded
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from taskplace.spark.worker.hashing import partitions_of
from topology import Topology

pytestmark = pytest.mark.spark

RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
DECODER = Decoder(
    key=Raw("tailnum", "string"),
    value=Json({"delay": "int64", "at": "timestamp"}),
    include={"partition": "partition", "offset": "offset", "key": "key", "timestamp": "sent"},
    tombstone="deleted",
    bad_records="dead_letters",
)


class Task:
    """Adds the task's partition to each row."""

    def process(self, context, rows):
        return rows.append_column("task", pa.array([context.partition] * len(rows), pa.int32()))


def records(spark, count: int, *, partition: int | None = None, first: int = 0):
    """Return records as Spark's Kafka source gives them. Every tenth has a value that is no JSON."""
    from datetime import datetime, timezone

    keys = [f"N{number % 40}".encode() for number in range(count)]
    split = partitions_of(pa.array(keys), "murmur2", 4).tolist()
    rows, sent = [], datetime(2013, 1, 1, 2, tzinfo=timezone.utc)
    for number, (key, at) in enumerate(zip(keys, split, strict=True)):
        value = b"?" if number % 10 == 9 else b'{"delay": %d, "at": "2013-01-01T01:00:00+01:00"}' % number
        place = "flights", at if partition is None else partition, first + number
        rows.append((key, value, *place, sent, 0, None))
    return spark.createDataFrame(rows, RECORDS).coalesce(1)


@pytest.fixture
def placed(cluster, tmp_path):
    topo = Topology("flights")
    source = topo.source(
        "flights", key="tailnum", partitions=4, partition_column="partition", key_bytes="key"
    )
    source.process(DeadLetters(), name="letters").sink("bad", target=ParquetSink(tmp_path / "bad"))
    good = source.process(GoodRecords(), name="good")
    good.process(Count("flown", by={"tailnum": "string"}), name="count")
    good.process(Task(), name="task").sink("out", target=ParquetSink(tmp_path / "out"))
    one = Placed(cluster, topo, checkpoint=tmp_path / "checkpoint", state_dir=tmp_path / "state")
    yield one
    one.close()


def test_kafkas_partition_is_the_task(cluster, placed, tmp_path):
    placed.process_batch(decoded(records(cluster, 400), DECODER), 0)
    out = cluster.read.parquet(str(tmp_path / "out")).toPandas()
    assert len(out) == 360 and (out["task"] == out["partition"]).all() and out["partition"].nunique() == 4
    assert set(out["at"].astype(str)) == {"2013-01-01 00:00:00"} or out["at"].nunique() == 1
    for _, of_task in out.groupby("task"):
        assert of_task["offset"].tolist() == sorted(of_task["offset"])
    bad = cluster.read.parquet(str(tmp_path / "bad"))
    assert sorted(row.offset for row in bad.collect()) == list(range(9, 400, 10))
    assert {bytes(row.value) for row in bad.collect()} == {b"?"}
    reader = placed.store("flown")
    found = reader.get_many(pa.table({"tailnum": [f"N{number}" for number in range(40)]}))
    assert sum(value["count"] for value in found["value"].to_pylist() if value is not None) == 360


@pytest.mark.parametrize("partition, message", [(4, "found 4"), (-1, "found -1"), (None, "found nothing")])
def test_a_number_that_is_no_partition_stops_the_batch(cluster, placed, partition, message):
    rows = decoded(records(cluster, 20), DECODER).drop("partition")
    wrong = rows.selectExpr("*", f"cast({'null' if partition is None else partition} as bigint) as partition")
    with pytest.raises(InputError, match=f"sources.flights.partition_column: {message}, expected a"):
        placed.process_batch(wrong, 0)
    assert placed.journal.last is None
    placed.process_batch(decoded(records(cluster, 20), DECODER), 0)
    assert placed.journal.last_batch == 0


def test_times_are_the_same_in_every_zone(cluster):
    before = cluster.conf.get("spark.sql.session.timeZone")
    cluster.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        (row,) = (
            decoded(records(cluster, 1), DECODER)
            .selectExpr("unix_seconds(at)", "unix_seconds(sent)")
            .collect()
        )
    finally:
        cluster.conf.set("spark.sql.session.timeZone", before)
    assert tuple(row) == (1356998400, 1357005600)
