"""The topics of a sink: its own, which must stay the same, and that of the markers, the last batch of each sink.

**The same topic.** A name says little: a topic that was made again has the same one, and none of the rows. Each
manifest keeps the ids of the sink's topics. A driver compares them before it takes the checkpoint over, and asks the
brokers again before it publishes a batch.
- A topic that is missing, was made again, or has other partitions ends the query; it is not waited for. But a topic
  that was there a moment ago counts as missing only if brokers go on saying so: one of them may lag behind, above all
  for a marker topic that was just made.
- Another marker topic is harmless, unless a committed batch has to be published again: nobody knows then whether the
  sink's topic has the batch. The same holds for another `delivery`.
- With `go_on`, what has changed is a warning, and counts from then on.
- A checkpoint that keeps no ids yet takes the topics as they are.

**Markers.** A batch's records and its marker are written in one transaction, so the topic has the batch if and only if
the marker says so. Markers of all sinks lie in one compacted topic with one partition. Unlike consumer offsets, they
do not expire.

    key      {"checkpoint": "<id>", "sink": "<name>"}
    value    {"batch": 12, "manifest": "<checksum of the batch's manifest>"}

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

Errors: `CheckpointError` for topics that are not those of the checkpoint; `SinkError` with the topic, the value found,
the value expected and the remedy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import confluent_kafka as ck
import msgspec
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, TopicDescription

from taskplace.errors import CheckpointError, SinkError
from taskplace.spark.kafka.brokers import NEW, NEW_SECONDS, Admin, lacking
from taskplace.spark.kafka.clients import PERMANENT, Clients
from taskplace.spark.kafka.record_format import RecordFormat
from taskplace.validation import nearest

log = logging.getLogger(__name__)
#: The remedy for all that a user may accept.
GO_ON = "set `changed_topics: go-on` to take it as it is"
#: What brokers without ids of topics say.
_NO_ID = ("", "None", "AAAAAAAAAAAAAAAAAAAAAA")
#: How long brokers that know nothing of a topic are asked again while the stream runs, in seconds.
GONE_SECONDS = 2.0
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


@dataclass(frozen=True)
class SeenTopic:
    """A topic as the brokers have it. `id`: "" if they have no ids."""

    name: str
    id: str
    partitions: int

    def kept(self) -> dict[str, Any]:
        """Return the entry of the manifest."""
        return {"name": self.name, "id": self.id, "partitions": self.partitions}

    def is_other(self, kept: Mapping[str, Any]) -> bool:
        """Return whether this is not the topic of an entry."""
        return self.name != kept.get("name") or bool(self.id and kept.get("id") and self.id != kept["id"])


class SinkTopics:
    """The topics of one sink. Lifetime: one client, from the first question until an error or `close`.

    - `topic`, `markers`: their names; `markers` is "" for a sink without them
    - `delivery`: how batches are published
    - `ordered`: whether records have keys, so that new partitions break an order
    """

    def __init__(
        self, clients: Clients, topic: str, markers: str, *, delivery: str, ordered: bool, go_on: bool
    ) -> None:
        self._clients, self._topic, self._markers = clients, topic, markers
        self._delivery, self._ordered, self._go_on = delivery, ordered, go_on
        self._admin: AdminClient | None = None
        self._bound: dict[str, SeenTopic] = {}
        self._lock = threading.Lock()

    def kept(self) -> dict[str, Any]:
        """Return what the next manifest keeps of the topics; empty before `bind`."""
        if not self._bound:
            return {}
        topics = {"topic": self._topic, "markers": self._markers}
        return {"delivery": self._delivery} | {
            role: self._bound[name].kept() for role, name in topics.items() if name in self._bound
        }

    # -- at the start

    def check(self, kept: Mapping[str, Any], repeated: int | None, seconds: float = ADMIN_SECONDS) -> None:
        """Compare the topics with those of the last manifest. Changes nothing.

        `repeated`: the committed batch with rows that is published again; None if there is none.
        """
        if not kept:
            return
        found = self._seen(seconds)
        self._check_topic(kept.get("topic") or {}, found[self._topic])
        before = kept.get("delivery", self._delivery)
        if repeated is None or self._delivery == "at-least-once" or before == "at-least-once":
            return  # nothing is published again, or it may be there twice
        markers, now = kept.get("markers") or {}, found.get(self._markers)
        if markers and (now is None or now.is_other(markers)):
            was = f"{markers.get('name')!r} with the id {markers.get('id')}"
            is_now = "no such topic" if now is None else f"{now.name!r} with the id {now.id}"
            self._changed(
                f"topic of markers: found {is_now}, expected {was}; nobody knows whether topic {self._topic!r} has "
                f"batch {repeated}, which is committed and published again",
                f"restore that topic or its name in `marker_topic`; or {GO_ON}: the rows of batch {repeated} may be in "
                "the topic twice then",
            )

    def bind(self, kept: Mapping[str, Any], seconds: float = ADMIN_SECONDS) -> None:
        """Take the topics as they are now, after `check`. Errors: for one that is missing."""
        found = self._seen(seconds, NEW_SECONDS)
        for name, topic in found.items():
            if topic is None:
                raise self._missing(name)
        markers = kept.get("markers") or {}
        if self._markers and markers and found[self._markers].is_other(markers):  # type: ignore[union-attr]
            log.warning(
                "the markers of topic %r were in topic %r (id %s); from now on they are in %r (id %s)",
                self._topic, markers.get("name"), markers.get("id"), self._markers,
                found[self._markers].id,  # type: ignore[union-attr]
            )  # fmt: skip
        self._bound = {name: topic for name, topic in found.items() if topic is not None}

    # -- while the stream runs

    def check_now(self, seconds: float) -> None:
        """Compare the topics with those of `bind`; nothing before it. Errors: also `TimeoutError`."""
        if not self._bound:
            return
        with self._lock:
            found = self._seen(seconds, GONE_SECONDS, TimeoutError)
            for name, topic in found.items():
                if topic is None:
                    raise self._missing(name)
            self._check_topic(self._bound[self._topic].kept(), found[self._topic])
            markers = found.get(self._markers)
            if markers is not None and markers.is_other(self._bound[self._markers].kept()):
                self._changed(
                    f"topic {self._markers!r} was deleted and made again while the stream ran: found the id "
                    f"{markers.id}, expected {self._bound[self._markers].id}; its markers are lost",
                    f"start again; or {GO_ON}",
                )
            self._bound = {name: topic for name, topic in found.items() if topic is not None}

    def close(self) -> None:
        """Give the client up. The next question makes another one."""
        self._admin = None

    # -- the comparison

    def _check_topic(self, kept: Mapping[str, Any], found: SeenTopic | None) -> None:
        if not kept or kept.get("name") != self._topic:
            return  # the user has named another topic
        if found is None:
            raise self._missing(self._topic)
        if found.is_other(kept):
            self._changed(
                f"topic {self._topic!r} was deleted and made again: found the id {found.id}, expected "
                f"{kept.get('id')}; the rows of earlier batches went with the old topic",
                f"start a new checkpoint to write all rows again, or {GO_ON}",
            )
        elif self._ordered and found.partitions != kept.get("partitions", found.partitions):
            self._changed(
                f"topic {self._topic!r}: found {found.partitions} partitions, expected {kept['partitions']}; keys go "
                "to other partitions from now on, so the records of a key before and after have no order",
                f"write to a topic with {kept['partitions']} partitions, or {GO_ON}",
            )

    def _changed(self, what: str, remedy: str) -> None:
        if not self._go_on:
            raise CheckpointError(f"{what}; {remedy}")
        log.warning("%s; the sink goes on, because of `changed_topics: go-on`", what)

    def _missing(self, name: str) -> SinkError:
        return SinkError(
            f"topic {name!r} does not exist any more; what was in it is lost. Create it again, and start again: the "
            "error will say what can be done"
        )

    def _seen(
        self, seconds: float, gone: float = 0.0, unanswered: type[Exception] = SinkError
    ) -> dict[str, SeenTopic | None]:
        """Return the topics by name; None for a missing one. Errors: as of the module, and `unanswered`.

        `gone`: for how long brokers have to say that a topic is missing, in seconds.
        """
        if self._admin is None:
            self._admin = self._clients.admin()
        try:
            return {
                name: _seen(
                    described(
                        self._clients, self._admin, name, seconds=seconds, new=gone, unanswered=unanswered
                    ),
                    name,
                )
                for name in (self._topic, self._markers)
                if name
            }
        except Exception:
            self._admin = None
            raise


def _seen(found: TopicDescription | None, name: str) -> SeenTopic | None:
    if found is None:
        return None
    id_ = str(getattr(found, "topic_id", ""))
    return SeenTopic(name, "" if id_ in _NO_ID else id_, len(found.partitions))


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

    def exists(self, *, new: float = 0.0) -> bool:
        """Return whether the topic is there. Errors: if the brokers cannot be asked, or it is not as it must be.

        `new`: as of `described`.
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
        client = self._clients.admin()
        admin = Admin(
            client, ADMIN_SECONDS, self._clients.look(client, f"topic {self.name!r} cannot be created")
        )
        choices = [self._replication] if self._replication else list(range(REPLICAS, 0, -1))
        for replicas in choices:
            config = {**CONFIG, "min.insync.replicas": str(_in_sync(replicas))}
            topic = NewTopic(self.name, num_partitions=1, replication_factor=replicas, config=config)
            try:
                made = admin.create(topic)
            except ck.KafkaException as error:
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
        if not self.exists(new=NEW_SECONDS):
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
        doing = f"topic {self.name!r}: its end is not known"
        with asked(self._clients, self._clients.admin(), doing, seconds=seconds) as admin:
            return admin.offsets(self.name, [0], also=NEW)[0]


def described(
    clients: Clients, client: AdminClient, topic: str, *rights: str, new: float = 0.0, **more: Any
) -> TopicDescription | None:
    """Return the description of a topic; None if it does not exist. Errors: `SinkError`, also if a right is missing.

    `new`: for how long brokers that do not know it are asked again, in seconds. `more`: of `asked`.
    """
    with asked(clients, client, f"topic {topic!r} cannot be checked", **more) as admin:
        try:
            found = admin.describe(topic, new=new)
        except ck.KafkaException as error:
            if error.args[0].name() in NEW:
                return None
            raise
    if lacks := lacking(found, *rights):
        raise SinkError(
            f"topic {topic!r}: this client has no right to {' or '.join(lacks)}; allow "
            f"{' and '.join(f'`{right}`' for right in lacks)} on the topic"
        )
    return found


def configuration(clients: Clients, client: AdminClient, topic: str) -> dict[str, str]:
    """Return the configuration of a topic that exists; empty, with a warning, if it may not be read."""
    with asked(clients, client, f"the configuration of topic {topic!r} is not known") as admin:
        try:
            return admin.configuration(topic)
        except ck.KafkaException as error:
            if error.args[0].name() not in _NOT_ALLOWED:
                raise
            says = clients.says(error)
            log.warning(
                "the configuration of topic %r is not checked (allow `DescribeConfigs`): %s", topic, says
            )
            return {}


@contextmanager
def asked(
    clients: Clients,
    client: AdminClient,
    doing: str,
    *,
    seconds: float = ADMIN_SECONDS,
    unanswered: type[Exception] = SinkError,
) -> Iterator[Admin]:
    """Yield what asks brokers. Errors: `SinkError` for an answer that does not pass by waiting, and `unanswered`."""
    try:
        yield Admin(client, seconds, clients.look(client, doing))
    except ck.KafkaException as raised:
        error = raised.args[0]
        if error.name() in PERMANENT:
            raise clients.permanent(error, doing, "Describe") from None
        says = f"{doing}: {clients.says(error)}; check `servers`, and that the brokers run"
        raise unanswered(says) from None


def metadata(clients: Clients, client: AdminClient) -> ClusterMetadata:
    """Return what the brokers know of topics and brokers. Errors: `SinkError` if they do not answer, or refuse."""
    with asked(clients, client, "the brokers of the sink do not answer") as admin:
        return admin.metadata()


def check_topic(clients: Clients, topic: str, form: RecordFormat) -> None:
    """Refuse a topic that cannot take the records of a format. Errors: `SinkError`."""
    client = clients.admin()
    if described(clients, client, topic, "Write") is None:
        topics = metadata(clients, client).topics
        near = nearest(topic, [name for name in topics if not name.startswith("__")])
        raise SinkError(f"topic {topic!r} does not exist; create it first{near and '; ' + near}")
    config = configuration(clients, client, topic)
    largest = int(config.get("max.message.bytes", form.max_bytes))
    if largest < form.max_bytes:
        raise SinkError(
            f"topic {topic!r}: found max.message.bytes = {largest}, expected at least the sink's "
            f"message.max.bytes = {form.max_bytes}: a committed record could be refused; change one of them"
        )
    if "compact" in config.get("cleanup.policy", "") and form.key is None:
        remedy = "set `key`, or write to a topic that is not compacted"
        raise SinkError(f"topic {topic!r}: it is compacted, so its records need a key; {remedy}")


def _in_sync(replicas: int) -> int:
    """Return how many replicas must have a record: all but one of three, so that one broker may fail."""
    return max(1, replicas - 1) if replicas > 2 else 1
