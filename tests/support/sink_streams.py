"""A stream whose tasks send rows that a test chooses to its sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.placed import Placed
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.worker.hashing import partition_of
from tests.support.placed_without_spark import Frame, World
from topology import Topology

TASKS = 3

#: A key of each partition.
KEYS = [next(k for k in "abcdefghijkl" if partition_of([pa.array([k])], TASKS)[0] == p) for p in range(TASKS)]
Tables = Mapping[int, pa.Table]


def made(folder, monkeypatch) -> World:
    world = World(folder, monkeypatch)
    monkeypatch.setattr(Frame, "sparkSession", world.spark)
    return world


class Stream:
    """A stream whose tasks send chosen rows. `batch` runs the next batch."""

    def __init__(self, world: World, target: Any = None, checkpoint: str = "checkpoint", **sink: Any) -> None:
        self.world, self.target, self.sink = world, target, sink
        self.checkpoint = checkpoint
        self.number = 0
        self.sends: Tables = {}
        self.placed = self.open()

    def open(self, **sink: Any) -> Placed:
        """Create another driver, with the given options of the sink."""
        self.sink = sink or self.sink
        topo = Topology("t")
        rows = topo.source("in", key="k", partitions=TASKS).process(self._send, name="p")
        rows.sink("out", target=self.target or ParquetSink(self.world.folder / "out"), **self.sink)
        self.placed = self.world.open(topo, checkpoint=self.checkpoint)
        return self.placed

    def _send(self, context: Any, rows: pa.Table) -> pa.Table:
        return self.sends.get(context.partition, pa.table({}))

    def batch(self, *sends: pa.Table) -> None:
        self.sends = dict(enumerate(sends))
        rows = pa.table({"k": pa.array(KEYS[: len(sends)], pa.string())})
        self.world.batch(self.placed, self.number, **{"in": rows})
        self.number += 1

    def refused(self, *sends: pa.Table, match: str, error: type[Exception] = InputError) -> None:
        """Check that each try refuses the batch before its manifest, and leaves no files."""
        for _ in range(2):
            with pytest.raises(error, match=match):
                self.batch(*sends)
            assert self.placed.journal.last_batch == self.number - 1

    def sent(self) -> dict[int, list[tuple]]:
        return self.world.sent("out")

    @property
    def schema(self) -> dict[str, str]:
        return dict(self.placed.journal.last.identity["schemas"]["out"])


def table(**columns: Any) -> pa.Table:
    return pa.table(
        {name: pa.array(*value) if isinstance(value, tuple) else value for name, value in columns.items()}
    )
