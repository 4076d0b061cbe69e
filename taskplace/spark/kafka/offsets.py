"""Asks a cluster about a topic: its id, its partitions, and the offsets where they begin and end.

Properties:
- the end of a partition is its last stable offset: no transaction that is open or was aborted ends before it;
- the id differs from that of an earlier topic with the same name, so a topic that was deleted and made again is
  noticed;
- a question that a broker cannot answer just now is asked again (`taskplace.spark.kafka.brokers`); a client that is
  refused, for its password for example, is not.

`with_broker_counts` gives a topology the partition counts that the brokers have:

    flights = KafkaRecords("flights", "host:9092", decoder)
    topology.source("flights", key="tailnum", reads=flights)                 # no `partitions`
    topology.source("weather", key="tailnum", partition_column="partition")  # Spark's own source
    built = with_broker_counts(topology.build(), {"weather": KafkaTopic("weather", "host:9092")})
    if not built.readiness():
        print(built.readiness().reason)

A topology without counts is *not ready*, and says why. A topic that is missing, or co-partitioned topics with unequal
counts, are reasons, and no exceptions. `Placed` refuses a topology that is not ready with `TopologyNotReady`.

Errors: `MissingTopic` for a topic that is missing; `InputError` for one that may not be read, and if no broker answers
in time. They show no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from confluent_kafka import KafkaError

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.spark.kafka.brokers import PASSING, Admin, Topic
from taskplace.spark.kafka.clients import Clients, remedy
from taskplace.spark.kafka.options import ClientOptions
from taskplace.validation import named
from topology import BuiltTopology

T = TypeVar("T")
_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")


class MissingTopic(InputError):
    """The cluster does not have the topic."""


class TopicOffsets:
    """Answers questions about one topic. `rights`: what the client needs on the topic, beside `Describe`."""

    def __init__(self, topic: str, options: ClientOptions, seconds: float, *rights: str) -> None:
        self._topic, self._seconds, self._rights = topic, seconds, rights
        self._clients = Clients(options, topic)

    def described(self) -> Topic:
        """Return the topic. Errors: `InputError`, for a missing topic with the remedy."""
        found = self._answer(Admin.describe)
        for right in found.lacking(self._rights):
            expected = f"{_READABLE}; allow `{right}` on the topic"
            raise InputError(f"topic {self._topic!r}", found=f"no right to {right}", expected=expected)
        return found

    def starts(self, partitions: int) -> dict[int, int]:
        """Return the first offset that each partition has."""
        return self._answer(Admin.offsets, range(partitions), first=True)

    def ends(self, partitions: int) -> dict[int, int]:
        """Return the last stable offset of each partition: the end of what may be read."""
        return self._answer(Admin.offsets, range(partitions), committed=True)

    def later_than(self, time_ms: int, partitions: Collection[int]) -> dict[int, int]:
        """Return the offset of the first record with a later time, for partitions that have one."""
        newer = self.first_newer(dict.fromkeys(partitions, time_ms))
        return {partition: offset for partition, (offset, _) in newer.items()}

    def first_newer(self, times: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return by partition the first record that is newer than so many milliseconds, as offset and timestamp."""
        return self._answer(Admin.first_newer, times)

    def commit(self, group: str, positions: Mapping[int, int]) -> None:
        """Commit the offsets of a consumer group that has no members."""
        self._answer(Admin.commit, group, positions)

    def _answer(self, question: Callable[..., T], *what: Any, **more: Any) -> T:
        def failed(error: KafkaError) -> InputError:
            return refused(self._topic, error, self._clients, right="Describe")

        with self._clients.asked(self._seconds, failed) as admin:
            return question(admin, self._topic, *what, **more)


_READABLE = "a topic that the cluster lets this client read"


def deleted(topic: str) -> MissingTopic:
    """Return the error for a topic that a stream has read, and that is gone."""
    expected = "the topic that the stream reads: it was deleted"
    hint = "restore it, or make it again and start with `changed_topics: go-on`"
    return MissingTopic(f"topic {topic!r}", found="no such topic any more", expected=expected, hint=hint)


def refused(topic: str, error: KafkaError, clients: Clients, *, right: str) -> InputError:
    """Return a source's error for what a client says about a topic. `right`: what it needs for what it was doing."""
    hint, expected = remedy(error, f"`{right}`"), _READABLE
    if error.name() in PASSING:
        hint, expected = "check `servers`, and that the brokers run", "an answer of the brokers"
    kind = MissingTopic if error.name() in _MISSING else InputError
    return kind(f"topic {topic!r}", found=clients.says(error), expected=expected, hint=hint)


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


def with_broker_counts(
    built: BuiltTopology, topics: Mapping[str, Any] = MappingProxyType({})
) -> BuiltTopology:
    """Return a topology with the partition counts that the brokers have, and None for a missing topic.

    Sources with `reads` are asked for themselves. `topics`: by external topic, the `KafkaTopic` or `KafkaRecords` that
    knows the count of another one. Topics of which nothing is known are left as they are. Call it again to see whether
    topics have changed.

    What is not as it must be is in `readiness()`: topics that are missing, co-partitioned topics with unequal counts,
    and a topic whose count is not that with which its stores began.

    Errors: `InputError`; `TopologyError` for an unknown topic.
    """
    sources = {node.topic: node for node in built.nodes if node.kind == "source" and not node.internal}
    asked = {topic: node.options.get("reads") for topic, node in sources.items() if topic} | dict(topics)
    counts: dict[str, int | None] = {}
    for topic, counted in asked.items():
        if counted is not None and hasattr(counted, "partitions"):
            try:
                counts[topic] = counted.partitions()
            except MissingTopic:
                counts[topic] = None
    return built.with_partitions(counts)
