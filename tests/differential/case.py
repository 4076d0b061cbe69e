"""One case: a pipeline, its data in batches, and its faults. Plain data, convertible from and to JSON.

Both sides are built from it: `build.py` makes the topology of taskplace's processors, and `model.py` computes the
expected results in plain Python. The `Shape` of the stream at each node is computed here, for both.

Values: timestamps are microseconds since 1970 (UTC), dates are days, decimals are `Decimal`, binaries are `bytes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

Row = dict[str, Any]
#: The rows of each source, in the order in which they come.
Batch = dict[str, list[Row]]

STAMPS = ("timestamp", "timestamp_ntz")
TEMPORAL = (*STAMPS, "date")
WINDOW_START, WINDOW_TIME = "window_start", "window_time"
NAN = float("nan")
#: Python's own context has 28 digits.
EXACT = Context(prec=400)


@dataclass(frozen=True)
class Source:
    """A topic: its columns (name -> type), its key, and its event time; `delay` in microseconds.

    Without a key nothing is known of where its rows go.
    """

    columns: dict[str, str]
    key: list[str]
    partitions: int
    event_time: str | None = None
    delay: int = 0


def time_of(source: Source) -> str | None:
    """Return the column of a source that has its rows' times, declared as event time or not."""
    return next((c for c in source.columns if c.startswith("at")), None)


@dataclass(frozen=True)
class Node:
    """A step of the pipeline. Its `options` depend on its `op`; durations are in microseconds.

    - where: `column`, `less` (a number; rows with nulls go), also `event_time`, `delay`
    - rename: `names` (old -> new), also `event_time`, `delay`
    - cast: `kinds` (column -> its new type), also `event_time`, `delay`
    - lookup: `by`, `store` (the node whose state it reads), its `column`, `new` (its name in the rows), `kind`
    - repartition: `key`, `partitions`
    - merge
    - deduplicate: `by`, `ttl`, `time`
    - aggregate: `by`, `aggregates` (name -> [function, column, type]), `window` ({column, size, grace, emit, time}),
      `ttl`, `time`
    - join: `on`, `columns`, `how`, `order_by`, `deleted`, `ttl`, `time`; inputs: the stream and the table
    - per_key: `by`, `limit`, `column` (an event time, or None), `ttl`, `event_time`, `delay`

    Those that keep state may keep a column of their key, and a join also one of its table, in another type: `kept`,
    column -> type. They may keep it in the `store` of another node. All but per_key may take rows that are replaced
    later for rows of their own: `over_changes`. Those of one's own may be a bare `function`.
    """

    name: str
    op: str
    inputs: list[str]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A pipeline, its data, and its faults.

    - `sinks`: the nodes whose rows are written
    - `events`: the faults of each batch, in the form of `lives.py`
    - `settings`: `executors`, `standbys`, `snapshot_interval`, and `limit` (the most entries that a store removes per
      batch)
    """

    sources: dict[str, Source]
    nodes: list[Node]
    sinks: list[str]
    batches: list[Batch] = field(default_factory=list)
    events: dict[int, list[list[Any]]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Shape:
    """What is known of a stream: its columns, and the columns of event time with how far each may lie behind.

    - `key`: the columns that its rows are split by; None: not known
    - `times`: by column, the lag: in rows that are not late it is at least the watermark less that
    - `ordered`: whether its rows come in one order, whatever the operators do inside; `single`: columns of which a
      batch has each combination just once, so that order says nothing
    - `numbered`: whether its column "i", if it has one, differs from row to row of a key, as in sources
    - `mixed`: whether its rows come from several sources, which are put one behind the other in each batch
    - `moved`: whether it depends on how the data is cut into batches, but for late rows
    - `changes`: whether a row may be followed by another one of its key that replaces it
    - `dropped`: the largest lag of the columns that stopped being time columns in a merge, or where event time was lost
    """

    columns: dict[str, str]
    key: tuple[str, ...] | None
    times: dict[str, int]
    ordered: bool = True
    single: frozenset[str] | None = None
    moved: bool = False
    numbered: bool = True
    mixed: bool = False
    changes: bool = False
    dropped: int = 0

    @property
    def slowest(self) -> int:
        """The largest lag of the time columns, with those that the stream has dropped or lost."""
        return max((self.dropped, *self.times.values()))

    def orders(self, by: list[str]) -> bool:
        """Return whether the order of the rows of each combination of these columns is defined."""
        return self.ordered or (self.single is not None and self.single <= set(by))


def shapes(case: Case) -> dict[str, Shape]:
    """Return the shape of each stream, sources first."""
    timed = any(source.event_time for source in case.sources.values())
    found: dict[str, Shape] = {}
    for name, source in case.sources.items():
        times = {source.event_time: 0} if source.event_time else {}
        if timed and not source.event_time:
            times = {column: 0 for column, kind in source.columns.items() if kind in TEMPORAL}
        # Without a key the rows come in any order: they are spread somehow.
        found[name] = Shape(dict(source.columns), tuple(source.key) or None, times, ordered=bool(source.key))
    for node in case.nodes:
        found[node.name] = shape(node, [found[name] for name in node.inputs])
    return found


def shape(node: Node, inputs: list[Shape]) -> Shape:
    """Return the shape of a node's output."""
    first, options = inputs[0], node.options
    if node.op == "repartition":
        # Rows of several tasks are concatenated in the order of the tasks.
        key = tuple(options["key"])
        return replace(first, key=key or None, ordered=first.ordered and bool(key))
    if node.op == "merge":
        times = {c: max(s.times[c] for s in inputs) for c in first.times if all(c in s.times for s in inputs)}
        if not all(s.times for s in inputs):
            times = {}  # lost, or never there
        gone = [lag for s in inputs for c, lag in s.times.items() if c not in times]
        return Shape(
            first.columns,
            first.key if all(other.key == first.key for other in inputs) else None,
            times,
            dropped=max([*gone, *(s.dropped for s in inputs)], default=0),
            ordered=all(other.ordered for other in inputs),
            moved=any(other.moved for other in inputs),
            numbered=all(other.numbered for other in inputs),
            mixed=True,
            changes=any(other.changes for other in inputs),
        )
    if node.op == "where":
        return replace(first, **_declared(options, first))
    if node.op == "lookup":
        columns = {**first.columns, options["new"]: options["kind"]}
        return replace(first, columns=columns, **_declared(options, first), moved=True)
    if node.op == "cast":
        columns = {**first.columns, **options["kinds"]}
        # What differed may be the same now.
        single = None if set(options["kinds"]) & set(first.single or ()) else first.single
        return replace(first, columns=columns, **_declared(options, first), single=single)
    if node.op == "rename":
        names = options["names"]
        return replace(
            first,
            columns={names.get(c, c): kind for c, kind in first.columns.items()},
            key=first.key and tuple(names.get(c, c) for c in first.key),
            **_declared(options, first),
            single=first.single and frozenset(names.get(c, c) for c in first.single),
        )
    if node.op == "deduplicate":
        # Of mixed rows, another one may be the first of its key if the batches are cut otherwise.
        moved = first.moved or first.mixed or bool(options.get("ttl"))
        return replace(first, moved=moved, changes=False)
    if node.op == "join":
        return replace(
            first,
            columns={**first.columns, **{c: kept_as(node, inputs[1], c) for c in options["columns"]}},
            moved=True,
            changes=any(other.changes for other in inputs),
            numbered=first.numbered and "i" not in options["columns"],  # a table row joins many rows
        )
    if node.op == "per_key":
        columns = {**{c: kept_as(node, first, c) for c in options["by"]}, "n": "int64", "newest": "timestamp"}
        single, key = frozenset(options["by"]), _left(first.key, columns)
        given = {"ordered": first.ordered, "single": single, **_declared(options, first)}
        return Shape(columns, key, moved=True, numbered=False, changes=True, **given)
    if node.op != "aggregate":
        raise ValueError(node.op)
    columns = {c: kept_as(node, first, c) for c in options["by"]}
    times: dict[str, int] = {}
    window = options.get("window")
    if window:
        lag = first.times[window["column"]] + window["grace"]
        columns[WINDOW_START] = "timestamp"
        times[WINDOW_START] = lag + window["size"] - 1
        if window.get("time"):
            columns[window["time"]] = "timestamp"
            times[window["time"]] = lag
    else:
        times |= {c: first.times[c] for c in options["by"] if c in first.times and columns[c] in STAMPS}
    for name, (function, column, kind) in options["aggregates"].items():
        columns[name] = "float64" if function == "avg" else kind
        if not window and function == "max" and column in first.times and kind in STAMPS:
            times[name] = first.times[column]
    single = frozenset([*options["by"], *([WINDOW_START] if window else [])])
    final = bool(window) and window["emit"] == "final"
    placed = any(function in ("first", "last") for function, _, _ in options["aggregates"].values())
    moved = first.moved or not final or (first.mixed and placed)
    dropped = 0 if window else first.dropped if times else first.slowest
    given = {"ordered": False, "single": single, "moved": moved, "numbered": False, "changes": not final}
    return Shape(columns, _left(first.key, columns), times, dropped=dropped, **given)


def kept_as(node: Node, before: Shape, column: str) -> str:
    """Return the type in which a node keeps a column of its key."""
    return node.options.get("kept", {}).get(column) or before.columns[column]


def _left(key: tuple[str, ...] | None, columns: dict[str, str]) -> tuple[str, ...] | None:
    """Return the columns that rows are split by, if they still have them."""
    return key if key is not None and {*key} <= {*columns} else None


def _declared(options: dict[str, Any], before: Shape) -> dict[str, Any]:
    """Return the event time that a custom processor declares, relative to the slowest column of its input.

    Without a declaration, event time is lost.
    """
    column = options.get("event_time")
    if not column:
        return {"times": {}, "dropped": before.slowest}
    return {"times": {column: before.slowest + options.get("delay", 0)}, "dropped": 0}


# ------------------------------------------------------------------------- JSON


def canonical(value: Any) -> Any:
    """Return the canonical form of a key's value, with only one NaN, one zero, and no zeros behind a decimal."""
    if isinstance(value, float):
        return NAN if value != value else value + 0.0
    if isinstance(value, Decimal):
        return value.normalize(EXACT)
    return value


def to_json(case: Case) -> str:
    """Return a case as text, with one row per line."""
    raw = {
        "note": case.note,
        "sources": {name: vars(source) for name, source in case.sources.items()},
        "nodes": [vars(node) for node in case.nodes],
        "sinks": case.sinks,
        "settings": case.settings,
        "events": {str(number): events for number, events in case.events.items()},
    }
    head = "".join(f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in raw.items())
    batches = [_each_value(_said, batch) for batch in case.batches]
    return "{\n" + head + '"batches": [\n' + ",\n".join(map(json.dumps, batches)) + "\n]}\n"


def from_json(text: str) -> Case:
    """Return the case that `to_json` wrote."""
    raw = json.loads(text)
    sources = {name: Source(**source) for name, source in raw["sources"].items()}
    events = {int(number): events for number, events in raw["events"].items()}
    batches = [_each_value(_heard, batch) for batch in raw["batches"]]
    nodes = [Node(**node) for node in raw["nodes"]]
    return Case(sources, nodes, raw["sinks"], batches, events, raw["settings"], raw["note"])


def _each_value(function: Callable[[Any], Any], batch: Batch) -> Batch:
    return {t: [{c: function(v) for c, v in row.items()} for row in rows] for t, rows in batch.items()}


def load(path: Path) -> Case:
    """Return the case in a file."""
    return from_json(path.read_text(encoding="utf-8"))


def _said(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, float):
        return {"float": repr(value)}
    return value


def _heard(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    heard = {"hex": bytes.fromhex, "decimal": Decimal, "float": lambda said: canonical_nan(float(said))}
    return heard[kind](text)


def canonical_nan(value: float) -> float:
    """Return the canonical NaN for any NaN. -0.0 stays unchanged."""
    return NAN if value != value else value


def stateful(node: Node) -> bool:
    """Return whether a node keeps state, in a store with its name."""
    return node.op in ("deduplicate", "aggregate", "join", "per_key")


def store_of(node: Node) -> str:
    """Return the store that a node uses, which has the name of the node that had it first; "" without one."""
    return str(node.options.get("store") or (node.name if stateful(node) else ""))


def options_by(node: Node) -> list[str]:
    """Return the columns that a node keeps its state by, but for a window's."""
    return list(node.options["on" if node.op == "join" else "by"])


def key_columns(node: Node) -> list[str]:
    """Return the columns of the key of a node's state."""
    return [*options_by(node), WINDOW_START] if node.options.get("window") else options_by(node)
