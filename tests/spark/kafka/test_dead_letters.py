"""Rows and dead letters part inside a topology, and a tombstone removes a row of a table.

Dead letters in a Kafka topic: each is the record that it was, with the reason as a header.
"""

from __future__ import annotations

import pickle
from datetime import datetime, timezone

import confluent_kafka as ck
import pyarrow as pa
import pytest

from taskplace.errors import InputError, SinkError
from taskplace.record.words import summary_rows
from taskplace.spark.kafka.dead_letters import DeadLetters, GoodRecords
from taskplace.spark.kafka.decoding import DEAD_LETTERS, Decoder
from taskplace.spark.kafka.formats import Json, Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.sink import KafkaSink
from taskplace.spark.processors import TableJoin
from taskplace.spark.processors.base import Context
from taskplace.spark.processors.facts import Facts
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.worker.topic_reader import RANGES
from tests.spark.kafka.test_decoding import BAD, GOOD, records
from tests.support.kafka_sinks import Stream
from tests.support.kafka_topics import committed
from tests.support.own_reads import ROOM
from tests.support.placed_without_spark import World
from topology import Topology

CONTEXT = Context("0_0", 0, 0, {})
DECODER = Decoder(
    value=Json({"name": "string"}), key=Raw("id", "string"), tombstone="deleted", bad_records="dead_letters"
)


@pytest.mark.parametrize("processor", [GoodRecords(), DeadLetters()])
def test_an_input_without_rows_may_lack_the_column(processor):
    assert processor.process(CONTEXT, pa.table({})).num_rows == 0


@pytest.mark.parametrize("processor", [GoodRecords(), DeadLetters()])
def test_another_column_is_refused(processor):
    with pytest.raises(InputError, match="expected the column 'dead_letter' of a source"):
        processor.process(CONTEXT, pa.table({"id": [1]}))
    with pytest.raises(InputError, match="dead_letter: found 'int64', expected a struct"):
        processor.process(CONTEXT, pa.table({"dead_letter": [1]}))
    with pytest.raises(InputError, match="dead_letter: found 'int64', expected a struct"):
        processor.infer((Facts(columns={"dead_letter": pa.int64()}),))


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


pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")


LETTER = {
    "reason": "value: JSON is malformed",
    "key": b"k",
    "value": b"{",
    "topic": "flights",
    "partition": 3,
    "offset": 42,
    "timestamp": datetime(2026, 1, 1, 0, 0, 0, 5000, tzinfo=timezone.utc),
    "headers": [{"key": "trace", "value": b"x"}, {"key": "none", "value": None}],
}
ABOUT = [
    ("taskplace.errors.reason", b"value: JSON is malformed"),
    ("taskplace.errors.topic", b"flights"),
    ("taskplace.errors.partition", b"3"),
    ("taskplace.errors.offset", b"42"),
    ("taskplace.errors.timestamp", b"1767225600005"),
]


def form(**options):
    return KafkaSink("bad", servers="nowhere:9092", dead_letters=True, **options).row_check


def letters(*rows: dict) -> pa.Table:
    return pa.Table.from_pylist([LETTER | row for row in rows], DEAD_LETTERS)


def test_a_dead_letter_is_the_record_that_it_was():
    made = pickle.loads(pickle.dumps(form()))  # noqa: S301 - it is sent to executors
    made.check_columns("bad", DEAD_LETTERS)
    made.check_rows("bad", letters({}))
    (record,) = made.records("bad", letters({}))
    assert record == (b"k", b"{", [("trace", b"x"), ("none", None), *ABOUT], 0)


def test_other_rows_are_refused():
    with pytest.raises(InputError, match=r"^sinks\.bad\.target\.dead_letters: .*expected the columns "):
        form().check_columns("bad", pa.schema([("id", pa.int64())]))
    with pytest.raises(InputError, match=r"^sinks\.bad: found 'a record of \d+ bytes"):
        form(options={"message.max.bytes": 1000}).check_rows("bad", letters({"value": b"x" * 900}))


def sent(kafka, *records: tuple[bytes | None, bytes | None, list]) -> str:
    """Make a topic with one partition and these records: key, value, headers."""
    topic = kafka.topic("orders")
    producer = ck.Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for key, value, headers in records:
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(60) == 0
    return topic


@pytest.mark.kafka
def test_bad_records_of_a_topic_come_to_another_one(kafka, tmp_path):
    bad = [(None, b"{", [("trace", b"\x00\xff")]), (b"k", b"no", [("none", None)]), (b"k", None, [])]
    source = sent(kafka, *bad, (b"k", b'{"n": 1}', []))
    decoder = Decoder(key=Raw("k", "string"), value=Json({"n": "int64"}), bad_records="dead_letters")
    reads = KafkaRecords(source, kafka.bootstrap, decoder)
    ranges = pa.Table.from_pylist(
        [dict(zip(RANGES.names, (reads.first()["topic_id"], 0, 0, 4, []), strict=True))], RANGES
    )
    rows = DeadLetters().process(Context("0_0", 0, 0, {}), reads.read(ranges, ROOM))
    stream = Stream(
        tmp_path, kafka.bootstrap, kafka.topic("bad"), kafka.unique("markers"), kafka.unique("cp")
    )
    options = {"key": None, "dead_letters": True}
    sink = stream.opened(**options)
    sink.row_check.check_rows("out", rows)
    sink.publish_commit(stream.commit(0, rows))
    sink.publish_commit(stream.commit(0, rows))
    found = list(committed(kafka.bootstrap, stream.topic))
    assert [(each.key(), each.value()) for each in found] == [(key, value) for key, value, _ in bad]
    for (_, _, headers), message, offset in zip(bad, found, range(3), strict=True):
        assert message.headers()[: len(headers)] == headers
        about = dict(message.headers()[len(headers) :])
        assert about["taskplace.errors.topic"] == source.encode()
        assert about["taskplace.errors.offset"] == str(offset).encode()
        assert about["taskplace.errors.reason"] and about["taskplace.errors.timestamp"].isdigit()
    stream.topic = kafka.topic("compacted", config={"cleanup.policy": "compact"})
    with pytest.raises(SinkError, match=r"it is compacted, so its records need a key; .*not compacted"):
        stream.sink(**options).probe()


def test_what_a_record_does_not_have():
    rows = letters({"key": None, "value": None, "headers": None, "timestamp": None})
    form().check_rows("bad", rows)
    (record,) = form().records("bad", rows)
    assert record == (None, None, ABOUT[:-1], 0)
