"""A batch that Spark repeats is compared with what was committed for it; no Spark needed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import Frame, World
from topology import Topology


@pytest.fixture
def placed(world: World) -> Placed:
    topo = Topology("t")
    counted = topo.source("in", key="k", partitions=2).process(Count("n", by={"k": "string"}), name="n")
    counted.sink("out", target=ParquetSink(world.folder / "out"))
    placed = world.open(topo)
    placed.repeat = lambda *keys: world.batch(
        placed, 0, **{"in": pa.table({"k": pa.array(keys, pa.string())})}
    )
    placed.repeat("a", "b")
    placed.sent = lambda: world.sent("out")
    return placed


def test_a_batch_that_has_grown_is_told_and_published_as_it_was_committed(placed, caplog):
    placed.repeat("a", "b", "c")
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert f"{placed.checkpoint}: batch 0 was committed with 2 rows, found 3 rows for it now" in caplog.text
    assert placed.sent() == {0: [("a", 1), ("b", 1)]}


@pytest.mark.parametrize("keys", [("a", "b"), ("a",), ()])
def test_a_batch_of_as_many_rows_or_fewer_is_not(placed, caplog, keys):
    placed.repeat(*keys)
    assert not caplog.records
    assert placed.sent() == {0: [("a", 1), ("b", 1)]}


def test_rows_that_cannot_be_counted_are_told_and_stop_nothing(placed, caplog, monkeypatch):
    def gone(_frame: Frame) -> int:
        raise FileNotFoundError("the file is gone")

    monkeypatch.setattr(Frame, "count", gone)
    placed.repeat("a", "b", "c")
    assert (
        "batch 0 is committed and published, but its rows cannot be counted again: FileNotFoundError, raised in "
        in caplog.text
    )
    assert placed.sent() == {0: [("a", 1), ("b", 1)]}
