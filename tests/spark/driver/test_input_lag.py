"""The lag of the topics that tasks read themselves: one record, and all that show it; no Spark, no broker."""

from __future__ import annotations

import json
import logging
import re
from types import SimpleNamespace

import jsonschema
import pytest

from taskplace.cli import main
from taskplace.cli.status import inputs, json_schema, lines
from taskplace.errors import Fenced, InputError
from taskplace.model.schema import schema
from taskplace.spark.compile import programs
from taskplace.spark.driver import read_topics as input_lag
from taskplace.spark.inspection.driver import driver_of
from taskplace.spark.inspection.now import now_of
from taskplace.spark.inspection.report import report_of_checkpoint
from taskplace.spark.messages import TopicRead
from taskplace.spark.operator_messages import PartitionStatus
from tests.support.own_reads import OwnReader, counted, ranges

#: The clock of the tests, seconds since 1970. A record's timestamp is its offset, in seconds.
NOW = 100.0
BEGIN = input_lag.InputLag.begin


@pytest.fixture
def reader():
    return OwnReader()


@pytest.fixture
def placed(world, reader, monkeypatch):
    """A stream that has read partition 0 up to 9, and partition 1 up to 2. The topic ends at 12 and 2."""
    monkeypatch.setattr(programs, "topic_rows", lambda part, program, topic: part.sources[topic].rows)
    placed = world.open(counted(reader))
    placed.lag = placed._runner.lag
    monkeypatch.setattr(input_lag, "time", SimpleNamespace(time=lambda: NOW))
    placed.lag._began = NOW - 10
    placed.batch = lambda number, of: world.batch(placed, number, **{"in": ranges(of)})
    placed.batch(0, {0: (5, 9), 1: (0, 2)})
    reader.end = {0: 12, 1: 2, 2: 7}
    return placed


def partitions(placed):
    return placed.lag.topics()["in"].partitions


def test_positions_are_those_of_the_last_commit_and_ends_those_of_the_last_answer(placed, reader):
    assert partitions(placed) == {0: PartitionStatus(9), 1: PartitionStatus(2)}
    placed.lag.turn()
    known = {0: PartitionStatus(9, 12, NOW - 9), 1: PartitionStatus(2, 2, 0.0), 2: PartitionStatus(None, 7)}
    assert partitions(placed) == known, "9 is the first unread record; of a new partition, nothing is known"
    assert (placed.lag.topics()["in"].lag, placed.lag.topics()["in"].rate) == (3, 0.6)
    assert reader.committed == {0: 9, 1: 2}
    placed.batch(1, {0: (9, 11)})
    assert partitions(placed)[0] == PartitionStatus(11, 12, NOW - 10), "record 9 has been read meanwhile"
    placed.batch(2, {0: (11, 14)})
    assert partitions(placed)[0] == PartitionStatus(14, 14, 0.0), "the brokers were asked before"
    assert reader.committed == {0: 9, 1: 2}, "a commit to the group waits for its turn"
    placed.lag.turn()
    assert reader.committed == {0: 14, 1: 2}


def test_a_partition_without_records_has_the_position_that_spark_has(placed, reader):
    log = placed.checkpoint / "spark" / "offsets"
    log.mkdir(parents=True)
    (log / "0").write_text('v1\n{}\n{"topic_id":"id","offsets":{"0":9,"1":2,"2":7}}')
    placed.lag.turn()
    assert partitions(placed)[2] == PartitionStatus(7, 7, 0.0)
    assert reader.committed == {0: 9, 1: 2, 2: 7}


def test_positions_of_a_topic_that_was_made_again_are_not_those_of_the_old_one(placed, reader):
    reader.topic_id = "again"
    placed.lag.turn()
    assert partitions(placed) == {
        0: PartitionStatus(None, 12), 1: PartitionStatus(None, 2), 2: PartitionStatus(None, 7)
    }  # fmt: skip
    assert reader.committed == {}


def test_the_rate_is_that_of_the_last_minute(placed, reader, monkeypatch):
    for seconds, rate in ((20, 6 / 30), (50, 6 / 60), (61, 0.0)):
        monkeypatch.setattr(input_lag.time, "time", lambda at=NOW + seconds: at)
        assert placed.lag.topics()["in"].rate == pytest.approx(rate)
    placed.lag.committed({"of-before": TopicRead("x")})  # a manifest keeps topics that are read no more
    assert len(placed.lag._rows["in"]) == 1, "old batches are forgotten"


def test_brokers_that_do_not_answer_stop_nothing_and_are_told_of_once(placed, reader, caplog):
    placed.lag.turn()
    reader.error = InputError("topic 'in'", found="no answer", expected="brokers that answer")
    with caplog.at_level(logging.WARNING, "taskplace"):
        for number in range(1, 4):
            placed.lag.turn()
            placed.batch(number, {0: (8 + number, 9 + number)})
    (line,) = (text for text in caplog.messages if "its lag is not known" in text)
    assert "the stream goes on: InputError: topic 'in': found 'no answer'" in line
    of = placed.lag.topics()["in"]
    assert (of.partitions[0], of.asked) == (PartitionStatus(12, 12, 0.0), NOW), "what was known stays"
    assert of.error.startswith("InputError: topic 'in': found 'no answer'") and reader.committed == {
        0: 9,
        1: 2,
    }
    reader.error = None
    placed.lag.turn()
    assert placed.lag.topics()["in"].error == "" and reader.committed == {0: 12, 1: 2}


def test_a_driver_that_was_replaced_commits_nothing_more(placed, world, reader):
    placed.lag.turn()
    world.batch(world.open(counted(OwnReader())), 1, **{"in": ranges({0: (9, 11)})})
    reader.committed = {}
    with pytest.raises(Fenced):
        placed.lag.turn()
    assert reader.committed == {}


def test_the_end_of_a_stream_waits_for_the_last_commit_but_not_for_ever(placed, reader, monkeypatch):
    monkeypatch.setattr(input_lag, "END_SECONDS", 60.0)
    BEGIN(placed.lag)  # the thread itself
    placed.close()
    assert reader.committed == {0: 9, 1: 2}
    placed.close()


def test_all_that_show_the_stream_show_the_same(placed, world, capsys):
    path = str(placed.checkpoint)
    assert main(["inspect", path]) == 0
    shown = capsys.readouterr().out
    assert "input       positions of the last commit; ends are not known: no driver has written" in shown
    assert re.search(r"^in +0 +9 +\? +\? +\?$", shown, re.M)

    placed.lag.turn()
    placed._runner.operations._write()
    status = placed._runner.operations.status()
    seen = driver_of(placed.checkpoint)
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

    metrics = placed.metrics()
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
    report = report_of_checkpoint(placed.checkpoint)
    assert report.inputs == page.inputs and page.figures[0] in report.figures

    placed.batch(1, {0: (9, 11)})  # a commit since the status
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
