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

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from taskplace.durations import milliseconds
from taskplace.errors import InputError, SinkError
from taskplace.spark.kafka import avro
from taskplace.spark.kafka.at_least_once import AtLeastOnce
from taskplace.spark.kafka.client_options import ClientOptions
from taskplace.spark.kafka.clients import Clients
from taskplace.spark.kafka.marker import MarkerTopic, configuration, described, metadata
from taskplace.spark.kafka.record_format import CHUNK, Part, Record, RecordFormat
from taskplace.spark.kafka.transactions import Transactions
from taskplace.spark.targets import Commit, CommitTarget
from taskplace.spark.worker.schemas import left_out
from taskplace.validation import integer, named, nearest

DELIVERIES = ("exactly-once", "at-least-once")
FORMATS = ("json", "raw", "avro")
MARKER_TOPIC = "taskplace-markers"
#: The properties of clients that the sink sets itself.
_OWN = (
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
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: librdkafka's defaults.
_MAX_BYTES, _TIMEOUT = 1_000_000, 60_000


class KafkaSink(CommitTarget):
    """Writes to a Kafka topic, each batch in one transaction. A batch that the topic has is not written again.

        stats.sink("totals", target=KafkaSink("totals", servers="localhost:9092", key="customer"))

    - `key`: the column of the record's key, or several; `key_format`: raw, json or avro. Without it, one column of
      strings or bytes is the key itself, and everything else is JSON
    - `value`: the column of the record's value, or several; without it, all columns but those of `headers`,
      `timestamp` and `deleted`. `value_format`: json, raw (one column of strings or bytes) or avro
    - `key_schema`, `value_schema`: the Avro schema: a mapping, its JSON, or the path of an `.avsc` file
    - `headers`: columns that become headers, or headers with their columns; a null is no header
    - `timestamp`: the column of the record's time; without it, and for a null, the time of sending
    - `deleted`: a boolean column; where it is true, the record is a tombstone, which deletes its key
    - `delivery`: "at-least-once" writes without transactions
    - `marker_topic`: the topic with the last batch of each sink; made if it is missing. `replication`: its replicas
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
        value_format: str = "json",
        value_schema: object = None,
        headers: Sequence[str] | Mapping[str, str] | None = None,
        timestamp: str | None = None,
        deleted: str | None = None,
        delivery: str = "exactly-once",
        marker_topic: str = MARKER_TOPIC,
        replication: int | None = None,
        patience: str | int = "5 minutes",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        path = "KafkaSink"
        if find_spec("confluent_kafka") is None:
            raise InputError(
                path,
                found="no package confluent_kafka",
                expected="Kafka's client",
                hint="pip install 'taskplace[kafka]'",
            )
        self.topic = _topic(topic, f"{path}.topic")
        self._exactly_once = _one_of(delivery, f"{path}.delivery", DELIVERIES) == DELIVERIES[0]
        given = ClientOptions(path, servers, options or {}, own=_OWN)
        timeout = _number(given, "transaction.timeout.ms", _TIMEOUT, 1000)
        self._format = RecordFormat(
            key=None if key is None else _part(f"{path}.key", key, key_format, key_schema, default=""),
            value=_part(f"{path}.value", value, value_format, value_schema),
            headers=_headers(headers, f"{path}.headers"),
            timestamp=None if timestamp is None else _column(timestamp, f"{path}.timestamp"),
            deleted=None if deleted is None else _column(deleted, f"{path}.deleted"),
            max_bytes=_number(given, "message.max.bytes", _MAX_BYTES, 1000),
        )
        if key is None and (key_format is not None or key_schema is not None or deleted is not None):
            option = "deleted" if deleted is not None else "key_format"
            raise InputError(f"{path}.{option}", found=option, expected="`key` as well")
        self._options = given
        self._clients = Clients(given, self.topic)
        self._marker_topic = _topic(marker_topic, f"{path}.marker_topic")
        if self._marker_topic == self.topic:
            raise InputError(
                f"{path}.marker_topic", found=marker_topic, expected="another topic than the sink's"
            )
        replicas = integer(replication, f"{path}.replication", 1, 32767, optional=True)
        self._markers = MarkerTopic(self._clients, self._marker_topic, replicas)
        seconds = milliseconds(patience, f"{path}.patience") / 1000
        self._writer: Transactions | AtLeastOnce = (
            Transactions(
                clients=self._clients,
                topic=self.topic,
                markers=self._markers,
                timeout=timeout / 1000,
                patience=seconds,
            )
            if self._exactly_once
            else AtLeastOnce(clients=self._clients, topic=self.topic, patience=seconds)
        )

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r}, {self._options!r})"

    @property
    def row_check(self) -> RecordFormat:  # type: ignore[override]
        """Refuses rows that Kafka would refuse."""
        return self._format

    def probe(self) -> None:
        """Check the topics. Errors: `SinkError` if the brokers do not answer, or the topics are not as they must be."""
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
            raise SinkError(f"topic {self.topic!r}: it is compacted, so its records need a key; set `key`")
        if self._exactly_once:
            self._markers.exists()

    def bind(self, checkpoint_id: str) -> None:
        """Create the marker topic, unless it exists."""
        if self._exactly_once:
            self._markers.create()

    def publish_commit(self, commit: Commit) -> None:
        """Write the rows of a batch, unless the topic has them. A batch without rows needs no transaction."""
        if commit.files:
            self._writer.publish(commit, lambda: self._records(commit))

    def _records(self, commit: Commit) -> Iterator[Record]:
        for file in commit.files:
            for rows in _tables(file):
                yield from self._format.records(commit.sink, rows)

    def close(self) -> None:
        """Give up the connections. The next batch makes new ones."""
        self._writer.close()


def _tables(file: Path) -> Iterator[pa.Table]:
    """Yield the rows of a staged file, with the columns that it leaves out because they have only nulls."""
    opened = pq.ParquetFile(file)
    missing = list(left_out(opened.metadata.metadata))
    for batch in opened.iter_batches(batch_size=CHUNK):
        rows = pa.Table.from_batches([batch])
        for place, name in missing:
            rows = rows.add_column(place, name, pa.nulls(rows.num_rows))
        yield rows


def _topic(given: object, path: str) -> str:
    if not isinstance(given, str) or not _TOPIC.fullmatch(given) or given in (".", ".."):
        raise InputError(path, found=given, expected="a topic: up to 249 letters, digits, '.', '_' and '-'")
    return given


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


def _one_of(given: object, path: str, known: Sequence[str]) -> str:
    if given not in known:
        raise InputError(path, found=given, expected=f"one of {', '.join(known)}", hint=nearest(given, known))
    return str(given)


def _part(path: str, columns: object, given: object, schema: object, *, default: str = "json") -> Part:
    chosen = default if given is None else _one_of(given, f"{path}_format", FORMATS)
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


def _number(options: ClientOptions, name: str, default: int, least: int) -> int:
    value = options.get(name, default)
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return integer(value, f"KafkaSink.options.{name}", least) or default
