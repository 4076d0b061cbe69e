"""Brokers that are killed under a reader, and records that are hard to read."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka.broker import Brokers
from taskplace.errors import InputError
from taskplace.spark.kafka import reading
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.worker.topic_reader import RANGES, ReadSetting
from tests.support.kafka_broker import make_topics
from tests.support.own_reads import ROOM
from tests.support.placed_harness import wait_until

pytestmark = pytest.mark.kafka
SECONDS = 120
PARTITIONS = 3


@pytest.fixture(autouse=True)
def _closed():
    yield
    reading.close_consumers()


def rows(reads: KafkaRecords, start, end, setting: ReadSetting = ROOM) -> pa.Table:
    ranges = [dict(zip(RANGES.names, each, strict=True)) for each in reads.ranges(start, end)]
    return reads.read(pa.Table.from_pylist(ranges, RANGES), setting)


class Load:
    """Sends numbers to a topic and reads them, each in a thread, until it is ended. A context manager."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._more = threading.Event()
        self._more.set()
        decoder = Decoder(value=Raw("line", "string"), include=["partition", "offset"])
        self._reads = KafkaRecords("t", servers, decoder, patience=f"{SECONDS} s")
        self.sent = 0
        self.found: list[tuple[int, int, int]] = []  # partition, offset and number
        self.failed: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(each,)) for each in (self._send, self._read)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._more.clear()
        for thread in self._threads:
            thread.join(2 * SECONDS)

    def wait(self) -> None:
        """Wait until a number is read that is sent from now on."""
        number, deadline = self.sent, time.monotonic() + SECONDS
        while not any(found > number for _, _, found in self.found[-100:]):
            if self.failed or time.monotonic() > deadline:
                raise TimeoutError(f"number {number} was not read; {self.failed}")
            time.sleep(0.05)

    def _run(self, each) -> None:
        try:
            each()
        except BaseException as error:
            self.failed.append(error)

    def _send(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )
        while self._more.is_set():
            producer.produce("t", str(self.sent), partition=self.sent % PARTITIONS)
            self.sent += 1
            producer.poll(0)
            time.sleep(0.01)  # 100 numbers a second: `poll` returns at once while there are reports
        if left := producer.flush(SECONDS):
            raise TimeoutError(f"{left} numbers were not sent")

    def _read(self) -> None:
        at = self._reads.first()
        while self._more.is_set() or len(self.found) < self.sent:
            end = self._reads.newest(at)
            found = rows(self._reads, at, end)
            self.found += zip(
                found["partition"].to_pylist(),
                found["offset"].to_pylist(),
                map(int, found["line"].to_pylist()),
                strict=True,
            )
            at = end


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [1, 3])
def test_a_reader_goes_on_while_brokers_are_killed_and_come_back(count):
    with Brokers(count) as brokers:
        make_topics(AdminClient({"bootstrap.servers": brokers.bootstrap}), NewTopic("t", PARTITIONS))
        with Load(brokers.bootstrap) as load:
            load.wait()
            for number in (1, 2, 3) if count == 3 else (1, 1):
                brokers.kill(number)
                if count == 3:
                    load.wait()  # the other two are enough
                brokers.restart(number)
                load.wait()
    assert not load.failed
    assert Counter(number for _, _, number in load.found) == Counter(range(load.sent))
    for partition in range(PARTITIONS):
        offsets = [offset for of, offset, _ in load.found if of == partition]
        assert offsets == sorted(offsets)


def test_a_key_of_a_megabyte(kafka, tmp_path):
    """It is read among small ones, also by a task that has less memory for its rows."""
    topic = kafka.topic("large", config={"max.message.bytes": "4000000"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 3_000_000})
    keys = [b"a", b"k" * (1 << 20), b"b", b"l" * (2 << 20), b"c"]
    for number, key in enumerate(keys):
        producer.produce(topic, key=key, value=b"%d" % number)
    assert producer.flush(SECONDS) == 0
    decoder = Decoder(key=Raw("k", "binary"), value=Raw("line", "string"), include={"key": "bytes"})
    reads = KafkaRecords(topic, kafka.bootstrap, decoder, patience="30 s")
    start = reads.first()
    end = reads.newest(start)
    for most in (32 << 20, 1 << 20, 0):
        found = rows(reads, start, end, ReadSetting(most=most, folder=tmp_path))
        assert found["k"].to_pylist() == found["bytes"].to_pylist() == keys


def test_records_that_retention_has_removed(kafka):
    expiring = {"retention.ms": "1", "segment.ms": "1"}
    topic = kafka.topic("expiring", config=expiring)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    reads = KafkaRecords(topic, kafka.bootstrap, Decoder(value=Raw("line", "string")), patience="30 s")
    first = reads.first()
    for line in "abc":
        producer.produce(topic, line)
    assert producer.flush(SECONDS) == 0
    behind = {**first, "offsets": {"0": 3}}
    wait_until(
        lambda: reads.first() == behind, "the broker has removed the records", SECONDS
    )  # it looks every second
    says = "offset 0: found 'records that the broker no longer has"
    with pytest.raises(InputError, match=f"{says}; its first offset is 3'.*they are lost"):
        reads.newest(first)
    with pytest.raises(InputError, match=f"{says}'"):
        rows(reads, first, behind)
    producer.produce(topic, "d")
    assert producer.flush(SECONDS) == 0
    assert reads.last()["offsets"] == {"0": 4}
