"""What a topic holds: the committed records, up to the end that the topic had when the read began.

A commit returns before its outcome is written to every partition. Until then, a reader of committed records comes to
an end before these records. So the end is the high watermark, which lies behind them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, OffsetSpec

SECONDS = 60  # the most that a read may wait for the next record, or for the end of a transaction


def committed(servers: str, topic: str) -> Iterator[ck.Message]:
    """Yield the committed records of a topic, to the end of each partition."""
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
        partitions = consumer.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        if not partitions:
            raise LookupError(f"topic {topic}: no such topic")
        ends = _ends(servers, topic, list(partitions))
        consumer.assign([ck.TopicPartition(topic, number, ck.OFFSET_BEGINNING) for number in partitions])
        unread = {number for number, end in ends.items() if end}
        while unread:
            message = consumer.poll(SECONDS)
            if message is None:
                raise TimeoutError(f"topic {topic}: partitions {sorted(unread)} have not come to their end")
            if (error := message.error()) is None:
                yield message
            elif error.code() != ck.KafkaError._PARTITION_EOF:
                raise ck.KafkaException(error)
            elif message.offset() >= ends[message.partition()]:
                unread.discard(message.partition())
    finally:
        consumer.close()


def read(servers: str, topic: str) -> Iterator[tuple[int, bytes | None, dict[str, Any]]]:
    """Yield the committed records of a topic with JSON values: partition, key, value."""
    for message in committed(servers, topic):
        yield message.partition(), message.key(), json.loads(message.value())


def _ends(servers: str, topic: str, partitions: list[int]) -> dict[int, int]:
    """Return the high watermarks. They lie behind every record, also of open transactions."""
    wanted = {ck.TopicPartition(topic, number): OffsetSpec.latest() for number in partitions}
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})  # results come while it is there
    asked = admin.list_offsets(wanted, request_timeout=SECONDS)
    return {at.partition: future.result(SECONDS).offset for at, future in asked.items()}
