"""Rows and dead letters part inside a topology, and a tombstone removes a row of a table."""

from __future__ import annotations

import pyarrow as pa
import pytest
from taskplace.record.words import summary_rows
from taskplace.spark.compile.programs import programs

from taskplace.errors import InputError
from taskplace.spark.kafka.dead_letters import DeadLetters, GoodRecords
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Json, Raw
from taskplace.spark.processors import Deduplicate, TableJoin
from taskplace.spark.processors.base import Context
from taskplace.spark.sinks import ParquetSink
from tests.spark.kafka.test_decoding import BAD, GOOD, records
from tests.support.placed_without_spark import World
from topology import Topology

CONTEXT = Context("0_0", 0, 0, {})
DECODER = Decoder(
    value=Json({"name": "string"}), key=Raw("id", "string"), tombstone="deleted", bad_records="dead_letters"
)


def test_rows_and_dead_letters_part():
    frame = DECODER.frame(records(BAD, GOOD, BAD))
    decoded = DECODER.decode(records(BAD, GOOD, BAD))
    assert GoodRecords().process(CONTEXT, frame).to_pylist() == decoded.rows.to_pylist()
    assert DeadLetters().process(CONTEXT, frame).equals(decoded.dead_letters)


def test_good_records_alone_are_passed_on():
    frame = DECODER.frame(records(GOOD, GOOD))
    assert GoodRecords().process(CONTEXT, frame).num_rows == 2
    assert DeadLetters().process(CONTEXT, frame).num_rows == 0


@pytest.mark.parametrize("processor", [GoodRecords(), DeadLetters()])
def test_an_input_without_rows_may_lack_the_column(processor):
    assert processor.process(CONTEXT, pa.table({})).num_rows == 0


@pytest.mark.parametrize("processor", [GoodRecords(), DeadLetters()])
def test_another_column_is_refused(processor):
    with pytest.raises(InputError, match="expected a column 'dead_letter'"):
        processor.process(CONTEXT, pa.table({"id": [1]}))
    with pytest.raises(InputError, match="dead_letter: found 'int64', expected a struct"):
        processor.process(CONTEXT, pa.table({"dead_letter": [1]}))


def test_event_time_and_key_pass_good_records():
    topo = Topology("t")
    source = topo.source("people", key="id", partitions=4, event_time="at")
    good = source.process(GoodRecords(), name="good")
    good.process(Deduplicate("n", by={"id": "string"}, ttl="1 hour", time="at"), name="once")
    (program,) = programs(topo.build())
    assert program.owned == ()  # no key has to be checked in the task


def test_a_tombstone_removes_the_row_of_a_table(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    join = TableJoin("people", by={"id": "string"}, columns={"name": "string"}, deleted="deleted")
    topo = Topology("t")
    people = topo.source("people", key="id", partitions=2)
    people.process(DeadLetters(), name="letters").sink("bad", target=ParquetSink(tmp_path / "bad"))
    table = people.process(GoodRecords(), name="good")
    visits = topo.source("visits", key="id", partitions=2)
    visits.join_table(table, join, name="joined").sink("out", target=ParquetSink(tmp_path / "out"))
    placed = world.open(topo)
    ids = pa.table({"id": ["1", "2"]})
    world.batch(placed, 0, people=DECODER.frame(records(GOOD, BAD, (b"2", b'{"name": "b"}'))), visits=ids)
    world.batch(placed, 1, people=DECODER.frame(records((b"1", None))), visits=ids)
    assert world.sent("out") == {0: [("1", "a"), ("2", "b")], 1: [("1", None), ("2", "b")]}
    assert [row[5] for row in world.sent("bad")[0]] == [102]
    assert placed.stats.bad_records == placed.summary().bad_records == {"people": 1}
    assert placed.stats.rows == placed.summary().rows == 8
    assert ("bad records of people", "1") in summary_rows(placed.summary())


def test_bad_records_count_by_source_once_a_batch_is_committed(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    topo = Topology("t")
    for name in ("a", "b", "own"):  # no processor takes the dead letters
        topo.source(name, key="id", partitions=2).sink(f"of-{name}", target=ParquetSink(tmp_path / name))
    placed = world.open(topo)
    own = pa.table({"id": ["1"], "dead_letter": ["a column of the user"]})
    plain = {name: DECODER.frame(records(*of)) for name, of in (("a", (BAD, GOOD, BAD)), ("b", (GOOD, BAD)))}
    failing = iter(["batch.staged"])

    def stop_once(point: str) -> None:
        if point == "batch.staged" and next(failing, None):
            raise OSError("the driver failed")

    world.at = stop_once
    with pytest.raises(OSError, match="the driver failed"):
        world.batch(placed, 0, own=own, **plain)
    assert placed.stats.bad_records == {}
    for _ in range(2):  # the second time, the batch is only published again
        world.batch(placed, 0, own=own, **plain)
    assert placed.stats.bad_records == {"a": 2, "b": 1}
    of = {one["topic"]: one["value"] for one in world.open(topo).metrics()["dead-letters-total"]}
    assert of == {"a": 2, "b": 1}, "they continue over restarts"
