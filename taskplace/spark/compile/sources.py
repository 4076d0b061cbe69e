"""Checks the schemas of the external sources against the topology, before anything starts.

**Idea.** The checks use schemas alone: those of data frames at the start, and declared ones (`input.*.schema` in YAML)
in `taskplace run --check`, without Spark. A source with an unknown schema is not checked.

Refused:
- columns whose names Spark cannot tell apart, and columns of types that Spark does not pass to Python
- key columns that are missing, have a collation, or differ in type between co-partitioned topics
- a state key whose cast would merge different key values
- columns that a node reads and no source has, or whose type does not suit the node (`taskplace.spark.compile.infer`)
- event times without a zone, if the session's time zone is not UTC
- a source without a key that has no column to spread its rows by
- columns that options of a source name, such as its partition column, that are missing or have another type
- columns of a sink, and keys of a repartition, that do not fit those of earlier batches

Errors: `InputError` with the source or node, the value found, and the values expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.types import StructField, StructType

from taskplace.errors import InputError, listed
from taskplace.spark.compile.forms import external_sources
from taskplace.spark.compile.infer import infer, stores_of
from taskplace.spark.compile.keys import alike, check_group, splits
from taskplace.spark.compile.partition_columns import check_schema, partition_columns
from taskplace.spark.messages import SinkSchema
from taskplace.spark.processors.facts import Columns, Facts
from taskplace.spark.types import differ
from taskplace.spark.versions import to_arrow_type
from taskplace.spark.worker.hashing import hashed_as
from taskplace.spark.worker.partition_checks import check_splits
from taskplace.validation import nearest
from topology import BuiltTopology

CASE, ZONE = "spark.sql.caseSensitive", "spark.sql.session.timeZone"
_UTC = ("utc", "z", "gmt", "etc/utc", "etc/gmt", "uct", "zulu", "+00:00", "utc+00:00", "gmt+00:00")


class Fixed(NamedTuple):
    """What earlier batches have fixed: the schemas of sinks, and the key types of topics as tasks name them."""

    sinks: Mapping[str, SinkSchema] = MappingProxyType({})
    keys: Mapping[str, Sequence[str]] = MappingProxyType({})


NOTHING = Fixed()


def check_sources(
    built: BuiltTopology,
    schemas: Mapping[str, StructType],
    conf: Callable[[str], str | None] = lambda key: None,
    fixed: Fixed = NOTHING,
) -> None:
    """Refuse sources that do not fit the topology. O(nodes x columns).

    - `schemas`: by topic, the known schemas
    - `conf`: returns a setting of the session; None if it is not known. Called only where the setting matters
    - `fixed`: what earlier batches have fixed
    """
    sources, by_column = external_sources(built), partition_columns(built)
    columns = {}
    for topic, schema in schemas.items():
        _check_names(topic, schema, conf)
        columns[topic] = {field.name: _passed(topic, field) for field in schema}
        key, options, _ = sources[topic]
        _check_key(topic, key, schema)
        check_schema(topic, options, schema)
        if not key and topic not in by_column:
            hashable(topic, schema)
    facts = infer(built, columns, utc=lambda: _is_utc(conf(ZONE)), sinks=fixed.sinks)
    _check_keys(built, facts)
    _check_kept_keys(built, facts, fixed.keys)


def hashable(topic: str, schema: StructType) -> list[str]:
    """Return the columns that spread the rows of a source without a key: those that Spark can hash."""
    columns = {field.name: field.dataType.simpleString() for field in schema}
    usable = [name for name, kind in columns.items() if "map<" not in kind and "variant" not in kind]
    if not usable:
        found = f"no key, and only columns that Spark cannot hash ({listed(columns)})"
        raise InputError(f"sources.{topic}", found=found, expected="a key, or a column that Spark can hash")
    return usable


def key_types(built: BuiltTopology, schemas: Mapping[str, StructType]) -> dict[str, list[str]]:
    """Return the types of each source's key columns, as Spark names them. The checkpoint's identity contains them."""
    sources = external_sources(built)
    return {
        topic: [schema[column].dataType.simpleString() for column in sources[topic].key]
        for topic, schema in schemas.items()
    }


def _is_utc(zone: str | None) -> bool:
    return zone is None or zone.lower() in _UTC


def _check_names(topic: str, schema: StructType, conf: Callable[[str], str | None]) -> None:
    names = schema.names
    folded = [name.lower() for name in names]
    if len(set(folded)) < len(names):
        if (conf(CASE) or "").lower() == "true":
            folded = names
        if alike := [name for name, each in zip(names, folded, strict=True) if folded.count(each) > 1]:
            found = f"columns {' and '.join(map(repr, alike))}, which Spark treats as one name"
            raise InputError(f"sources.{topic}", found=found, expected="names that differ by more than case")


def _passed(topic: str, field: StructField) -> pa.DataType:
    """Return the type in which a task gets a column. Refuses one that Spark cannot pass: all columns are passed."""
    try:
        return to_arrow_type(field.dataType)
    except (PySparkTypeError, ValueError):  # ValueError: a decimal without digits
        found = f"a column {field.name!r} of type {field.dataType.simpleString()}"
        hint = "cast the column to another type in the source, such as string, or drop it"
        expected = "types that Spark passes to Python"
        raise InputError(f"sources.{topic}", found=found, expected=expected, hint=hint) from None


def _check_key(topic: str, key: tuple[str, ...], schema: StructType) -> None:
    if missing := sorted(set(key) - set(schema.names)):
        found, hint = f"no column {', '.join(map(repr, missing))}", nearest(missing[0], schema.names)
        expected = f"the key columns, among {', '.join(schema.names)}"
        raise InputError(f"sources.{topic}", found=found, expected=expected, hint=hint)
    kinds = [schema[column].dataType.simpleString() for column in key]
    if any("collate" in kind for kind in kinds):
        expected = "key columns without a collation, because keys are compared by their bytes: cast to a plain string"
        raise InputError(f"sources.{topic}", found=f"a key of {', '.join(kinds)}", expected=expected)


def _check_keys(built: BuiltTopology, facts: Mapping[str, Facts]) -> None:
    """Refuse keys of topics whose equal values would reach different tasks, as a program's `check_keys` does."""
    types: dict[str, Columns] = {}
    keys = {}
    for node in built.nodes:
        if node.kind == "source" and node.topic and (columns := facts[node.name].columns) is not None:
            types[node.topic], keys[node.topic] = columns, node.key
    for sub in built.subtopologies:
        stores = {name: store.key for name, store in stores_of(sub).items()}
        check_splits(splits(sub, stores, facts), types)
    for group in alike(built, facts):
        kinds = {
            topic: [hashed_as(types[topic].get(column, pa.null())) for column in keys[topic]]
            for topic in group
            if topic in types
        }
        writer = next((n.name for n in built.nodes if n.kind == "repartition" and n.topic in kinds), None)
        check_group(kinds, f"node {writer!r}, key" if writer else "sources")


def _check_kept_keys(
    built: BuiltTopology, facts: Mapping[str, Facts], kept: Mapping[str, Sequence[str]]
) -> None:
    """Refuse keys of repartitions with other types than the checkpoint's: their rows would reach other tasks."""
    for node in built.nodes:
        before, columns = kept.get(node.topic or ""), facts[node.name].columns
        if node.kind != "repartition" or before is None or columns is None:
            continue
        now = [hashed_as(columns[column]) for column in node.key]
        if differ(now, before):
            expected = f"{', '.join(before)}, as in the checkpoint: with other types, keys reach other tasks"
            hint = "cast the key before the repartition, or start a new checkpoint"
            raise InputError(f"node {node.name!r}, key", found=", ".join(now), expected=expected, hint=hint)
