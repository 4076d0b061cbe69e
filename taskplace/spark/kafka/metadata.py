"""Gives a topology the partition counts that the brokers have, so that it says itself whether it can run.

    flights = KafkaRecords("flights", "host:9092", decoder)
    topology.source("flights", key="tailnum", reads=flights)                 # no `partitions`
    topology.source("weather", key="tailnum", partition_column="partition")  # Spark's own source
    built = with_broker_counts(topology.build(), {"weather": KafkaTopic("weather", "host:9092")})
    if not built.readiness():
        print(built.readiness().reason)

**Idea.** A topology without counts is *not ready*, and says why. The counts are metadata:
`BuiltTopology.with_partitions` takes them, as often as they are asked for. A topic that is missing, or co-partitioned
topics with unequal counts, are reasons, and no exceptions. `Placed` refuses a topology that is not ready with
`TopologyNotReady`, which has the reason.

Errors: `InputError` for brokers that do not answer or refuse the client, since then nothing is known of the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.spark.kafka.clients import ClientOptions
from taskplace.spark.kafka.offsets import MissingTopic, TopicOffsets
from taskplace.validation import named
from topology import BuiltTopology


class Counted(Protocol):
    """What knows the partition count of a topic, such as `KafkaRecords` or `KafkaTopic`."""

    def partitions(self) -> int:
        """Return the count. Errors: `MissingTopic`, an `InputError`; other ones if nothing is known."""
        ...


class KafkaTopic:
    """A topic that something else reads, such as Spark's own Kafka source.

    - `topic`: its name in Kafka; `servers`: the brokers, such as "host:9092,other:9092"
    - `options`: librdkafka's properties, as for `KafkaRecords`
    - `patience`: how long a question waits for brokers that do not answer

    >>> KafkaTopic("weather", "localhost:9092", options={"sasl.password": "hunter2"})
    KafkaTopic('weather', {'bootstrap.servers': 'localhost:9092', 'sasl.password': '(hidden)'})
    """

    def __init__(
        self,
        topic: str,
        servers: str,
        *,
        options: Mapping[str, Any] | None = None,
        patience: Any = "2 minutes",
    ) -> None:
        self.topic = named(topic, "KafkaTopic.topic", "the name of a topic")
        self._options = ClientOptions("KafkaTopic", servers, options or {})
        self._seconds = milliseconds(patience, "KafkaTopic.patience") / 1000

    def __repr__(self) -> str:
        return f"KafkaTopic({self.topic!r}, {self._options!r})"

    def partitions(self) -> int:
        """Return the topic's partition count. Errors: `MissingTopic`; `InputError` without an answer."""
        return TopicOffsets(self.topic, self._options, self._seconds).described().partitions


def broker_counts(
    built: BuiltTopology, topics: Mapping[str, Counted] = MappingProxyType({})
) -> dict[str, int | None]:
    """Return the counts of a topology's external topics, as the brokers have them; None for a missing topic.

    Sources with `reads` are asked for themselves. `topics`: by external topic, what knows the count of another one.
    Topics of which nothing is known are left out. Errors: `InputError`, also for an unknown topic.
    """
    sources = {
        node.topic: node for node in built.nodes if node.kind == "source" and not node.internal and node.topic
    }
    asked: dict[str, Counted] = {
        topic: node.options["reads"]
        for topic, node in sources.items()
        if callable(getattr(node.options.get("reads"), "partitions", None))
    }
    for topic, counted in topics.items():
        if topic not in sources:
            raise InputError(
                f"topics.{topic}",
                found=topic,
                expected=f"an external topic of the topology: {sorted(sources)}",
            )
        if not callable(getattr(counted, "partitions", None)):
            raise InputError(f"topics.{topic}", found=counted, expected="a KafkaTopic or KafkaRecords")
        asked[topic] = counted
    return {topic: _count(counted) for topic, counted in asked.items()}


def with_broker_counts(
    built: BuiltTopology, topics: Mapping[str, Counted] = MappingProxyType({})
) -> BuiltTopology:
    """Return a topology with the counts of `broker_counts`. Call it again to see whether topics have changed.

    What is not as it must be is in `readiness()`: topics that are missing, co-partitioned topics with unequal counts,
    and a topic whose count is not that with which its stores began. Errors: as for `broker_counts`.
    """
    return built.with_partitions(broker_counts(built, topics))


def _count(counted: Counted) -> int | None:
    try:
        return counted.partitions()
    except MissingTopic:
        return None
