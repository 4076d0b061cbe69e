"""How far a stream is behind its topic: the status, Spark's progress and a group, against the broker's answer."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer

from taskplace.errors import InputError
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Json, Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.source import stream_of
from taskplace.spark.operator_messages import PartitionStatus
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from tests.support.placed_harness import wait_until
from topology import Topology

DECODER = Decoder(
    key=Raw("k", "string"), value=Json({"v": "int64"}), include=["timestamp"], bad_records="dead_letters"
)
#: The first timestamp of the records, in milliseconds; each one is a second after the last. Retention keeps an hour.
BEGAN = 1000 * (int(time.time()) - 3_600)
TIMEOUT = 60


def send(kafka, topic: str, partition: int, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in numbers:
        value = b'{"v": 1}' if number else b"?"
        producer.produce(topic, key="k", value=value, partition=partition, timestamp=BEGAN + 1000 * number)
    assert producer.flush(TIMEOUT) == 0


def committed(kafka, group: str, topic: str) -> dict[int, int]:
    """Return by partition what the broker says that a group has committed."""
    asked = kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {
        at.partition: at.offset for at in asked[group].result(TIMEOUT).topic_partitions if at.topic == topic
    }


@pytest.mark.spark
def test_status_progress_and_group_have_what_the_broker_has(cluster, kafka, tmp_path):
    topic, group = kafka.topic("behind", partitions=3), kafka.unique("group")
    send(kafka, topic, 0, range(10))
    reads = KafkaRecords(
        topic, kafka.bootstrap, DECODER, options={"group.id": group}, most_records=4, patience="1 minute"
    )
    topo = Topology("behind")
    source = topo.source(
        "in", key="k", partitions=reads.partitions(), reads=reads, event_time="timestamp", check_keys=False
    )
    source.process(Count("n", by={"k": "string"}), name="count")
    placed = Placed(cluster, topo, checkpoint=tmp_path / "checkpoint", state_dir=tmp_path / "state")
    said = []

    def turn_after(df, number):  # while the stream runs, after each batch
        run(df, number)
        placed._runner.lag.turn()
        said.append((number, placed._runner.operations.status(), committed(kafka, group, topic)))

    run = placed.process_batch
    placed.process_batch = turn_after
    query = placed.start({"in": stream_of(reads, placed)}, trigger={"availableNow": True})
    query.awaitTermination()
    progress = [json.loads(each.json)["sources"][0] for each in query.recentProgress]
    placed.close()

    for (number, status, offsets), seen in zip(
        said, (one for one in progress if one["numInputRows"]), strict=False
    ):
        at = min(4 * (number + 1), 10)
        zero, one, two = (status.input["in"].partitions[partition] for partition in range(3))
        assert (zero.position, zero.end, zero.lag) == (at, 10, 10 - at)
        assert (one, two) == (PartitionStatus(0, 0, 0.0), PartitionStatus(0, 0, 0.0))
        if at < 10:
            assert zero.seconds == pytest.approx(status.written - (BEGAN / 1000 + at), abs=TIMEOUT)
        else:
            assert zero.seconds == 0
        assert offsets == {0: at, 1: 0, 2: 0}
        assert seen["endOffset"]["offsets"] == {"0": at, "1": 0, "2": 0}
        assert seen["latestOffset"]["offsets"] == {"0": 10, "1": 0, "2": 0}
    assert len(said) >= 3
    last = said[2][1]
    assert last.totals.bad == {"in": 1}
    assert last.watermark == 1000 * (BEGAN + 9_000)
    assert committed(kafka, group, topic) == {0: 10, 1: 0, 2: 0}, "also when the stream has ended"


def test_what_a_reader_asks_beside_the_batches(kafka):
    topic, group = kafka.topic("asked", partitions=2), kafka.unique("group")
    send(kafka, topic, 0, range(1, 5))
    reads = KafkaRecords(topic, kafka.bootstrap, DECODER, options={"group.id": group})
    assert reads.ends() == (reads.first()["topic_id"], {0: 4, 1: 0})
    assert reads.first_newer({0: BEGAN + 2_000, 1: -1}) == {0: (2, BEGAN + 3_000)}
    assert reads.first_newer({0: BEGAN + 4_000}) == reads.first_newer({}) == {}
    reads.commit({0: 3, 1: 0})
    assert committed(kafka, group, topic) == {0: 3, 1: 0}
    member = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        member.subscribe([topic])
        wait_until(
            lambda: member.poll(0.1) is None and member.assignment(), "a consumer is a member", TIMEOUT
        )
        with pytest.raises(InputError, match=r"UNKNOWN_MEMBER_ID.*set another `group.id`"):
            reads.commit({0: 4})
    finally:
        member.close()
    KafkaRecords(topic, kafka.bootstrap, DECODER).commit({0: 4})
    assert committed(kafka, group, topic)[0] == 3, "without a group.id, nothing is committed"
