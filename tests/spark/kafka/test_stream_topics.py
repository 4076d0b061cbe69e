"""A running stream whose tasks read a topic: the topic is deleted, made again, and cut by retention."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.errors import StreamingQueryException

from taskplace.spark import ParquetSink
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.source import stream_of
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from tests.support.kafka_broker import make_topics
from topology import Topology

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]
SECONDS = 120
PARTITIONS = 2
DECODER = Decoder(key=Raw("k", "string"), value=Raw("n", "string"))
KEYS = [f"k{number}" for number in range(20)]
MADE_AGAIN = "the topic was deleted and made again"
MISSING = "it was deleted; restore it, or make it again and start with `changed_topics: go-on`"


def send(kafka, topic: str, times: int = 1) -> None:
    """Send a record of each key, so many times."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random", "log_level": 0}
    )
    for number in range(times):
        for key in KEYS:
            producer.produce(topic, key=key, value=str(number))
    assert producer.flush(SECONDS) == 0


def make(kafka, topic: str) -> None:
    make_topics(kafka.admin, NewTopic(topic, PARTITIONS))


def delete(kafka, topic: str) -> None:
    kafka.admin.delete_topics([topic])[topic].result(SECONDS)


def cut(kafka, topic: str) -> None:
    """Remove all records, as retention does."""
    everything = [TopicPartition(topic, partition, -1) for partition in range(PARTITIONS)]
    for removed in kafka.admin.delete_records(everything).values():
        removed.result(SECONDS)


class Held:
    """Holds the driver in a batch, before its tasks run, until `go` is called."""

    def __init__(self, placed: Placed, batch: int) -> None:
        self._batch, self._reached, self._go = batch, threading.Event(), threading.Event()
        placed.on_stage = self._on_stage

    def _on_stage(self, batch: int, subtopology: int) -> None:
        if batch == self._batch:
            self._reached.set()
            self._go.wait(SECONDS)

    def wait(self) -> None:
        assert self._reached.wait(SECONDS)

    def go(self) -> None:
        self._go.set()


@contextmanager
def opened(cluster, kafka, topic: str, folder, **more):
    """A stream of the topic, and a function that starts it."""
    reads = KafkaRecords(topic, kafka.bootstrap, DECODER, patience="60 s", **more)
    topo = Topology("numbers")
    source = topo.source("in", key="k", partitions=PARTITIONS, reads=reads)
    source.process(Count("seen", by={"k": "string"}), name="count")
    source.sink("out", target=ParquetSink(folder / "out"))
    placed = Placed(cluster, topo, checkpoint=folder / "checkpoint", state_dir=folder / "state")
    queries = []

    def start(**trigger):
        queries.append(placed.start({"in": stream_of(reads, placed)}, trigger=trigger or None))
        return queries[-1]

    try:
        yield placed, start
    finally:
        for query in queries:
            query.stop()
        placed.close()


def ends_with(query, placed: Placed, *says: str) -> None:
    """Wait until a query has ended with an error that has one of these texts."""
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(SECONDS)
    assert any(text in f"{raised.value} {placed.error}" for text in says), f"{raised.value} {placed.error}"


def wait_for_batch(placed: Placed, batch: int) -> None:
    wait_until(lambda: placed.error is not None or placed.journal.last_batch >= batch)
    assert placed.error is None


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_topic_that_is_deleted_under_a_running_stream(cluster, kafka, tmp_path):
    topic = kafka.topic("deleted", PARTITIONS)
    send(kafka, topic)
    with opened(cluster, kafka, topic, tmp_path) as (placed, start):
        query = start()
        wait_for_batch(placed, 0)
        delete(kafka, topic)
        ends_with(query, placed, MISSING)
        assert placed.journal.last.rows == len(KEYS)


def test_a_topic_that_is_made_again_between_two_batches(cluster, kafka, tmp_path):
    topic = kafka.topic("again", PARTITIONS)
    send(kafka, topic)
    with opened(cluster, kafka, topic, tmp_path) as (placed, start):
        query = start()
        wait_for_batch(placed, 0)
        committed = placed.journal.last_batch
        delete(kafka, topic)
        make(kafka, topic)
        send(kafka, topic, 3)
        ends_with(query, placed, MADE_AGAIN, MISSING)  # it may have looked in between
        assert placed.journal.last_batch == committed
    with opened(cluster, kafka, topic, tmp_path) as (placed, start):
        ends_with(start(availableNow=True), placed, MADE_AGAIN)


def test_a_topic_that_is_made_again_under_a_batch_is_not_committed(cluster, kafka, tmp_path):
    """The batch was planned with the old topic, and its tasks find as many records in the new one."""
    topic = kafka.topic("under", PARTITIONS)
    send(kafka, topic)
    with opened(cluster, kafka, topic, tmp_path) as (placed, start):
        held = Held(placed, 0)
        query = start()
        held.wait()
        delete(kafka, topic)
        make(kafka, topic)
        send(kafka, topic, 2)
        held.go()
        ends_with(query, placed, MADE_AGAIN)
        assert placed.journal.last is None
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_records_that_are_removed_under_a_batch(cluster, kafka, tmp_path):
    topic = kafka.topic("cut", PARTITIONS)
    send(kafka, topic)
    with opened(cluster, kafka, topic, tmp_path) as (placed, start):
        held = Held(placed, 0)
        query = start()
        held.wait()
        cut(kafka, topic)
        held.go()
        ends_with(query, placed, "records that the broker no longer has")
        assert placed.journal.last is None


def test_records_that_are_removed_before_a_stream_comes_back(cluster, kafka, tmp_path):
    topic = kafka.topic("late", PARTITIONS)
    send(kafka, topic)
    with opened(cluster, kafka, topic, tmp_path) as (placed, start):
        start(availableNow=True).awaitTermination()
        assert placed.journal.last.rows == len(KEYS)
    send(kafka, topic)
    cut(kafka, topic)
    send(kafka, topic)
    with opened(cluster, kafka, topic, tmp_path) as (placed, start):
        ends_with(start(availableNow=True), placed, "its first offset is")
        assert placed.journal.last.rows == len(KEYS)  # nothing was skipped


def test_a_stream_goes_on_with_its_state_without_records_that_are_gone(cluster, kafka, tmp_path, caplog):
    """Removed under a planned batch, removed before a start, and of a topic that was made again; then as before."""
    topic = kafka.topic("gone", PARTITIONS)

    def run(**more: str) -> tuple[int, int]:
        """Return how often each key was counted, and how many offsets were skipped."""
        with opened(cluster, kafka, topic, tmp_path, **more) as (placed, start):
            start(availableNow=True).awaitTermination()
            counts = placed.store("seen").get_many(pa.table({"k": KEYS}))["value"].to_pylist()
            return *{each["count"] for each in counts}, sum(placed.stats.skipped.values())

    send(kafka, topic)
    assert run() == (1, 0)
    send(kafka, topic, 2)
    with opened(cluster, kafka, topic, tmp_path) as (placed, start):
        held = Held(placed, placed.journal.last_batch + 1)
        query = start()
        held.wait()
        cut(kafka, topic)
        held.go()
        ends_with(query, placed, "records that the broker no longer has")
    send(kafka, topic)
    assert run(changed_topics="go-on") == (2, 40)
    send(kafka, topic)
    cut(kafka, topic)
    send(kafka, topic)
    assert run(changed_topics="go-on") == (3, 20)
    assert "offsets that were skipped, by partition" in caplog.text
    delete(kafka, topic)
    make(kafka, topic)
    send(kafka, topic, 2)
    assert run(changed_topics="go-on") == (5, 0)
    assert "with a topic that was made again" in caplog.text
    send(kafka, topic)
    assert run() == (6, 0)
