"""The ends of topics that tasks read themselves: in each manifest, and compared with Spark's; no Spark needed."""

from __future__ import annotations

import json
import logging
import re
from types import SimpleNamespace

import jsonschema
import pyarrow as pa
import pytest
from msgspec import structs

from taskplace.cli import main
from taskplace.cli.status import inputs, json_schema, lines
from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.model.schema import schema
from taskplace.spark.compile import programs
from taskplace.spark.driver import read_topics
from taskplace.spark.driver.stages import Stage
from taskplace.spark.inspection.driver import driver_of
from taskplace.spark.inspection.now import now_of
from taskplace.spark.inspection.report import report_of_checkpoint
from taskplace.spark.messages import READ, TopicRead, kept
from taskplace.spark.operator_messages import PartitionStatus
from taskplace.spark.sinks import ParquetSink
from tests.support.own_reads import ROOM, OwnReader, counted, ranges
from topology import Topology


@pytest.fixture(autouse=True)
def _rows_of_a_topic(monkeypatch):
    monkeypatch.setattr(programs, "topic_rows", lambda part, program, topic: part.sources[topic].rows)


@pytest.fixture
def placed(world):
    placed = world.open(counted())
    placed.batch = lambda number, of, topic_id="id": world.batch(
        placed, number, **{"in": ranges(of, topic_id)}
    )
    placed.batch(0, {0: (5, 8), 1: (0, 2)})
    placed.batch(1, {0: (8, 9)})
    return placed


def test_a_manifest_has_the_id_and_the_ends_of_a_topic(placed, world):
    times = {"0": 8_000, "1": 1_000}
    assert placed.journal.last.identity[READ] == {
        "batch": 1,
        "topics": {
            "in": {"topic_id": "id", "starts": {"0": 8}, "ends": {"0": 9, "1": 2}, "rows": 1, "times": times}
        },
    }
    again = world.open(counted())  # reads the file
    assert kept(again.journal.last) == {"in": TopicRead("id", {0: 8}, {0: 9, 1: 2}, 1, {0: 8_000, 1: 1_000})}
    world.batch(again, 2, **{"in": ranges({})})  # nothing is new: the ends stay
    assert kept(again.journal.last) == {"in": TopicRead("id", {}, {0: 9, 1: 2}, 0, {0: 8_000, 1: 1_000})}


def test_a_manifest_without_such_a_topic_has_no_word_of_it(world):
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).sink("out", target=ParquetSink(world.folder / "out"))
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": pa.table({"k": ["a"]})})
    assert READ not in placed.journal.last.identity and kept(placed.journal.last) == {}


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (
            {0: (11, 12)},
            "0: .*up to offset 9, .*goes on at offset 11: .*ahead, .* 2 offsets would be skipped",
        ),
        ({1: (2, 3), 0: (5, 12)}, "0: .*goes on at offset 5: .*behind, .* 4 offsets would count twice"),
    ],
)
def test_a_batch_goes_on_where_the_last_one_ended(placed, of, message):
    with pytest.raises(CheckpointError, match=f"topic 'in', partition {message}; both must come"):
        placed.batch(2, of)
    assert placed.journal.last_batch == 1  # nothing is committed
    placed.batch(2, {0: (9, 12), 1: (2, 3)})
    assert placed.store("n").get({"k": "p0"}) == {"count": 7}


def test_another_topic_with_the_same_name_is_refused(placed):
    with pytest.raises(CheckpointError, match=r"topic 'in' had the id id, found other: .*: go-on`"):
        placed.batch(2, {0: (9, 12)}, "other")
    assert placed.journal.last_batch == 1


def test_a_topic_that_is_made_again_under_a_batch_is_refused_before_the_commit(world):
    reader = OwnReader()
    placed = world.open(counted(reader))
    world.batch(placed, 0, **{"in": ranges({0: (0, 3)})})
    reader.topic_id = "other"
    with pytest.raises(InputError, match="topic 'in': found 'the id other', expected the id id"):
        world.batch(placed, 1, **{"in": ranges({0: (3, 9)})})
    assert placed.journal.last_batch == 0  # nothing is committed
    world.batch(placed, 1, **{"in": ranges({})})  # nobody is asked about a topic that was not read
    assert placed.store("n").get({"k": "p0"}) == {"count": 3}


def test_a_stream_goes_on_without_records_that_are_gone(world, caplog):
    """Of the same topic, and of one that was made again; what is left of a batch that was planned before; a restart."""
    reader = OwnReader()
    reader.goes_on = True
    placed = world.open(counted(reader))

    def batch(number, of, topic_id="id", of_driver=placed):
        world.batch(of_driver, number, **{"in": ranges(of, topic_id)})
        one = kept(of_driver.journal.last)["in"]
        return one.topic_id, one.ends, one.skipped, placed.store("n").get({"k": "p0"})["count"]

    assert batch(0, {0: (0, 3), 1: (0, 2)}) == ("id", {0: 3, 1: 2}, {}, 3) and not caplog.records
    assert batch(1, {0: (7, 9)}) == ("id", {0: 9, 1: 2}, {0: 4}, 5)
    assert "the stream goes on without records that are gone, because" in caplog.text
    with pytest.raises(CheckpointError, match="it is behind"):
        batch(2, {0: (8, 10)})
    reader.topic_id = "new"
    assert batch(2, {0: (12, 12)}) == ("id", {0: 12, 1: 2}, {0: 3}, 5), "planned, and gone before it was read"
    assert batch(3, {0: (2, 4), 1: (0, 0)}, "new") == ("new", {0: 4, 1: 0}, {0: 2}, 7)
    assert (
        "made again, id new; records of id id behind the offsets {0: 12, 1: 2} were not read" in caplog.text
    )
    assert placed.stats.skipped == placed.summary().skipped_offsets == {"in": 9}
    batch(3, {0: (3, 4), 1: (0, 0)}, "new")  # repeated by Spark; less is left, and nothing is read again
    with pytest.raises(CheckpointError, match=r"Spark repeats it with the offsets from 3 to before 5"):
        batch(3, {0: (3, 5), 1: (0, 0)}, "new")
    stops = world.open(counted())
    assert batch(4, {0: (4, 6), 1: (0, 1)}, "new", stops)[:3] == ("new", {0: 6, 1: 1}, {})
    with pytest.raises(CheckpointError, match=r"ahead, and the records of 1 offsets would be skipped"):
        batch(5, {0: (7, 8)}, "new", stops)


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ({0: (8, 11)}, "0, and Spark repeats it with the offsets from 8 to before 11"),
        ({0: (8, 9), 1: (2, 3)}, "1, and Spark repeats it with the offsets from 2 to before 3"),
        ({}, "0, and Spark repeats it with no offsets"),
    ],
)
def test_a_repeated_batch_has_the_same_ranges(placed, of, message, caplog):
    placed.batch(1, {0: (8, 9)})
    with pytest.raises(CheckpointError, match=f"batch 1 was committed with .*, partition {message}"):
        placed.batch(1, of)
    assert not caplog.records
    assert placed.journal.last_batch == 1


def test_rows_beside_ranges_are_counted_without_them(world, caplog):
    topo = counted()
    topo.source("rows", key="k", partitions=2).sink("out", target=ParquetSink(world.folder / "out"))
    placed = world.open(topo)
    table = pa.table({"k": ["a", "b"]})
    for rows in (table, table, pa.concat_tables([table, table])):
        assert not caplog.records
        world.batch(placed, 0, rows=rows, **{"in": ranges({0: (0, 7)})})
    assert "batch 0 was committed with 2 rows, found 4 rows for it now" in caplog.text


def test_what_an_older_version_has_passed_on_is_not_taken_for_the_last_batch(placed):
    stale = structs.replace(placed.journal.last, batch=2)
    assert kept(stale) == {} and kept(None) == {}
    read_topics.check_planned(placed.checkpoint, placed.checkpoint / "none", stale)


def test_how_many_records_a_batch_has_is_known_from_sparks_log(placed, tmp_path):
    """0 and 1 begin where the batch before ended; 2 is a partition without earlier offsets."""
    log = tmp_path / "offsets"
    assert read_topics.planned_records(log, 2, placed.journal.last) == {}
    log.mkdir()
    other = offset("other", p0=4)
    (log / "1").write_text(lines_of(other, offset(p0=9, p1=2)))
    (log / "2").write_text(lines_of(other, offset(p0=1009, p1=2, p2=7)))
    assert read_topics.planned_records(log, 2, placed.journal.last) == {"in": {0: 1000, 1: 0, 2: 7}}
    assert read_topics.planned_records(log, 2, None) == {}, "nothing says which topic an id is"


def test_many_records_of_small_ranges_get_bins_of_their_own(placed, monkeypatch):
    """Spark brings a row for each task; its checkpoint says how many records they stand for."""
    cuts = []
    really_cut = Stage.cut
    monkeypatch.setattr(Stage, "cut", lambda *args: cuts.append(really_cut(*args)) or cuts[-1])
    log = placed.checkpoint / "spark" / "offsets"
    log.mkdir(parents=True)
    (log / "1").write_text(lines_of(offset(p0=9, p1=2)))
    for batch, records, bins in ((2, 3, 1), (3, 50_000, 2)):
        before = placed.journal.last.identity[READ]["topics"]["in"]["ends"]
        of = {p: (before[str(p)], before[str(p)] + records) for p in (0, 1)}
        (log / str(batch)).write_text(lines_of(offset(**{f"p{p}": end for p, (_, end) in of.items()})))
        placed.batch(batch, of)
        assert len(cuts[-1]) == bins


# ---------------------------------------------------------------------------------- before the query starts


def planned(placed, *offsets: object) -> None:
    """Write Spark's log of batch 1, with a line for each source."""
    spark = placed.checkpoint / "spark"
    for log in ("offsets", "commits"):
        (spark / log).mkdir(parents=True, exist_ok=True)
        (spark / log / "1").write_text("v1\n")
    (spark / "metadata").write_text(json.dumps({"id": "query"}))
    (spark / "offsets" / "1").write_text(lines_of(*offsets))


def lines_of(*offsets: object) -> str:
    """Return Spark's record of a batch, with a line for each source."""
    return "\n".join(["v1", json.dumps({"batchWatermarkMs": 0}), *map(json.dumps, offsets)])


def started(placed) -> None:
    placed._runner.takeover.check_start()


def offset(topic_id: str = "id", **ends: int) -> dict:
    return {"topic_id": topic_id, "offsets": {name[1:]: end for name, end in ends.items()}}


def test_sparks_checkpoint_is_compared_before_the_query_starts(placed, world):
    again = world.open(counted())
    planned(again, {"logOffset": 3}, offset(p0=9, p1=2))
    started(again)
    for wrong, message in (
        (offset(p0=12, p1=2), "0: .* at offset 12: it is ahead, .* 3 offsets would be skipped"),
        (offset(p0=9, p1=0), "1: .* at offset 0: it is behind, .* 2 offsets would count twice"),
        (offset(p0=9), "partition 1: .* at no offset: it does not have this partition"),
        (offset("other", p0=9, p1=2), "topic 'in' had the id id, found other"),
    ):
        planned(again, {"logOffset": 3}, wrong)
        with pytest.raises(CheckpointError, match=message):
            started(again)
    assert again.journal.epoch == 0  # nothing was taken over


def test_two_sources_of_one_topic_are_both_found(placed, world):
    planned(placed, offset(p0=1, p1=0), offset(p0=9, p1=2))
    started(placed)


def test_a_log_that_cannot_be_read_is_left_to_the_next_batch(placed):
    planned(placed)
    started(placed)
    (placed.checkpoint / "spark" / "offsets" / "1").write_bytes(b"\xff{")
    started(placed)


# ---------------------------------------------------------------------------------- ranges


def test_ranges_that_do_not_follow_each_other_are_refused(world):
    placed = world.open(counted())
    twice = pa.concat_tables([ranges({0: (0, 2)}), ranges({0: (3, 4)})])
    with pytest.raises(InputError, match=r"topic 'in', partition 0: found .*\(0, 2\), \(3, 4\)"):
        world.batch(placed, 0, **{"in": twice})
    both = pa.concat_tables([ranges({0: (0, 2)}), ranges({0: (2, 4)}, "other")])
    with pytest.raises(InputError, match='found "ranges of the topic ids'):
        world.batch(placed, 0, **{"in": both})
    world.batch(placed, 0, **{"in": pa.concat_tables([ranges({0: (2, 4)}), ranges({0: (0, 2)})])})
    assert kept(placed.journal.last)["in"] == TopicRead("id", {0: 0}, {0: 4}, 4, {0: 1_000})


def test_a_topic_that_tasks_no_longer_read_is_forgotten(placed, world):
    identity = read_topics.with_read(placed.journal.last.identity, 2, [], kept(placed.journal.last))
    assert READ not in identity and "keys" in identity


def test_the_stand_in_is_a_reader():
    assert OwnReader().read(ranges({1: (0, 2)}), ROOM).to_pylist() == [
        {"k": "p1", "at": 0},
        {"k": "p1", "at": 1},
    ]


def test_what_a_user_sees_counts_records_and_not_ranges(world):
    told = []
    reporter = SimpleNamespace(batch=told.append, rebalance=lambda event: None, failure=lambda event: None)
    placed = world.open(counted(), reporter=reporter)
    world.batch(placed, 0, **{"in": ranges({0: (5, 8), 1: (0, 2)})})
    world.batch(placed, 1, **{"in": ranges({0: (8, 9)})})
    assert [event.rows for event in told] == [5, 1]
    assert (placed.stats.rows, placed.summary().rows, placed.journal.last.rows) == (6, 6, 1)


# -- the lag of the topics that tasks read themselves: one record, and all that show it; no Spark, no broker


#: The clock of the tests, seconds since 1970. A record's timestamp is its offset, in seconds.
NOW = 100.0
BEGIN = read_topics.InputLag.begin


@pytest.fixture
def reader():
    return OwnReader()


@pytest.fixture
def stream(world, reader, monkeypatch):
    """A stream that has read partition 0 up to 9, and partition 1 up to 2. The topic ends at 12 and 2."""
    stream = world.open(counted(reader))
    stream.lag = stream._runner.lag
    monkeypatch.setattr(read_topics, "time", SimpleNamespace(time=lambda: NOW))
    stream.lag._began = NOW - 10
    stream.batch = lambda number, of: world.batch(stream, number, **{"in": ranges(of)})
    stream.batch(0, {0: (5, 9), 1: (0, 2)})
    reader.end = {0: 12, 1: 2, 2: 7}
    return stream


def partitions(stream):
    return stream.lag.topics()["in"].partitions


def test_positions_are_those_of_the_last_commit_and_ends_those_of_the_last_answer(stream, reader):
    assert partitions(stream) == {0: PartitionStatus(9), 1: PartitionStatus(2)}
    stream.lag.turn()
    known = {0: PartitionStatus(9, 12, NOW - 9), 1: PartitionStatus(2, 2, 0.0), 2: PartitionStatus(None, 7)}
    assert partitions(stream) == known, "9 is the first unread record; of a new partition, nothing is known"
    assert (stream.lag.topics()["in"].lag, stream.lag.topics()["in"].rate) == (3, 0.6)
    assert reader.committed == {0: 9, 1: 2}
    stream.batch(1, {0: (9, 11)})
    assert partitions(stream)[0] == PartitionStatus(11, 12, NOW - 10), "record 9 has been read meanwhile"
    stream.batch(2, {0: (11, 14)})
    assert partitions(stream)[0] == PartitionStatus(14, 14, 0.0), "the brokers were asked before"
    assert reader.committed == {0: 9, 1: 2}, "a commit to the group waits for its turn"
    stream.lag.turn()
    assert reader.committed == {0: 14, 1: 2}


def test_a_partition_without_records_has_the_position_that_spark_has(stream, reader):
    log = stream.checkpoint / "spark" / "offsets"
    log.mkdir(parents=True)
    (log / "0").write_text('v1\n{}\n{"topic_id":"id","offsets":{"0":9,"1":2,"2":7}}')
    stream.lag.turn()
    assert partitions(stream)[2] == PartitionStatus(7, 7, 0.0)
    assert reader.committed == {0: 9, 1: 2, 2: 7}


def test_positions_of_a_topic_that_was_made_again_are_not_those_of_the_old_one(stream, reader):
    reader.topic_id = "again"
    stream.lag.turn()
    assert partitions(stream) == {
        0: PartitionStatus(None, 12), 1: PartitionStatus(None, 2), 2: PartitionStatus(None, 7)
    }  # fmt: skip
    assert reader.committed == {}


def test_the_rate_is_that_of_the_last_minute(stream, reader, monkeypatch):
    for seconds, rate in ((20, 6 / 30), (50, 6 / 60), (61, 0.0)):
        monkeypatch.setattr(read_topics.time, "time", lambda at=NOW + seconds: at)
        assert stream.lag.topics()["in"].rate == pytest.approx(rate)
    stream.lag.committed({"of-before": TopicRead("x")})  # a manifest keeps topics that are read no more
    assert len(stream.lag._rows["in"]) == 1, "old batches are forgotten"


def test_brokers_that_do_not_answer_stop_nothing_and_are_told_of_once(stream, reader, caplog):
    stream.lag.turn()
    reader.error = InputError("topic 'in'", found="no answer", expected="brokers that answer")
    with caplog.at_level(logging.WARNING, "taskplace"):
        for number in range(1, 4):
            stream.lag.turn()
            stream.batch(number, {0: (8 + number, 9 + number)})
    (line,) = (text for text in caplog.messages if "its lag is not known" in text)
    assert "the stream goes on: InputError: topic 'in': found 'no answer'" in line
    of = stream.lag.topics()["in"]
    assert (of.partitions[0], of.asked) == (PartitionStatus(12, 12, 0.0), NOW), "what was known stays"
    assert of.error.startswith("InputError: topic 'in': found 'no answer'") and reader.committed == {
        0: 9,
        1: 2,
    }
    reader.error = None
    stream.lag.turn()
    assert stream.lag.topics()["in"].error == "" and reader.committed == {0: 12, 1: 2}


def test_a_driver_that_was_replaced_commits_nothing_more(stream, world, reader):
    stream.lag.turn()
    world.batch(world.open(counted(OwnReader())), 1, **{"in": ranges({0: (9, 11)})})
    reader.committed = {}
    with pytest.raises(Fenced):
        stream.lag.turn()
    assert reader.committed == {}


def test_the_end_of_a_stream_waits_for_the_last_commit_but_not_for_ever(stream, reader, monkeypatch):
    monkeypatch.setattr(read_topics, "END_SECONDS", 60.0)
    BEGIN(stream.lag)  # the thread itself
    stream.close()
    assert reader.committed == {0: 9, 1: 2}
    stream.close()


def test_all_that_show_the_stream_show_the_same(stream, world, capsys):
    path = str(stream.checkpoint)
    assert main(["inspect", path]) == 0
    shown = capsys.readouterr().out
    assert "input       positions of the last commit; ends are not known: no driver has written" in shown
    assert re.search(r"^in +0 +9 +\? +\? +\?$", shown, re.M)

    stream.lag.turn()
    stream._runner.operations._write()
    status = stream._runner.operations.status()
    seen = driver_of(stream.checkpoint)
    said = "\n".join(lines(seen, 80))
    assert "input lag: 3 (records, 1 min 31 s behind)" in said
    assert [line.split() for line in inputs(status, 80)][1:] == [
        ["topic", "partition", "position", "end", "lag", "behind"],
        ["in", "0", "9", "12", "3", "1", "min", "31", "s"],
        ["in", "1", "2", "2", "0", "0", "s"],
        ["in", "2", "?", "7", "?", "?"],
    ]
    assert main(["status", path, "--output", "json"]) in (0, 4)
    jsonschema.validate(json.loads(capsys.readouterr().out), json_schema())

    metrics = stream.metrics()
    assert metrics["records-lag"] == [
        {"topic": "in", "partition": "0", "value": 3},
        {"topic": "in", "partition": "1", "value": 0},
    ]
    assert metrics["records-lag-max"] == 3
    assert metrics["records-lag-seconds"][0] == {"topic": "in", "partition": "0", "value": NOW - 9}
    assert metrics["records-consumed-rate"] == [{"topic": "in", "value": 0.6}]

    page = now_of(status)
    assert [(row.partition, row.position, row.end, row.lag, row.seconds) for row in page.inputs] == [
        (0, 9, 12, 3, 91), (1, 2, 2, 0, 0), (2, None, 7, None, None)
    ]  # fmt: skip
    assert [(figure.name, figure.value) for figure in page.figures] == [("input lag", "3")]
    report = report_of_checkpoint(stream.checkpoint)
    assert report.inputs == page.inputs and page.figures[0] in report.figures

    stream.batch(1, {0: (9, 11)})  # a commit since the status
    assert main(["inspect", path]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"^input       positions of the last commit; ends as the brokers said .* ago;", shown, re.M
    )
    assert re.search(r"^in +0 +11 +12 +1 +\?$", shown, re.M)
    assert main(["inspect", path, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("inspection"), cls=jsonschema.Draft202012Validator)
    assert found["input"]["in"]["partitions"]["0"] == {"position": 11, "end": 12, "seconds": None}
