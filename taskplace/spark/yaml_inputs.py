"""The section `input` of an application of a YAML file: checks its entries, and reads the sources that they name.

The docstring of `taskplace.spark.yaml_application` describes an entry.

Errors: `ConfigError` with the path, the value found, the values expected, and the nearest name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from taskplace.errors import ConfigError, InputError
from taskplace.paths import has_wildcards, local_path
from taskplace.settings import Settings, absolute
from taskplace.spark.state.type_text import TypeTextError
from taskplace.spec.nodes import FILES, Input, given
from taskplace.validation import nearest
from topology import BuiltTopology, Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from taskplace.spark.kafka.records import KafkaRecords

# Only code that needs Spark imports it, so that a topology can be shown without Spark.

_FORMAT = "a streaming source format of Spark, like parquet"
_SOURCE = "a Spark source, like {format: parquet, path: /data, schema: 'id long'}, or {kafka: {topic: ...}}"


class YamlInput(Protocol):
    """One entry of `input`, checked."""

    @property
    def columns_path(self) -> str:
        """Where the file declares the columns, for errors."""
        ...

    @property
    def directory(self) -> Path | None:
        """The path that the source reads on this host, maybe with wildcards; None if it reads elsewhere."""
        ...

    def schema(self, timestamp: str) -> StructType | None:
        """Return the schema of its rows; None if it is not known. `timestamp`: Spark's type for that name."""
        ...

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the source's streaming data frame. Errors: `ConfigError`."""
        ...


class YamlRecords:
    """An entry with `kafka`: tasks read the topic's records themselves.

    - `source`: the node of the topology that has the records as its option `reads`
    """

    directory = None

    def __init__(
        self, path: str, records: KafkaRecords, source: Node, built: BuiltTopology, settings: Settings
    ) -> None:
        self.columns_path = f"{path}.kafka"
        self._records, self._source, self._built, self._settings = records, source, built, settings
        _check_key(self.columns_path, records.columns.names, source.key)

    def schema(self, timestamp: str) -> StructType:
        """Return the schema of the decoded rows."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._records.columns)

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the data frame of the ranges that tasks read, after the topic was looked at.

        Errors: `ConfigError` for brokers that do not answer, and for a topic that is missing or has another count.
        """
        from taskplace.spark.bridge import register_source
        from taskplace.spark.kafka.source import beside, ranges_of
        from taskplace.spark.options import local_path as shared_path

        count = _count(self.columns_path, self._records)
        if count != self._source.partitions:
            raise ConfigError(
                f"topology.sources.{self._source.name}.partitions",
                found=self._source.partitions,
                expected=f"{count}, the partitions of topic {self._records.topic!r}: each is the input of one task",
                hint="correct the number; a checkpoint with another number cannot be used",
            )
        checkpoint = shared_path(self._settings.checkpoint_dir, "checkpoint.dir", patterns=False)
        idle_ms = self._settings.runtime.max_task_idle_ms
        aligned = beside(self._records, self._built, idle_ms, checkpoint)
        return ranges_of(self._records, spark, register_source, aligned)


class YamlSource:
    """An entry that names a source of Spark's."""

    def __init__(self, path: str, entry: Input, key: Sequence[str]) -> None:
        self._at = path
        self.columns_path = f"{path}.schema"
        if entry.format is None:
            raise ConfigError(f"{path}.format", found=None, expected=_FORMAT)
        self._format = entry.format.lower() if entry.format.lower() in FILES else entry.format
        self._schema, columns = _schema(f"{path}.schema", entry.schema)
        self._path, self._select = entry.path, entry.select
        if self._format in FILES and self._path is None:
            raise ConfigError(f"{path}.path", found=None, expected="a directory or a URI")
        if self._format in FILES and self._format != "text" and self._schema is None:
            expected = "the columns of the files, like 'id long, name string'"
            raise ConfigError(f"{path}.schema", found=None, expected=expected)
        self._options = _options(f"{path}.options", entry.options or {})
        #: The columns with their types, if the file declares them; those that `select` makes are known to Spark.
        self.columns = columns if self._select is None else ()
        _check_key(f"{path}.schema", [name for name, _ in self.columns], key)

    @property
    def directory(self) -> Path | None:
        """The path that the source reads on this host, maybe with wildcards; None if it reads elsewhere."""
        option = next((value for name, value in self._options.items() if name.lower() == "path"), None)
        given = self._path if self._path is not None else option
        try:
            return None if given is None else local_path(absolute(given), self._at)
        except InputError:
            return None

    @property
    def missing(self) -> Path | None:
        """The directory, or file, that Spark would read and that does not exist; None if it does, or has wildcards."""
        there = self.directory if self._format in FILES else None
        if there is None or has_wildcards(str(there)):
            return None
        try:
            return None if there.exists() else there
        except OSError:  # no permission to look: Spark's user may have it
            return None

    def schema(self, timestamp: str) -> StructType | None:
        """Return the schema of the rows, as far as the file shows it; None if it is not known."""
        from taskplace.spark.ddl import struct_type

        return struct_type(self.columns, timestamp) if self.columns else None

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the source's streaming data frame. Errors: `ConfigError` with what Spark says."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        reader = spark.readStream.format(self._format).options(**self._options)
        try:
            if self._schema is not None:
                reader = reader.schema(self._schema)
            df = reader.load(absolute(self._path)) if self._path is not None else reader.load()
            return df.selectExpr(*self._select) if self._select else df
        except (PySparkException, Py4JError) as error:
            says = str(getattr(error, "java_exception", error)).strip().splitlines()[0]
            raise ConfigError(self._at, found=self._format, expected=_SOURCE, hint=says) from error


def schemas_of(inputs: Mapping[str, YamlInput], settings: Settings) -> dict[str, StructType]:
    """Return the schemas of the rows of the sources that declare one."""
    timestamp = settings.spark.conf.get("spark.sql.timestampType", "TIMESTAMP_LTZ")
    declared = {topic: source.schema(timestamp) for topic, source in inputs.items()}
    return {topic: schema for topic, schema in declared.items() if schema is not None}


def records_of(entries: Mapping[str, Input]) -> dict[str, KafkaRecords]:
    """Return the records of each topic whose entry of `input` has `kafka`. Asks no broker."""
    found = {}
    for topic, entry in entries.items():
        if entry.kafka is not None:
            from taskplace.spark.kafka.declared import declared_records

            for name in given(entry):
                if name != "kafka":
                    path, hint = f"input.{topic}.{name}", "options of Kafka's clients belong below `kafka`"
                    raise ConfigError(path, found=name, expected="nothing beside `kafka`", hint=hint)
            found[topic] = declared_records(f"input.{topic}.kafka", entry.kafka)
    return found


def with_counts(topology: Mapping[str, Any], records: Mapping[str, KafkaRecords]) -> Mapping[str, Any]:
    """Return the section `topology` with the brokers' count for each Kafka topic whose source has no `partitions`.

    Asks brokers only for such sources. Leaves what is no mapping to its checks. Errors: `ConfigError` for brokers that
    do not answer, and for a missing topic.
    """
    sources = topology.get("sources")
    if not records or not isinstance(sources, Mapping):
        return topology
    counted = dict(sources)
    for name, entry in sources.items():
        fields = {} if entry is None else entry
        if isinstance(fields, Mapping) and fields.get("partitions") is None:
            topic = fields.get("topic", name)
            if isinstance(topic, str) and topic in records:
                counted[name] = {**fields, "partitions": _count(f"input.{topic}.kafka", records[topic])}
    return {**topology, "sources": counted}


def _count(path: str, records: KafkaRecords) -> int:
    """Return the broker's partition count of a topic. Errors: `ConfigError` at `path`."""
    try:
        return records.partitions()
    except InputError as error:
        raise ConfigError(path, found=error.found, expected=error.expected, hint=error.hint) from None


def inputs_of(
    built: BuiltTopology,
    topics: Collection[str],
    entries: Mapping[str, Input],
    records: Mapping[str, KafkaRecords],
    settings: Settings,
) -> dict[str, YamlInput]:
    """Return the source of each external topic, from the entries of `input`.

    - `topics`: the external topics
    - `records`: those of `records_of`
    """
    for name in entries:
        if name not in topics:
            raise ConfigError.unknown_key("input", name, topics)
    for topic in topics:
        if topic not in entries:
            raise ConfigError(f"input.{topic}", found=None, expected=_SOURCE)
    nodes = {node.topic: node for node in built.nodes if node.kind == "source"}
    return {
        topic: YamlRecords(f"input.{topic}", records[topic], nodes[topic], built, settings)
        if topic in records
        else YamlSource(f"input.{topic}", entries[topic], nodes[topic].key)
        for topic in topics
    }


def _options(path: str, options: Mapping[str, Any]) -> dict[str, str]:
    for name, value in options.items():
        if not isinstance(value, str | int | float):
            raise ConfigError(f"{path}.{name}", found=value, expected="a string, a number or true/false")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }


def _schema(path: str, written: object) -> tuple[str | None, tuple[tuple[str, Any], ...]]:
    """Return a schema as Spark's DDL, and its columns with their types as written; empty: unknown."""
    from taskplace.spark.ddl import written_columns

    if written is None:
        return None, ()
    if isinstance(written, Mapping) and written:
        columns = list(written.items())
        for name, kind in columns:
            _check_type(f"{path}.{name}", kind)
        return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns), tuple(columns)
    if not isinstance(written, str):
        raise ConfigError(path, found=written, expected="Spark's DDL ('id long, name string'), or columns")
    try:
        return written, tuple(written_columns(written))
    except TypeTextError as error:
        raise _written(path, error) from None


def _check_type(path: str, written: object) -> None:
    from taskplace.spark.ddl import read_type

    if not isinstance(written, str):
        raise ConfigError(path, found=written, expected="a Spark type")
    try:
        read_type(written)
    except TypeTextError as error:
        raise _written(path, error) from None


def _written(path: str, error: TypeTextError) -> ConfigError:
    expected = "a Spark type" if error.expected == "a type" else error.expected
    return ConfigError(f"{path}{error.suffix}", found=error.found, expected=expected, hint=error.hint)


def _check_key(path: str, columns: Sequence[str], key: Sequence[str]) -> None:
    for column in key if columns else ():
        if column not in columns:
            expected = f"columns that include the key column {column!r}"
            hint = nearest(column, columns)
            raise ConfigError(path, found=", ".join(columns), expected=expected, hint=hint)
