"""The marker of a sink: the last batch that is in its topic, kept in Kafka itself.

**Idea.** A batch's records and its marker are written in one transaction, so the topic has the batch if and only if
the marker says so. Markers of all sinks lie in one compacted topic with one partition. Unlike consumer offsets, they
do not expire.

    key      {"checkpoint": "<id>", "sink": "<name>"}
    value    {"batch": 12, "manifest": "<checksum of the batch's manifest>"}

Properties:
- A read begins after `init_transactions`, which has ended the predecessor's transaction. It goes to the high watermark
  of that moment, so it sees every marker that is committed. While another sink's transaction is open, a reader of
  committed records does not get that far; the read waits for it.
- The last record with a sink's key counts. If it is no marker, the read ends with an error: nobody knows what the topic
  of the sink has.
- An end of the partition, not a record, says that the read is complete: compaction and the marks of transactions leave
  gaps.
- An existing topic must have one partition and be compacted, and never be cut off. It must have as many replicas, and
  as many of them in sync, as a topic that is made here.
- A broker that is down counts: brokers take three replicas as long as they know of three brokers, and replicas of other
  topics name brokers that do not answer.

Errors: `SinkError` with the topic, the value found, the value expected and the remedy.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from taskplace.errors import SinkError
from taskplace.spark.kafka import brokers as asking
from taskplace.spark.kafka.clients import PERMANENT, Clients

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicDescription

log = logging.getLogger(__name__)

#: The configuration of a marker topic. Small segments are compacted early, so a start reads little.
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
#: Replicas of a marker topic, if there are as many brokers, whether or not they answer.
REPLICAS = 3
ADMIN_SECONDS = 30.0
_NOT_ALLOWED = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
T = TypeVar("T")


class Marker(msgspec.Struct, frozen=True):
    """The last batch in the topic, and the checksum of its manifest."""

    batch: int
    manifest: str


class MarkerKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose marker it is."""

    checkpoint: str
    sink: str

    def encode(self) -> bytes:
        """Return the key of the record."""
        return msgspec.json.encode(self)


class MarkerTopic:
    """The compacted topic of markers. `replication`: its replicas; None: three, or one for each broker if fewer."""

    def __init__(self, clients: Clients, topic: str, replication: int | None) -> None:
        self.name = topic
        self._clients, self._replication = clients, replication

    # -- the topic

    def exists(self, *, new: bool = False) -> bool:
        """Return whether the topic is there. Errors: if the brokers cannot be asked, or it is not as it must be.

        `new`: it was just made, so brokers that do not know it are asked again.
        """
        admin = self._clients.admin()
        found = described(self._clients, admin, self.name, "Read", "Write", new=new)
        if found is None:
            return False
        self._check(admin, found)
        return True

    def create(self) -> None:
        """Create the topic, unless it exists; check it."""
        if self.exists():
            return
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        admin = self._clients.admin()
        look = self._clients.look(admin, f"topic {self.name!r} cannot be created")
        choices = [self._replication] if self._replication else list(range(REPLICAS, 0, -1))
        for replicas in choices:
            config = {**CONFIG, "min.insync.replicas": str(_in_sync(replicas))}
            topic = NewTopic(self.name, num_partitions=1, replication_factor=replicas, config=config)
            try:
                made = asking.create(admin, topic, ADMIN_SECONDS, look=look)
            except KafkaException as error:
                if error.args[0].name() != "INVALID_REPLICATION_FACTOR" or replicas == choices[-1]:
                    raise self._cannot_create(error, replicas) from None
                continue  # there are fewer brokers, also with those that are down
            if made:
                log.info("created the topic %r with %d replicas", self.name, replicas)
                if replicas < REPLICAS and not self._replication:
                    log.warning(
                        "topic %r has %d replicas, because there are no more brokers: if they are lost, a batch may be "
                        "written twice", self.name, replicas,
                    )  # fmt: skip
            break
        if not self.exists(new=True):
            raise SinkError(f"topic {self.name!r}: not there after it was created; start again")

    def _cannot_create(self, error: Exception, replicas: int) -> SinkError:
        allow = "allow `Create` on it, or " if error.args[0].name() in _NOT_ALLOWED else ""
        return SinkError(
            f"topic {self.name!r} cannot be created: {self._clients.says(error)}; {allow}create it with 1 partition, "
            f"cleanup.policy=compact, {replicas} replicas, and min.insync.replicas={_in_sync(replicas)}"
        )

    def _wanted(self, admin: AdminClient) -> int:
        """Return the replicas that the topic must have: of the brokers that answer, or that have a replica."""
        if self._replication:
            return self._replication
        found = metadata(self._clients, admin)
        partitions = (each for topic in found.topics.values() for each in topic.partitions.values())
        brokers = {*found.brokers, *(id_ for each in partitions for id_ in each.replicas)}
        return min(REPLICAS, len(brokers))

    def _check(self, admin: AdminClient, found: TopicDescription) -> None:
        if len(found.partitions) != 1:
            raise self._wrong("partitions", len(found.partitions), 1, "set another `marker_topic`")
        wanted = self._wanted(admin)
        if (replicas := len(found.partitions[0].replicas)) < wanted:
            remedy = f"add replicas with kafka-reassign-partitions, or set `replication: {replicas}`"
            raise self._wrong("replicas", replicas, f"at least {wanted}", remedy)
        config = configuration(self._clients, admin, self.name)
        if not config:
            return
        policy = config["cleanup.policy"]
        if sorted(filter(None, policy.split(","))) != ["compact"]:
            raise self._wrong(
                "cleanup.policy", policy, "compact", "markers would be lost; change it with kafka-configs"
            )
        if (in_sync := int(config["min.insync.replicas"])) < (least := _in_sync(wanted)):
            raise self._wrong(
                "min.insync.replicas", in_sync, f"at least {least}", "change it with kafka-configs"
            )

    def _wrong(self, what: str, found: object, expected: object, remedy: str) -> SinkError:
        return SinkError(f"topic {self.name!r}: found {what} = {found}, expected {expected}; {remedy}")

    # -- one marker

    def read(self, key: MarkerKey, seconds: float) -> Marker | None:
        """Return the marker of a sink; None before its first batch. Errors: if it takes longer than `seconds`."""
        import confluent_kafka as ck

        deadline = time.monotonic() + seconds
        end = self._end(seconds)
        consumer = self._clients.consumer(
            {
                "group.id": f"taskplace-{key.checkpoint}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "allow.auto.create.topics": False,
            }
        )
        last, reached, wanted, heard = None, 0, key.encode(), time.monotonic()
        try:
            consumer.assign([ck.TopicPartition(self.name, 0, ck.OFFSET_BEGINNING)])
            while reached < end:
                message = consumer.poll(min(1.0, max(deadline - time.monotonic(), 0.0)))
                self._clients.raise_refusal(f"the marker of sink {key.sink!r} cannot be read")
                if message is not None:
                    heard = time.monotonic()
                self._clients.warn_silent(heard)
                if message is not None and (error := message.error()) is None:
                    reached = message.offset() + 1
                    if message.key() == wanted:
                        last = message.offset(), message.value()
                elif message is not None and error.code() == ck.KafkaError._PARTITION_EOF:
                    reached = message.offset()
                elif message is not None and error.name() in PERMANENT:
                    raise self._clients.permanent(error, f"topic {self.name!r} cannot be read", "Read")
                if reached < end and time.monotonic() >= deadline:
                    raise SinkError(
                        f"topic {self.name!r}: read up to offset {reached} of {end} in {seconds:.0f} s; the brokers do "
                        "not answer, or a transaction of another sink is open: see kafka-transactions"
                    )
        finally:
            consumer.close()
        return None if last is None else self._marker(key, *last)

    def _marker(self, key: MarkerKey, offset: int, value: bytes | None) -> Marker:
        """Return the marker in a record. Errors: `SinkError` for something else, which another program has written."""
        found = "a tombstone" if value is None else f"{len(value)} bytes that are no marker"
        if value is not None:
            try:
                return msgspec.json.decode(value, type=Marker)
            except (msgspec.DecodeError, ValueError) as error:
                found = f"{found} ({error})"
        raise SinkError(
            f"topic {self.name!r}, partition 0, offset {offset}: found {found}, expected the marker of sink "
            f'{key.sink!r} of checkpoint {key.checkpoint}, like {{"batch":12,"manifest":"..."}}; another program has '
            "written it. Write the last marker again, with the same key, or set another `marker_topic`; if the last "
            "batch is published again, that needs `changed_topics: go-on`, and its rows may be in the topic twice then"
        )

    def _end(self, seconds: float) -> int:
        """Return the high watermark: also behind transactions that are open."""
        admin = self._clients.admin()

        def question(look: Callable[[], None]) -> int:
            return asking.offsets(admin, self.name, [0], seconds=seconds, look=look, also=asking.NEW)[0]

        return _answer(self._clients, admin, f"topic {self.name!r}: its end is not known", question)


def described(
    clients: Clients, admin: AdminClient, topic: str, *rights: str, new: bool = False
) -> TopicDescription | None:
    """Return the description of a topic; None if it does not exist. Errors: `SinkError`, also if a right is missing.

    `new`: it was just made, so brokers that do not know it are asked again.
    """
    doing = f"topic {topic!r} cannot be checked"

    def question(look: Callable[[], None]) -> TopicDescription | None:
        import confluent_kafka as ck

        try:
            return asking.describe(
                admin, topic, ADMIN_SECONDS, look=look, new=asking.NEW_SECONDS if new else 0
            )
        except ck.KafkaException as error:
            if error.args[0].name() in asking.NEW:
                return None
            raise

    found = _answer(clients, admin, doing, question)
    if found is not None and (lacking := asking.lacking(found, *rights)):
        raise SinkError(
            f"topic {topic!r}: this client has no right to {' or '.join(lacking)}; allow "
            f"{' and '.join(f'`{right}`' for right in lacking)} on the topic"
        )
    return found


def metadata(clients: Clients, admin: AdminClient) -> ClusterMetadata:
    """Return what the brokers know of topics and brokers. Errors: `SinkError` if they do not answer, or refuse."""

    def question(look: Callable[[], None]) -> ClusterMetadata:
        return asking.ask(lambda seconds: admin.list_topics(timeout=seconds), ADMIN_SECONDS, look=look)

    return _answer(clients, admin, "the brokers of the sink do not answer", question)


def configuration(clients: Clients, admin: AdminClient, topic: str) -> dict[str, str]:
    """Return the configuration of a topic that exists; empty, with a warning, if it may not be read."""
    import confluent_kafka as ck
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)

    def once(seconds: float) -> dict[str, str]:
        asked = admin.describe_configs([resource], request_timeout=seconds)[resource]
        return {name: entry.value or "" for name, entry in asked.result(2 * seconds).items()}

    def question(look: Callable[[], None]) -> dict[str, str]:
        try:
            return asking.ask(once, ADMIN_SECONDS, admin=admin, look=look, also=asking.NEW)
        except ck.KafkaException as error:
            if error.args[0].name() not in _NOT_ALLOWED:
                raise
            says = clients.says(error)
            log.warning(
                "the configuration of topic %r is not checked (allow `DescribeConfigs`): %s", topic, says
            )
            return {}

    return _answer(clients, admin, f"the configuration of topic {topic!r} is not known", question)


def _answer(
    clients: Clients, admin: AdminClient, doing: str, question: Callable[[Callable[[], None]], T]
) -> T:
    """Return the answer to a question, which gets the `look` of `asking.ask`. Errors: `SinkError`."""
    import confluent_kafka as ck

    try:
        return question(clients.look(admin, doing))
    except ck.KafkaException as raised:
        error = raised.args[0]
        if error.name() in PERMANENT:
            raise clients.permanent(error, doing, "Describe") from None
        raise SinkError(
            f"{doing}: {clients.says(error)}; check `servers`, and that the brokers run"
        ) from None


def _in_sync(replicas: int) -> int:
    """Return how many replicas must have a record: all but one of three, so that one broker may fail."""
    return max(1, replicas - 1) if replicas > 2 else 1
