"""A stream on Spark whose tasks read a topic: its broker is killed and comes back; its password is shown nowhere."""

from __future__ import annotations

import logging
import time

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException

from examples.kafka.broker import Brokers
from taskplace.spark import ParquetSink
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.source import stream_of
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from tests.support.kafka_broker import make_topics
from tests.support.kafka_users import credentials
from topology import Topology

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]
SECONDS = 120
PARTITIONS = 3
DECODER = Decoder(key=Raw("k", "string"), value=Raw("n", "string"))
KEYS = [f"k{number}" for number in range(20)]
RIGHT, WRONG = "hunter2-of-the-stream", "wrong-of-the-stream"


@pytest.fixture(scope="module")
def brokers():
    with Brokers(users={"reader": RIGHT}, tls=True) as brokers:
        yield brokers


class Sender:
    """Sends numbers, from 0 on, each with one of the keys."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic, self.sent = topic, 0
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self._topic, key=KEYS[self.sent % len(KEYS)], value=str(self.sent))
            self.sent += 1
        assert self._producer.flush(SECONDS) == 0


def opened(cluster, folder, reads: KafkaRecords) -> Placed:
    topo = Topology("numbers")
    source = topo.source("in", key="k", partitions=PARTITIONS, reads=reads)
    source.process(Count("seen", by={"k": "string"}), name="count")
    source.sink("out", target=ParquetSink(folder / "out"))
    return Placed(cluster, topo, checkpoint=folder / "checkpoint", state_dir=folder / "state")


def topic_of(brokers: Brokers, name: str) -> str:
    make_topics(AdminClient({"bootstrap.servers": brokers.bootstrap}), NewTopic(name, PARTITIONS))
    return name


def test_a_broker_is_killed_and_comes_back_under_a_stream(cluster, brokers, tmp_path):
    topic = topic_of(brokers, "killed")
    reads = KafkaRecords(topic, brokers.bootstrap, DECODER, patience=f"{SECONDS} s")
    sender = Sender(brokers.bootstrap, topic)
    placed = opened(cluster, tmp_path, reads)

    def wait_for_batch(after: int) -> None:
        deadline = time.monotonic() + SECONDS
        while placed.journal.last_batch <= after:
            if placed.error is not None or time.monotonic() > deadline:
                raise TimeoutError(f"no batch after {after} in {SECONDS} s: {placed.error}")
            time.sleep(0.1)

    query = placed.start({"in": stream_of(reads, placed)})
    try:
        sender.send(200)
        wait_for_batch(-1)
        for _ in range(2):
            brokers.kill(1)
            before = placed.journal.last_batch
            brokers.restart(1)
            sender.send(200)
            wait_for_batch(before)
    finally:
        query.stop()
        placed.close()
    sender.send(200)  # so that the next driver has a batch to run
    placed = opened(cluster, tmp_path, reads)
    placed.start({"in": stream_of(reads, placed)}, trigger={"availableNow": True}).awaitTermination()
    counts = placed.store("seen").get_many(pa.table({"k": KEYS}))["value"].to_pylist()
    placed.close()
    assert sum(value["count"] for value in counts) == sender.sent == 800
    numbers = cluster.read.parquet(str(tmp_path / "out")).toPandas()["n"]
    assert sorted(map(int, numbers)) == list(range(800))


def files(folder) -> bytes:
    """Return what is in all files but the copies of the state."""
    found = [path for path in folder.rglob("*") if path.is_file() and "state" not in path.parts]
    return b"".join(path.read_bytes() for path in found)


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_password_is_shown_nowhere(cluster, brokers, tmp_path, listener, caplog):
    """A password in a file, and one that is given itself: neither in errors, plans and logs, nor in any file."""
    caplog.set_level(logging.DEBUG)
    topic = topic_of(brokers, f"secret-{listener}")
    Sender(brokers.bootstrap, topic).send(100)
    (tmp_path / "password").write_text(WRONG)
    in_file = credentials(brokers, listener, "reader", tmp_path / "password")
    given = {name: value for name, value in in_file.items() if name != "sasl.password_file"}
    shown: list[str] = []

    def run(options: dict, folder) -> Placed:
        reads = KafkaRecords(topic, brokers.listener(listener), DECODER, options=options, patience="60 s")
        placed = opened(cluster, folder, reads)
        frame = stream_of(reads, placed)
        query = placed.start({"in": frame}, trigger={"availableNow": True})
        shown.extend([repr(reads), frame._jdf.queryExecution().toString(), frame._jdf.toString()])
        try:
            query.awaitTermination()
        finally:
            shown.extend([*map(str, query.recentProgress), str(query.exception())])
            placed.close()
        return placed

    for number, options in enumerate((in_file, {**given, "sasl.password": WRONG})):
        with pytest.raises(StreamingQueryException, match="check the credentials in the options") as raised:
            run(options, tmp_path / f"wrong-{number}")
        shown.append(str(raised.value) + repr(raised.value))
    (tmp_path / "password").write_text(RIGHT)
    for number, options in enumerate((in_file, {**given, "sasl.password": RIGHT})):
        assert run(options, tmp_path / f"right-{number}").journal.last.rows == 100
    (tmp_path / "password").unlink()
    everything = files(tmp_path) + "\n".join([*shown, caplog.text]).encode()
    assert b"manifest" in everything and topic.encode() in everything
    assert RIGHT.encode() not in everything and WRONG.encode() not in everything
