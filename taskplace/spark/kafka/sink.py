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
from typing import Annotated, Any

from msgspec import Meta

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.model.keys import read
from taskplace.spark.kafka import avro
from taskplace.spark.kafka.avro import SchemaRegistry
from taskplace.spark.kafka.dead_letters import DeadLetterFormat
from taskplace.spark.kafka.options import ClientOptions, check_client
from taskplace.spark.kafka.record_format import Part, RecordFormat, records
from taskplace.spark.targets import Commit, CommitTarget, Output
from taskplace.spec.nodes import KafkaOutput
from taskplace.validation import named

PATH = "KafkaSink"
#: The properties of clients that the sink sets itself.
OWN = (
    "auto.commit.enable",
    "client.id",
    "delivery.report.only.error",
    "enable.auto.commit",
    "enable.idempotence",
    "enable.partition.eof",
    "error_cb",
    "group.id",
    "isolation.level",
    "logger",
    "on_delivery",
    "transactional.id",
)
#: The fields that say what a record is made of: a dead letter has none of them.
_OF_RECORDS = (
    "key", "key_format", "key_schema", "value", "value_format", "value_schema",
    "headers", "timestamp", "deleted", "registry",
)  # fmt: skip
#: A property of clients that the sink reads as well.
_Number = Annotated[int, Meta(ge=1000)]


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
        marker_topic: str = "taskplace-markers",
        replication: int | None = None,
        changed_topics: str = "stop",
        patience: str | int = "5 minutes",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        check_client(PATH)
        from taskplace.spark.kafka.clients import Clients
        from taskplace.spark.kafka.sink_topics import MarkerTopic, SinkTopics
        from taskplace.spark.kafka.transactions import AtLeastOnce, Transactions

        spec: KafkaOutput = read(KafkaOutput, given, PATH)
        self.topic = topic
        self._options = ClientOptions(PATH, servers, options or {}, own=OWN)
        #: Refuses rows that Kafka would refuse.
        self.row_check = self._format = _form(spec, self._number("message.max.bytes", 1_000_000))
        if marker_topic == topic:
            raise InputError(f"{PATH}.marker_topic", found=topic, expected="another topic than the sink's")
        self._clients = Clients(self._options, topic)
        self._markers = MarkerTopic(self._clients, marker_topic, replication)
        self._exactly_once = delivery == "exactly-once"
        self._topics = SinkTopics(
            self._clients,
            topic,
            marker_topic if self._exactly_once else "",
            delivery=delivery,
            ordered=self._format.key is not None,
            go_on=changed_topics == "go-on",
        )
        timeout = self._number("transaction.timeout.ms", 60_000) / 1000
        common: dict[str, Any] = {
            "clients": self._clients,
            "topic": topic,
            "patience": milliseconds(patience, f"{PATH}.patience") / 1000,
            "topics": self._topics,
        }
        once: dict[str, Any] = {"markers": self._markers, "timeout": timeout}
        self._writer = Transactions(**once, **common) if self._exactly_once else AtLeastOnce(**common)

    def _number(self, name: str, default: int) -> int:
        """Return a property of clients that is a number."""
        value = self._options.get(name, default)
        return int(read(_Number, value, f"{PATH}.options.{name}", strict=False))

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r}, {self._options!r})"

    def probe(self) -> None:
        """Check the properties of clients, and the topics.

        Errors: `InputError` for properties that librdkafka refuses, and for a schema registry; `SinkError` if the
        brokers do not answer, or the topics are not as they must be.
        """
        from taskplace.spark.kafka.sink_topics import check_topic

        self._writer.probe()
        check_topic(self._clients, self.topic, self._format)
        if self._exactly_once:
            self._markers.exists()
        for part in (self._format.key, self._format.value):
            if part is not None:
                part.header()

    def check_output(self, output: Output) -> None:
        """Compare the topics with those of the last manifest."""
        self._topics.check(output.kept, output.repeated)

    def open_output(self, output: Output) -> None:
        """Create the marker topic, unless it exists; fence an earlier driver; read the marker.

        So a broker that refuses any of it does so before the first commit.
        """
        if self._exactly_once:
            self._markers.create()
        self._topics.bind(output.kept)
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
        self._clients.close()


def _form(spec: KafkaOutput, max_bytes: int) -> RecordFormat:
    """Return the form of the records."""
    if spec.dead_letters:
        for name in _OF_RECORDS:
            if (value := getattr(spec, name)) is not None:
                expected = f"no `{name}`: a dead letter is the record as it was"
                raise InputError(f"{PATH}.{name}", found=value, expected=expected)
        return DeadLetterFormat(max_bytes=max_bytes)
    registry = None if spec.registry is None else SchemaRegistry(f"{PATH}.registry", spec.registry)
    form = RecordFormat(
        key=None if spec.key is None else _part("key", spec, registry),
        value=_part("value", spec, registry),
        headers=_headers(spec.headers),
        timestamp=spec.timestamp,
        deleted=spec.deleted,
        max_bytes=max_bytes,
    )
    if registry is not None and not any(part and part.schema for part in (form.key, form.value)):
        raise InputError(f"{PATH}.registry", found="no Avro", expected="value_format or key_format avro")
    for name in ("deleted", "key_format", "key_schema") if spec.key is None else ():
        if getattr(spec, name) is not None:
            raise InputError(f"{PATH}.{name}", found=name, expected="`key` as well")
    return form


def _part(name: str, spec: KafkaOutput, registry: SchemaRegistry | None) -> Part:
    path = f"{PATH}.{name}"
    columns, given, schema = (getattr(spec, f"{name}{ending}") for ending in ("", "_format", "_schema"))
    chosen = given or ("" if name == "key" else "json")
    names = None if columns is None else _columns(columns, path)
    if (chosen == "avro") != (schema is not None):
        found = "no schema" if schema is None else f"a schema beside the format {chosen or 'raw or json'}"
        raise InputError(f"{path}_schema", found=found, expected="the format avro with a schema")
    if chosen == "raw" and (names is None or len(names) > 1):
        raise InputError(path, found=columns, expected="one column for the format raw")
    text = avro.schema_text(schema, f"{path}_schema") if schema is not None else ""
    single = isinstance(columns, str) and not (text and avro.fields_of(text) is not None)
    subject = f"{spec.topic}-{name}"
    return Part(columns=names, single=single, format=chosen, schema=text, registry=registry, subject=subject)


def _columns(given: str | Sequence[str], path: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or len(set(names)) != len(names):
        raise InputError(path, found=given, expected="the name of a column, or several, each column once")
    return tuple(named(name, path, "the name of a column") for name in names)


def _headers(given: Sequence[str] | Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if not isinstance(given, Mapping):
        given = {name: name for name in given or ()}
    path = f"{PATH}.headers"
    return tuple(
        (named(name, path, "the name of a header"), named(of, path, "the name of a column"))
        for name, of in given.items()
    )
