"""Topics of a sink on a real broker that are deleted, made again, or get more partitions."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka.admin import NewPartitions, NewTopic

from taskplace.errors import CheckpointError, SinkError
from taskplace.spark import faults
from taskplace.spark.kafka import brokers as questions
from tests.support.kafka_broker import make_topics
from tests.support.kafka_sinks import Stream
from tests.support.kafka_topics import read

pytestmark = pytest.mark.kafka
SECONDS = 60


@pytest.fixture
def stream(kafka, tmp_path) -> Stream:
    checkpoint = kafka.unique("cp")
    return Stream(tmp_path, kafka.bootstrap, kafka.topic("out", 2), kafka.unique("markers"), checkpoint)


def written(stream: Stream) -> list[int]:
    return [value["i"] for _, _, value in read(stream.servers, stream.topic)]


def delete(kafka, topic: str) -> None:
    """Delete a topic, and wait until the broker does not know it any more."""
    kafka.admin.delete_topics([topic], operation_timeout=SECONDS)[topic].result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while topic in questions.Admin(kafka.admin, SECONDS).metadata().topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def make_again(kafka, topic: str, partitions: int, **config: str) -> None:
    delete(kafka, topic)
    make_topics(kafka.admin, NewTopic(topic, partitions, config=config))


def test_a_topic_that_is_made_again_is_noticed_at_the_start_and_while_the_stream_runs(kafka, stream):
    sink = stream.opened()
    sink.publish_commit(stream.commit(0))
    make_again(kafka, stream.topic, 2)
    with pytest.raises(
        CheckpointError, match=rf"'{stream.topic}' was deleted and made again.*go-on"
    ) as raised:
        sink.publish_commit(stream.commit(1))
    assert "start a new checkpoint" in str(raised.value)
    with pytest.raises(CheckpointError, match="was deleted and made again"):
        stream.opened()
    stream.opened(changed_topics="go-on").publish_commit(stream.commit(1))
    stream.opened().publish_commit(stream.commit(2))
    assert written(stream) == [1, 2]


def test_a_topic_that_is_deleted_ends_the_query_at_once(kafka, stream):
    sink = stream.opened()
    sink.publish_commit(stream.commit(0))
    delete(kafka, stream.topic)
    begun = time.monotonic()
    with pytest.raises(SinkError, match=rf"^topic '{stream.topic}' does not exist any more"):
        sink.publish_commit(stream.commit(1))
    assert time.monotonic() - begun < 60, "the sink's patience is five minutes"


@pytest.mark.parametrize("point", ["sink.sending", "sink.sent"])
@pytest.mark.parametrize("which", ["topic", "markers"])
def test_a_topic_that_is_deleted_inside_a_transaction(kafka, stream, monkeypatch, point, which):
    sink = stream.opened()
    sink.publish_commit(stream.commit(0))
    name, done = getattr(stream, which), []

    def lose(passed: str) -> None:
        if passed == point and not done:
            done.append(passed)
            delete(kafka, name)

    monkeypatch.setattr(faults, "point", lose)
    try:
        sink.publish_commit(stream.commit(1))  # the records were there before the topic was
    except SinkError as error:
        assert f"topic '{name}' does not exist any more" in str(error)
    with pytest.raises(SinkError, match=rf"topic '{name}' does not exist any more"):
        sink.publish_commit(stream.commit(2))


def test_partitions_that_are_added_are_noticed(kafka, stream):
    sink = stream.opened()
    sink.publish_commit(stream.commit(0))
    kafka.admin.create_partitions([NewPartitions(stream.topic, 3)])[stream.topic].result(SECONDS)
    with pytest.raises(CheckpointError, match=r"found 3 partitions, expected 2; keys go to other partitions"):
        sink.publish_commit(stream.commit(1))
    stream.opened(changed_topics="go-on").publish_commit(stream.commit(1))
    assert sorted(written(stream)) == [0, 1]


def test_lost_markers(kafka, stream):
    sink = stream.opened()
    sink.publish_commit(stream.commit(0))
    make_again(kafka, stream.markers, 1, **{"cleanup.policy": "compact"})
    with pytest.raises(CheckpointError, match=rf"'{stream.markers}' was deleted and made again while"):
        sink.publish_commit(stream.commit(1))
    with pytest.raises(CheckpointError, match=r"nobody knows whether topic .* has batch 0"):
        stream.opened(repeated=0)
    stream.opened().publish_commit(stream.commit(1))  # batch 0 is not published again
    stream.opened(repeated=1).publish_commit(stream.commit(1))
    assert written(stream) == [0, 1]
    stream.markers = kafka.unique("markers")
    with pytest.raises(CheckpointError, match=r"nobody knows whether topic .* has batch 1"):
        stream.opened(repeated=1)
    stream.opened(repeated=1, changed_topics="go-on").publish_commit(stream.commit(1))
    assert written(stream) == [0, 1, 1], "as the error has said"
