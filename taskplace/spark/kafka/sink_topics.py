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
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import confluent_kafka as ck
import msgspec
from confluent_kafka.admin import ClusterMetadata, NewTopic

from taskplace.errors import CheckpointError, SinkError
from taskplace.spark.kafka.brokers import NEW, NEW_SECONDS, Topic
from taskplace.spark.kafka.clients import PERMANENT, Clients
from taskplace.spark.kafka.record_format import RecordFormat
from taskplace.validation import nearest

log = logging.getLogger(__name__)
#: The remedy for all that a user may accept.
GO_ON = "set `changed_topics: go-on` to take it as it is"
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


class SinkTopics:
    """The topics of one sink.

    - `topic`, `markers`: their names; `markers` is "" for a sink without them
    - `delivery`: how batches are published
    - `ordered`: whether records have keys, so that new partitions break an order
    """

    def __init__(
        self, clients: Clients, topic: str, markers: str, *, delivery: str, ordered: bool, go_on: bool
    ) -> None:
        self._clients, self._topic, self._markers = clients, topic, markers
        self._delivery, self._ordered, self._go_on = delivery, ordered, go_on
        self._bound: dict[str, Topic] = {}

    def kept(self) -> dict[str, Any]:
        """Return what the next manifest keeps of the topics; empty before `bind`."""
        if not self._bound:
            return {}
        topics = {"topic": self._topic, "markers": self._markers}
        kept = {role: _kept(self._bound[name]) for role, name in topics.items() if name}
        return {"delivery": self._delivery, **kept}

    # -- at the start

    def check(self, kept: Mapping[str, Any], repeated: int | None, seconds: float = ADMIN_SECONDS) -> None:
        """Compare the topics with those of the last manifest. Changes nothing.

        `repeated`: the committed batch with rows that is published again; None if there is none.
        """
        if not kept:
            return
        found = self._found(seconds)
        self._check_topic(kept.get("topic") or {}, found[self._topic])
        before = kept.get("delivery", self._delivery)
        if repeated is None or self._delivery == "at-least-once" or before == "at-least-once":
            return  # nothing is published again, or it may be there twice
        markers, now = kept.get("markers") or {}, found.get(self._markers)
        if markers and (now is None or _is_other(now, markers)):
            is_now = "no such topic" if now is None else f"{now.name!r} with the id {now.id}"
            expected = f"{markers.get('name')!r} with the id {markers.get('id')}"
            unknown = f"nobody knows whether topic {self._topic!r} has batch {repeated}"
            what = f"topic of markers: found {is_now}, expected {expected}; {unknown}"
            remedy = f"restore that topic, or {GO_ON}: the rows of the batch may be in the topic twice then"
            self._changed(what, remedy)

    def bind(self, kept: Mapping[str, Any], seconds: float = ADMIN_SECONDS) -> None:
        """Take the topics as they are now, after `check`. Errors: for one that is missing."""
        found = self._present(seconds, NEW_SECONDS)
        markers = kept.get("markers") or {}
        if self._markers and markers and _is_other(now := found[self._markers], markers):
            text = "the markers of topic %r were in topic %r (id %s); from now on they are in %r (id %s)"
            log.warning(text, self._topic, markers.get("name"), markers.get("id"), now.name, now.id)
        self._bound = found

    # -- while the stream runs

    def check_now(self, seconds: float) -> None:
        """Compare the topics with those of `bind`; nothing before it. Errors: also `RetriableSinkError`."""
        if not self._bound:
            return
        found = self._present(seconds, GONE_SECONDS)
        self._check_topic(_kept(self._bound[self._topic]), found[self._topic])
        markers, before = found.get(self._markers), self._bound.get(self._markers)
        if markers is not None and before is not None and _is_other(markers, _kept(before)):
            ids = f"found the id {markers.id}, expected {before.id}; its markers are lost"
            what = f"topic {self._markers!r} was deleted and made again while the stream ran: {ids}"
            self._changed(what, f"start again; or {GO_ON}")
        self._bound = found

    # -- the comparison

    def _check_topic(self, kept: Mapping[str, Any], found: Topic | None) -> None:
        if kept.get("name") != self._topic:
            return  # the user has named another topic
        if found is None:
            raise _missing(self._topic)
        if _is_other(found, kept):
            ids = f"found the id {found.id}, expected {kept.get('id')}; the rows of earlier batches are lost"
            what = f"topic {self._topic!r} was deleted and made again: {ids}"
            self._changed(what, f"start a new checkpoint to write all rows again, or {GO_ON}")
        elif self._ordered and found.partitions != kept.get("partitions", found.partitions):
            counts = f"found {found.partitions} partitions, expected {kept['partitions']}"
            what = f"topic {self._topic!r}: {counts}; keys go to other partitions from now on"
            self._changed(what, f"write to a topic with {kept['partitions']} partitions, or {GO_ON}")

    def _changed(self, what: str, remedy: str) -> None:
        if not self._go_on:
            raise CheckpointError(f"{what}; {remedy}")
        log.warning("%s; the sink goes on, because of `changed_topics: go-on`", what)

    def _present(self, seconds: float, gone: float) -> dict[str, Topic]:
        """Return the topics by name. Errors: `SinkError` for a missing one."""
        found = self._found(seconds, gone)
        present = {name: topic for name, topic in found.items() if topic is not None}
        for name in (name for name in found if name not in present):
            raise _missing(name)
        return present

    def _found(self, seconds: float, gone: float = 0.0) -> dict[str, Topic | None]:
        """Return the topics by name; None for a missing one.

        `gone`: for how long brokers have to say that a topic is missing, in seconds.
        """
        names = filter(None, (self._topic, self._markers))
        return {name: described(self._clients, name, seconds=seconds, new=gone) for name in names}


def _kept(topic: Topic) -> dict[str, Any]:
    """Return the entry of a manifest."""
    return {"name": topic.name, "id": topic.id, "partitions": topic.partitions}


def _is_other(topic: Topic, kept: Mapping[str, Any]) -> bool:
    """Return whether this is not the topic of an entry."""
    return topic.name != kept.get("name") or bool(topic.id and kept.get("id") and topic.id != kept["id"])


def _missing(name: str) -> SinkError:
    return SinkError(
        f"topic {name!r} does not exist any more; what was in it is lost; create it, and start again"
    )


class Marker(msgspec.Struct, frozen=True):
    """The last batch in the topic, and the checksum of its manifest."""

    batch: int
    manifest: str


class MarkerKey(msgspec.Struct, frozen=True):
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
        found = described(self._clients, self.name, "Read", "Write", new=new)
        if found is None:
            return False
        wanted = self._replication or min(REPLICAS, self._brokers())
        self._check("partitions", found.partitions, found.partitions == 1, "1", "set another `marker_topic`")
        add = f"add replicas with kafka-reassign-partitions, or set `replication: {found.replicas}`"
        self._check("replicas", found.replicas, found.replicas >= wanted, f"at least {wanted}", add)
        if config := configuration(self._clients, self.name):
            change = "change it with kafka-configs"
            policy, in_sync, least = config["cleanup.policy"], config["min.insync.replicas"], _in_sync(wanted)
            self._check("cleanup.policy", policy, policy.strip(",") == "compact", "compact", change)
            self._check("min.insync.replicas", in_sync, int(in_sync) >= least, f"at least {least}", change)
        return True

    def _brokers(self) -> int:
        """Return the number of brokers that answer, or that have a replica."""
        found = _metadata(self._clients)
        partitions = (each for topic in found.topics.values() for each in topic.partitions.values())
        return len({*found.brokers, *(id_ for each in partitions for id_ in each.replicas)})

    def _check(self, what: str, found: object, fits: bool, expected: str, hint: str) -> None:
        if not fits:
            raise SinkError(f"topic {self.name!r}: found {what} = {found}, expected {expected}; {hint}")

    def create(self) -> None:
        """Create the topic, unless it exists; check it."""
        if self.exists():
            return
        for replicas in [self._replication] if self._replication else range(REPLICAS, 0, -1):
            try:
                if self._made(replicas) and replicas < REPLICAS and not self._replication:
                    why = "there are no more brokers: if they are lost, a batch may be written twice"
                    log.warning("topic %r has %d replicas, because %s", self.name, replicas, why)
                break
            except ck.KafkaException as error:
                if replicas in (1, self._replication) or error.args[0].name() != "INVALID_REPLICATION_FACTOR":
                    raise self._cannot_create(error, replicas) from None
        if not self.exists(new=NEW_SECONDS):
            raise SinkError(f"topic {self.name!r}: not there after it was created; start again")

    def _made(self, replicas: int) -> bool:
        config = {**CONFIG, "min.insync.replicas": str(_in_sync(replicas))}
        topic = NewTopic(self.name, num_partitions=1, replication_factor=replicas, config=config)
        with self._clients.asked(ADMIN_SECONDS, ck.KafkaException) as admin:
            return admin.create(topic)

    def _cannot_create(self, error: Exception, replicas: int) -> SinkError:
        allow = "allow `Create` on it, or " if error.args[0].name() in _NOT_ALLOWED else ""
        made = f"1 partition, cleanup.policy=compact, {replicas} replicas, min.insync.replicas={_in_sync(replicas)}"
        said = f"topic {self.name!r} cannot be created: {self._clients.says(error)}"
        return SinkError(f"{said}; {allow}create it with {made}")

    # -- one marker

    def read(self, key: MarkerKey, seconds: float) -> Marker | None:
        """Return the marker of a sink; None before its first batch. Errors: if it takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        end = self._end(seconds)
        own = {
            "group.id": f"taskplace-{key.checkpoint}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
        }
        consumer = self._clients.made(ck.Consumer, own)
        last, reached, wanted, answered = None, 0, key.encode(), time.monotonic()
        try:
            consumer.assign([ck.TopicPartition(self.name, 0, ck.OFFSET_BEGINNING)])
            while reached < end:
                message = consumer.poll(min(1.0, max(deadline - time.monotonic(), 0.0)))
                self._clients.raise_refusal(f"the marker of sink {key.sink!r} cannot be read")
                if message is None:
                    self._clients.warn_silent(answered)
                else:
                    answered, error = time.monotonic(), message.error()
                    if error is None:
                        reached = message.offset() + 1
                        if message.key() == wanted:
                            last = message.offset(), message.value()
                    elif error.code() == ck.KafkaError._PARTITION_EOF:
                        reached = message.offset()
                    elif error.name() in PERMANENT:
                        raise self._clients.failed(f"topic {self.name!r} cannot be read", error, "`Read`")
                if reached < end and time.monotonic() >= deadline:
                    read = f"read up to offset {reached} of {end} in {seconds:.0f} s"
                    why = "the brokers do not answer, or a transaction of another sink is open"
                    raise SinkError(f"topic {self.name!r}: {read}; {why}: see kafka-transactions")
        finally:
            consumer.close()
        return None if last is None else self._marker(key, *last)

    def _marker(self, key: MarkerKey, offset: int, value: bytes | None) -> Marker:
        """Return the marker in a record. Errors: `SinkError` for something else, which another program has written."""
        try:
            return msgspec.json.decode(value or b"", type=Marker)
        except ValueError:
            found = "a tombstone" if value is None else f"{len(value)} bytes that are no marker"
            expected = f"the marker of sink {key.sink!r} of checkpoint {key.checkpoint}"
            remedy = "write the last marker again, or set another `marker_topic`"
            path = f"topic {self.name!r}, partition 0, offset {offset}"
            raise SinkError(f"{path}: found {found}, expected {expected}; {remedy}") from None

    def _end(self, seconds: float) -> int:
        """Return the high watermark: also behind transactions that are open."""
        doing = f"topic {self.name!r}: its end is not known"
        with self._clients.asked(seconds, partial(self._clients.failed, doing, right="`Describe`")) as admin:
            return admin.offsets(self.name, [0], new=seconds)[0]


def described(
    clients: Clients, topic: str, *rights: str, new: float = 0.0, seconds: float = ADMIN_SECONDS
) -> Topic | None:
    """Return a topic; None if it does not exist. Errors: `SinkError`, also if a right is missing.

    `new`: for how long brokers that do not know it are asked again, in seconds.
    """
    failed = partial(clients.failed, f"topic {topic!r} cannot be checked", right="`Describe`")
    with clients.asked(seconds, failed) as admin:
        try:
            found = admin.describe(topic, new=new)
        except ck.KafkaException as error:
            if error.args[0].name() in NEW:
                return None
            raise
    if lacks := found.lacking(rights):
        no, allow = " or ".join(lacks), " and ".join(f"`{right}`" for right in lacks)
        raise SinkError(f"topic {topic!r}: this client has no right to {no}; allow {allow} on the topic")
    return found


def configuration(clients: Clients, topic: str) -> dict[str, str]:
    """Return the configuration of a topic that exists; empty, with a warning, if it may not be read."""
    failed = partial(clients.failed, f"the configuration of topic {topic!r} is not known")
    with clients.asked(ADMIN_SECONDS, failed) as admin:
        try:
            return admin.configuration(topic)
        except ck.KafkaException as error:
            if error.args[0].name() not in _NOT_ALLOWED:
                raise
            log.warning("the configuration of topic %r is not checked (allow `DescribeConfigs`)", topic)
            return {}


def _metadata(clients: Clients) -> ClusterMetadata:
    """Return the brokers and topics. Errors: `SinkError`."""
    failed = partial(clients.failed, "the brokers of the sink do not answer")
    with clients.asked(ADMIN_SECONDS, failed) as admin:
        return admin.metadata()


def check_topic(clients: Clients, topic: str, form: RecordFormat) -> None:
    """Refuse a topic that cannot take the records of a format. Errors: `SinkError`."""
    if described(clients, topic, "Write") is None:
        known = [name for name in _metadata(clients).topics if name[:2] != "__"]
        near = nearest(topic, known)
        raise SinkError(f"topic {topic!r} does not exist; create it first{near and '; ' + near}")
    config = configuration(clients, topic)
    largest = int(config.get("max.message.bytes", form.max_bytes))
    if largest < form.max_bytes:
        expected = f"at least the sink's message.max.bytes = {form.max_bytes}"
        hint = "a committed record could be refused; change one of them"
        raise SinkError(f"topic {topic!r}: found max.message.bytes = {largest}, expected {expected}: {hint}")
    if "compact" in config.get("cleanup.policy", "") and form.key is None:
        remedy = "set `key`, or write to a topic that is not compacted"
        raise SinkError(f"topic {topic!r}: it is compacted, so its records need a key; {remedy}")


def _in_sync(replicas: int) -> int:
    """Return how many replicas must have a record: all but one of three, so that one broker may fail."""
    return max(1, replicas - 1) if replicas > 2 else 1
