"""A processor that has nothing to send may send a table that was made from nothing, whatever is behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin, Tumbling, first, max_
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from topology import Stream, Topology

KEY = {"k": "string"}
COLUMNS = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])

EMPTY: dict[str, Callable[[pa.Table], pa.Table]] = {
    "no columns": lambda rows: pa.table({}),
    "no types": lambda rows: pa.table({name: pa.nulls(0) for name in rows.column_names}),
    "other types": lambda rows: pa.table({name: pa.array([], pa.string()) for name in rows.column_names}),
}


def counted(key: dict[str, Any], rows: list[dict[str, Any]], state: Any) -> Any:
    return {"n": 1}, [{**key, "n": len(rows)}]


def _join(stream: Stream, *, table: bool) -> Stream:
    other = stream.topology.source("other", key="k", partitions=2)
    join = TableJoin("n", by=KEY, columns={"x" if not table else "v": "int64"})
    return other.join_table(stream, join) if table else stream.join_table(other, join)


BEHIND: dict[str, Callable[[Stream], Stream]] = {
    "windows": lambda s: s.process(Count("n", by=KEY, window=Tumbling("at", "1 hour", emit="final"))),
    "aggregate": lambda s: s.process(
        Aggregate("n", by=KEY, newest=max_("at", "timestamp"), v=first("v", "int64"))
    ),
    "once": lambda s: s.process(Deduplicate("n", by=KEY, ttl="1 hour", time="at")),
    "per key": lambda s: s.process(
        PerKey("n", counted, by=KEY, state={"n": "int64"}, output={"k": "string", "n": "int64"})
    ),
    "stream of a join": lambda s: _join(s, table=False),
    "table of a join": lambda s: _join(s, table=True),
    "repartition": lambda s: s.repartition(key="k", partitions=2).process(Count("n", by=KEY)),
}


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("behind", BEHIND)
def test_an_empty_table_of_any_columns_is_taken(tmp_path, monkeypatch, empty, behind):
    def some(context: Any, rows: pa.Table) -> pa.Table:
        found = rows.filter(pa.compute.greater(rows["v"], 0)) if rows.num_rows else rows
        return found if found.num_rows else EMPTY[empty](rows)

    world = World(tmp_path, monkeypatch)
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=2, event_time="at")
    stream = source.process(some, name="some", event_time="at")
    BEHIND[behind](stream).sink("out", target=ParquetSink(tmp_path / "out"))
    placed = world.open(topo)
    topics = {node.topic for node in placed.built.nodes if node.kind == "source" and not node.internal}
    for number, values in enumerate([[0], [1, 0, 2, 3], [], [0]]):
        rows = pa.Table.from_pylist(
            [{"k": f"k{i}", "at": 10**9 * v, "v": v} for i, v in enumerate(values)], schema=COLUMNS
        )
        other = pa.table({"k": ["k0"] * (number % 2), "x": pa.array([1] * (number % 2), pa.int64())})
        world.batch(placed, number, **{topic: rows if topic == "in" else other for topic in topics})
    assert placed.journal.last.batch == 3
    assert len(world.stored(placed, "n")) == (1 if behind == "stream of a join" else 3)
