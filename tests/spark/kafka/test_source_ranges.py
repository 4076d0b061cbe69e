"""The data source of ranges: where a stream begins, and where it ends that reads what is there now."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import msgspec

from taskplace.errors import InputError
from taskplace.spark.kafka.brokers import Topic
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.offsets import MissingTopic
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.source import _source
from taskplace.spark.worker.topic_reader import StreamOffset


def offset(*ends: int) -> dict[str, Any]:
    return {"topic_id": "id", "offsets": {str(partition): end for partition, end in enumerate(ends)}}


class Growing:
    """What the brokers say of a topic that grows: its ends move on by 5 records with each question."""

    def __init__(self) -> None:
        self.questions = 0

    def described(self) -> Any:
        return Topic("t", "id", 2)

    def starts(self, partitions: int) -> dict[int, int]:
        return dict.fromkeys(range(partitions), 0)

    def ends(self, partitions: int) -> dict[int, int]:
        self.questions += 1
        return {partition: 5 * self.questions + partition for partition in range(partitions)}


def reader(starting: str) -> Any:
    records = KafkaRecords("t", "nowhere:9092", Decoder(value=Raw("v", "binary")), starting=starting)
    records._asked = Growing()  # type: ignore[assignment]
    return _source("ranges", records)({}).streamReader(None)


def read(stream: Any, start: Any) -> tuple[list[Any], Any]:
    """Return the ranges of the next batch, and its end."""
    end = stream.latestOffset(start, None)
    return [row for part in stream.partitions(start, end) for row in stream.read(part)], end


def test_the_end_of_what_is_there_is_never_before_a_latest_start():
    """Spark asks for the end first. The topic grows before the stream begins at its end."""
    stream = reader("latest")
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    assert start == offset(10, 11)
    ranges, end = read(stream, start)
    assert (ranges, end) == ([], start), "going back would read records again, from before the start"
    assert read(stream, end)[1] == end, "what comes later is for the next run"


def test_what_was_there_when_the_stream_started_is_read_and_nothing_else():
    stream = reader("earliest")
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    ranges, end = read(stream, start)
    assert (ranges, end) == ([("id", 0, 0, 5, []), ("id", 1, 0, 6, [])], offset(5, 6))
    assert stream.reportLatestOffset() == offset(10, 11), "what has come since, in Spark's progress"
    ranges, again = read(stream, end)
    assert (ranges, again) == ([], end)


class Broken:
    """A topic whose records are removed, and that is made again: `firsts`, `stops` and the id."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.number = chance, 0
        self.firsts, self.stops = {0: 0, 1: 0}, {0: 0, 1: 0}

    def described(self) -> Any:
        return Topic("t", f"id{self.number}", 2)

    def starts(self, partitions: int) -> dict[int, int]:
        return dict(self.firsts)

    def ends(self, partitions: int) -> dict[int, int]:
        return dict(self.stops)

    def later_than(self, time_ms: int, partitions: Any) -> dict[int, int]:
        """A record's time is its offset."""
        found = {p: max(time_ms + 1, self.firsts[p]) for p in partitions}
        return {p: at for p, at in found.items() if at < self.stops[p]}

    def live_on(self) -> None:
        what = self.chance.choice(["grow", "grow", "grow", "cut", "again"])
        if what == "grow":
            self.stops = {p: stop + self.chance.randrange(9) for p, stop in self.stops.items()}
        elif what == "cut":
            self.firsts = {p: self.chance.randint(at, self.stops[p]) for p, at in self.firsts.items()}
        else:
            self.number, self.firsts, self.stops = self.number + 1, {0: 0, 1: 0}, {0: 0, 1: 0}


@pytest.mark.parametrize("starting", ["earliest", "latest", "1970-01-01T00:00:00.006Z"])
@pytest.mark.parametrize("seed", range(40))
def test_a_stream_that_goes_on_reads_each_record_once_and_only_what_is_there(seed, starting):
    """Batches that are read at once, and such that Spark repeats after a restart, when more records are gone."""
    topic = Broken(random.Random(seed))
    records = KafkaRecords(
        "t",
        "nowhere:9092",
        Decoder(value=Raw("v", "binary")),
        starting=starting,
        changed_topics="go-on",
        most_records=7,
    )
    records._asked = topic  # type: ignore[assignment]
    stream = _source("ranges", records)({}).streamReader(None)
    topic.live_on()
    at, found_so_far = stream.initialOffset(), set()
    for _ in range(60):
        topic.live_on()
        ranges, end = read(stream, at)
        assert records.resumed(end) is end and stream_offset(end).topic_id == f"id{topic.number}"
        if topic.chance.random() < 0.4:
            topic.live_on()
            stream = _source("ranges", records)({}).streamReader(None)
            ranges = [each for part in stream.partitions(at, end) for each in part.value]
        for topic_id, partition, start, stop, _ in ranges:
            there = range(topic.firsts[partition], topic.stops[partition] + 1)
            assert start == stop or (topic_id == f"id{topic.number}" and start in there and stop in there)
            assert start <= stop == end["offsets"][str(partition)]
            found = {(topic_id, partition, offset) for offset in range(start, stop)}
            assert not found & found_so_far
            found_so_far |= found
        at = end
        if starting == "earliest" and at["topic_id"] == f"id{topic.number}":
            assert all(
                (at["topic_id"], p, offset) in found_so_far
                for p, first in topic.firsts.items()
                for offset in range(first, at["offsets"][str(p)])
            )


class Gone(Growing):
    def described(self) -> Any:
        raise MissingTopic("topic 't'", found="no such topic", expected="one")


def test_a_topic_that_was_deleted_is_told_as_such_also_beside_its_own_batches():
    records = KafkaRecords("t", "nowhere:9092", Decoder(value=Raw("v", "binary")))
    records._asked = records._watched = Gone()  # type: ignore[assignment]
    for ask in (records.ends, lambda: records.extent({})):
        with pytest.raises(MissingTopic, match="it was deleted"):
            ask()


def test_a_stream_that_begins_at_a_time_has_read_nothing_there():
    topic, decoder = Broken(random.Random(0)), Decoder(value=Raw("v", "binary"))
    topic.stops = {0: 9, 1: 9}
    records = KafkaRecords("t", "nowhere:9092", decoder, starting="1970-01-01T00:00:00.006Z")
    records._asked = topic  # type: ignore[assignment]
    start = records.first()
    assert start["offsets"] == {"0": 6, "1": 6} and records.available(start).unread
    assert records.extent({}).unread and not records.extent({"id0": {0: 6, 1: 7}}).unread


def stream_offset(offset: Any) -> StreamOffset:
    return msgspec.json.decode(msgspec.json.encode(offset), type=StreamOffset, strict=False)


@pytest.mark.parametrize(
    "starting", ["yesterday", "2026-01-31", "2026-01-31T00:00:00", "1900-01-01T00:00:00Z", 7]
)
def test_where_a_stream_may_start(starting):
    with pytest.raises(
        InputError, match=r"KafkaRecords\.starting: found .*, expected 'earliest', 'latest', or a time"
    ):
        KafkaRecords("t", "nowhere:9092", Decoder(value=Raw("v", "binary")), starting=starting)
