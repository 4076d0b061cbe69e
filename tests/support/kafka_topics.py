"""What a topic holds: the committed records, up to the end that the topic had when the read began.

A commit or an abort returns before its outcome is written to every partition. Until then, a reader of committed records
comes to an end before these records. So the end is the high watermark, which lies behind them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from taskplace.spark.kafka import brokers as questions

SECONDS = 60  # the most that a read may wait for the next record, or for the end of a transaction
#: What a consumer may say while brokers start and stop, and soon after its topic was made.
PASSING = questions.PASSING | questions.NEW


def committed(servers: str, topic: str) -> Iterator[ck.Message]:
    """Yield the committed records of a topic, to the end of each partition."""
    ends = offsets(servers, topic)
    consumer = ck.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"verify-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([ck.TopicPartition(topic, number, ck.OFFSET_BEGINNING) for number in ends])
        unread = {number for number, end in ends.items() if end}
        deadline = time.monotonic() + SECONDS
        while unread:
            message = consumer.poll(1.0)
            if message is not None and (error := message.error()) is None:
                yield message
                deadline = time.monotonic() + SECONDS
            elif message is not None and error.code() == ck.KafkaError._PARTITION_EOF:
                if message.offset() >= ends[message.partition()]:
                    unread.discard(message.partition())
            elif message is not None and error.name() not in PASSING:
                raise ck.KafkaException(error)
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic}: partitions {sorted(unread)} have not come to their end")
    finally:
        consumer.close()


def read(servers: str, topic: str) -> Iterator[tuple[int, bytes | None, dict[str, Any]]]:
    """Yield the committed records of a topic with JSON values: partition, key, value."""
    for message in committed(servers, topic):
        yield message.partition(), message.key(), json.loads(message.value())


def settle(servers: str, topic: str) -> None:
    """Wait until the outcomes of all transactions are written to the topic: its last stable offsets are its ends."""
    deadline = time.monotonic() + SECONDS
    while (stable := offsets(servers, topic, committed=True)) != (ends := offsets(servers, topic)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic}: the last stable offsets are {stable}, the ends {ends}")
        time.sleep(0.05)


def offsets(servers: str, topic: str, *, committed: bool = False) -> dict[int, int]:
    """Return the high watermarks, which lie behind every record, also of open transactions.

    `committed`: the last stable offsets instead.
    """
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})  # results come while it is there
    ask = questions.Admin(admin, SECONDS)
    return ask.offsets(topic, range(ask.describe(topic).partitions), committed=committed)
