"""Taking over a checkpoint, through a whole `Placed` without Spark: who is refused stops nobody."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.spark.ddl import struct_type, written_columns
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from tests.support.word_counts import counts, words
from topology import Topology


def test_a_refused_take_over_is_refused_again(world):
    world.batch(world.open(counts(world, more=("m",))), 0, **{"in": words("a", "a", "a")})
    late = world.open(counts(world, more=("m",)))
    other = world.open(counts(world))  # it drops the store that `late` goes on with
    world.batch(other, 1, **{"in": words("a")})
    for batch in (2, 2, 3):
        with pytest.raises(CheckpointError, match="another driver has changed the checkpoint"):
            world.batch(late, batch, **{"in": words("a")})
    world.batch(other, 2, **{"in": words("a")})
    assert world.sent("out") == {0: [("a", 3)], 1: [("a", 4)], 2: [("a", 5)]}
    assert world.sent("m") == {0: [("a", 3)]}


def test_of_two_checkpoints_that_want_one_directory_one_is_refused_however_often_it_asks(world):
    one, two = (world.open(counts(world), checkpoint=name) for name in ("one", "two"))
    world.batch(one, 0, **{"in": words("a")})
    for batch in (0, 0, 1):
        with pytest.raises(CheckpointError, match=r"out: the directory has output of another checkpoint"):
            world.batch(two, batch, **{"in": words("z")})
    world.batch(one, 1, **{"in": words("a")})
    assert world.sent("out") == {0: [("a", 1)], 1: [("a", 2)]}
    world.batch(world.open(counts(world, out="another"), checkpoint="two"), 0, **{"in": words("z")})
    assert world.sent("another") == {0: [("z", 1)]}


class Contested(ParquetSink):
    """A directory that another checkpoint takes at the last moment: after the look whether it is free."""

    def bind(self, checkpoint_id: str) -> None:
        if not self.path.exists():
            ParquetSink(self.path).bind("some other checkpoint")
        super().bind(checkpoint_id)


def test_a_sink_that_refuses_at_the_last_moment_gets_nothing_at_the_next_try_either(world):
    topo = Topology("t")
    counted = topo.source("in", key="k", partitions=2).process(Count("n", by={"k": "string"}), name="n")
    counted.sink("o", target=Contested(world.folder / "out"))
    placed = world.open(topo)
    for batch in (0, 0, 1):
        with pytest.raises(CheckpointError, match=r"out: the directory has output of another checkpoint"):
            world.batch(placed, batch, **{"in": words("a")})
    assert world.sent("out") == {}
    assert placed.journal.last_batch == -1


def set_back(world: World) -> tuple[Placed, int, str]:
    return world.open(counts(world)), 0, "Spark's checkpoint is at batch 0, the placed state at batch 1"


def of_another_query(world: World) -> tuple[Placed, int, str]:
    world.query = "another"
    return world.open(counts(world)), 2, "query"


def with_a_sink_that_is_taken_meanwhile(world: World) -> tuple[Placed, int, str]:
    late = world.open(counts(world, more=("m",)))
    ParquetSink(world.folder / "m").bind("some other checkpoint")
    return late, 2, "m: the directory has output of another checkpoint"


@pytest.mark.parametrize("refused", [set_back, of_another_query, with_a_sink_that_is_taken_meanwhile])
def test_a_start_that_is_refused_stops_nobody(world, refused):
    first = world.open(counts(world))
    for batch in range(2):
        world.batch(first, batch, **{"in": words("a")})
    late, number, message = refused(world)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=message):
            world.batch(late, number, **{"in": words("b")})
    world.query = "query"
    for batch in range(2, 4):
        world.batch(first, batch, **{"in": words("a", "b")})
    both = {2: [("a", 3), ("b", 1)], 3: [("a", 4), ("b", 2)]}
    assert world.sent("out") == {0: [("a", 1)], 1: [("a", 2)], **both}


@pytest.mark.parametrize("number", [0, 1])
def test_of_two_that_begin_one_checkpoint_the_second_is_refused_and_the_first_goes_on(world, number):
    first, second = world.open(counts(world)), world.open(counts(world))
    world.batch(first, 0, **{"in": words("a")})
    with pytest.raises(CheckpointError, match="another driver has changed the checkpoint"):
        world.batch(second, number, **{"in": words("a")})
    world.batch(first, 1, **{"in": words("a")})
    assert world.sent("out") == {0: [("a", 1)], 1: [("a", 2)]}


def test_who_is_fenced_sends_no_followers_any_more(world):
    first = world.open(counts(world))
    world.batch(first, 0, **{"in": words("a")})
    second = world.open(counts(world))
    world.batch(second, 1, **{"in": words("a")})
    assert [thread.ended for thread in world.threads] == [False, False]
    with pytest.raises(Fenced, match="has taken over this checkpoint"):
        world.batch(first, 2, **{"in": words("a")})
    assert [thread.ended for thread in world.threads] == [True, False]
    world.batch(second, 2, **{"in": words("a")})
    assert world.sent("out")[2] == [("a", 3)]


def test_copies_that_a_restored_backup_is_behind_are_named_with_what_to_remove(world):
    checkpoint, backup = world.folder / "checkpoint", world.folder / "backup"
    world.batch(world.open(counts(world)), 0, **{"in": words("a")})
    shutil.copytree(checkpoint, backup)
    for batch in (1, 2):
        world.batch(world.open(counts(world)), batch, **{"in": words("a")})
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    for batch in (1, 2):
        shutil.rmtree(world.folder / "out" / f"batch_id={batch}")
    placed = world.open(counts(world))
    with pytest.raises(Fenced, match=rf"restored from a backup: remove {placed.state_root}$"):
        world.batch(placed, 1, **{"in": words("a")})
    shutil.rmtree(placed.state_root)
    world.restart(1)
    world.batch(world.open(counts(world)), 1, **{"in": words("a")})
    assert world.sent("out") == {0: [("a", 1)], 1: [("a", 2)]}


# -- A restart is compared with what earlier batches have fixed, before Spark's query starts and before i


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
        ("k string, m long", r"^sinks\.out: found \"columns \['k', 'm'\]\".*expected the columns of the"),
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
    with pytest.raises(InputError, match=r"^node 'r', key: found '.*int32', expected int64, as"):
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
