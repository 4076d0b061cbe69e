"""Asks a cluster about a topic: its id, its partitions, and the offsets where they begin and end.

Properties:
- the end of a partition is its last stable offset: no transaction that is open or was aborted ends before it;
- the id differs from that of an earlier topic with the same name, so a topic that was deleted and made again is
  noticed;
- a question that a broker cannot answer just now, as while a partition's leader is elected, is asked again.

Errors: `MissingTopic` for a topic that is missing; `InputError` for one that may not be read, and if no broker answers
in time. They show no secret.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from taskplace.errors import InputError
from taskplace.spark.kafka.client_options import ClientOptions

#: Gets what clients say. What matters is raised as well, so nothing is shown unless the application sets up logging.
LOG = logging.getLogger("taskplace.kafka")
LOG.addHandler(logging.NullHandler())
T = TypeVar("T")
#: What passes by itself: a topic was just made, a leader is elected, or a broker starts or stops.
_PASSING = {
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._TRANSPORT,
}
PAUSE_SECONDS = 0.1


class MissingTopic(InputError):
    """The cluster does not have the topic."""


class Described(NamedTuple):
    """A topic as the cluster has it."""

    topic_id: str
    partitions: int


class TopicOffsets:
    """Answers questions about one topic. Lifetime: one client, made at the first question."""

    def __init__(self, topic: str, options: ClientOptions, seconds: float) -> None:
        self._topic, self._options, self._seconds = topic, options, seconds
        self._client: AdminClient | None = None

    def described(self) -> Described:
        """Return the id and the partition count. Errors: `InputError`, for a missing topic with the remedy."""

        def ask() -> Any:
            topics = TopicCollection([self._topic])
            asked = self._admin().describe_topics(topics, request_timeout=self._seconds)
            return asked[self._topic].result(self._seconds + 5)

        found = self._answer(ask)
        return Described(str(found.topic_id), len(found.partitions))

    def starts(self, partitions: int) -> dict[int, int]:
        """Return the first offset that each partition has."""
        return self._offsets(partitions, OffsetSpec.earliest())

    def ends(self, partitions: int) -> dict[int, int]:
        """Return the last stable offset of each partition: the end of what may be read."""
        return self._offsets(partitions, OffsetSpec.latest())

    def _offsets(self, partitions: int, spec: Any) -> dict[int, int]:
        wanted = {TopicPartition(self._topic, number): spec for number in range(partitions)}

        def ask() -> dict[int, int]:
            answers: Mapping[Any, Any] = self._admin().list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._seconds
            )
            return {of.partition: int(each.result(self._seconds + 5).offset) for of, each in answers.items()}

        return self._answer(ask)

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = made(AdminClient, self._options, {})
        return self._client

    def _answer(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                    raise refused(self._topic, error.args[0], self._options) from None
            time.sleep(PAUSE_SECONDS)


def made(kind: Callable[..., Any], options: ClientOptions, own: Mapping[str, Any]) -> Any:
    """Return a client. Errors: `InputError` for properties that librdkafka refuses."""
    try:
        return kind({**options.resolved(), **own}, logger=LOG)
    except KafkaException as error:
        raise InputError(
            "Kafka client",
            found=options.scrubbed(error.args[0].str()),
            expected="properties that librdkafka knows",
        ) from None


def refused(topic: str, error: Any, options: ClientOptions) -> InputError:
    """Return the error for what a client says about a topic."""
    name = error.name()
    hint = {
        "UNKNOWN_TOPIC_OR_PART": "make the topic first, or correct its name",
        "_UNKNOWN_TOPIC": "make the topic first, or correct its name",
        "TOPIC_AUTHORIZATION_FAILED": "allow Describe and Read of the topic to this user",
        "_AUTHENTICATION": "check the mechanism, the user and the password",
    }.get(name, "")
    missing = name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")
    return (MissingTopic if missing else InputError)(
        f"topic {topic!r}",
        found=options.scrubbed(f"{name}: {error.str()}"),
        expected="a topic that the cluster lets this client read",
        hint=hint,
    )
