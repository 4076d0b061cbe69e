"""`KafkaSink`: the target of a sink that writes to a Kafka topic, each batch in one transaction.

**Idea.** A batch's rows are durable before its manifest, so the sink needs no two-phase commit: after the manifest, the
driver sends the rows in one transaction (`taskplace.spark.kafka.transactions`). docs/kafka.md has the options, and
what the brokers must allow.

Properties:
- Readers of committed records see each row once, and the rows of a batch all at once.
- The rows of one task come in their order; a key's rows have one order if the sink's key decides the task.
- What Kafka would refuse is refused before the commit: rows by their task, topics before the first batch.

Errors: `InputError` for options; `SinkError` for topics and brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from taskplace.durations import milliseconds
from taskplace.errors import InputError, SinkError
from taskplace.spark.kafka.clients import ClientOptions, Clients
from taskplace.spark.kafka.record_format import RecordFormat, records
from taskplace.spark.kafka.sink import MAX_BYTES, OWN, form_of_records, number, one_of, topic_name
from taskplace.spark.kafka.sink_topics import (
    ADMIN_SECONDS,
    MarkerTopic,
    SinkTopics,
    configuration,
    described,
    metadata,
)
from taskplace.spark.kafka.transactions import AtLeastOnce, Transactions
from taskplace.spark.targets import Commit, CommitTarget, Output
from taskplace.validation import integer, nearest

DELIVERIES = ("exactly-once", "at-least-once")
CHANGED = ("stop", "go-on")
MARKER_TOPIC = "taskplace-markers"
#: librdkafka's default of `transaction.timeout.ms`.
_TIMEOUT = 60_000


class KafkaSink(CommitTarget):
    """Writes to a Kafka topic, each batch in one transaction. A batch that the topic has is not written again.

        stats.sink("totals", target=KafkaSink("totals", servers="localhost:9092", key="customer"))

    - `key`: the column of the record's key, or several; `key_format`: raw, json or avro. Without it, one column of
      strings or bytes is the key itself, and everything else is JSON
    - `value`: the column of the record's value, or several; without it, all columns but those of `headers`,
      `timestamp` and `deleted`. `value_format`: json (the default), raw (one column of strings or bytes) or avro
    - `key_schema`, `value_schema`: the Avro schema: a mapping, its JSON, or the path of an `.avsc` file
    - `registry`: a schema registry, by its URL or the properties of Confluent's client. Avro schemas get their id
      there, under the subjects `<topic>-key` and `<topic>-value`, and each datum begins with it
    - `headers`: columns that become headers, or headers with their columns; a null is no header
    - `timestamp`: the column of the record's time; without it, and for a null, the time of sending
    - `deleted`: a boolean column; where it is true, the record is a tombstone, which deletes its key
    - `dead_letters`: the rows are those of `DeadLetters`; each becomes the record that it was, with the reason as a
      header. None of the arguments above is given then
    - `delivery`: "at-least-once" writes without transactions
    - `marker_topic`: the topic with the last batch of each sink; made if it is missing. `replication`: its replicas
    - `changed_topics`: "go-on" accepts a topic that was made again, or got more partitions; "stop" is an error
    - `patience`: for how long a batch is tried again while the brokers cannot be reached
    - `options`: further properties of librdkafka. `<name>_env` and `<name>_file` say where a value is

    Errors: `InputError` for options that do not fit.
    """

    def __init__(
        self,
        topic: str,
        *,
        servers: str,
        key: str | Sequence[str] | None = None,
        key_format: str | None = None,
        key_schema: object = None,
        value: str | Sequence[str] | None = None,
        value_format: str | None = None,
        value_schema: object = None,
        registry: str | Mapping[str, Any] | None = None,
        headers: Sequence[str] | Mapping[str, str] | None = None,
        timestamp: str | None = None,
        deleted: str | None = None,
        dead_letters: bool = False,
        delivery: str = "exactly-once",
        marker_topic: str = MARKER_TOPIC,
        replication: int | None = None,
        changed_topics: str = "stop",
        patience: str | int = "5 minutes",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        _check_client()
        self.topic = topic_name(topic, "topic")
        self._delivery = one_of(delivery, "delivery", DELIVERIES)
        self._options = given = ClientOptions("KafkaSink", servers, options or {}, own=OWN)
        form = {
            "key": key, "key_format": key_format, "key_schema": key_schema,
            "value": value, "value_format": value_format, "value_schema": value_schema,
            "headers": headers, "timestamp": timestamp, "deleted": deleted, "registry": registry,
        }  # fmt: skip
        largest = number(given, "message.max.bytes", MAX_BYTES, 1000)
        self._format = form_of_records(
            form, dead_letters=_truth(dead_letters), max_bytes=largest, topic=self.topic
        )
        self._clients = Clients(given, self.topic)
        name = topic_name(marker_topic, "marker_topic")
        if name == self.topic:
            expected = "another topic than the sink's"
            raise InputError("KafkaSink.marker_topic", found=marker_topic, expected=expected)
        replicas = integer(replication, "KafkaSink.replication", 1, 32767, optional=True)
        self._markers = MarkerTopic(self._clients, name, replicas)
        self._exactly_once = self._delivery != "at-least-once"
        self._topics = SinkTopics(
            self._clients,
            self.topic,
            name if self._exactly_once else "",
            delivery=self._delivery,
            ordered=self._format.key is not None,
            go_on=one_of(changed_topics, "changed_topics", CHANGED) == "go-on",
        )
        timeout = number(given, "transaction.timeout.ms", _TIMEOUT, 1000)
        seconds = milliseconds(patience, "KafkaSink.patience") / 1000
        self._writer = self._made_writer(timeout / 1000, seconds)

    def _made_writer(self, timeout: float, patience: float) -> Transactions | AtLeastOnce:
        if not self._exactly_once:
            return AtLeastOnce(
                clients=self._clients, topic=self.topic, patience=patience, topics=self._topics
            )
        return Transactions(
            clients=self._clients,
            topic=self.topic,
            markers=self._markers,
            timeout=timeout,
            patience=patience,
            topics=self._topics,
        )

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r}, {self._options!r})"

    @property
    def row_check(self) -> RecordFormat:  # type: ignore[override]
        """Refuses rows that Kafka would refuse."""
        return self._format

    def probe(self) -> None:
        """Check the properties of clients, and the topics.

        Errors: `InputError` for properties that librdkafka refuses, and for a schema registry; `SinkError` if the
        brokers do not answer, or the topics are not as they must be.
        """
        self._writer.probe()
        admin = self._clients.admin()
        if described(self._clients, admin, self.topic, "Write") is None:
            topics = metadata(self._clients, admin).topics
            near = nearest(self.topic, [name for name in topics if not name.startswith("__")])
            raise SinkError(f"topic {self.topic!r} does not exist; create it first{near and '; ' + near}")
        config = configuration(self._clients, admin, self.topic)
        largest = int(config.get("max.message.bytes", self._format.max_bytes))
        if largest < self._format.max_bytes:
            raise SinkError(
                f"topic {self.topic!r}: found max.message.bytes = {largest}, expected at least the sink's "
                f"message.max.bytes = {self._format.max_bytes}: a committed record could be refused; change one of them"
            )
        if "compact" in config.get("cleanup.policy", "") and self._format.key is None:
            remedy = "set `key`, or write to a topic that is not compacted"
            raise SinkError(f"topic {self.topic!r}: it is compacted, so its records need a key; {remedy}")
        if self._exactly_once:
            self._markers.exists()
        for part in (self._format.key, self._format.value):
            if part is not None:
                part.header()

    def check_output(self, output: Output) -> None:
        """Compare the topics with those of the last manifest."""
        self._topics.check(output.kept, output.repeated, ADMIN_SECONDS)

    def open_output(self, output: Output) -> None:
        """Create the marker topic, unless it exists; fence an earlier driver; read the marker.

        So a broker that refuses any of it does so before the first commit.
        """
        if self._exactly_once:
            self._markers.create()
        self._topics.bind(output.kept, ADMIN_SECONDS)
        self._writer.open(output)

    def kept_output(self) -> Mapping[str, Any]:
        """Return the ids of the topics, for the manifests."""
        return self._topics.kept()

    def publish_commit(self, commit: Commit) -> None:
        """Write the rows of a batch, unless the topic has them. A batch without rows needs no transaction."""
        if commit.files:
            self._writer.publish(commit, partial(records, self._format, commit.sink, commit.files))

    def close(self) -> None:
        """Give up the connections. The next batch makes new ones."""
        self._writer.close()
        self._topics.close()


def _check_client() -> None:
    if find_spec("confluent_kafka") is None:
        raise InputError(
            "KafkaSink",
            found="no package confluent_kafka",
            expected="Kafka's client",
            hint="pip install 'taskplace[kafka]'",
        )


def _truth(given: object) -> bool:
    if not isinstance(given, bool):
        raise InputError("KafkaSink.dead_letters", found=given, expected="true or false")
    return given
