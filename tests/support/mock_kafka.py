"""A cluster of Kafka in this process, which librdkafka brings along: without transactions, ids and administration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from taskplace.spark.kafka import reading


class MockKafka:
    """One broker, whose topics have 4 partitions and are made when they are used."""

    def __init__(self) -> None:
        self.producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self.producer.list_topics(timeout=10).brokers.values()
        self.bootstrap = f"{broker.host}:{broker.port}"

    def send(self, topic: str, partition: int, *records: tuple[bytes | None, bytes | None], **more) -> None:
        """Append records, which are pairs of key and value, to a partition."""
        for key, value in records:
            self.producer.produce(topic, key=key, value=value, partition=partition, **more)
        assert self.producer.flush(20) == 0


@pytest.fixture
def mock_kafka() -> Iterator[MockKafka]:
    yield MockKafka()
    reading.close_consumers()
