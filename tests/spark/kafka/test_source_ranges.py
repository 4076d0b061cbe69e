"""The data source of ranges: where a stream begins, and where it ends that reads what is there now."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.offsets import Described
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.source import _source


def offset(*ends: int) -> dict[str, Any]:
    return {"topic_id": "id", "offsets": {str(partition): end for partition, end in enumerate(ends)}}


class Growing:
    """What the brokers say of a topic that grows: its ends move on by 5 records with each question."""

    def __init__(self) -> None:
        self.questions = 0

    def described(self) -> Any:
        return Described("id", 2)

    def starts(self, partitions: int) -> dict[int, int]:
        return dict.fromkeys(range(partitions), 0)

    def ends(self, partitions: int) -> dict[int, int]:
        self.questions += 1
        return {partition: 5 * self.questions + partition for partition in range(partitions)}


def reader(starting: str) -> Any:
    records = KafkaRecords("t", "nowhere:9092", Decoder(value=Raw("v", "binary")), starting=starting)
    records._offsets = Growing()  # type: ignore[assignment]
    return _source("ranges", records)({}).simpleStreamReader(None)


def test_the_end_of_what_is_there_is_never_before_a_latest_start():
    """Spark asks for the end first. The topic grows before the stream begins at its end."""
    stream = reader("latest")
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    assert start == offset(10, 11)
    ranges, end = stream.read(start)
    assert (list(ranges), end) == ([], start), "going back would read records again, from before the start"
    assert stream.read(end)[1] == end, "what comes later is for the next run"


def test_what_was_there_when_the_stream_started_is_read_and_nothing_else():
    stream = reader("earliest")
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    ranges, end = stream.read(start)
    assert (list(ranges), end) == ([("id", 0, 0, 5, []), ("id", 1, 0, 6, [])], offset(5, 6))
    ranges, again = stream.read(end)
    assert (list(ranges), again) == ([], end)


def test_a_latest_stream_without_an_end_goes_on():
    stream = reader("latest")
    start = stream.initialOffset()
    ranges, end = stream.read(start)
    assert (list(ranges), end) == ([("id", 0, 5, 10, []), ("id", 1, 6, 11, [])], offset(10, 11))
