"""Makes an application of a YAML file alone: its topology, the inputs of its sources, the outputs of its sinks.

    application: {id: orders}
    topology:                     # as `Topology.from_dict` takes it; its name is the application's id
      sources:
        orders: {key: customer, partitions: 4}
      nodes:
        once: {process: orders, processor: deduplicate, options: {by: {id: long}}}
        spent:
          process: once
          processor: aggregate
          options: {by: {customer: string}, aggregates: {orders: count, cents: {sum: cents, type: int64}}}
        totals: {sink: spent}
    input:                        # a Spark source, or a Kafka topic, for each external topic
      orders: {format: parquet, path: /data/orders, schema: "id long, customer string, cents long"}
    output:                       # a directory or a function for each sink
      totals: {path: /data/totals}

An entry of `input` names a source of Spark's:
- `format`: Spark's name of the format: parquet, json, csv, kafka, rate, ...
- `path`, `schema`: required for files; a schema is Spark's DDL, or columns with their types
- `options`: Spark's own options, unchanged
- `select`: a list of SQL expressions, applied to the rows that were read (`cast(value as string) as text`)

Or tasks read a Kafka topic themselves: `kafka` has the arguments of `KafkaRecords` and of its decoder; see
`taskplace.spark.kafka.declared`. The topic's partitions are the tasks: without `partitions`, the brokers are asked for
their count; with it, their count must be the same.

An entry of `output` is one of these:
- `path`: a directory for `ParquetSink`
- `foreach`: the "module:function" of `ForeachBatch`
- `kafka`: the arguments of `KafkaSink`: `topic`, `servers`, `key`, ...

A secret is not written into the file: see `taskplace.spark.kafka.options`. `servers_env` names the environment
variable that has the `servers`.

Processors by name: `taskplace.spark.registry`.

Properties:
- Everything that can be checked without Spark is checked when the application is created, before anything starts. For
  a source with a `schema` and no `select`, that includes the columns that the topology takes from it. Brokers are
  asked only for a Kafka topic whose source has no `partitions`.
- The topology alone (`declared_topology`) needs neither `input` nor `output`, and no Spark. For processors that come
  with taskplace it needs no Arrow either.
- An override names a key by its path (`output.totals.path=/data/totals`).

Errors: `ConfigError` and `TopologyError` with the path, the value found, the values expected, and the nearest name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from taskplace.errors import ConfigError, InputError
from taskplace.model.keys import read
from taskplace.redaction import scrubbed
from taskplace.spark.targets import is_target
from taskplace.spark.yaml_paths import YamlPaths, named_entries, node_path
from taskplace.spec.application import YAML_APPLICATION, Settings, absolute
from taskplace.spec.nodes import FILES, Input, KafkaOutput, Output, checked_topology, given
from taskplace.spec.paths import has_wildcards, local_path
from topology import BuiltTopology, Node, Topology, TopologyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from taskplace.spark.driver.definition import StreamDefinition
    from taskplace.spark.kafka.records import KafkaRecords
    from taskplace.spark.targets import CommitTarget

# Only code that needs Spark imports it, so that a topology can be shown without Spark.

_FORMAT = "a streaming source format of Spark, like parquet"
_SOURCE = "a Spark source, like {format: parquet, path: /data, schema: 'id long'}, or {kafka: {topic: ...}}"
_SINK = "{path: a directory}, {foreach: 'module:function'} or {kafka: {topic: ..., servers: ...}}"
_COLUMNS = "the columns of the files, like 'id long, name string', or a mapping"
_PARTITIONS = "the number of partitions, which is also the number of tasks"


class YamlRecords:
    """An entry of `input` with `kafka`: a topic whose records tasks read themselves.

    - `columns_path`: where the file declares the columns, for errors
    - `directory`: the path that it reads on this host: none; `missing`: the same, if it does not exist
    """

    directory: Path | None = None
    missing: Path | None = None

    def __init__(
        self, path: str, records: KafkaRecords, source: Node, built: BuiltTopology, settings: Settings
    ) -> None:
        self.columns_path = f"{path}.kafka"
        self._records, self._source, self._built, self._settings = records, source, built, settings

    def schema(self, timestamp: str) -> StructType:
        """Return the schema of the decoded rows."""
        from taskplace.spark.versions import from_arrow_schema

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
    """An entry of `input` that names a source of Spark's. Members as those of `YamlRecords`."""

    def __init__(self, path: str, entry: Input) -> None:
        self._at, self._entry = path, entry
        self.columns_path = f"{path}.schema"
        if entry.format is None:
            raise ConfigError(f"{path}.format", found=None, expected=_FORMAT)
        self._of_files = entry.format.lower() in FILES
        self._format = entry.format.lower() if self._of_files else entry.format
        self._columns = _columns(self.columns_path, entry.schema)
        if self._of_files and entry.path is None:
            raise ConfigError(f"{path}.path", found=None, expected="a directory or a URI")
        if self._of_files and self._format != "text" and not self._columns:
            raise ConfigError(self.columns_path, found=entry.schema, expected=_COLUMNS)

    @property
    def directory(self) -> Path | None:
        """The path that the source reads on this host, maybe with wildcards; None if it reads elsewhere."""
        options = {name.lower(): value for name, value in (self._entry.options or {}).items()}
        path = self._entry.path or options.get("path")
        try:
            return None if path is None else local_path(absolute(path), self._at)
        except InputError:
            return None

    @property
    def missing(self) -> Path | None:
        """The directory, or file, that Spark would read and that does not exist; None if it does, or has wildcards."""
        there = self.directory if self._of_files else None
        try:
            return None if there is None or has_wildcards(str(there)) or there.exists() else there
        except OSError:  # no permission to look: Spark's user may have it
            return None

    def schema(self, timestamp: str) -> StructType | None:
        """Return the schema of the rows, as far as the file shows it; None if it is not known.

        `timestamp`: Spark's type for that name.
        """
        from taskplace.spark.ddl import struct_type

        known = self._columns and not self._entry.select  # what `select` makes is known to Spark
        return struct_type(self._columns, timestamp) if known else None

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the source's streaming data frame. Errors: `ConfigError` with what Spark says."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        entry = self._entry
        reader = spark.readStream.format(self._format).options(**(entry.options or {}))
        try:
            if isinstance(entry.schema, str):
                reader = reader.schema(entry.schema)
            elif entry.schema is not None:
                ddl = (f"`{name.replace('`', '``')}` {kind}" for name, kind in self._columns)
                reader = reader.schema(", ".join(ddl))
            df = reader.load(absolute(entry.path)) if entry.path is not None else reader.load()
            return df.selectExpr(*entry.select) if entry.select else df
        except (PySparkException, Py4JError) as error:
            says = str(getattr(error, "java_exception", error)).strip().splitlines()[0]
            raise ConfigError(self._at, found=self._format, expected=_SOURCE, hint=says) from error


Inputs = Mapping[str, YamlRecords | YamlSource]


def _columns(path: str, written: object) -> list[tuple[str, Any]]:
    """Return the columns of a schema, in Spark's DDL or as a mapping, with their types as written."""
    from taskplace.spark.ddl import read_type, written_columns
    from taskplace.spark.types import TypeTextError

    where = path
    try:
        if isinstance(written, str):
            return list(written_columns(written))
        columns = list(written.items()) if isinstance(written, Mapping) else []
        for name, kind in columns:
            where = f"{path}.{name}"
            if not isinstance(kind, str):
                raise ConfigError(where, found=kind, expected="a Spark type")
            read_type(kind)
        return columns
    except TypeTextError as error:
        expected = "a Spark type" if error.expected == "a type" else error.expected
        where += error.suffix
        raise ConfigError(where, found=error.found, expected=expected, hint=error.hint) from None


def _count(path: str, records: KafkaRecords) -> int:
    """Return the broker's partition count of a topic. Errors: `ConfigError` at `path`."""
    try:
        return records.partitions()
    except InputError as error:
        raise error.at(path) from None


def _records_of(entries: Mapping[str, Input]) -> dict[str, KafkaRecords]:
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


class YamlApplication:
    """The application class for a YAML file with a `topology`. It needs only the file."""

    def __init__(self, settings: Settings) -> None:
        output = read(dict[str, Output], settings.output, "output")
        entries = read(dict[str, Input], settings.input, "input")
        targets = {name: _target(f"output.{name}", entry) for name, entry in output.items()}
        records = _records_of(entries)
        self._settings = settings
        self._topology = declared_topology(settings, targets, records)
        with _nodes_by_path(settings.topology):
            built = self._topology.build()
        for node in built.nodes:
            if node.kind == "sink" and not is_target(node.target):
                raise ConfigError(f"output.{node.name}", found=node.target, expected=_SINK)
        sources = {node.topic: node for node in built.nodes if node.kind == "source" and not node.internal}
        for name in entries:
            if name not in sources:
                raise ConfigError.unknown_key("input", name, map(str, sources))
        inputs: dict[str, YamlRecords | YamlSource] = {}
        for topic, node in sources.items():
            if topic is None or topic not in entries:
                raise ConfigError(f"input.{topic}", found=None, expected=_SOURCE)
            if topic in records:
                inputs[topic] = YamlRecords(f"input.{topic}", records[topic], node, built, settings)
            else:
                inputs[topic] = YamlSource(f"input.{topic}", entries[topic])
        for topic, node in sources.items():
            if built.partitions.get(topic or "") is None:
                path = f"topology.sources.{node.name}.partitions"
                raise TopologyError(f"{path}: found nothing, expected {_PARTITIONS}", node=node.name)
        self._inputs = inputs
        kinds = {name: next(iter(given(each)), "path") for name, each in output.items()}
        self.definition = judge(built, settings, self._inputs, kinds)

    def topology(self) -> Topology:
        """Return the topology of the file."""
        return self._topology

    def missing_inputs(self) -> Mapping[str, Path]:
        """Return the input directories that do not exist on this host, by the path of their key in the file."""
        there = {f"input.{topic}.path": source.missing for topic, source in self._inputs.items()}
        return {path: missing for path, missing in there.items() if missing is not None}

    def schemas(self) -> Mapping[str, StructType]:
        """Return the schemas of the rows of the sources that declare one, by external topic."""
        return _schemas(self._inputs, self._settings)

    def sources(self, spark: SparkSession) -> Mapping[str, DataFrame]:
        """Return a streaming data frame per external topic. Errors: `ConfigError` with what Spark says."""
        return {topic: source.read(spark) for topic, source in self._inputs.items()}


def _schemas(inputs: Inputs, settings: Settings) -> dict[str, StructType]:
    timestamp = settings.spark.conf.get("spark.sql.timestampType", "TIMESTAMP_LTZ")
    declared = {topic: source.schema(timestamp) for topic, source in inputs.items()}
    return {topic: schema for topic, schema in declared.items() if schema is not None}


def judge(
    built: BuiltTopology,
    settings: Settings,
    inputs: Inputs = MappingProxyType({}),
    output: Mapping[str, str] = MappingProxyType({}),
) -> StreamDefinition:
    """Refuse what `Placed` would refuse at the start, as far as this can be checked without Spark.

    For an application without an application class, `inputs` has the sources, and `output` the kinds of the sinks.

    Errors: `ConfigError` and `TopologyError` with the path in the file.
    """
    from taskplace.spark.compile.sources import check_sources
    from taskplace.spark.driver import definition as definitions
    from taskplace.spark.driver.directory_overlaps import Used, check_overlaps
    from taskplace.spark.driver.no_data_batches import check_idle_closing
    from taskplace.spark.driver.publishing import check_targets
    from taskplace.spark.driver.rebalancer import check_weights
    from taskplace.spark.driver.staging import SinkSchemas
    from taskplace.spark.options import check_supported
    from taskplace.spark.options import local_path as shared_path

    check_supported(settings.placement, "placement.")
    checkpoint = shared_path(settings.checkpoint_dir, "checkpoint.dir", patterns=False)
    used = [
        Used(checkpoint, "checkpoint.dir", "the checkpoint (checkpoint.dir)"),
        Used(settings.state_dir, "state.dir", "the state directory (state.dir)"),
    ]
    for topic, source in inputs.items():
        if (path := source.directory) is not None:
            used.append(Used(path, f"input.{topic}.path", f"the input directory of input.{topic}", read=True))
    section = settings.topology
    columns = {topic: source.columns_path for topic, source in inputs.items()}
    paths = YamlPaths(built, section, output, columns) if section else None
    with _nodes_by_path(section), _in_the_file(paths):
        # Before `programs`, so that a missing column is reported as missing, and not as one without an event time.
        check_sources(built, _schemas(inputs, settings), settings.spark.conf.get)
        definition = definitions.StreamDefinition.of(  # judges the layouts of the stores, and options
            built,
            config=settings.placement,
            options=settings.runtime,
            checkpoint=checkpoint,
            state_dir=settings.state_dir,
        )
        check_idle_closing(definition, "runtime.idle.closing")
        SinkSchemas(built)  # checks the declared schemas
        check_targets(built)
        check_overlaps(built, used)
        if settings.runtime.weights:
            check_weights(settings.runtime.weights, built)
    return definition


@contextmanager
def _in_the_file(paths: YamlPaths | None) -> Iterator[None]:
    """Name values by their path in the file; as in code, if the topology is not in the file."""
    try:
        yield
    except InputError as error:
        raise error.at(error.path if paths is None else paths.of(error.path)) from None


@contextmanager
def _nodes_by_path(section: Mapping[str, Any]) -> Iterator[None]:
    """Replace a node's name in an error by its path in the file."""
    try:
        yield
    except TopologyError as error:
        raise type(error)(node_path(str(error), section), node=error.node) from error


def declared_topology(
    settings: Settings,
    targets: Mapping[str, Any] | None = None,
    readers: Mapping[str, KafkaRecords] = MappingProxyType({}),
) -> Topology:
    """Return the topology in an application's YAML.

    - `targets`: by sink, the target that it writes to
    - `readers`: by external topic, what its tasks read it with. Their brokers are asked for the count of partitions of
      a source that has none

    For application classes that leave only the topology to YAML.
    Errors: `TopologyError` with the path in the file; `ConfigError` when there is no topology.
    """
    if not settings.topology:
        raise ConfigError("topology", found=None, expected="sources and nodes")
    if "name" in settings.topology:
        hint = "its name is the application's id"
        raise ConfigError("topology.name", found=settings.topology["name"], expected="nothing", hint=hint)
    of_class = settings.application.cls != YAML_APPLICATION
    document = {**checked_topology(settings.topology, of_class=of_class), "name": settings.application.id}
    if readers and isinstance(sources := document.get("sources"), Mapping):
        document["sources"] = {name: _with_reader(name, entry, readers) for name, entry in sources.items()}
    try:
        return Topology.from_dict(document, _registry(document.get("nodes")), targets)
    except TopologyError as error:
        text = scrubbed(str(error))
        if text.startswith("targets."):
            text = text.replace("targets.", "output.", 1)
        elif re.match(r"(sources|stores|nodes)\b", text):
            text = f"topology.{text}"
        raise TopologyError(node_path(text, document), node=error.node) from error


def _with_reader(name: str, entry: Any, readers: Mapping[str, KafkaRecords]) -> Any:
    """Return a source with its reader as the option `reads`, and a count. What is no mapping is left to its checks."""
    fields = {} if entry is None else entry
    topic: Any = fields.get("topic", name) if isinstance(fields, Mapping) else None
    reader = readers.get(topic) if isinstance(topic, str) else None
    if reader is None or not isinstance(options := fields.get("options") or {}, Mapping):
        return entry
    count = fields.get("partitions")
    if count is None:
        count = _count(f"input.{topic}.kafka", reader)
    return {**fields, "partitions": count, "options": {**options, "reads": reader}}


def _registry(nodes: object) -> Mapping[str, Callable[..., Any]]:
    """Return the registry of processors, or of placeholders if Arrow is not installed. `nodes`: those of the file."""
    try:
        from taskplace.spark.registry import Registry
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "taskplace":
            raise
        from taskplace.spark.stub_processors import StubRegistry

        return StubRegistry()
    return Registry({name: path for name, (path, _) in named_entries("nodes", nodes)})


# ------------------------------------------------------------------------------------------------- output


def _target(path: str, entry: Output) -> CommitTarget:
    fields = given(entry)
    if len(fields) != 1:
        raise ConfigError(path, found=" and ".join(fields) or {}, expected=f"one of them: {_SINK}")
    ((key, value),) = fields.items()
    try:
        return _TARGETS[key](f"{path}.{key}", value)
    except TopologyError as error:
        raise TopologyError(f"{path}.{key}: {error}") from error
    except ConfigError:
        raise
    except InputError as error:
        raise error.at(f"{path}.{key}" + error.path.removeprefix("KafkaSink") * (key == "kafka")) from None


def _parquet(path: str, value: str) -> CommitTarget:
    from taskplace.spark.sinks import ParquetSink

    expected = "a directory, or a file:// URI, of this host"
    return ParquetSink(local_path(absolute(value), path, expected=expected, error=ConfigError))


def _kafka(path: str, value: KafkaOutput) -> CommitTarget:
    from taskplace.spark.kafka.declared import with_servers
    from taskplace.spark.kafka.options import check_no_secrets
    from taskplace.spark.kafka.sink import KafkaSink

    fields = with_servers(path, given(value))
    for name in ("options", "registry"):
        if isinstance(options := fields.get(name), Mapping):
            check_no_secrets(f"{path}.{name}", options, ConfigError)
    return KafkaSink(**fields)


def _foreach(path: str, value: str) -> CommitTarget:
    from taskplace.spark.registry import load
    from taskplace.spark.sinks import ForeachBatch

    return ForeachBatch(load(value))


#: By the key of an entry of `output`: what makes the target, from the path of the key and its value.
_TARGETS: Mapping[str, Callable[[str, Any], CommitTarget]] = {
    "path": _parquet,
    "foreach": _foreach,
    "kafka": _kafka,
}
