"""Checks, at the start, the columns that built-in processors take from sources: that they are there, and are times.

**Idea.** A source's columns are known once its data frame is. They stay as they are through repartitions, merges,
de-duplications and table joins; behind these a window's column, the `time` of a `ttl` and every column that a store
declares as a timestamp or date has to be a timestamp or date. An integer would be taken for microseconds.

Properties: behind an aggregate, a function per key or a processor of the user's own, the columns are not known here; a
task then refuses the same, before it writes anything.

Errors: `InputError` with the node, what was found, and the nearest column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.model.reading import nearest
from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin
from taskplace.spark.state.rows import arrow_schema
from topology import BuiltTopology, Node

#: How Spark calls the types of event times.
TIMES = ("timestamp", "timestamp_ntz", "date")
_UNKNOWN = ""

Types = Mapping[str, str]


class _Wanted(NamedTuple):
    """A column that a processor takes from one of its inputs."""

    path: str
    parent: int
    column: str
    time: bool


def check_columns(built: BuiltTopology, sources: Mapping[str, Types]) -> None:
    """Refuse columns that are missing, or no times where times are wanted. O(nodes x columns).

    `sources`: by topic, its columns and their types as Spark names them.
    """
    known: dict[str, Types | None] = {}
    topics: dict[str, Types | None] = dict(sources)
    by_id = {sub.id: sub for sub in built.subtopologies}
    for number in built.order:
        for node in by_id[number].nodes:
            parents = [known[parent] for parent in node.parents] if node.kind != "source" else []
            for wanted in _wanted(node.processor):
                if wanted.parent < len(parents) and (types := parents[wanted.parent]) is not None:
                    _check(node, wanted, types)
            known[node.name] = _types(node, parents, topics)
            if node.kind == "repartition" and node.topic:
                topics[node.topic] = known[node.name]


def _check(node: Node, wanted: _Wanted, types: Types) -> None:
    path = f"node {node.name!r}, {wanted.path}"
    if wanted.column not in types:
        raise InputError(
            path,
            found=f"no column {wanted.column!r}",
            expected=f"one of {sorted(types)}",
            hint=nearest(wanted.column, types),
        )
    if wanted.time and types[wanted.column] not in (*TIMES, _UNKNOWN):
        raise InputError(
            path,
            found=f"{wanted.column!r}, {types[wanted.column]}",
            expected="a timestamp or date column",
            hint="cast it in the source, by the unit that it is in",
        )


def _types(node: Node, parents: list[Types | None], topics: Mapping[str, Types | None]) -> Types | None:
    """Return the columns of a node's output, as far as they are known."""
    if node.kind == "source":
        return topics.get(node.topic or "")
    if node.kind in ("repartition", "merge", "sink") or type(node.processor) is Deduplicate:
        return parents[0]
    if type(node.processor) is TableJoin and parents[0] is not None:
        return {**parents[0], **dict.fromkeys(node.processor._columns, _UNKNOWN)}
    return None


def _wanted(processor: Any) -> Iterator[_Wanted]:
    """Yield what a processor that comes with taskplace takes from its inputs; one derived from it may do otherwise."""
    kind = type(processor)
    if kind is TableJoin:
        yield from _columns("on", 0, processor._on)
        yield from _columns("on", 1, processor._on)
        yield from _columns("columns", 1, processor._columns)
        yield from (_Wanted("order_by", 1, column, False) for column in processor.order_by)
    elif kind is Deduplicate:
        yield from _columns("by", 0, processor._by)
        yield from (_Wanted("time", 0, column, True) for column in processor._kept)
    elif kind is PerKey:
        yield from _columns("by", 0, processor._by)
    elif kind in (Aggregate, Count):
        window = processor._window
        if window is not None:
            yield _Wanted("window.column", 0, window.column, True)
        own = {
            name: type_ for name, type_ in processor._by.items() if window is None or name != "window_start"
        }
        yield from _columns("by", 0, own)
        for name, part in processor._parts.items():
            if part.column is not None:
                time = part.function != "count" and _is_time(part.type)
                yield _Wanted(name, 0, part.column, time)


def _columns(path: str, parent: int, columns: Mapping[str, object]) -> Iterator[_Wanted]:
    for name, kind in columns.items():
        yield _Wanted(f"{path}.{name}", parent, name, _is_time(kind))


def _is_time(kind: object) -> bool:
    found = arrow_schema({"column": kind}).field("column").type
    return bool(pa.types.is_timestamp(found) or pa.types.is_date(found))
