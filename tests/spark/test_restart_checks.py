"""A restart is compared with what earlier batches have fixed, before Spark's query starts and before it takes over."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.ddl import struct_type, written_columns
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from topology import Topology

BY = {"k": "string"}


class Source(SimpleNamespace):
    """A streaming data frame of which only the schema may be asked."""

    isStreaming = True  # noqa: N815 - as data frames call it

    @property
    def sparkSession(self) -> Any:
        return SimpleNamespace(conf=SimpleNamespace(get=lambda key: None))

    def select(self, *columns: Any) -> Any:
        raise AssertionError("the checks are passed")


def source(ddl: str) -> Source:
    schema = struct_type(written_columns(ddl))
    assert isinstance(schema, StructType)
    return Source(schema=schema, columns=schema.names)


def passed_on(world: World, sink: str = "out") -> Topology:
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).sink(sink, target=ParquetSink(world.folder / sink))
    return topo


def rows(**columns: Any) -> pa.Table:
    return pa.table({"k": ["a"], **columns})


def starts(placed: Placed, ddl: str) -> None:
    """Start as far as the checks go. Errors: those of the checks."""
    with pytest.raises(AssertionError, match="the checks are passed"):
        placed.unite({"in": source(ddl)})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("ddl", "says"),
    [
        ("k string, n double", r"^sinks\.out\.n: found 'double', expected int64, as in its first batch"),
        (
            "k string, m long",
            r"^sinks\.out: found \"columns \['k', 'm'\]\".*expected the columns of the sink",
        ),
        ("k string, n long, m long", r"^sinks\.out: .*, or declare the sink's schema"),
    ],
)
def test_a_sink_with_other_columns_than_before(world, monkeypatch, ddl, says):
    monkeypatch.setattr("taskplace.spark.compile.programs.F.expr", lambda text: text)
    world.batch(world.open(passed_on(world)), 0, **{"in": rows(n=[1])})
    for fits in ("k string, n long", "n int, k string"):
        starts(world.open(passed_on(world)), fits)
    with pytest.raises(InputError, match=says):
        world.open(passed_on(world)).unite({"in": source(ddl)})
    starts(world.open(passed_on(world, "another")), ddl)


def test_a_key_of_another_type_behind_a_repartition(world, monkeypatch):
    monkeypatch.setattr("taskplace.spark.compile.programs.F.expr", lambda text: text)

    def topology() -> Topology:
        topo = Topology("t")
        keyed = topo.source("in", key="k", partitions=2).repartition("n", name="r", partitions=2)
        keyed.process(Count("s", by={"n": "int64"}), name="p")
        return topo

    world.batch(world.open(topology()), 0, **{"in": rows(n=[1])})
    starts(world.open(topology()), "k string, n long")
    with pytest.raises(InputError, match=r"^node 'r', key: found 'a key of types int32', expected int64, as"):
        world.open(topology()).unite({"in": source("k string, n int")})


class Full:
    """A target that takes nothing: the batch stays committed, and pending."""

    def publish(self, spark, batch_id, files):
        raise OSError("no space")


def pending(world: World, monkeypatch: pytest.MonkeyPatch) -> Placed:
    """Return a driver whose first batch is committed and not published."""
    topo = Topology("t")
    counted = topo.source("in", key="k", partitions=2).process(Count("c", by=BY), name="p")
    counted.sink("out", target=Full())
    placed = world.open(topo)
    with pytest.raises(OSError, match="no space"):
        world.batch(placed, 0, **{"in": rows()})
    return placed


def renamed(world: World) -> Topology:
    topo = Topology("t")
    counted = topo.source("in", key="k", partitions=2).process(Count("c", by=BY), name="p")
    counted.sink("results", target=ParquetSink(world.folder / "out"))
    return topo


GONE = "batch 0 is committed and may have unpublished output for sink 'out', which the topology no longer has; start"


def test_output_of_a_sink_that_is_gone_is_refused_by_start(world, monkeypatch):
    pending(world, monkeypatch)
    sparks = world.folder / "checkpoint" / "spark"
    (sparks / "offsets").mkdir(parents=True)
    (sparks / "offsets" / "0").write_text("v1\n{}")
    (sparks / "metadata").write_text(json.dumps({"id": world.query}))
    placed = world.open(renamed(world))
    with pytest.raises(CheckpointError, match=GONE):
        placed.start({"in": source("k string")})  # type: ignore[dict-item]
    (sparks / "commits").mkdir()
    (sparks / "commits" / "0").write_text("v1\n{}")  # the batch has ended, so it was published
    monkeypatch.setattr("taskplace.spark.compile.programs.F.expr", lambda text: text)
    with pytest.raises(AssertionError, match="the checks are passed"):
        placed.start({"in": source("k string")})  # type: ignore[dict-item]


def test_output_of_a_sink_that_is_gone_is_refused_before_taking_over(world, monkeypatch):
    before = pending(world, monkeypatch)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=GONE):
            world.batch(world.open(renamed(world)), 0, **{"in": rows()})
    before.journal.check_epoch()  # nobody has taken over
    world.batch(world.open(renamed(world)), 1, **{"in": rows()})  # Spark says that batch 0 has ended
    assert world.sent("out") == {1: [("a", 2)]}


def test_a_pending_batch_without_rows_for_the_sink_that_is_gone_holds_nothing_up(world):
    topo = Topology("t")
    empty = topo.source("in", key="k", partitions=2).process(lambda context, rows: rows.slice(0, 0), name="p")
    empty.sink("out", target=ParquetSink(world.folder / "out"))
    world.batch(world.open(topo), 0, **{"in": rows()})
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).process(lambda context, rows: rows, name="p")
    world.batch(world.open(topo), 0, **{"in": rows()})
