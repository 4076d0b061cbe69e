"""A count of words."""

from __future__ import annotations

import pyarrow as pa

from taskplace.spark.processors import Count
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from topology import Topology

INT16, INT32, INT64, STRING = pa.int16(), pa.int32(), pa.int64(), pa.string()


def words(*keys: str) -> pa.Table:
    return pa.table({"k": pa.array(keys, STRING)})


def counts(world: World, *, out: str = "out", more: tuple[str, ...] = ()) -> Topology:
    """Return a topology that counts words. Each name in `more` is an additional store and sink that counts them."""
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=2)
    for store, path in {"n": out, **dict(zip(more, more, strict=True))}.items():
        counted = source.process(Count(store, by={"k": "string"}), name=store)
        counted.sink(f"{store}-out", target=ParquetSink(world.folder / path))
    return topo
