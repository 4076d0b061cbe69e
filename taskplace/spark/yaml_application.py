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
    input:                        # a Spark source for each external topic
      orders: {format: parquet, path: /data/orders, schema: "id long, customer string, cents long"}
    output:                       # a directory or a function for each sink
      totals: {path: /data/totals}

An entry of `input`:
- `format`: Spark's name of the format: parquet, json, csv, kafka, rate, ...
- `path`, `schema`: required for files; a schema is Spark's DDL, or columns with their types
- `options`: Spark's own options, unchanged
- `select`: a list of SQL expressions, applied to the rows that were read (`cast(value as string) as text`)

An entry of `output`: `path`, a directory for `ParquetSink`, or `foreach`, the "module:function" of `ForeachBatch`.
Processors by name: `taskplace.spark.registry`.

Properties:
- Everything that can be checked without Spark is checked when the application is created, before anything starts. For
  a source with a `schema` and no `select`, that includes the columns that the topology takes from it.
- The topology alone (`declared_topology`) needs neither `input` nor `output`, and no Spark. For processors that come
  with taskplace it needs no Arrow either.
- An override names a key by its path (`output.totals.path=/data/totals`).

Errors: `ConfigError` and `TopologyError` with the path, the value found, the values expected, and the nearest name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from taskplace.dotted_keys import INPUT, OUTPUT, entries, topology_section
from taskplace.errors import ConfigError, InputError
from taskplace.paths import local_path
from taskplace.redaction import scrubbed
from taskplace.settings import Settings, absolute
from taskplace.spark.state.type_text import TypeTextError
from taskplace.spark.yaml_paths import YamlPaths, node_path
from topology import BuiltTopology, Topology, TopologyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from taskplace.spark.driver.directory_overlaps import Used
    from taskplace.spark.targets import SinkTarget

# Only code that needs Spark imports it, so that a topology can be shown without Spark.

FILES = ("parquet", "json", "csv", "orc", "text", "xml", "avro")
FORMATS = (*FILES, "kafka", "rate", "rate-micro-batch", "socket", "delta", "iceberg")
_SOURCE = "a Spark source, like {format: parquet, path: /data, schema: 'id long'}"
_SINK = "{path: a directory} or {foreach: 'module:function'}"


class YamlApplication:
    """The application class for a YAML file with a `topology`. It needs only the file."""

    def __init__(self, settings: Settings) -> None:
        from taskplace.spark.driver.programs import external_topics

        output = entries("output", settings.output, OUTPUT)
        targets = {name: _target(f"output.{name}", entry) for name, entry in output.items()}
        self._topology = declared_topology(settings, targets)
        section = topology_section(settings.topology)
        with _nodes_by_path(section):
            built = self._topology.build()
        _check_sinks(built)
        given = entries("input", settings.input, INPUT)
        self._inputs = _inputs(built, external_topics(built), given)
        _check_partitions(built)
        judge(built, settings, self._inputs, output)

    def topology(self) -> Topology:
        """Return the topology of the file."""
        return self._topology

    def sources(self, spark: SparkSession) -> Mapping[str, DataFrame]:
        """Return a streaming data frame per external topic. Errors: `ConfigError` with what Spark says."""
        return {topic: source.read(spark) for topic, source in self._inputs.items()}


def judge(
    built: BuiltTopology,
    settings: Settings,
    inputs: Mapping[str, _Source] = MappingProxyType({}),
    output: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Refuse what `Placed` would refuse at the start, as far as this can be checked without Spark.

    `inputs`, `output`: the entries of these sections, for an application without an application class.

    Errors: `ConfigError` and `TopologyError` with the path in the file.
    """
    from taskplace.spark.driver.definition import StreamDefinition
    from taskplace.spark.driver.directory_overlaps import check_overlaps
    from taskplace.spark.driver.no_data_batches import check_idle_closing
    from taskplace.spark.driver.processor_forms import check_forms
    from taskplace.spark.driver.publishing import check_targets
    from taskplace.spark.driver.rebalancer import check_weights
    from taskplace.spark.driver.sources import check_sources
    from taskplace.spark.driver.staging import SinkSchemas
    from taskplace.spark.options import check_supported
    from taskplace.spark.options import local_path as shared_path

    check_supported(settings.placement, "placement.")
    checkpoint = shared_path(settings.checkpoint_dir, "checkpoint.dir", patterns=False)
    section = topology_section(settings.topology)
    paths = YamlPaths(built, section, output) if section else None
    with _nodes_by_path(section), _in_the_file(paths):
        check_forms(built)
        # Before `programs`, so that a missing column is reported as missing, and not as one without an event time.
        check_sources(built, _schemas(inputs, settings), settings.spark.conf.get)
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


def _directories(checkpoint: Path, settings: Settings, inputs: Mapping[str, _Source]) -> list[Used]:
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
    """Put an error's path in the file before it; its name in code, if the topology is not in the file."""
    try:
        yield
    except InputError as error:
        path = error.path if paths is None else paths.of(error.path)
        made = ConfigError(path, found=error.found, expected=error.expected, hint=error.hint)
        made.args = (path + str(error).removeprefix(error.path),)  # its words stay as they are
        raise made from None


@contextmanager
def _nodes_by_path(section: Mapping[str, Any]) -> Iterator[None]:
    """Replace a node's name in an error by its path in the file."""
    try:
        yield
    except TopologyError as error:
        raise type(error)(node_path(str(error), section), node=error.node) from error


def declared_topology(settings: Settings, targets: Mapping[str, Any] | None = None) -> Topology:
    """Return the topology in an application's YAML. `targets`: by sink, the target that it writes to.

    For application classes that leave only the topology to YAML.
    Errors: `TopologyError` with the path in the file; `ConfigError` when there is no topology.
    """
    if not settings.topology:
        raise ConfigError("topology", found=None, expected="sources and nodes")
    if "name" in settings.topology:
        hint = "its name is the application's id"
        raise ConfigError("topology.name", found=settings.topology["name"], expected="nothing", hint=hint)
    document = {**topology_section(settings.topology), "name": settings.application.id}
    try:
        return Topology.from_dict(document, _registry(), targets)
    except TopologyError as error:
        text = scrubbed(str(error))
        if text.startswith("targets."):
            text = text.replace("targets.", "output.", 1)
        elif re.match(r"(sources|stores|nodes)\b", text):
            text = f"topology.{text}"
        raise TopologyError(node_path(text, document), node=error.node) from error


def _registry() -> Mapping[str, Callable[..., Any]]:
    """Return the registry of processors, or of placeholders if Arrow is not installed."""
    try:
        from taskplace.spark.registry import Registry
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "taskplace":
            raise
        from taskplace.spark.stub_processors import StubRegistry

        return StubRegistry()
    return Registry()


# ------------------------------------------------------------------------------------------------- output


def _target(path: str, entry: object) -> SinkTarget:
    if not isinstance(entry, Mapping) or len(entry) != 1:
        raise ConfigError(path, found=entry, expected=_SINK)
    ((key, value),) = entry.items()
    if key not in OUTPUT:
        raise ConfigError.unknown_key(path, key, OUTPUT)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{path}.{key}", found=value, expected=_SINK)
    return _TARGETS[key](f"{path}.{key}", value)


def _parquet(path: str, value: str) -> SinkTarget:
    from taskplace.spark.sinks import ParquetSink

    expected = "a directory, or a file:// URI, of this host"
    return ParquetSink(local_path(absolute(value), path, expected=expected, error=ConfigError))


def _foreach(path: str, value: str) -> SinkTarget:
    from taskplace.spark.registry import load
    from taskplace.spark.sinks import ForeachBatch

    try:
        return ForeachBatch(load(value))
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from error
    except InputError as error:
        raise ConfigError(path, found=error.found, expected=error.expected, hint=error.hint) from None


#: By the key of an entry of `output`: what makes the target, from the path of the key and its value.
_TARGETS: Mapping[str, Callable[[str, str], SinkTarget]] = {"path": _parquet, "foreach": _foreach}


def _check_sinks(built: BuiltTopology) -> None:
    for node in built.nodes:
        if node.kind == "sink" and not hasattr(node.target, "publish"):
            raise ConfigError(f"output.{node.name}", found=node.target, expected=_SINK)


# -------------------------------------------------------------------------------------------------- input


class _Source:
    """One entry of `input`, checked."""

    def __init__(self, path: str, entry: Any, key: Sequence[str]) -> None:
        if not isinstance(entry, Mapping):
            raise ConfigError(path, found=entry, expected=_SOURCE)
        for name in entry:
            if name not in INPUT:
                raise ConfigError.unknown_key(path, name, INPUT)
        self._at = path
        self._format = _format(f"{path}.format", entry.get("format"))
        self._schema, columns = _schema(f"{path}.schema", entry.get("schema"))
        files = self._format in FILES
        self._path = entry.get("path")
        blank = isinstance(self._path, str) and not self._path.strip()
        if blank or (not isinstance(self._path, str) and (files or self._path is not None)):
            raise ConfigError(f"{path}.path", found=self._path, expected="a directory or a URI")
        if files and self._format != "text" and self._schema is None:
            expected = "the columns of the files, like 'id long, name string'"
            raise ConfigError(f"{path}.schema", found=None, expected=expected)
        self._options = _options(f"{path}.options", entry.get("options"))
        #: The columns with their types, as far as the file declares them; None: not known.
        self.columns = columns
        self._select = entry.get("select")
        if self._select is not None:
            self.columns = ()
        if self._select is None:
            _check_key(f"{path}.schema", [name for name, _ in columns], key)
        elif not isinstance(self._select, list) or not all(map(_is_text, self._select)):
            raise ConfigError(f"{path}.select", found=self._select, expected="a list of SQL expressions")

    @property
    def directory(self) -> Path | None:
        """The path that the source reads on this host, maybe with wildcards; None if it reads elsewhere."""
        option = next((value for name, value in self._options.items() if name.lower() == "path"), None)
        given = self._path if self._path is not None else option
        try:
            return None if given is None else local_path(absolute(given), self._at)
        except InputError:
            return None

    def schema(self, timestamp: str) -> StructType | None:
        """Return the declared schema; None if it is not known, as with `select`."""
        from taskplace.spark.ddl import struct_type

        return struct_type(self.columns, timestamp) if self.columns else None

    def read(self, spark: SparkSession) -> DataFrame:
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


def _schemas(inputs: Mapping[str, _Source], settings: Settings) -> dict[str, StructType]:
    """Return the schemas of the sources that declare one."""
    timestamp = settings.spark.conf.get("spark.sql.timestampType", "TIMESTAMP_LTZ")
    found = {topic: source.schema(timestamp) for topic, source in inputs.items()}
    return {topic: schema for topic, schema in found.items() if schema is not None}


def _inputs(built: BuiltTopology, topics: Collection[str], given: Mapping[str, Any]) -> dict[str, _Source]:
    for name in given:
        if name not in topics:
            raise ConfigError.unknown_key("input", name, topics)
    keys = {node.topic: node.key for node in built.nodes if node.kind == "source"}
    return {topic: _Source(f"input.{topic}", given.get(topic), keys[topic]) for topic in topics}


def _format(path: str, found: object) -> str:
    if not isinstance(found, str) or not found.strip():
        raise ConfigError(path, found=found, expected="a streaming source format of Spark, like parquet")
    near = difflib.get_close_matches(found.lower(), FORMATS, n=1, cutoff=0.8)
    if near and near[0] != found.lower():  # what is like no known one may be a source of one's own
        hint = f"did you mean {near[0]!r}?"
        raise ConfigError(path, found=found, expected="a format that Spark knows", hint=hint)
    return found.lower() if near else found


def _options(path: str, found: object) -> dict[str, str]:
    if not isinstance(found, Mapping | None):
        raise ConfigError(path, found=found, expected="a mapping of Spark's options")
    for name, value in (found or {}).items():
        _check_text(path, name)
        if not isinstance(value, str | int | float):
            raise ConfigError(f"{path}.{name}", found=value, expected="a string, a number or true/false")
    return {
        str(name): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (found or {}).items()
    }


def _schema(path: str, found: object) -> tuple[str | None, tuple[tuple[str, Any], ...]]:
    """Return a schema as Spark's DDL, and its columns with their types as written; empty: unknown."""
    from taskplace.spark.ddl import written_columns

    if found is None:
        return None, ()
    if isinstance(found, Mapping) and found:
        columns = [(str(name), kind) for name, kind in found.items()]
        for name in found:
            _check_text(path, name)
        for name, kind in columns:
            _check_type(f"{path}.{name}", kind)
        return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns), tuple(columns)
    if not isinstance(found, str) or not found.strip():
        raise ConfigError(path, found=found, expected="Spark's DDL ('id long, name string'), or columns")
    try:
        return found, tuple(written_columns(found))
    except TypeTextError as error:
        raise _written(path, error) from None


def _is_text(found: object) -> bool:
    return isinstance(found, str) and bool(found.strip())


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
            near = difflib.get_close_matches(column, columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else ""
            expected = f"columns that include the key column {column!r}"
            raise ConfigError(path, found=", ".join(columns), expected=expected, hint=hint)
