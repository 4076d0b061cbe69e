"""The section `input` of an application of a YAML file: checks its entries, and reads the sources that they name.

The docstring of `taskplace.spark.yaml_application` describes an entry.

Errors: `ConfigError` with the path, the value found, the values expected, and the nearest name.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from taskplace.dotted_keys import topology_section
from taskplace.errors import ConfigError, InputError
from taskplace.spark.input_files import WrongFile, wrong_file
from taskplace.spark.selected_columns import FIXED, UNKNOWN_TYPE, selected
from taskplace.spark.types import TypeTextError
from taskplace.spec.application import Settings, absolute
from taskplace.spec.paths import has_wildcards, local_path
from taskplace.validation import nearest
from taskplace.yaml_fields import FILES, FORMATS, INPUT
from topology import BuiltTopology, Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from taskplace.spark.kafka.records import KafkaRecords

# Only code that needs Spark imports it, so that a topology can be shown without Spark.

#: Sources of Spark that read no files, with the options that they need: one of each row.
_WITHOUT_FILES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "kafka": (("kafka.bootstrap.servers",), ("subscribe", "subscribePattern", "assign")),
    "socket": (("host",), ("port",)),
    "rate": (),
    "rate-micro-batch": (),
}
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

    def __init__(self, path: str, entry: Any, key: Sequence[str]) -> None:
        if not isinstance(entry, Mapping):
            raise ConfigError(path, found=entry, expected=_SOURCE)
        for name in entry:
            if name not in INPUT:
                error = ConfigError.unknown_key(path, name, INPUT)
                if difflib.get_close_matches(str(name), INPUT, n=1, cutoff=0.8):
                    raise error
                expected = f"an option of the source in `{path}.options`: `options: {{{name}: ...}}`"
                raise ConfigError(f"{path}.{name}", found="an unknown key", expected=expected)
        self._at = path
        self.columns_path = f"{path}.schema"
        self._format = _format(f"{path}.format", entry.get("format"))
        self._schema, columns = _schema(f"{path}.schema", entry.get("schema"))
        self._declared = tuple(name for name, _ in columns)
        files = self._format in FILES
        self._path = entry.get("path")
        blank = isinstance(self._path, str) and not self._path.strip()
        if blank or (not isinstance(self._path, str) and (files or self._path is not None)):
            raise ConfigError(f"{path}.path", found=self._path, expected="a directory or a URI")
        if files and self._format != "text" and self._schema is None:
            expected = "the columns of the files, like 'id long, name string'"
            raise ConfigError(f"{path}.schema", found=None, expected=expected)
        self._options = _options(f"{path}.options", entry.get("options"))
        if self._format in _WITHOUT_FILES:
            self._check_without_files(path)
        #: The columns with their types, as far as the file declares them; None: not known.
        self.columns = columns
        self._select = entry.get("select")
        if self._schema is None and "includeheaders" not in map(str.lower, self._options):
            self.columns = FIXED.get(self._format, ())
        if self._select is None:
            _check_key(f"{path}.schema", [name for name, _ in columns], key)
        elif not isinstance(self._select, list) or not all(map(_is_text, self._select)):
            raise ConfigError(f"{path}.select", found=self._select, expected="a list of SQL expressions")
        else:
            self.columns = tuple(selected(f"{path}.select", self._select, self.columns) or ())
            self.columns_path = f"{path}.select"
            _check_key(f"{path}.select", [name for name, _ in self.columns], key)
            if any(kind == UNKNOWN_TYPE for name, kind in self.columns if name in key):
                self.columns = ()  # keys are compared by their types

    def _check_without_files(self, path: str) -> None:
        if self._path is not None:
            expected = f"no path: the format {self._format} reads no files"
            raise ConfigError(f"{path}.path", found=self._path, expected=expected)
        given = {name.lower() for name in self._options}
        for names in _WITHOUT_FILES[self._format]:
            if given.isdisjoint(name.lower() for name in names):
                expected = f"{' or '.join(names)}, which the format {self._format} needs"
                hint = "" if given else "the options of a source are Spark's own"
                raise ConfigError(f"{path}.options.{names[0]}", found=None, expected=expected, hint=hint)

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

    @property
    def format(self) -> str:
        """Spark's name of the format."""
        return self._format

    def wrong_file(self) -> WrongFile | None:
        """Return a file that Spark would read and that is not of the input's format; None if none was found."""
        there = self.directory if self._format in FILES else None
        return None if there is None else wrong_file(there, self._format, self._options, self._declared)

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


def records_of(given: Mapping[str, Any]) -> dict[str, KafkaRecords]:
    """Return the records of each topic whose entry of `input` has `kafka`. Asks no broker."""
    found = {}
    for topic, entry in given.items():
        if isinstance(entry, Mapping) and "kafka" in entry:
            from taskplace.spark.kafka.declared import declared_records

            for name in entry:
                if name not in INPUT:
                    raise ConfigError.unknown_key(f"input.{topic}", name, INPUT)
                if name != "kafka":
                    path, hint = f"input.{topic}.{name}", "options of Kafka's clients belong below `kafka`"
                    raise ConfigError(path, found=name, expected="nothing beside `kafka`", hint=hint)
            found[topic] = declared_records(f"input.{topic}.kafka", entry["kafka"])
    return found


def with_counts(topology: Mapping[str, Any], records: Mapping[str, KafkaRecords]) -> Mapping[str, Any]:
    """Return the section `topology` with the brokers' count for each Kafka topic whose source has no `partitions`.

    Asks brokers only for such sources. Leaves what is no mapping to its checks. Errors: `ConfigError` for brokers that
    do not answer, and for a missing topic.
    """
    section = topology_section(topology)
    sources = section.get("sources")
    if not records or not isinstance(sources, Mapping):
        return topology
    counted = dict(sources)
    for name, entry in sources.items():
        fields = {} if entry is None else entry
        if isinstance(fields, Mapping) and fields.get("partitions") is None:
            topic = fields.get("topic", name)
            if isinstance(topic, str) and topic in records:
                counted[name] = {**fields, "partitions": _count(f"input.{topic}.kafka", records[topic])}
    return {**section, "sources": counted}


def _count(path: str, records: KafkaRecords) -> int:
    """Return the broker's partition count of a topic. Errors: `ConfigError` at `path`."""
    try:
        return records.partitions()
    except InputError as error:
        raise ConfigError(path, found=error.found, expected=error.expected, hint=error.hint) from None


def inputs_of(
    built: BuiltTopology,
    topics: Collection[str],
    given: Mapping[str, Any],
    records: Mapping[str, KafkaRecords],
    settings: Settings,
) -> dict[str, YamlInput]:
    """Return the source of each external topic, from the entries of `input`.

    - `topics`: the external topics
    - `records`: those of `records_of`
    """
    for name in given:
        if name not in topics:
            raise ConfigError.unknown_key("input", name, topics)
    nodes = {node.topic: node for node in built.nodes if node.kind == "source"}
    return {
        topic: YamlRecords(f"input.{topic}", records[topic], nodes[topic], built, settings)
        if topic in records
        else YamlSource(f"input.{topic}", given.get(topic), nodes[topic].key)
        for topic in topics
    }


def _format(path: str, given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(path, found=given, expected="a streaming source format of Spark, like parquet")
    near = difflib.get_close_matches(given.lower(), FORMATS, n=1, cutoff=0.8)
    if near and near[0] != given.lower():  # what is like no known one may be a source of one's own
        hint = f"did you mean {near[0]!r}?"
        raise ConfigError(path, found=given, expected="a format that Spark knows", hint=hint)
    return given.lower() if near else given


def _options(path: str, given: object) -> dict[str, str]:
    if not isinstance(given, Mapping | None):
        raise ConfigError(path, found=given, expected="a mapping of Spark's options")
    for name, value in (given or {}).items():
        _check_text(path, name)
        if not isinstance(value, str | int | float):
            raise ConfigError(f"{path}.{name}", found=value, expected="a string, a number or true/false")
    return {
        str(name): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (given or {}).items()
    }


def _schema(path: str, given: object) -> tuple[str | None, tuple[tuple[str, Any], ...]]:
    """Return a schema as Spark's DDL, and its columns with their types as written; empty: unknown."""
    from taskplace.spark.ddl import written_columns

    if given is None:
        return None, ()
    if isinstance(given, Mapping) and given:
        columns = [(str(name), kind) for name, kind in given.items()]
        for name in given:
            _check_text(path, name)
        for name, kind in columns:
            _check_type(f"{path}.{name}", kind)
        return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns), tuple(columns)
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(path, found=given, expected="Spark's DDL ('id long, name string'), or columns")
    try:
        return given, tuple(written_columns(given))
    except TypeTextError as error:
        raise _written(path, error) from None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _check_text(path: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{path}.{name}", found=name, expected="a string as key (quote it)")


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
