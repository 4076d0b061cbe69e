"""Asks a cluster about a topic: its id, its partitions, and the offsets where they begin and end.

Properties:
- the end of a partition is its last stable offset: no transaction that is open or was aborted ends before it;
- the id differs from that of an earlier topic with the same name, so a topic that was deleted and made again is
  noticed;
- a question that a broker cannot answer just now is asked again (`taskplace.spark.kafka.asking`); a client that is
  refused, for its password for example, is not.

Errors: `MissingTopic` for a topic that is missing; `InputError` for one that may not be read, and if no broker answers
in time. They show no secret.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from taskplace.errors import InputError
from taskplace.spark.kafka import asking
from taskplace.spark.kafka.client_options import ClientOptions
from taskplace.spark.kafka.clients import CREDENTIALS, refuses

#: Gets what clients say. What matters is raised as well, so nothing is shown unless the application sets up logging.
LOG = logging.getLogger("taskplace.kafka")
LOG.addHandler(logging.NullHandler())
T = TypeVar("T")
_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")


class MissingTopic(InputError):
    """The cluster does not have the topic."""


class Described(NamedTuple):
    """A topic as the cluster has it."""

    topic_id: str
    partitions: int


class Refusal:
    """Keeps why a client was refused: librdkafka tries again by itself, and says why to a callback only."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Take what the client says."""
        if refuses(error, CREDENTIALS):
            self.error = error


class _Scrubbed:
    """The logger that librdkafka writes to. No line has a secret."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options

    def log(self, level: int, text: str, *values: Any) -> None:
        """Write one line."""
        if LOG.isEnabledFor(level):
            LOG.log(level, "%s", self._options.scrubbed(text % values if values else text))


class TopicOffsets:
    """Answers questions about one topic. Lifetime: one client, made at the first question, and
    again after an error.

    `rights`: what the client needs on the topic, beside `Describe`.
    """

    def __init__(self, topic: str, options: ClientOptions, seconds: float, *rights: str) -> None:
        self._topic, self._options, self._seconds, self._rights = topic, options, seconds, rights
        self._client: AdminClient | None = None
        self._refusal = Refusal()

    def described(self) -> Described:
        """Return the id and the partition count. Errors: `InputError`, for a missing topic with the remedy."""
        found = self._answer(asking.describe)
        if lacking := asking.lacking(found, *self._rights):
            raise InputError(
                f"topic {self._topic!r}",
                found=f"no right to {lacking[0]}",
                expected="a topic that the cluster lets this client read",
                hint=f"allow `{lacking[0]}` on the topic to this user",
            )
        return Described(str(found.topic_id), len(found.partitions))

    def starts(self, partitions: int) -> dict[int, int]:
        """Return the first offset that each partition has."""
        return self._answer(asking.offsets, range(partitions), first=True)

    def ends(self, partitions: int) -> dict[int, int]:
        """Return the last stable offset of each partition: the end of what may be read."""
        return self._answer(asking.offsets, range(partitions), committed=True)

    def later_than(self, time_ms: int, partitions: Collection[int]) -> dict[int, int]:
        """Return the offset of the first record with a later time, for partitions that have one."""
        return self._answer(asking.offsets, partitions, later_than=time_ms)

    def _answer(self, question: Callable[..., T], *what: Any, **more: Any) -> T:
        if self._client is None:
            self._client = made(AdminClient, self._options, {"error_cb": self._refusal})
        client, self._refusal.error = self._client, None

        def look() -> None:
            client.poll(0)
            if self._refusal.error is not None:
                raise KafkaException(self._refusal.error)

        try:
            return question(client, self._topic, *what, seconds=self._seconds, look=look, **more)
        except KafkaException as error:
            self._client = None  # the next one reads its secrets anew
            raise refused(self._topic, error.args[0], self._options, right="Describe") from None


def made(kind: Callable[..., Any], options: ClientOptions, own: Mapping[str, Any]) -> Any:
    """Return a client, which logs without secrets. Errors: `InputError` for properties that librdkafka refuses."""
    try:
        return kind({**options.resolved(), **own}, logger=_Scrubbed(options))
    except KafkaException as error:
        raise InputError(
            "Kafka client",
            found=options.scrubbed(error.args[0].str()),
            expected="properties that librdkafka knows",
        ) from None


def refused(topic: str, error: Any, options: ClientOptions, *, right: str) -> InputError:
    """Return the error for what a client says about a topic. `right`: what it needs for what it was doing."""
    name = error.name()
    hint = {
        **dict.fromkeys(_MISSING, "make the topic first, or correct its name"),
        "TOPIC_AUTHORIZATION_FAILED": f"allow `{right}` on the topic to this user",
        **{code: remedy.format("options of the source") for code, remedy in CREDENTIALS.items()},
    }.get(name, "")
    return (MissingTopic if name in _MISSING else InputError)(
        f"topic {topic!r}",
        found=options.scrubbed(f"{name}: {error.str()}"),
        expected="a topic that the cluster lets this client read",
        hint=hint,
    )
