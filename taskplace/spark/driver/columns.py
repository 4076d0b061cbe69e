"""Checks, at the start, the columns that nodes take: that they are there, and are times where times are wanted.

**Idea.** A source's columns are known once its data frame, or its declared schema, is. Each node says what it takes and
what it sends on (`taskplace.spark.processors.columns`); parents come first. A source takes its own event time. That, a
window's column, the `time` of a `ttl` and every column that a store declares as a timestamp or date have to be a
timestamp or date: an integer would be taken for microseconds. A repartition takes its key, of types that tasks can
hash. A sink with a declared schema takes the columns of that, and no others.

Properties: behind a processor that does not say what it sends on, columns are not known; a task then refuses the same,
before it writes anything.

Errors: `InputError` with the node, what was found, and the nearest column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from taskplace.errors import InputError
from taskplace.spark.processors.columns import TIMES, UNKNOWN, Columns, InputColumn, inputs_of, output_of
from taskplace.spark.worker.schemas import declare
from taskplace.validation import nearest
from topology import BuiltTopology, Node


def check_columns(
    built: BuiltTopology, sources: Mapping[str, Columns], utc: Callable[[], bool] = lambda: True
) -> None:
    """Refuse columns that are missing, or no times where times are wanted. O(nodes x columns).

    `sources`: by topic, its columns and their types as Spark names them; a topic that is missing is not judged. `utc`:
    whether the session's time zone is UTC. Elsewhere, an event time without a zone is refused.
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
            _check_sent(node, parents)
            known[node.name] = _output(node, parents, topics)
            if node.kind == "repartition" and node.topic:
                topics[node.topic] = known[node.name]
    for node in built.nodes:
        time, columns = node.options.get("event_time"), sources.get(node.topic or "")
        if node.kind == "source" and isinstance(time, str) and columns is not None:
            path = f"sources.{node.topic}.event_time"
            _check(path, InputColumn(0, time, time=True), columns)
            _check_zone(path, time, columns[time], utc)


def _goes_by(node: Node) -> tuple[int, str] | None:
    """Return the input and the column by which a node goes by event time, if it says so."""
    asked = getattr(node.processor, "input_time", None)
    found = asked() if asked is not None else None
    return None if found is None else (found.input, found.column)


def _check_zone(path: str, column: str, kind: str, utc: Callable[[], bool]) -> None:
    """Refuse an event time without a zone where the session's is not UTC: Spark would take it for the session's."""
    if kind in ("date", "timestamp_ntz") and not utc():
        raise InputError(
            path,
            found=f"{column!r}, {kind}, in a session whose time zone is not UTC",
            expected="a timestamp: a time without a zone counts as UTC here",
            hint="cast it to a timestamp in the source, or set spark.sql.session.timeZone to UTC",
        )


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


def _check_sent(node: Node, parents: list[Columns | None]) -> None:
    """Refuse columns that a repartition cannot split its rows by, and those that are not in the schema of a sink."""
    if not parents or (columns := parents[0]) is None:
        return
    if node.kind == "repartition":
        for column in node.key:
            path = f"node {node.name!r}, key"
            _check(path, InputColumn(0, column), columns)
            if columns[column].lower().startswith(_NOT_HASHED):
                raise InputError(
                    path,
                    found=f"{column!r}, {columns[column]}",
                    expected="a key of type boolean, integer, float, date, timestamp, string or binary",
                    hint="cast it in a processor before",
                )
    elif node.kind == "sink" and node.options.get("schema") is not None:
        names = [name for name, _ in declare(node.name, node.options["schema"]).columns]
        if wrong := sorted(set(names) ^ set(columns)):
            missing = wrong[0] not in columns
            raise InputError(
                f"sinks.{node.name}.schema",
                found=f"{'a' if missing else 'no'} column {wrong[0]!r}",
                expected=f"the columns that come to it: {sorted(columns)}",
                hint=nearest(wrong[0], sorted(set(columns) - set(names))) if missing else "",
            )


#: How the types begin, in Spark's words and in Arrow's, by which tasks cannot split rows.
_NOT_HASHED = ("decimal", "array", "list", "map", "struct", "variant", "interval")


def _output(
    node: Node, parents: list[Columns | None], topics: Mapping[str, Columns | None]
) -> Columns | None:
    """Return the columns of a node's output, as far as they are known."""
    if node.kind == "source":
        return topics.get(node.topic or "")
    if node.kind in ("repartition", "merge", "sink"):
        return parents[0]
    try:
        return output_of(node.processor, *parents)
    except InputError as error:
        path = f"node {node.name!r}, {error.path}"
        raise InputError(path, found=error.found, expected=error.expected, hint=error.hint) from None
