"""The entries of `topology`, `input` and `output`: what each field takes, and what it means.

**Idea.** The options of a processor, of a source and of a sink are arguments of classes, which know their defaults. So
a field without a value here is left out of the call; `default` says what that means where the class does not.

Properties: plain data, without Spark or Arrow. What needs the whole topology, or Arrow's types, is checked later.

The processor of one's own, `module:name`, takes the arguments of its function or class.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from taskplace.durations import milliseconds
from taskplace.errors import ConfigError
from taskplace.model.keys import Positive, about, keys_of, read, read_struct, texts
from topology.entry_fields import SECTIONS


def _is(words: str, **limits: Any) -> Meta:
    return Meta(extra={"words": words}, **limits)


def _duration(value: Any, path: str) -> str:
    whole = milliseconds(value, path, zero=True)
    return value if isinstance(value, str) else f"{whole} ms"


def _columns(value: Any, path: str) -> list[str]:
    return read(list[Column], [value] if isinstance(value, str) else value, path)  # type: ignore[no-any-return]


def _spark_options(value: Any, path: str) -> dict[str, str]:
    """Return options of Spark's, with their values as Spark writes them."""
    if not isinstance(value, Mapping | None):
        raise ConfigError(path, found=value, expected=_OF_SPARK)
    for name, each in texts(value or {}, path):
        if not isinstance(each, str | int | float):
            raise ConfigError(f"{path}.{name}", found=each, expected="a string, a number or true/false")
    return {
        name: str(each).lower() if isinstance(each, bool) else str(each)
        for name, each in (value or {}).items()
    }


_OF_SPARK = "a mapping of Spark's own keys"
SparkOptions = Annotated[dict[str, str], Meta(extra={"read": _spark_options, "words": _OF_SPARK})]
Name = Annotated[str, _is("name", min_length=1)]
NewName = Annotated[str, _is("new name", min_length=1)]
Column = Annotated[str, _is("column name", min_length=1)]
Columns = Annotated[dict[str, str], _is("columns with types", min_length=1)]
Duration = Annotated[str, Meta(extra={"read": _duration, "words": "duration"})]
Function = Annotated[str, _is("'module:function'", pattern=r"^.+:.+\Z")]
Path = Annotated[str, _is("directory or URI", pattern=r"\S")]
Options = Annotated[dict[str, Any], _is("mapping")]
SomeColumns = Annotated[str | list[str], _is("column or list")]
ColumnList = Annotated[list[str], Meta(extra={"read": _columns, "words": "column or list"})]
AvroSchema = Annotated[str | dict[str, Any] | list[Any], _is("mapping, JSON or `.avsc` file")]
Registry = Annotated[str | dict[str, Any], _is("URL, or Confluent's properties")]

#: Fields that several entries have.
SentTime = Annotated[Column | None, about("event time of the rows sent")]
SentDelay = Annotated[Duration | None, about("how far it may be behind the input's watermark", default="`0`")]


class SourceOptions(Struct, kw_only=True):
    """The options of a source."""

    event_time: Annotated[Column | None, about("event time: a timestamp or a date")] = None
    delay: Annotated[Duration | None, about("watermark: the newest event time less this", default="`0`")] = (
        None
    )
    partition_column: Annotated[
        Column | None, about("integer column with the partition, in place of Spark's hash")
    ] = None
    key_partitioner: Annotated[
        Name | None,
        about("of the producers: murmur2, consistent_random, consistent, fnv1a", default="`murmur2`"),
    ] = None
    key_bytes: Annotated[Column | None, about("serialized key, checked in samples")] = None
    check_keys: Annotated[bool | None, about("check samples of keys", default="`true` with `key_bytes`")] = (
        None
    )


class StoreOptions(Struct, kw_only=True):
    """The options of a store."""

    key: Annotated[Columns, about("columns of the key")]
    value: Annotated[Columns, about("columns of the value")]
    time: Annotated[Column | None, about("event time for `retention_ms`")] = None
    meaning: Annotated[
        Annotated[dict[str, str], _is("mapping of texts")] | None,
        about("how values are computed; a checkpoint with another is refused"),
    ] = None


class Window(Struct, kw_only=True):
    """Windows of event time."""

    column: Annotated[Column, about("event time of the rows")]
    size: Annotated[Duration, about("length of a window")]
    grace: Annotated[Duration | None, about("how long a window accepts rows after its end")] = None
    emit: Annotated[
        Literal["changes", "final"] | None,
        about("every change of a window, or each once, closed"),
    ] = None
    time: Annotated[NewName | None, about("output column with the event time")] = None


OfWindow = Annotated[Window | None, about("see `window`; adds the key column `window_start`")]


class Keyed(Struct, kw_only=True):
    """What all processors with a store take."""

    by: Annotated[Columns, about("key of the state; contains the columns of the split")]
    ttl: Annotated[Duration | None, about("an entry expires this long after its `time`")] = None
    time: Annotated[Column | None, about("key column that `ttl` counts from")] = None
    store: Annotated[Name | None, about("name of the state", default="the node's name")] = None


class Stateful(Keyed, kw_only=True):
    """What all processors with a store take but functions."""

    over_changes: Annotated[bool | None, about("count each change of a node as a row")] = None


class Aggregate(Stateful, kw_only=True):
    """Running aggregates by key."""

    aggregates: Annotated[
        Annotated[dict[str, Any], _is("mapping", min_length=1)],
        about("by output column: `count`; count, sum, min, max, avg, first, last of a column"),
    ]
    window: OfWindow = None
    time: Annotated[
        Column | None, about("for `ttl`: key column, or aggregate like `{max: at, type: timestamp}`")
    ] = None


class Count(Stateful, kw_only=True):
    """A running count by key, in the column `count`."""

    window: OfWindow = None


class Deduplicate(Stateful, kw_only=True):
    """Lets each key through once: ever, or within `ttl`."""

    by: Annotated[Columns, about("key whose first row passes; contains the columns of the split")]
    ttl: Annotated[Duration | None, about("a key is forgotten this long after its first row")] = None
    time: Annotated[Column | None, about("event time that `ttl` counts from")] = None


class TableJoin(Stateful, kw_only=True):
    """Adds a table's columns."""

    by: Annotated[Columns, about("key of both sides")]
    columns: Annotated[Columns, about("table columns to add")]
    how: Annotated[
        Literal["left", "inner"] | None, about("rows without a match get nulls, or are dropped")
    ] = None
    order_by: Annotated[ColumnList | None, about("columns that decide the last table row")] = None
    deleted: Annotated[Column | None, about("boolean column: true removes the key")] = None
    time: Annotated[Column | None, about("table column that `ttl` counts from")] = None


class PerKey(Keyed, kw_only=True):
    """A function per key and batch, with dicts."""

    function: Annotated[Function, about("called per key and batch: `function(key, rows, state)`")]
    state: Annotated[Columns, about("columns of a key's state")]
    output: Annotated[Columns, about("columns of the rows sent")]
    time: Annotated[Column | None, about("state column that `ttl` counts from")] = None
    event_time: SentTime = None
    delay: SentDelay = None


class OwnOptions(Struct, kw_only=True):
    """The options that a node with a processor of one's own has beside those of the processor."""

    event_time: SentTime = None
    delay: SentDelay = None


class Json(Struct, kw_only=True):
    """Keys or values that are JSON objects."""

    columns: Annotated[Columns, about("fields; a record without a `... NOT NULL` one is bad")]


class Avro(Struct, kw_only=True):
    """Keys or values in Avro."""

    schema: Annotated[AvroSchema, about("schema of the columns")]
    column: Annotated[NewName | None, about("column of a schema that is no record")] = None
    writers: Annotated[
        Annotated[dict[Any, Any], _is("schemas by id")] | None,
        about("writers' schemas, if payloads begin with their id"),
    ] = None
    registry: Annotated[Registry | None, about("registry of the writers' schemas")] = None


class Raw(Struct, kw_only=True):
    """Keys or values that are one value each."""

    column: Annotated[NewName, about("name of the column")]
    kind: Annotated[
        Annotated[str, _is("type")] | None, about("binary, string, int16, int32, int64, float32 or float64")
    ] = None


FORMATS: Mapping[str, type[Struct]] = {"json": Json, "avro": Avro, "raw": Raw}


def _format(value: Any, path: str) -> Struct:
    """Return the format of keys or values, which `format` names."""
    if not isinstance(value, Mapping) or "format" not in value:
        raise ConfigError(path, found=value, expected=_FORMAT)
    kind = read(Literal["json", "avro", "raw"], value["format"], f"{path}.format")
    return read_struct(FORMATS[kind], {name: each for name, each in value.items() if name != "format"}, path)


_FORMAT = "{format: json, columns: {id: int64}}, {format: avro, schema: ...} or {format: raw, column: id}"
Format = Annotated[Struct, Meta(extra={"read": _format, "words": "mapping with `format`"})]


class KafkaTopic(Struct, kw_only=True):
    """A topic of Kafka."""

    topic: Annotated[Name, about("topic in Kafka")]
    servers: Annotated[
        Annotated[str, _is("`host:port,host:port`")] | None,
        about("brokers", default="required, or `servers_env`"),
    ] = None
    servers_env: Annotated[
        Annotated[str, _is("variable")] | None, about("driver's variable with the `servers`")
    ] = None
    patience: Annotated[Duration | None, about("longest wait for brokers")] = None
    options: Annotated[
        Options | None, about("properties of librdkafka; a secret is `<name>_env` or `<name>_file`")
    ] = None


class KafkaInput(KafkaTopic, kw_only=True):
    """A topic whose records tasks read themselves."""

    key: Annotated[Format | None, about("how keys are decoded; else no columns of them")] = None
    value: Annotated[Format, about("how values are decoded")]
    include: Annotated[
        Annotated[list[str] | dict[str, Any], _is("list, or new names by old ones")] | None,
        about("key, partition, offset, ... as columns"),
    ] = None
    tombstone: Annotated[NewName | None, about("boolean column: true without a value")] = None
    bad_records: Annotated[
        Literal["stop", "dead_letters"] | None, about("end the query, or keep undecodable records")
    ] = None
    starting: Annotated[
        Annotated[Any, _is("earliest, latest, or a time")] | None,
        about("where a new checkpoint begins"),
    ] = None
    changed_topics: Annotated[
        Literal["stop", "go-on"] | None,
        about("if records are gone, or the topic was made again; [`go-on`](kafka.md#records-that-are-gone)"),
    ] = None
    most_records: Annotated[
        Positive | UnsetType | None, about("offsets of a partition in a batch; null: all")
    ] = UNSET


class KafkaOutput(KafkaTopic, kw_only=True):
    """A topic that a sink writes to."""

    key: Annotated[SomeColumns | None, about("key of the records")] = None
    key_format: Annotated[
        Literal["raw", "json", "avro"] | None,
        about("format of the keys", default="`raw` for one column of strings or bytes, else `json`"),
    ] = None
    key_schema: Annotated[AvroSchema | None, about("schema of Avro keys")] = None
    value: Annotated[SomeColumns | None, about("value of the records", default="all other columns")] = None
    value_format: Annotated[
        Literal["json", "raw", "avro"] | None, about("format of the values", default="`json`")
    ] = None
    value_schema: Annotated[AvroSchema | None, about("schema of Avro values")] = None
    registry: Annotated[Registry | None, about("registry that gives Avro schemas their id")] = None
    headers: Annotated[
        Annotated[list[str] | dict[str, Any], _is("list, or columns by header")] | None,
        about("columns as headers; a null is none"),
    ] = None
    timestamp: Annotated[Column | None, about("time of the records", default="the time of sending")] = None
    deleted: Annotated[Column | None, about("boolean column: true makes a tombstone")] = None
    dead_letters: Annotated[bool | None, about("rows become the original records")] = None
    delivery: Annotated[
        Literal["exactly-once", "at-least-once"] | None, about("in a transaction, or none")
    ] = None
    marker_topic: Annotated[Name | None, about("has the last batch of each sink")] = None
    replication: Annotated[
        Positive | None, about("replicas of the marker topic", default="`3`, or one a broker")
    ] = None
    changed_topics: Annotated[
        Literal["stop", "go-on"] | None, about("if [the topic changed](kafka.md#topics-that-change)")
    ] = None


class Input(Struct, kw_only=True):
    """An entry of `input`."""

    format: Annotated[Name | None, about("Spark source: parquet, json, csv, kafka, ...")] = None
    path: Annotated[Path | None, about("what a source of files reads")] = None
    schema: Annotated[
        Annotated[str | dict[str, Any], _is("Spark's DDL, or columns with types")] | None,
        about("required for files, but for text"),
    ] = None
    options: Annotated[SparkOptions | None, about("Spark's options of the source")] = None
    select: Annotated[
        Annotated[list[str], _is("SQL expressions")] | None,
        about("applied to the rows read"),
    ] = None
    kafka: Annotated[KafkaInput | None, about("a topic that tasks read themselves, instead")] = None


class Output(Struct, kw_only=True):
    """An entry of `output`. It has one of these fields."""

    path: Annotated[Annotated[str, _is("directory", pattern=r"\S")] | None, about("a `ParquetSink`")] = None
    foreach: Annotated[Function | None, about("a `ForeachBatch`: `function(df, batch_id)`")] = None
    kafka: Annotated[KafkaOutput | None, about("a `KafkaSink`; see `output.kafka`")] = None


#: The options of taskplace's own processors, by name.
PROCESSORS: Mapping[str, type[Struct]] = {
    "aggregate": Aggregate,
    "count": Count,
    "deduplicate": Deduplicate,
    "table-join": TableJoin,
    "per-key": PerKey,
}
#: Spark's streaming sources of files.
FILES = ("parquet", "json", "csv", "orc", "text", "xml", "avro")


def given(fields: Struct) -> dict[str, Any]:
    """Return the fields that have a value, by name: arguments of a class, which knows the other defaults."""
    values = {key.field: (getattr(fields, key.field), key.default) for key in keys_of(type(fields))}
    return {name: value for name, (value, default) in values.items() if value is not default}


def checked_topology(topology: Mapping[str, Any], *, of_class: bool = False) -> dict[str, Any]:
    """Return the section `topology` with the options that are declared here checked, and durations with their units.

    Entries that are no mappings, and options of processors, are left to `topology` and to the registry.

    - `of_class`: whether an application class reads it, which may have the `schema` of a source there
    """
    made = dict(topology)
    for section, fields, options in (
        ("sources", SECTIONS["sources"] if of_class else OF_FILE, SourceOptions),
        ("stores", SECTIONS["stores"], StoreOptions),
        ("nodes", (), None),
    ):
        entries, path = topology.get(section), f"topology.{section}"
        if isinstance(entries, Mapping):
            made[section] = {
                name: _entry(entry, f"{path}.{name}", fields, options) for name, entry in entries.items()
            }
        elif isinstance(entries, list) and section == "nodes":
            made[section] = [
                _entry(entry, f"{path}[{place}]", fields, options) for place, entry in enumerate(entries)
            ]
    return made


def _entry(entry: Any, path: str, fields: Collection[str], options: type[Struct] | None) -> Any:
    """Return an entry with its options checked; of a node (None), only the delay, as its processor has the others."""
    if not isinstance(entry, Mapping):
        return entry
    for key in entry if options is not None else ():
        if key not in fields:
            raise ConfigError.unknown_key(path, key, fields)
    given_ = entry.get("options")
    if not isinstance(given_, Mapping):
        return entry
    if options is not None:
        return {**entry, "options": given(read_struct(options, given_, f"{path}.options"))}
    if given_.get("delay") is None:
        return entry
    delay = read(Duration, given_["delay"], f"{path}.options.delay")
    return {**entry, "options": {**given_, "delay": delay}}


#: The fields of a source in an application without a class, which has schemas in `input`.
OF_FILE = tuple(field for field in SECTIONS["sources"] if field != "schema")


def _entries(section: str, options: type[Struct] | None = None) -> Any:
    """Return the type of the entries of a section of `topology`, by name. Their values are read by `topology`."""
    kinds: dict[str, Any] = {"options": options or dict[str, Any]}
    return dict[str, defstruct(section, [(name, kinds.get(name, Any), None) for name in SECTIONS[section]])]  # type: ignore[misc]


_OPTIONS = {"sources": SourceOptions, "stores": StoreOptions, "nodes": None}
Topology = defstruct(
    "Topology", [(name, _entries(name, options), None) for name, options in _OPTIONS.items()]
)
