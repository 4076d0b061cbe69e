"""Asks brokers, and asks again for what passes by itself: an election, a broker that starts or stops, a new topic.

**Idea.** A client sends a question to one broker, and waits for it, even if that broker has died and another one has
the answer by now. So a question gets little time at first, and is asked again, each time with twice the time, until
the caller's time is over.

Properties:
- An error that does not pass by itself ends the question at once.
- A client goes on asking the leader or the controller that it knows, also when that broker has died. So it asks for
  metadata before it asks again.
- An offset that no broker has told is no answer. librdkafka returns a negative one, without an error, for a partition
  whose leader died.
- A topic that was just made may be unknown to some brokers: `new` says for how long such an answer is not believed.

Errors: `KafkaException` of the last answer; what `look` raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import NamedTuple, TypeVar

import confluent_kafka as ck
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

T = TypeVar("T")
#: What passes by itself, by the name of its code. `_NOENT`: no partition has a leader that the client knows.
PASSING = frozenset(
    (
        "BROKER_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR", "LEADER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "NOT_CONTROLLER", "NOT_COORDINATOR",
        "NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "REQUEST_TIMED_OUT",
        "UNKNOWN_LEADER_EPOCH", "_ALL_BROKERS_DOWN", "_DESTROY_BROKER", "_NODE_UPDATE", "_NOENT", "_RESOLVE",
        "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT", "_UNKNOWN_BROKER", "_WAIT_COORD",
    )
)  # fmt: skip
#: What brokers say of a topic that they do not know, or not yet.
NEW = frozenset(("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"))
#: The seconds of a first question, and the most that a later one gets.
FIRST_SECONDS, MOST_SECONDS = 1.0, 30.0
PAUSE_SECONDS = 0.1
#: What brokers without ids of topics say.
_NO_ID = ("", "None", "AAAAAAAAAAAAAAAAAAAAAA")
#: How long brokers may lag behind those that know a topic, in seconds: before it counts as gone.
NEW_SECONDS = 10.0
#: A client ends its questions itself; this is how much later it may be.
_LATE_SECONDS = 5.0


class Topic(NamedTuple):
    """A topic as the brokers have it.

    - `id`: "" if they have no ids; `replicas`: of its first partition
    - `allowed`: what this client may do with it; empty: the brokers do not say, and are taken to allow all
    """

    name: str
    id: str
    partitions: int
    replicas: int = 0
    allowed: frozenset[str] = frozenset()

    def lacking(self, rights: Iterable[str]) -> list[str]:
        """Return which rights this client lacks."""
        if not self.allowed or "ALL" in self.allowed:
            return []
        return [right for right in rights if right.upper() not in self.allowed]


class Admin:
    """Asks brokers by one admin client. A question is asked at least once, and again for `seconds`.

    - `look`: called after each error; raises if asking again has no use, as when a broker refuses the client

    Argument of questions: `new`, for how many seconds the errors of `NEW` pass by themselves as well.
    """

    def __init__(
        self, client: AdminClient, seconds: float, look: Callable[[], object] = lambda: None
    ) -> None:
        self._client, self._seconds, self._look = client, seconds, look

    def ask(self, question: Callable[[float], T], *, new: float = 0.0) -> T:
        """Return the answer to a question, which gets the seconds that it may take."""
        began = time.monotonic()
        deadline, patience = began + self._seconds, FIRST_SECONDS
        while True:
            at_most = max(min(patience, deadline - time.monotonic()), PAUSE_SECONDS)
            try:
                if patience > FIRST_SECONDS:
                    self._client.list_topics(timeout=at_most)
                return question(at_most)
            except TimeoutError:
                error = ck.KafkaError(ck.KafkaError._TIMED_OUT, "the client does not answer")
            except ck.KafkaException as raised:
                error = raised.args[0]
            self._look()
            now = time.monotonic()
            lags = error.name() in NEW and now < began + new
            if not (lags or error.name() in PASSING) or now >= deadline:
                raise ck.KafkaException(error)
            patience = min(2 * patience, MOST_SECONDS)
            time.sleep(PAUSE_SECONDS)

    def metadata(self) -> ClusterMetadata:
        """Return what the brokers know of topics and brokers."""
        return self.ask(lambda at_most: self._client.list_topics(timeout=at_most))

    def describe(self, topic: str, *, new: float = 0.0) -> Topic:
        """Return a topic, with what this client may do with it. It makes no topic."""

        def question(at_most: float) -> Topic:
            asked = self._client.describe_topics(
                ck.TopicCollection([topic]), include_authorized_operations=True, request_timeout=at_most
            )
            found = asked[topic].result(at_most + _LATE_SECONDS)
            id_, partitions = str(found.topic_id), found.partitions
            allowed = frozenset(operation.name for operation in found.authorized_operations or ())
            replicas = len(partitions[0].replicas) if partitions else 0
            return Topic(topic, "" if id_ in _NO_ID else id_, len(partitions), replicas, allowed)

        return self.ask(question, new=new)

    def configuration(self, topic: str) -> dict[str, str]:
        """Return the configuration of a topic that exists."""
        resource = ConfigResource(ResourceType.TOPIC, topic)

        def question(at_most: float) -> dict[str, str]:
            asked = self._client.describe_configs([resource], request_timeout=at_most)[resource]
            return {name: entry.value or "" for name, entry in asked.result(2 * at_most).items()}

        return self.ask(question, new=inf)

    def offsets(
        self,
        topic: str,
        partitions: Iterable[int],
        *,
        first: bool = False,
        committed: bool = False,
        new: float = 0.0,
    ) -> dict[int, int]:
        """Return, by partition, the offset behind the last record: the high watermark.

        - `committed`: the last stable offset instead; no transaction that is open or was aborted ends before it
        - `first`: the first offset that is there
        """
        specs = dict.fromkeys(partitions, OffsetSpec.earliest() if first else OffsetSpec.latest())

        def question(at_most: float) -> dict[int, int]:
            found = self._listed(topic, specs, at_most, committed=committed)
            if unknown := [partition for partition, (offset, _) in found.items() if offset < 0]:
                text = f"no broker has told the offset of partition {unknown[0]}"
                raise ck.KafkaException(ck.KafkaError(ck.KafkaError.OFFSET_NOT_AVAILABLE, text))
            return {partition: offset for partition, (offset, _) in found.items()}

        return self.ask(question, new=new) if specs else {}

    def first_newer(self, topic: str, times: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return by partition its first record that is newer than so many milliseconds: its offset and timestamp.

        Partitions without one are left out.
        """
        # A record may have the last possible time.
        specs = {number: OffsetSpec.for_timestamp(min(at + 1, 2**63 - 1)) for number, at in times.items()}

        def question(at_most: float) -> dict[int, tuple[int, int]]:
            found = self._listed(topic, specs, at_most, committed=True)
            return {number: one for number, one in found.items() if one[0] >= 0}

        return self.ask(question) if times else {}

    def _listed(
        self, topic: str, specs: Mapping[int, OffsetSpec], at_most: float, *, committed: bool
    ) -> dict[int, tuple[int, int]]:
        """Return by partition the offset and the timestamp that a specification stands for; negative: none."""
        level = ck.IsolationLevel.READ_COMMITTED if committed else ck.IsolationLevel.READ_UNCOMMITTED
        wanted = {ck.TopicPartition(topic, number): spec for number, spec in specs.items()}
        asked = self._client.list_offsets(wanted, isolation_level=level, request_timeout=at_most)
        found = {at.partition: each.result(at_most + _LATE_SECONDS) for at, each in asked.items()}
        return {number: (int(one.offset), one.timestamp) for number, one in found.items()}

    def commit(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Commit the offsets of a consumer group. It must have no members: those commit themselves."""
        offsets = [ck.TopicPartition(topic, number, at) for number, at in positions.items()]

        def question(at_most: float) -> None:
            asked = self._client.alter_consumer_group_offsets(
                [ck.ConsumerGroupTopicPartitions(group, offsets)], request_timeout=at_most
            )
            done = asked[group].result(at_most + _LATE_SECONDS)
            if errors := [each.error for each in done.topic_partitions if each.error is not None]:
                raise ck.KafkaException(errors[0])

        self.ask(question)

    def create(self, topic: NewTopic) -> bool:
        """Create a topic, wait until brokers know it, and return whether it was missing before."""
        tries = 0

        def question(at_most: float) -> bool:
            nonlocal tries
            tries += 1
            asked = self._client.create_topics([topic], operation_timeout=at_most, request_timeout=at_most)
            try:
                asked[topic.topic].result(at_most + _LATE_SECONDS)
            except ck.KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
                return tries > 1  # an earlier try has made it, and its answer did not come
            return True

        made = self.ask(question)
        self.describe(topic.topic, new=inf)
        return made
