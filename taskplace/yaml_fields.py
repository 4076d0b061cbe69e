"""The fields of the sections `topology`, `input` and `output`: what a value is, and what it means.

**Idea.** Classes (`Aggregate`, `KafkaSink`) read these sections. They know their defaults, but not how a YAML file
writes their arguments. So each field is declared here once: for the refusal of keys at a wrong place, for the nearest
known name, and for docs/configuration.md. Defaults are those of the classes' arguments. Only where an argument without
a value (None) stands for something, the field says here what it stands for, and a test compares it with the code.

Properties: plain data, without Spark or Arrow. Tests compare the names with the arguments of the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Field(NamedTuple):
    """A field: the kind of its values, its meaning, and its default where no argument says it ("": required)."""

    value: str
    meaning: str
    default: str = "none"


Fields = Mapping[str, Field]

_COLUMN, _COLUMNS, _DURATION = "name of a column", "columns with types", "duration"
_EVENT_TIME = Field(_COLUMN, "event time of the rows that the node sends, for nodes behind it")
_DELAY = Field(_DURATION, "how far `event_time` may be behind the watermark of the node's input", "`0`")
_BY = Field(_COLUMNS, "key of the state; contains the columns that the input is split by")
_STORE = Field("name", "name of the state", "the node's name")
_TTL = Field(_DURATION, "an entry expires this long after the event time in its column `time`")
_OVER = Field("boolean", "take each change of a node before it for a row of its own")
_WINDOW = Field(
    "mapping", "windows of event time: the key gets the column `window_start`; see the fields of `window`"
)

#: The options of a source.
SOURCE_OPTIONS: Fields = {
    "event_time": Field(_COLUMN, "event time of the rows: a timestamp or a date"),
    "delay": Field(
        _DURATION, "how late rows may come: the watermark is the newest event time less this", "`0`"
    ),
    "partition_column": Field(
        _COLUMN,
        "integer column with the number of the row's partition; without it, Spark's hash of the key decides",
    ),
    "key_partitioner": Field(
        "name",
        "partitioner of the topic's producers: murmur2, consistent_random, consistent, fnv1a",
        "`murmur2`",
    ),
    "key_bytes": Field(_COLUMN, "column with the serialized key, of which tasks check samples"),
    "check_keys": Field("boolean", "whether samples of keys are checked", "`true`, if there is `key_bytes`"),
}
#: The options of a store.
STORE_OPTIONS: Fields = {
    "key": Field(_COLUMNS, "columns of the key", ""),
    "value": Field(_COLUMNS, "columns of the value", ""),
    "time": Field(_COLUMN, "an entry expires `retention_ms` of the store after the time in this column"),
    "meaning": Field(
        "mapping of texts", "how values were computed; a checkpoint with another meaning is refused"
    ),
}
#: The options of taskplace's own processors, by name.
PROCESSOR_OPTIONS: Mapping[str, Fields] = {
    "aggregate": {
        "by": _BY,
        "aggregates": Field(
            "mapping",
            "by output column: `count`, or a function (count, sum, min, max, avg, first, last) of a column, maybe with "
            "the `type` in which it is kept",
        ),
        "window": _WINDOW,
        "ttl": _TTL,
        "time": Field(
            _COLUMN, "key column, or aggregate such as `{max: at, type: timestamp}`, that `ttl` counts from"
        ),
        "over_changes": _OVER,
        "store": _STORE,
    },
    "count": {
        "by": _BY,
        "window": _WINDOW,
        "ttl": _TTL,
        "time": Field(_COLUMN, "key column that `ttl` counts from"),
        "over_changes": _OVER,
        "store": _STORE,
    },
    "deduplicate": {
        "by": Field(
            _COLUMNS, "the first row of each key passes; contains the columns that the input is split by"
        ),
        "ttl": Field(_DURATION, "a key is forgotten this long after the event time of its first row"),
        "time": Field(_COLUMN, "event time that `ttl` counts from"),
        "over_changes": _OVER,
        "store": _STORE,
    },
    "table-join": {
        "by": Field(_COLUMNS, "key of the join, which stream and table both have"),
        "columns": Field(_COLUMNS, "columns of the table to add"),
        "how": Field("left, inner", "whether a row without a table row gets nulls, or is dropped"),
        "order_by": Field(
            "list of columns", "columns of the table that decide which row of a key is the last one"
        ),
        "deleted": Field(_COLUMN, "boolean column of the table: a row with true removes its key's row"),
        "ttl": _TTL,
        "time": Field(_COLUMN, "column of the table that `ttl` counts from"),
        "over_changes": _OVER,
        "store": _STORE,
    },
    "per-key": {
        "function": Field(
            "'module:function'", "called once per key and batch, as `function(key, rows, state)`"
        ),
        "by": _BY,
        "state": Field(_COLUMNS, "columns of the state of a key"),
        "output": Field(_COLUMNS, "columns of the rows that the function sends"),
        "ttl": _TTL,
        "time": Field(_COLUMN, "column of the state that `ttl` counts from"),
        "event_time": _EVENT_TIME,
        "delay": _DELAY,
        "store": _STORE,
    },
}
#: The options that a node with a processor of one's own has beside those of the processor.
OWN_OPTIONS: Fields = {
    "event_time": _EVENT_TIME,
    "delay": _DELAY,
}
#: The fields of the option `window`.
WINDOW: Fields = {
    "column": Field(_COLUMN, "event time of the rows"),
    "size": Field(_DURATION, "length of a window"),
    "grace": Field(
        _DURATION, "how long after its end a window accepts rows, by the watermark; then it closes"
    ),
    "emit": Field(
        "changes, final",
        "changes: each batch sends every window that it changed; final: each window is sent once, when it closes",
    ),
    "time": Field("new name", "one more output column: the event time of the window, for nodes behind it"),
}
#: The formats of Spark's sources of files, and of all its streaming sources that come with it or are well known.
FILES = ("parquet", "json", "csv", "orc", "text", "xml", "avro")
FORMATS = (*FILES, "kafka", "rate", "rate-micro-batch", "socket", "delta", "iceberg")
#: The fields of an entry of `input`.
INPUT: Fields = {
    "format": Field("name", "format of a Spark source: parquet, json, csv, orc, text, kafka, rate, ..."),
    "path": Field("directory or URI", "what a source of files reads; required for those"),
    "schema": Field(
        "Spark's DDL, or columns with types", "columns of the rows; required for files, but for text"
    ),
    "options": Field("mapping", "Spark's own options of the source, unchanged"),
    "select": Field("list of SQL expressions", "applied to the rows that were read"),
    "kafka": Field(
        "mapping", "a topic that tasks read themselves, in place of the fields above; see `input.kafka`"
    ),
}
_TOPIC = Field("name", "name of the topic in Kafka")
_SERVERS = Field("`host:port,host:port`", "brokers", "required, or `servers_env`")
_SERVERS_ENV = Field("name of a variable", "environment variable of the driver that has the `servers`")
_CLIENT = Field(
    "mapping",
    "properties of librdkafka; a secret is named by `<name>_env` or `<name>_file`, never written here",
)
_REGISTRY = "URL, or properties of Confluent's client"
#: The fields of `kafka` in an entry of `input`: the arguments of `KafkaRecords` and of its `Decoder`.
KAFKA_INPUT: Fields = {
    "topic": _TOPIC,
    "servers": _SERVERS,
    "servers_env": _SERVERS_ENV,
    "key": Field("mapping with `format`", "how keys are decoded; without it, rows have no columns of them"),
    "value": Field("mapping with `format`", "how values are decoded"),
    "include": Field("list, or new names by old ones", "topic, partition, offset, timestamp, ... as columns"),
    "tombstone": Field("new name", "boolean column that is true for a record without a value"),
    "bad_records": Field(
        "stop, dead_letters", "whether a record that cannot be decoded ends the batch or is kept"
    ),
    "starting": Field("earliest, latest", "where a stream without a checkpoint begins"),
    "most_records": Field(
        "integer or null", "most offsets of each partition in a batch; null: all there are"
    ),
    "patience": Field(_DURATION, "how long a read waits for brokers that do not answer"),
    "options": _CLIENT,
}
#: The fields of `key` and of `value` there, by `format`: the arguments of `Json`, `Avro` and `Raw`.
KAFKA_FORMATS: Mapping[str, Fields] = {
    "json": {
        "columns": Field(
            _COLUMNS, "fields of the JSON object; `NOT NULL` behind a type: a record without it is bad"
        )
    },
    "avro": {
        "schema": Field("mapping, JSON or `.avsc` file", "schema by which data is read"),
        "column": Field("new name", "name of the column, if the schema is no record"),
        "writers": Field(
            "schemas by id",
            "schemas of the writers, if payloads begin with the id of one (schema registry)",
        ),
        "registry": Field(_REGISTRY, "schema registry that has the writers' schemas"),
    },
    "raw": {
        "column": Field("new name", "name of the column"),
        "kind": Field(
            "type", "binary, string, int16, int32, int64, float32 or float64, as Kafka's serializers write"
        ),
    },
}
#: The fields of an entry of `output`. Each entry has one of them.
OUTPUT: Fields = {
    "path": Field("directory", "a `ParquetSink` on this host"),
    "foreach": Field("'module:function'", "the function of a `ForeachBatch`: `function(df, batch_id)`"),
    "kafka": Field("mapping", "a `KafkaSink`; see `output.kafka`"),
}
_SOME = "column, or list of them"
#: The fields of `kafka` in an entry of `output`: the arguments of `KafkaSink`, and `servers_env` as above.
KAFKA_OUTPUT: Fields = {
    "topic": _TOPIC,
    "servers": _SERVERS,
    "servers_env": _SERVERS_ENV,
    "key": Field(_SOME, "key of the records; without it, records have none"),
    "key_format": Field(
        "raw, json, avro", "format of the keys", "`raw` for one column of strings or bytes, otherwise `json`"
    ),
    "key_schema": Field("mapping, JSON or `.avsc` file", "schema of Avro keys"),
    "value": Field(_SOME, "value of the records", "all columns but those of headers, timestamp and deleted"),
    "value_format": Field("json, raw, avro", "format of the values", "`json`"),
    "value_schema": Field("mapping, JSON or `.avsc` file", "schema of Avro values"),
    "registry": Field(
        _REGISTRY, "schema registry that gives Avro schemas their id; each datum begins with it"
    ),
    "headers": Field("list, or columns by header", "columns that become headers; a null is no header"),
    "timestamp": Field(_COLUMN, "time of the records", "the time of sending"),
    "deleted": Field(_COLUMN, "boolean column: where it is true, the record is a tombstone"),
    "dead_letters": Field("boolean", "the rows are dead letters; each becomes the record that it was"),
    "delivery": Field("exactly-once, at-least-once", "in one transaction, or in none"),
    "marker_topic": Field("name", "topic with the last batch of each sink; it is made if it is missing"),
    "replication": Field(
        "integer", "replicas of the marker topic", "`3`, or one for each broker if there are fewer"
    ),
    "changed_topics": Field("stop, go-on", "what a topic means that was made again, or got more partitions"),
    "patience": Field(_DURATION, "how long a batch is tried again while brokers cannot be reached"),
    "options": _CLIENT,
}
