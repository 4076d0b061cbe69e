"""Checks, at the start, the columns that nodes take: that they are there, and are times where times are wanted.

**Idea.** A source's columns are known once its data frame, or its declared schema, is. Each node says what it takes and
what it sends on (`taskplace.spark.processors.columns`); parents come first. A source takes its own event time. That, a
window's column, the `time` of a `ttl` and every column that a store declares as a timestamp or date have to be a
timestamp or date: an integer would be taken for microseconds.

Properties: behind a processor that does not say what it sends on, columns are not known; a task then refuses the same,
before it writes anything.

Errors: `InputError` with the node, what was found, and the nearest column.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskplace.errors import InputError
from taskplace.model.reading import nearest
from taskplace.spark.processors.columns import TIMES, UNKNOWN, Columns, InputColumn, inputs_of, output_of
from topology import BuiltTopology, Node


def check_columns(built: BuiltTopology, sources: Mapping[str, Columns]) -> None:
    """Refuse columns that are missing, or no times where times are wanted. O(nodes x columns).

    `sources`: by topic, its columns and their types as Spark names them; a topic that is missing is not judged.
    """
    known: dict[str, Columns | None] = {}
    topics: dict[str, Columns | None] = dict(sources)
    by_id = {sub.id: sub for sub in built.subtopologies}
    for number in built.order:
        for node in by_id[number].nodes:
            parents = [known[parent] for parent in node.parents]
            for wanted in inputs_of(node.processor):
                if wanted.input < len(parents) and (columns := parents[wanted.input]) is not None:
                    _check(f"node {node.name!r}, {wanted.path or wanted.name}", wanted, columns)
            known[node.name] = _output(node, parents, topics)
            if node.kind == "repartition" and node.topic:
                topics[node.topic] = known[node.name]
    for node in built.nodes:
        time, columns = node.options.get("event_time"), sources.get(node.topic or "")
        if node.kind == "source" and isinstance(time, str) and columns is not None:
            _check(f"sources.{node.topic}.event_time", InputColumn(0, time, time=True), columns)


def _check(path: str, wanted: InputColumn, columns: Columns) -> None:
    if wanted.name not in columns:
        raise InputError(
            path,
            found=f"no column {wanted.name!r}",
            expected=f"one of {sorted(columns)}",
            hint=nearest(wanted.name, columns),
        )
    if wanted.time and columns[wanted.name] not in (*TIMES, UNKNOWN):
        raise InputError(
            path,
            found=f"{wanted.name!r}, {columns[wanted.name]}",
            expected="a timestamp or date column",
            hint="cast it in the source, by the unit that it is in",
        )


def _output(
    node: Node, parents: list[Columns | None], topics: Mapping[str, Columns | None]
) -> Columns | None:
    """Return the columns of a node's output, as far as they are known."""
    if node.kind == "source":
        return topics.get(node.topic or "")
    if node.kind in ("repartition", "merge", "sink"):
        return parents[0]
    return output_of(node.processor, *parents)
