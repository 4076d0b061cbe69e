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

A secret is not written into the file: see `taskplace.spark.kafka.clients`. `servers_env` names the environment
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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

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

    from taskplace.spark.driver.directory_overlaps import Used
    from taskplace.spark.kafka.records import KafkaRecords
    from taskplace.spark.targets import CommitTarget
    from taskplace.spark.types import TypeTextError


# Only code that needs Spark imports it, so that a topology can be shown without Spark.

_FORMAT = "a streaming source format of Spark, like parquet"
_SOURCE = "a Spark source, like {format: parquet, path: /data, schema: 'id long'}, or {kafka: {topic: ...}}"

_SINK = "{path: a directory}, {foreach: 'module:function'} or {kafka: {topic: ..., servers: ...}}"


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
    """Makes the streaming data frame of an input with `kafka`, a topic whose records tasks read themselves.

    - `source`: the node of the topology that has the records as its option `reads`
    """

    directory = None

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
    """An entry that names a source of Spark's."""

    def __init__(self, path: str, entry: Input) -> None:
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
        self._options = entry.options or {}
        #: The columns with their types, if the file declares them; those that `select` makes are known to Spark.
        self.columns = columns if self._select is None else ()

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
        else YamlSource(f"input.{topic}", entries[topic])
        for topic in topics
    }


def _schema(path: str, written: object) -> tuple[str | None, tuple[tuple[str, Any], ...]]:
    """Return a schema as Spark's DDL, and its columns with their types as written; empty: unknown."""
    from taskplace.spark.ddl import written_columns
    from taskplace.spark.types import TypeTextError

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
    from taskplace.spark.types import TypeTextError

    if not isinstance(written, str):
        raise ConfigError(path, found=written, expected="a Spark type")
    try:
        read_type(written)
    except TypeTextError as error:
        raise _written(path, error) from None


def _written(path: str, error: TypeTextError) -> ConfigError:
    expected = "a Spark type" if error.expected == "a type" else error.expected
    return ConfigError(f"{path}{error.suffix}", found=error.found, expected=expected, hint=error.hint)


# Only code that needs Spark imports it, so that a topology can be shown without Spark.


class YamlApplication:
    """The application class for a YAML file with a `topology`. It needs only the file."""

    def __init__(self, settings: Settings) -> None:
        from taskplace.spark.compile.programs import external_topics

        output = read(dict[str, Output], settings.output, "output")
        entries = read(dict[str, Input], settings.input, "input")
        targets = {name: _target(f"output.{name}", entry) for name, entry in output.items()}
        records = records_of(entries)
        settings = replace(settings, topology=with_counts(settings.topology, records))
        self._topology = declared_topology(settings, targets, records)
        with _nodes_by_path(settings.topology):
            built = self._topology.build()
        _check_sinks(built)
        self._inputs = inputs_of(built, external_topics(built), entries, records, settings)
        self._settings = settings
        _check_partitions(built)
        judge(
            built,
            settings,
            self._inputs,
            {name: next(iter(given(each)), "path") for name, each in output.items()},
        )

    def topology(self) -> Topology:
        """Return the topology of the file."""
        return self._topology

    def missing_inputs(self) -> Mapping[str, Path]:
        """Return the input directories that do not exist on this host, by the path of their key in the file."""
        there = {topic: getattr(source, "missing", None) for topic, source in self._inputs.items()}
        return {f"input.{topic}.path": path for topic, path in there.items() if path is not None}

    def schemas(self) -> Mapping[str, StructType]:
        """Return the schemas of the rows of the sources that declare one, by external topic."""
        return schemas_of(self._inputs, self._settings)

    def sources(self, spark: SparkSession) -> Mapping[str, DataFrame]:
        """Return a streaming data frame per external topic. Errors: `ConfigError` with what Spark says."""
        return {topic: source.read(spark) for topic, source in self._inputs.items()}


def judge(
    built: BuiltTopology,
    settings: Settings,
    inputs: Mapping[str, YamlInput] = MappingProxyType({}),
    output: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse what `Placed` would refuse at the start, as far as this can be checked without Spark.

    For an application without an application class, `inputs` has the sources, and `output` the kinds of the sinks.

    Errors: `ConfigError` and `TopologyError` with the path in the file.
    """
    from taskplace.spark.compile.sources import check_sources
    from taskplace.spark.driver.definition import StreamDefinition
    from taskplace.spark.driver.directory_overlaps import check_overlaps
    from taskplace.spark.driver.no_data_batches import check_idle_closing
    from taskplace.spark.driver.publishing import check_targets
    from taskplace.spark.driver.rebalancer import check_weights
    from taskplace.spark.driver.staging import SinkSchemas
    from taskplace.spark.options import check_supported
    from taskplace.spark.options import local_path as shared_path

    check_supported(settings.placement, "placement.")
    checkpoint = shared_path(settings.checkpoint_dir, "checkpoint.dir", patterns=False)
    section = settings.topology
    columns = {topic: source.columns_path for topic, source in inputs.items()}
    paths = YamlPaths(built, section, output, columns) if section else None
    with _nodes_by_path(section), _in_the_file(paths):
        # Before `programs`, so that a missing column is reported as missing, and not as one without an event time.
        check_sources(built, schemas_of(inputs, settings), settings.spark.conf.get)
        definition = StreamDefinition.of(  # judges the layouts of the stores, and options
            built,
            config=settings.placement,
            options=settings.runtime,
            checkpoint=checkpoint,
            state_dir=settings.state_dir,
        )
        check_idle_closing(definition, "runtime.idle.closing")
        SinkSchemas(built)  # checks the declared schemas
        check_targets(built)
        check_overlaps(built, _directories(checkpoint, settings, inputs))
        if settings.runtime.weights:
            check_weights(settings.runtime.weights, built)


def _check_partitions(built: BuiltTopology) -> None:
    for node in built.nodes:
        if node.kind == "source" and not node.internal and built.partitions.get(node.topic or "") is None:
            path, expected = (
                f"topology.sources.{node.name}.partitions",
                "the number of partitions, which is also the number of tasks",
            )
            raise TopologyError(f"{path}: found nothing, expected {expected}", node=node.name)


def _directories(checkpoint: Path, settings: Settings, inputs: Mapping[str, YamlInput]) -> list[Used]:
    """Return the directories in use on this host, but for those of sinks."""
    from taskplace.spark.driver.directory_overlaps import Used

    read = {topic: source.directory for topic, source in inputs.items()}
    return [
        Used(checkpoint, "checkpoint.dir", "the checkpoint (checkpoint.dir)"),
        Used(settings.state_dir, "state.dir", "the state directory (state.dir)"),
        *(
            Used(path, f"input.{topic}.path", f"the input directory of input.{topic}", read=True)
            for topic, path in read.items()
            if path is not None
        ),
    ]


@contextmanager
def _in_the_file(paths: YamlPaths | None) -> Iterator[None]:
    """Name values by their path in the file; as in code, if the topology is not in the file."""
    try:
        yield
    except InputError as error:
        if paths is not None:
            raise error.at(paths.of(error.path)) from None
        raise error.at(error.path) from None


@contextmanager
def _nodes_by_path(section: Mapping[str, Any]) -> Iterator[None]:
    """Replace a node's name in an error by its path in the file."""
    try:
        yield
    except TopologyError as error:
        text = node_path(str(error), section)
        raise type(error)(text, node=error.node) from error


def declared_topology(
    settings: Settings,
    targets: Mapping[str, Any] | None = None,
    readers: Mapping[str, Any] = MappingProxyType({}),
) -> Topology:
    """Return the topology in an application's YAML.

    - `targets`: by sink, the target that it writes to
    - `readers`: by external topic, what its tasks read it with, such as `KafkaRecords`

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
    document["sources"] = _with_readers(document.get("sources"), readers)
    try:
        return Topology.from_dict(document, _registry(document.get("nodes")), targets)
    except TopologyError as error:
        text = scrubbed(str(error))
        if text.startswith("targets."):
            text = text.replace("targets.", "output.", 1)
        elif re.match(r"(sources|stores|nodes)\b", text):
            text = f"topology.{text}"
        raise TopologyError(node_path(text, document), node=error.node) from error


def _with_readers(sources: Any, readers: Mapping[str, Any]) -> Any:
    """Return the section `sources` with the readers as options `reads`. Leaves what is no mapping to its checks."""
    made = dict(sources) if isinstance(sources, Mapping) else {}
    for name, entry in made.items():
        fields = {} if entry is None else entry
        topic: Any = fields.get("topic", name) if isinstance(fields, Mapping) else None
        known = isinstance(topic, str) and topic in readers
        if known and isinstance(options := fields.get("options") or {}, Mapping):
            made[name] = {**fields, "options": {**options, "reads": readers[topic]}}
    return made or sources


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
    from taskplace.spark.kafka.clients import check_no_secrets
    from taskplace.spark.kafka.declared import with_servers
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


def _check_sinks(built: BuiltTopology) -> None:
    for node in built.nodes:
        if node.kind == "sink" and not is_target(node.target):
            raise ConfigError(f"output.{node.name}", found=node.target, expected=_SINK)
