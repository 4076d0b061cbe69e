"""A case for taskplace: the topology with its processors, rows as Arrow tables, and tables as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.spark.processors import (
    Aggregate,
    Deduplicate,
    Facts,
    PerKey,
    TableJoin,
    Tumbling,
    avg,
    count,
    first,
    last,
    max_,
    min_,
    sum_,
)
from taskplace.spark.sinks import ParquetSink
from tests.differential.case import Case, Node, Row, Shape, canonical, kept_as, shapes, store_of
from tests.differential.values import digits
from topology import Topology
from topology.draft import Stream

STAMPS = {"timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us")}
ARROW = {**STAMPS, "date": pa.date32(), "bool": pa.bool_()}
MAKE = {"count": count, "sum": sum_, "min": min_, "max": max_, "first": first, "last": last, "avg": avg}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def arrow(kind: str) -> pa.DataType:
    """Return the Arrow type of a type's name."""
    size = digits(kind)
    return pa.decimal128(*size) if size else ARROW.get(kind) or pa.type_for_alias(kind)


def table(columns: dict[str, str], rows: list[Row]) -> pa.Table:
    """Return rows as an Arrow table."""
    made = {c: pa.array([row[c] for row in rows], arrow(kind)) for c, kind in columns.items()}
    return pa.table(made, schema=schema(columns))


def schema(columns: dict[str, str]) -> pa.Schema:
    return pa.schema([(c, arrow(kind)) for c, kind in columns.items()])


def plain(rows: pa.Table) -> list[Row]:
    """Return an Arrow table as rows of plain values. All zeros are equal, and so are all NaNs."""
    columns = {}
    for field in rows.schema:
        column = rows[field.name]
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.timestamp("us", tz=field.type.tz)).cast(pa.int64())
        elif pa.types.is_date32(field.type):
            column = column.cast(pa.int32())
        columns[field.name] = [canonical(value) for value in column.to_pylist()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# ------------------------------------------------------------------------- processors of one's own


class Where:
    """Keeps the rows in which a column is less than a number."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.column, self.less = options["column"], options["less"]

    def process(self, context: Any, rows: pa.Table) -> pa.Table:
        return rows.filter(pc.less(rows[self.column], pa.scalar(self.less, rows[self.column].type)))


class Rename:
    """Gives columns other names, and says so: rows may be split by them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.names = options["names"]

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        return Facts(routes=inputs[0].routes_as(**self.names))

    def process(self, context: Any, rows: pa.Table) -> pa.Table:
        return rows.rename_columns([self.names.get(c, c) for c in rows.column_names])


class Cast:
    """Gives columns other types."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.kinds = options["kinds"]

    def process(self, context: Any, rows: pa.Table) -> pa.Table:
        for name, kind in self.kinds.items():
            at = rows.column_names.index(name)
            rows = rows.set_column(at, name, rows[name].cast(arrow(kind), safe=kind != "date"))
        return rows


class Lookup:
    """Adds a column of the state that another node keeps by the same columns."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def process(self, context: Any, rows: pa.Table) -> pa.Table:
        values, _ = context.store(self.options["store"]).get_many(rows.select(self.options["by"]))
        return rows.append_column(self.options["new"], values[self.options["column"]])


#: By op, what is made of a node's options alone.
OWN = {"where": Where, "rename": Rename, "cast": Cast, "lookup": Lookup}


class Running:
    """For `PerKey`: counts the rows of each key and keeps their newest time. Starts again above a limit."""

    def __init__(self, column: str | None, limit: int) -> None:
        self.column, self.limit = column, limit

    def __call__(self, key: Row, rows: list[Row], state: Row | None) -> tuple[Row | None, list[Row]]:
        n = len(rows) + (state["n"] if state else 0)
        times = [row[self.column] for row in rows] if self.column else []
        times = [time for time in [*times, state and state["newest"]] if time is not None]
        new = {"n": n, "newest": max(times, default=None)}
        return (None if n > self.limit else new), [{**key, **new}]


# ------------------------------------------------------------------------- the topology


def microseconds(duration: int) -> timedelta:
    return timedelta(microseconds=duration)


def topology(case: Case, folder: Path, reads: Mapping[str, Any] | None = None) -> Topology:
    """Return the topology of a case. Its sinks are directories in `folder`, with the names of the nodes.

    `reads`: by source, what its tasks read themselves.
    """
    topo, shape = Topology("case"), shapes(case)
    streams: dict[str, Stream] = {}
    for name, source in case.sources.items():
        options: dict[str, Any] = {}
        if source.event_time:
            delay = microseconds(source.delay) if source.delay else 0
            options = {"event_time": source.event_time, "delay": delay}
        if reads and name in reads:
            options["reads"] = reads[name]
        streams[name] = topo.source(name, key=source.key or None, partitions=source.partitions, **options)
    for node in case.nodes:
        if node.name in case.settings.get("unlogged", ()):
            window = node.options.get("window") or {"size": 0, "grace": 0}
            kept = node.options.get("ttl") or window["size"] + window["grace"]
            topo.store(node.name, logged=False, retention_ms=kept // 1000 or None)
    shared = {node.options["store"] for node in case.nodes if "store" in node.options}
    for node in case.nodes:
        inputs, before = [streams[n] for n in node.inputs], [shape[n] for n in node.inputs]
        stores = [store_of(node)] if store_of(node) in shared else []
        streams[node.name] = _added(node, inputs, before, stores)
    for name in case.sinks:
        streams[name].sink(f"{name}-out", target=ParquetSink(folder / "sinks" / name))
    return topo


def _added(node: Node, inputs: list[Stream], before: list[Shape], stores: list[str]) -> Stream:
    options = node.options
    if node.op == "repartition":
        return inputs[0].repartition(key=options["key"], partitions=options["partitions"], name=node.name)
    if node.op == "merge":
        return inputs[0].merge(*inputs[1:], name=node.name)
    if node.op in OWN:
        processor = OWN[node.op](options)
    else:
        processor = globals()[f"_{node.op}"](node, before)
    if options.get("function"):
        processor = processor.process
    if node.op == "join":
        return inputs[0].join_table(inputs[1], processor, name=node.name, stores=stores)
    return inputs[0].process(processor, name=node.name, stores=stores, **_timed(options, node.op in OWN))


def _timed(options: dict[str, Any], wanted: bool) -> dict[str, Any]:
    if not wanted or not options.get("event_time"):
        return {}
    delay = options.get("delay", 0)
    return {"event_time": options["event_time"], **({"delay": microseconds(delay)} if delay else {})}


def _state(options: dict[str, Any]) -> dict[str, Any]:
    """Return what all but `PerKey` may be told of their state."""
    given = {"over_changes": True} if options.get("over_changes") else {}
    if options.get("ttl"):
        given |= {"ttl": microseconds(options["ttl"]), "time": options["time"]}
    return given


def _types(node: Node, columns: list[str], before: Shape) -> dict[str, pa.DataType]:
    return {c: arrow(kept_as(node, before, c)) for c in columns}


def _deduplicate(node: Node, before: list[Shape]) -> Deduplicate:
    return Deduplicate(store_of(node), by=_types(node, node.options["by"], before[0]), **_state(node.options))


def _join(node: Node, before: list[Shape]) -> TableJoin:
    options = node.options
    types = {"by": options["on"], "columns": options["columns"]}
    types = {name: _types(node, columns, before[1]) for name, columns in types.items()}
    given = {name: options.get(name) for name in ("how", "order_by", "deleted")}
    return TableJoin(store_of(node), **types, **given, **_state(options))


def _per_key(node: Node, before: list[Shape]) -> PerKey:
    options, by = node.options, _types(node, node.options["by"], before[0])
    state = {"n": pa.int64(), "newest": arrow("timestamp")}
    ttl = {"ttl": microseconds(options["ttl"]), "time": "newest"} if options.get("ttl") else {}
    running, given = Running(options["column"], options["limit"]), {**ttl, **_timed(options, True)}
    return PerKey(store_of(node), running, by=by, state=state, output={**by, **state}, **given)


def _aggregate(node: Node, before: list[Shape]) -> Aggregate:
    options = node.options
    aggregates = {
        name: count(column) if function == "count" else MAKE[function](column, arrow(kind))
        for name, (function, column, kind) in options["aggregates"].items()
    }
    window, by = options.get("window"), _types(node, options["by"], before[0])
    tumbling = None if window is None else _tumbling(window)
    return Aggregate(store_of(node), by=by, window=tumbling, **_state(options), **aggregates)


def _tumbling(window: dict[str, Any]) -> Tumbling:
    options = {"time": window["time"]} if window.get("time") else {}
    options |= {"grace": microseconds(window["grace"]) if window["grace"] else 0, "emit": window["emit"]}
    return Tumbling(window["column"], microseconds(window["size"]), **options)
