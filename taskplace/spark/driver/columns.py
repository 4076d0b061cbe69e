"""Checks the columns that nodes read, at the start: that they exist and have suitable types.

**Idea.** A source's columns are known from its data frame or its declared schema. Each node declares the columns that
it reads and emits (`taskplace.spark.processors.facts`); parents are checked first. Types are tested by running the
task's operations on a row of nulls, so the answer is the same as in the first batch.

Rules:
- Times: a source's event time, a window's column, the `time` of a `ttl`, and every column that a store declares as a
  timestamp or date must be a timestamp or date. An integer would be read as microseconds.
- A repartition needs key columns of types that tasks can hash.
- A merge needs the same columns in all inputs, with types that have a common supertype.
- A sink needs columns that Spark can read. A sink with a declared schema needs exactly its columns, with fitting types;
  so does a sink whose schema the checkpoint has kept.

Limit: behind a processor that does not declare its output, columns are unknown. There the task refuses the same errors,
before it writes anything.

Errors: `InputError` with the node, what was found, and the nearest column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark import targets
from taskplace.spark.casts import united
from taskplace.spark.driver.staging import check_typed
from taskplace.spark.messages import SinkSchema
from taskplace.spark.processors.facts import (
    Columns,
    InputColumn,
    Types,
    arrow_types,
    check_types,
    holds_times,
    inputs_of,
    output_of,
    row_of_nulls,
)
from taskplace.spark.worker.hashing import spark_hash
from taskplace.spark.worker.schemas import declare, fitted
from taskplace.validation import nearest
from topology import BuiltTopology, Node


def check_columns(
    built: BuiltTopology,
    sources: Mapping[str, Columns],
    utc: Callable[[], bool] = lambda: True,
    sinks: Mapping[str, SinkSchema] = MappingProxyType({}),
) -> dict[str, Columns]:
    """Refuse missing columns and unsuitable types. Return the columns of each topic, as far as they are known.

    - `sources`: by topic, its columns and their types as Spark names them; other topics are not checked
    - `utc`: whether the session's time zone is UTC. In any other, an event time without a zone is refused
    - `sinks`: the schemas of sinks that earlier batches have fixed

    O(nodes x columns).
    """
    known: dict[str, Columns | None] = {}
    topics: dict[str, Columns | None] = dict(sources)
    by_id = {sub.id: sub for sub in built.subtopologies}
    for number in built.order:
        for node in by_id[number].nodes:
            parents = [known[parent] for parent in node.parents]
            for wanted in inputs_of(node.processor):
                if wanted.input < len(parents) and (columns := parents[wanted.input]) is not None:
                    path = f"node {node.name!r}, {wanted.path or wanted.name}"
                    _check(path, wanted, columns)
                    if wanted[:2] == _goes_by(node):
                        _check_zone(path, wanted.name, columns[wanted.name], utc)
            with _at(node):
                check_types(node.processor, *parents)
            _check_sent(node, parents, sinks)
            known[node.name] = _output(node, parents, topics)
            _check_declared_time(node, known[node.name])
            if node.kind == "repartition" and node.topic:
                topics[node.topic] = known[node.name]
    for node in built.nodes:
        time, columns = node.options.get("event_time"), sources.get(node.topic or "")
        if node.kind == "source" and isinstance(time, str) and columns is not None:
            path = f"sources.{node.topic}.event_time"
            _check(path, InputColumn(0, time, time=True), columns)
            _check_zone(path, time, columns[time], utc)
    return {topic: columns for topic, columns in topics.items() if columns is not None}


@contextmanager
def _at(node: Node) -> Iterator[None]:
    """Put the node's name before a processor's error."""
    try:
        yield
    except InputError as error:
        path = f"node {node.name!r}, {error.path}"
        raise InputError(path, found=error.found, expected=error.expected, hint=error.hint) from None


def _goes_by(node: Node) -> tuple[int, str] | None:
    """Return the input and the column that a node uses as event time, if it declares one."""
    asked = getattr(node.processor, "input_time", None)
    time = asked() if asked is not None else None
    return None if time is None else (time.input, time.column)


def _check_zone(path: str, column: str, kind: str, utc: Callable[[], bool]) -> None:
    """Refuse an event time without a zone if the session's zone is not UTC: Spark would assume the session's."""
    if kind in ("date", "timestamp_ntz") and not utc():
        raise InputError(
            path,
            found=f"{column!r}, {kind}, in a session whose time zone is not UTC",
            expected="a timestamp column: taskplace reads a time without a zone as UTC, Spark as the session's zone",
            hint="cast the column to a timestamp in the source, or set spark.sql.session.timeZone to UTC",
        )


def _check(path: str, wanted: InputColumn, columns: Columns) -> None:
    if wanted.name not in columns:
        raise InputError(
            path,
            found=f"no column {wanted.name!r}",
            expected=f"one of {sorted(columns)}",
            hint=nearest(wanted.name, columns),
        )
    kind = arrow_types(columns)[wanted.name]
    if wanted.time and not holds_times(kind) and not pa.types.is_null(kind):
        raise InputError(
            path,
            found=f"{wanted.name!r}, {columns[wanted.name]}",
            expected="a timestamp or date column",
            hint="cast the column in the source, according to its unit",
        )


def _check_declared_time(node: Node, columns: Columns | None) -> None:
    """Refuse a declared event time that is not a time column of the node's output."""
    time = node.options.get("event_time", getattr(node.processor, "event_time", None))
    if node.kind in ("processor", "join") and isinstance(time, str) and columns is not None:
        _check(f"node {node.name!r}, event_time", InputColumn(0, time, time=True), columns)


def _check_sent(node: Node, parents: list[Columns | None], sinks: Mapping[str, SinkSchema]) -> None:
    """Refuse key columns that a repartition cannot hash, and columns that a sink cannot write."""
    if node.kind not in ("repartition", "sink") or (columns := parents[0]) is None:
        return
    types = arrow_types(columns)
    if node.kind == "repartition":
        for column in node.key:
            path = f"node {node.name!r}, key"
            _check(path, InputColumn(0, column), columns)
            _check_hashed(path, column, columns[column], types[column])
    else:
        _check_sink(node, types, sinks.get(node.name))
        if node.name not in sinks and node.options.get("schema") is None:
            _check_typed(node, columns, types)


def _check_hashed(path: str, column: str, called: str, kind: pa.DataType) -> None:
    try:
        if not pa.types.is_null(kind):
            spark_hash([pa.nulls(1, kind)])
        elif called.lower().startswith(_NOT_HASHED):
            raise InputError(path, found=called, expected="another type")
    except InputError:
        raise InputError(
            path,
            found=f"{column!r}, {called}",
            expected="a key of type boolean, integer, float, date, timestamp, string or binary",
            hint="cast the column in a processor before the repartition",
        ) from None


#: Prefixes of Spark types that Arrow does not have. Tasks cannot hash them.
_NOT_HASHED = ("variant", "interval", "geometry", "geography")


def _check_sink(node: Node, types: Types, kept: SinkSchema | None) -> None:
    """Refuse columns that are not in the sink's schema, or whose type cannot be staged.

    `kept`: the schema of the sink in the checkpoint.
    """
    schema = None
    path = f"sinks.{node.name}"
    if node.options.get("schema") is not None:
        schema = declare(node.name, node.options["schema"])
        names = [name for name, _ in schema.columns]
        if wrong := sorted(set(names) ^ set(types)):
            missing = wrong[0] not in types
            raise InputError(
                f"{path}.schema",
                found=f"{'a' if missing else 'no'} column {wrong[0]!r}",
                expected=f"the columns of the sink's input: {', '.join(sorted(types))}",
                hint=nearest(wrong[0], sorted(set(types) - set(names))) if missing else "",
            )
    for name in types:
        if name.lower() in targets.of(node.target).reserved:
            raise InputError(
                path,
                found=f"a column {name!r}, which the sink's target adds itself",
                expected="another name",
                hint="rename the column in a processor before the sink",
            )
    try:
        row = fitted(row_of_nulls(types), node.name, schema or kept)
    except InputError as error:
        within = error.path.replace(path, f"{path}.schema", 1) if schema is not None else error.path
        raise InputError(within, found=error.found, expected=error.expected, hint=error.hint) from None
    if (check := targets.of(node.target).row_check) is not None:
        check.check_columns(node.name, row.schema)


def _check_typed(node: Node, columns: Columns, types: Types) -> None:
    """Refuse columns of void that no batch can give a type: parts of a nested type, or all columns of the sink."""
    known = {name: kind for name, kind in types.items() if not pa.types.is_null(kind)}
    if known or all(called in ("void", "null") for called in columns.values()):
        check_typed(node.name, pa.schema(known or types))


def _output(
    node: Node, parents: list[Columns | None], topics: Mapping[str, Columns | None]
) -> Columns | None:
    """Return the columns of a node's output, as far as they are known."""
    if node.kind == "source":
        return topics.get(node.topic or "")
    if node.kind == "merge":
        return _merged(node, parents)
    if node.kind in ("repartition", "sink"):
        return parents[0]
    with _at(node):
        return output_of(node.processor, *parents)


def _merged(node: Node, parents: list[Columns | None]) -> Columns | None:
    """Return the columns of a merge, in the common types of all known inputs."""
    known = {
        parent: columns for parent, columns in zip(node.parents, parents, strict=True) if columns is not None
    }
    if not known:
        return None
    schemas = [(parent, pa.schema(arrow_types(columns))) for parent, columns in known.items()]
    whole = united(schemas, f"node {node.name!r}")
    first, types = next(iter(known.values())), schemas[0][1]
    return {
        name: first[name] if whole.field(name).type == types.field(name).type else str(whole.field(name).type)
        for name in first
    }
