"""Windows of clicks, by quarters of an hour and by hours."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from taskplace.spark.processors import Aggregate, Count, Tumbling, sum_
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from topology import Topology

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
SIXTY = 60 * 10**6  # a minute, in microseconds
KEY = {"k": "string"}


def clicks(*rows: tuple[str, int | None]) -> pa.Table:
    """Return rows of a key and a time in minutes."""
    at = [None if minute is None else START + minute * MINUTE for _, minute in rows]
    keys = pa.array([k for k, _ in rows], pa.string())
    return pa.table({"k": keys, "at": pa.array(at, pa.timestamp("us", tz="UTC"))})


def quarters(**options: Any) -> Tumbling:
    return Tumbling("at", "15 minutes", emit="final", **options)


def hours(
    world: World, first: Tumbling, second: Tumbling, *, repartition: bool, partitions: int = 2
) -> Topology:
    """Return windows of windows: clicks per quarter of an hour, summed per hour."""
    topo = Topology("hours")
    source = topo.source("in", key="k", partitions=partitions, event_time="at", delay="10 minutes")
    small = source.process(Count("small", by=KEY, window=first), name="small")
    if repartition:
        small = small.repartition(key="k", name="again", partitions=partitions + 1)
    of_changes = {"over_changes": first.emit == "changes"}
    totals = Aggregate("large", by=KEY, window=second, **of_changes, n=sum_("count", "int64"))
    large = small.process(totals, name="large")
    large.sink("out", target=ParquetSink(world.folder / "out"))
    return topo


def sent(world: World) -> Counter[tuple[str, datetime]]:
    """Return the count of each key's windows over all batches. Each window occurs once."""
    found = [row for rows in world.sent("out").values() for row in rows]
    assert len({row[:2] for row in found}) == len(found), "a window was sent twice"
    return Counter({(k, start): n for k, start, n, *_ in found})


def run(world: World, topology: Topology, batches: list[pa.Table], **options: Any) -> Any:
    placed = world.open(topology, **options)
    for number, rows in enumerate(batches):
        world.batch(placed, number, **{"in": rows})
    return placed


def same(context, rows):
    return rows
