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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from taskplace.dotted_keys import entries, nested_options, topology_section
from taskplace.durations import named_by
from taskplace.errors import ConfigError, InputError
from taskplace.misplaced import check_entries, check_topology
from taskplace.redaction import scrubbed
from taskplace.spark.targets import is_target
from taskplace.spark.yaml_application import (
    YamlInput,
    YamlSource,
    inputs_of,
    records_of,
    schemas_of,
    with_counts,
)
from taskplace.spark.yaml_paths import YamlPaths, named_entries, node_path
from taskplace.spark.yaml_words import in_yaml, refused
from taskplace.spec.application import YAML_APPLICATION, Settings, absolute, section_keys
from taskplace.spec.paths import local_path
from taskplace.yaml_fields import INPUT, KAFKA_OUTPUT, OUTPUT
from topology import BuiltTopology, Topology, TopologyError
from topology.entry_fields import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from taskplace.spark.driver.directory_overlaps import Used
    from taskplace.spark.input_files import WrongFile
    from taskplace.spark.targets import CommitTarget

# Only code that needs Spark imports it, so that a topology can be shown without Spark.

#: The fields of a source in an application without a class.
OF_FILE = tuple(field for field in SOURCE if field != "schema")
_SINK = "{path: a directory}, {foreach: 'module:function'} or {kafka: {topic: ..., servers: ...}}"


class YamlApplication:
    """The application class for a YAML file with a `topology`. It needs only the file."""

    def __init__(self, settings: Settings) -> None:
        from taskplace.spark.compile.programs import external_topics

        output = entries("output", settings.output, OUTPUT)
        given = entries("input", settings.input, INPUT)
        _check_places(settings, given, output)
        targets = {name: _target(f"output.{name}", entry) for name, entry in output.items()}
        records = records_of(given)
        settings = replace(settings, topology=with_counts(settings.topology, records))
        self._topology = declared_topology(settings, targets, records)
        section = topology_section(settings.topology)
        with _nodes_by_path(section):
            built = self._topology.build()
        _check_sinks(built)
        self._inputs = inputs_of(built, external_topics(built), given, records, settings)
        self._settings = settings
        _check_partitions(built)
        judge(built, settings, self._inputs, output)

    def topology(self) -> Topology:
        """Return the topology of the file."""
        return self._topology

    def missing_inputs(self) -> Mapping[str, Path]:
        """Return the input directories that do not exist on this host, by the path of their key in the file."""
        there = {topic: getattr(source, "missing", None) for topic, source in self._inputs.items()}
        return {f"input.{topic}.path": path for topic, path in there.items() if path is not None}

    def wrong_inputs(self) -> Mapping[str, tuple[str, WrongFile]]:
        """Return the inputs with a file of another format: format and file, by the path of the input's key in YAML."""
        conf = self._settings.spark.conf
        if (
            _is_true(conf.get("spark.sql.files.ignoreCorruptFiles"))
            or "spark.sql.columnNameOfCorruptRecord" in conf
        ):
            return {}
        sources = {name: source for name, source in self._inputs.items() if isinstance(source, YamlSource)}
        found = {name: (source.format, source.wrong_file()) for name, source in sources.items()}
        return {
            f"input.{name}.path": (kind, file) for name, (kind, file) in found.items() if file is not None
        }

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
    output: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Refuse what `Placed` would refuse at the start, as far as this can be checked without Spark.

    `inputs`, `output`: the entries of these sections, for an application without an application class.

    Errors: `ConfigError` and `TopologyError` with the path in the file.
    """
    from taskplace.spark.compile.forms import check_forms
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
    section = topology_section(settings.topology)
    columns = {topic: source.columns_path for topic, source in inputs.items()}
    paths = YamlPaths(built, section, output, columns) if section else None
    with _nodes_by_path(section), _in_the_file(paths):
        check_forms(built)
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


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


def _check_places(settings: Settings, given: Mapping[str, Any], output: Mapping[str, Any]) -> None:
    """Refuse keys of `input` and `output` that belong elsewhere."""
    section = topology_section(settings.topology)
    sources, nodes = ({} if section.get(part) is None else section[part] for part in ("sources", "nodes"))
    topics = {
        topic: f"topology.sources.{name}"
        for name, entry in (sources.items() if isinstance(sources, Mapping) else ())
        if isinstance(topic := entry.get("topic", name) if isinstance(entry, Mapping) else name, str)
    }
    check_entries("input", given, topics, section_keys())
    sinks = {name: f"topology.nodes.{name}" for name in nodes} if isinstance(nodes, Mapping) else {}
    check_entries("output", output, sinks, section_keys())


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
    """Name values by their path in the file, in errors and warnings; as in code, if the topology is not in the file."""
    try:
        with nullcontext() if paths is None else named_by(paths.of):
            yield
    except InputError as error:
        if paths is not None:
            raise refused(paths.of(error.path), error) from None
        made = ConfigError(error.path, found=error.found, expected=error.expected, hint=error.hint)
        made.args = error.args  # its words stay as they are
        raise made from None


@contextmanager
def _nodes_by_path(section: Mapping[str, Any]) -> Iterator[None]:
    """Replace a node's name in an error by its path in the file."""
    try:
        yield
    except TopologyError as error:
        text = node_path(str(error), section)
        raise type(error)(in_yaml(text) if section else text, node=error.node) from error


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
    document = {**topology_section(settings.topology), "name": settings.application.id}
    # An application class may read the `schema` of a source from the topology; the file alone has it in `input`.
    of_source = OF_FILE if settings.application.cls == YAML_APPLICATION else SOURCE
    check_topology(document, section_keys(), source=of_source)
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
    if not readers or not isinstance(sources, Mapping):
        return sources
    made = dict(sources)
    for name, spec in sources.items():
        fields = {} if spec is None else spec
        if not isinstance(fields, Mapping):
            continue
        options = {} if fields.get("options") is None else fields["options"]
        topic = fields.get("topic", name)
        if topic in readers and isinstance(options, Mapping):
            if "reads" in options:
                path = f"topology.sources.{name}.options.reads"
                raise ConfigError(path, found=options["reads"], expected=f"`kafka` of input.{topic} only")
            made[name] = {**fields, "options": {**options, "reads": readers[topic]}}
    return made


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


def _target(path: str, entry: object) -> CommitTarget:
    if not isinstance(entry, Mapping) or not entry:
        raise ConfigError(path, found=entry, expected=_SINK)
    for key in entry:
        if key not in OUTPUT:
            raise ConfigError.unknown_key(path, key, OUTPUT)
    if len(entry) > 1:
        raise ConfigError(path, found=" and ".join(entry), expected=f"only one of them: {_SINK}")
    ((key, value),) = entry.items()
    return _TARGETS[key](f"{path}.{key}", value)


def _text(path: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(path, found=value, expected=_SINK)
    return value


def _parquet(path: str, value: object) -> CommitTarget:
    from taskplace.spark.sinks import ParquetSink

    expected = "a directory, or a file:// URI, of this host"
    return ParquetSink(local_path(absolute(_text(path, value)), path, expected=expected, error=ConfigError))


def _kafka(path: str, value: object) -> CommitTarget:
    from taskplace.spark.kafka.clients import check_no_secrets
    from taskplace.spark.kafka.declared import with_servers
    from taskplace.spark.kafka.sink import KafkaSink

    if not isinstance(value, Mapping):
        raise ConfigError(path, found=value, expected=_SINK)
    given = nested_options(value)
    for name in given:
        if name not in KAFKA_OUTPUT:
            raise ConfigError.unknown_key(path, name, KAFKA_OUTPUT)
    _text(f"{path}.topic", given.get("topic"))
    given = with_servers(path, given)
    for name in ("options", "registry"):
        if isinstance(options := given.get(name), Mapping):
            check_no_secrets(f"{path}.{name}", options, ConfigError)
    try:
        return KafkaSink(**given)
    except InputError as error:
        raise refused(path + error.path.removeprefix("KafkaSink"), error) from None


def _foreach(path: str, value: object) -> CommitTarget:
    from taskplace.spark.registry import load
    from taskplace.spark.sinks import ForeachBatch

    try:
        return ForeachBatch(load(_text(path, value)))
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from error
    except InputError as error:
        raise refused(path, error) from None


#: By the key of an entry of `output`: what makes the target, from the path of the key and its value.
_TARGETS: Mapping[str, Callable[[str, object], CommitTarget]] = {
    "path": _parquet,
    "foreach": _foreach,
    "kafka": _kafka,
}


def _check_sinks(built: BuiltTopology) -> None:
    for node in built.nodes:
        if node.kind == "sink" and not is_target(node.target):
            raise ConfigError(f"output.{node.name}", found=node.target, expected=_SINK)
