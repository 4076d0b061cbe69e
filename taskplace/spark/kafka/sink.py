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
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.spark.kafka import avro
from taskplace.spark.kafka.avro import SchemaRegistry
from taskplace.spark.kafka.clients import ClientOptions, Clients, check_client
from taskplace.spark.kafka.dead_letters import DeadLetterFormat
from taskplace.spark.kafka.record_format import Part, RecordFormat, records
from taskplace.spark.targets import Commit, CommitTarget, Output
from taskplace.validation import boolean, integer, named, nearest

if TYPE_CHECKING:
    from taskplace.spark.kafka.transactions import AtLeastOnce, Transactions

PATH = "KafkaSink"
#: The properties of clients that the sink sets itself.
OWN = (
    "bootstrap.servers",
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
DELIVERIES = ("exactly-once", "at-least-once")
FORMATS = ("json", "raw", "avro")
CHANGED = ("stop", "go-on")
MARKER_TOPIC = "taskplace-markers"
#: librdkafka's default of `message.max.bytes`.
MAX_BYTES = 1_000_000
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
        check_client(PATH)
        self.topic = named(topic, f"{PATH}.topic", "the name of a topic")
        self._delivery = one_of(delivery, "delivery", DELIVERIES)
        self._options = given = ClientOptions("KafkaSink", servers, options or {}, own=OWN)
        form = {
            "key": key, "key_format": key_format, "key_schema": key_schema,
            "value": value, "value_format": value_format, "value_schema": value_schema,
            "headers": headers, "timestamp": timestamp, "deleted": deleted, "registry": registry,
        }  # fmt: skip
        largest = number(given, "message.max.bytes", MAX_BYTES, 1000)
        self._format = form_of_records(
            form,
            dead_letters=boolean(dead_letters, f"{PATH}.dead_letters"),
            max_bytes=largest,
            topic=self.topic,
        )
        self._clients = Clients(given, self.topic)
        name = named(marker_topic, f"{PATH}.marker_topic", "the name of a topic")
        if name == self.topic:
            expected = "another topic than the sink's"
            raise InputError("KafkaSink.marker_topic", found=marker_topic, expected=expected)
        replicas = integer(replication, "KafkaSink.replication", 1, 32767, optional=True)
        from taskplace.spark.kafka.sink_topics import MarkerTopic, SinkTopics

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
        from taskplace.spark.kafka.transactions import AtLeastOnce, Transactions

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
        from taskplace.spark.kafka.sink_topics import check_topic

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
        self._topics.close()


def form_of_records(
    given: Mapping[str, object], *, dead_letters: bool, max_bytes: int, topic: str = ""
) -> RecordFormat:
    """Return the form of the records. `given`: the arguments about it, by name; None: not given."""
    if dead_letters:
        for name, value in given.items():
            if value is not None:
                expected = f"no `{name}`: a dead letter is the record as it was"
                raise InputError(f"{PATH}.{name}", found=value, expected=expected)
        return DeadLetterFormat(max_bytes=max_bytes)
    key, key_format, key_schema = (given[name] for name in ("key", "key_format", "key_schema"))
    timestamp, deleted = given["timestamp"], given["deleted"]
    asked = given.get("registry")
    registry = None if asked is None else SchemaRegistry(f"{PATH}.registry", asked)
    key_part = None if key is None else _part("key", key, key_format, key_schema, default="")
    value_part = _part("value", given["value"], given["value_format"], given["value_schema"])
    form = RecordFormat(
        key=key_part and replace(key_part, registry=registry, subject=f"{topic}-key"),
        value=replace(value_part, registry=registry, subject=f"{topic}-value"),
        headers=_headers(given["headers"], f"{PATH}.headers"),
        timestamp=None if timestamp is None else _column(timestamp, f"{PATH}.timestamp"),
        deleted=None if deleted is None else _column(deleted, f"{PATH}.deleted"),
        max_bytes=max_bytes,
    )
    if registry is not None and not any(part and part.schema for part in (form.key, form.value)):
        expected = "value_format or key_format avro as well"
        raise InputError(f"{PATH}.registry", found="no Avro", expected=expected)
    if key is None and (key_format is not None or key_schema is not None or deleted is not None):
        option = "deleted" if deleted is not None else "key_format"
        raise InputError(f"{PATH}.{option}", found=option, expected="`key` as well")
    return form


def one_of(given: object, argument: str, known: Sequence[str]) -> str:
    """Return a value that has to be one of a few."""
    if given not in known:
        expected = f"one of {', '.join(known)}"
        raise InputError(f"{PATH}.{argument}", found=given, expected=expected, hint=nearest(given, known))
    return str(given)


def number(options: ClientOptions, name: str, default: int, least: int) -> int:
    """Return a property of clients that is a number."""
    value = options.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    return integer(value, f"{PATH}.options.{name}", least) or default


def _column(given: object, path: str) -> str:
    return named(given, path, "the name of a column")


def _columns(given: object, path: str) -> tuple[str, ...]:
    if isinstance(given, str):
        return (_column(given, path),)
    if not isinstance(given, Sequence) or not given:
        raise InputError(path, found=given, expected="the name of a column, or several")
    names = tuple(_column(name, path) for name in given)
    if len(set(names)) != len(names):
        raise InputError(path, found=given, expected="each column once")
    return names


def _part(name: str, columns: object, given: object, schema: object, *, default: str = "json") -> Part:
    path = f"{PATH}.{name}"
    chosen = default if given is None else one_of(given, f"{name}_format", FORMATS)
    names = None if columns is None else _columns(columns, path)
    if (chosen == "avro") != (schema is not None):
        found = "no schema" if schema is None else f"a schema beside the format {chosen or 'raw or json'}"
        raise InputError(f"{path}_schema", found=found, expected="the format avro with a schema")
    if chosen == "raw" and (names is None or len(names) > 1):
        raise InputError(path, found=columns, expected="one column for the format raw")
    text = avro.schema_text(schema, f"{path}_schema") if schema is not None else ""
    if text and avro.fields_of(text) is not None and isinstance(columns, str):
        columns = [columns]  # the schema is a record, also for one column
    return Part(columns=names, single=isinstance(columns, str), format=chosen, schema=text)


def _headers(given: object, path: str) -> tuple[tuple[str, str], ...]:
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return tuple(
            (named(name, path, "the name of a header"), _column(column, path))
            for name, column in given.items()
        )
    return tuple((name, name) for name in _columns(given, path))
