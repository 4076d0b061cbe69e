"""Kafka topics of the flights job: fills those of the input, and reads that of the result.

| topic | key | value |
|---|---|---|
| flights | JSON: airport and hour | JSON |
| weather | JSON: airport and hour | Avro (`weather.avsc`) |
| the result | JSON: aircraft and weather | JSON, one record for each change |

Equal keys have equal bytes, and the producer splits both topics by murmur2, as Java's clients do. So a flight and the
weather of its hour are in partitions of the same number.

The input is sent in one transaction: readers of committed records find all of it, or nothing. Topics that have it
already are left as they are.

Errors: `InputError` for topics that cannot be filled or read.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import msgspec
import pyarrow.parquet as pq
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from examples.flights.topology import FLIGHT_COLUMNS, MEASURES
from taskplace.errors import InputError
from taskplace.spark.kafka import brokers as questions

SCHEMA = Path(__file__).with_name("weather.avsc")
SECONDS = 60  # the most that a request to the brokers may take
#: For the transaction with the input, which may take longer than Kafka's default of a minute.
TRANSACTION_SECONDS = 600


class Record(NamedTuple):
    """A record to send."""

    key: bytes
    value: bytes


def hour_key(origin: str, hour: dt.datetime) -> bytes:
    """Return the key of an airport's hour.

    >>> hour_key("JFK", dt.datetime(2013, 1, 1, 10, tzinfo=dt.timezone.utc))
    b'{"origin":"JFK","time_hour":"2013-01-01T10:00:00Z"}'
    """
    return msgspec.json.encode({"origin": origin, "time_hour": hour})


def flight_records(directory: Path) -> Iterator[Record]:
    """Yield the flights of the prepared input, in their order."""
    for row in _rows(directory / "flights", FLIGHT_COLUMNS):
        key = hour_key(row.pop("origin"), row.pop("time_hour"))
        yield Record(key, msgspec.json.encode(row))


def weather_records(directory: Path) -> Iterator[Record]:
    """Yield the weather of the prepared input, in its order."""
    schema = fastavro.parse_schema(json.loads(SCHEMA.read_text()))
    for row in _rows(directory / "weather", ("origin", "time_hour", *MEASURES)):
        value = io.BytesIO()
        fastavro.schemaless_writer(value, schema, {name: row[name] for name in MEASURES})
        yield Record(hour_key(row["origin"], row["time_hour"]), value.getvalue())


def _rows(directory: Path, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
    for file in sorted(directory.glob("*.parquet")):
        yield from pq.read_table(file, columns=list(columns)).to_pylist()


def make(servers: str, topics: Iterable[NewTopic]) -> None:
    """Make the topics that are missing."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    for topic in topics:
        try:
            questions.Admin(admin, SECONDS).create(topic)
        except KafkaException as error:
            raise _failed(topic.topic, "a topic that can be made", error) from None


def send(servers: str, records: Mapping[str, Iterable[Record]]) -> None:
    """Send records to topics, in one transaction."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "partitioner": "murmur2_random",
            "transactional.id": "taskplace-flights",
            "transaction.timeout.ms": 1000 * TRANSACTION_SECONDS,
            "linger.ms": 50,
            "log_level": 3,
        }
    )
    try:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for topic, each in records.items():
            for record in each:
                _produce(producer, topic, record)
        producer.commit_transaction(TRANSACTION_SECONDS)
        _wait_until_readable(servers, records)
    except KafkaException as error:
        raise _failed(", ".join(records), "topics that take the input", error) from None


def _wait_until_readable(servers: str, topics: Iterable[str]) -> None:
    """Wait until readers of committed records get all records: a commit returns a little earlier."""
    for topic in topics:
        deadline = time.monotonic() + SECONDS
        while _ends(servers, topic, committed=True) != _ends(servers, topic):
            if time.monotonic() > deadline:
                found = f"an open transaction after {SECONDS} s"
                raise InputError(f"topic {topic!r}", found=found, expected="committed records")
            time.sleep(0.05)


def _ends(servers: str, topic: str, *, committed: bool = False) -> dict[int, int]:
    """Return the end of each partition: of all records, or of those that are committed."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    ask = questions.Admin(admin, SECONDS)
    found = ask.metadata().topics.get(topic)
    if found is None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    return ask.offsets(topic, found.partitions, committed=committed)


def _produce(producer: Producer, topic: str, record: Record) -> None:
    while True:
        try:
            return producer.produce(topic, key=record.key, value=record.value)
        except BufferError:  # the queue is full: wait until something was sent
            producer.poll(1)


def consumed(servers: str, topic: str) -> list[dict[str, Any]]:
    """Return the committed records of a topic as rows, those of a partition in their order. A row has key and value.

    A transaction that is open, or whose outcome is not yet written, is waited for.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "taskplace-flights",  # librdkafka wants one; no offset is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 3,
        }
    )
    try:
        ends = _ends(servers, topic)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in ends])
        rows: list[dict[str, Any]] = []
        left = {number for number, end in ends.items() if end}
        deadline = time.monotonic() + SECONDS
        while left:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    rows.append({**json.loads(message.key()), **json.loads(message.value())})
                    deadline = time.monotonic() + SECONDS
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= ends[message.partition()]:
                        left.discard(message.partition())
                elif message.error().name() not in questions.PASSING:
                    raise KafkaException(message.error())
            if time.monotonic() > deadline:
                raise InputError(
                    f"topic {topic!r}", found=f"no answer in {SECONDS} s", expected="its records"
                )
    except KafkaException as error:
        raise _failed(topic, "a topic that can be read", error) from None
    finally:
        consumer.close()
    return rows


def latest(
    rows: Iterable[Mapping[str, Any]], key: tuple[str, ...], rising: str
) -> dict[tuple[Any, ...], Any]:
    """Return the last row of each key: what a compacted topic keeps.

    Each change of a key has a greater value of `rising` than the one before. So a row that was written twice, or in
    another order, is noticed. Errors: `InputError` with the key.

    >>> rows = [{"id": 1, "n": 1}, {"id": 2, "n": 1}, {"id": 1, "n": 3}]
    >>> latest(rows, ("id",), "n")
    {(1,): {'id': 1, 'n': 3}, (2,): {'id': 2, 'n': 1}}
    >>> latest([*rows, rows[2]], ("id",), "n")
    Traceback (most recent call last):
    taskplace.errors.InputError: records of (1,): found 3 after 3 in 'n', expected each row once, in order
    """
    last: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        of = tuple(row[name] for name in key)
        before = last.get(of)
        if before is not None and before[rising] >= row[rising]:
            found = f"{row[rising]} after {before[rising]} in {rising!r}"
            error = InputError(f"records of {of}", found=found, expected="each row once, in order")
            error.args = (f"{error.path}: found {found}, expected {error.expected}",)
            raise error
        last[of] = row
    return last


def _failed(topic: str, expected: str, error: KafkaException) -> InputError:
    return InputError(f"topic {topic!r}", found=error.args[0].str(), expected=expected)
