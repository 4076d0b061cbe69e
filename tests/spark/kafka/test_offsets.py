"""Topics of a real broker: what a stream of ranges asks of it, transactions, and topics that change under a stream.

Partition counts come from the brokers: what is missing or unequal makes a topology unready, with the reason.
"""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from examples.kafka.broker import Brokers
from taskplace.errors import InputError
from taskplace.spark.kafka import reading
from taskplace.spark.kafka.clients import Clients
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.offsets import KafkaTopic, MissingTopic, with_broker_counts
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.processors import TableJoin
from taskplace.spark.worker.topic_reader import RANGES
from tests.support.kafka_admin import FakeAdmin
from tests.support.kafka_broker import make_topics
from tests.support.kafka_topics import settle
from tests.support.own_reads import ROOM, OwnReader
from tests.support.placed_harness import wait_until
from topology import Topology, TopologyNotReady

SECONDS = 60
DECODER = Decoder(value=Raw("line", "string"), include=["partition", "offset"])


@pytest.fixture(autouse=True)
def _closed():
    yield
    reading.close_consumers()


def records(kafka, topic: str, **more) -> KafkaRecords:
    return KafkaRecords(topic, kafka.bootstrap, DECODER, patience=f"{2 * SECONDS} s", **more)


def send(kafka, topic: str, *lines: str, partition: int = 0, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for line in lines:
        producer.produce(topic, key=key, value=line.encode(), partition=partition)
    assert producer.flush(SECONDS) == 0


def lines(reads: KafkaRecords, start, end) -> list[str]:
    ranges = [dict(zip(RANGES.names, each, strict=True)) for each in reads.ranges(start, end)]
    return reads.read(pa.Table.from_pylist(ranges, RANGES), ROOM)["line"].to_pylist()


def test_a_stream_reads_what_comes(kafka):
    topic = kafka.topic("lines", partitions=2)
    reads = records(kafka, topic)
    assert reads.partitions() == 2
    send(kafka, topic, "a", "b")
    first, late = reads.first(), records(kafka, topic, starting="latest").first()
    assert first["offsets"] == {"0": 0, "1": 0} and late["offsets"] == {"0": 2, "1": 0}
    end = reads.newest(first)
    assert end == late == reads.last()
    send(kafka, topic, "c", partition=1)
    assert lines(reads, first, end) == ["a", "b"]
    assert lines(reads, end, reads.newest(end)) == ["c"]
    assert reads.available(end, end).new == ()


def test_records_are_found_by_their_times_and_times_by_offsets(kafka):
    topic, first = kafka.topic("times", partitions=4), time.time_ns() // 10**6 - 10**6  # retention keeps them
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(10):
        producer.produce(topic, value="", partition=number % 2, timestamp=first + number)
    assert producer.flush(SECONDS) == 0
    aborted = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    aborted.init_transactions(SECONDS)
    aborted.begin_transaction()
    aborted.produce(topic, value="", partition=2, timestamp=first)
    aborted.flush(SECONDS)
    aborted.abort_transaction(SECONDS)
    send(kafka, topic, "", partition=2)
    reads = records(kafka, topic)
    for at in (1, 2):  # a consumer is used again
        assert reads.times_at({0: at, 1: 5, 3: 0}) == {0: first + 2 * at}
    assert reads.times_at({2: 0})[2] > first + 10, "records of aborted transactions do not count"
    assert reads.later_than(first + 4, range(4)) == {0: 3, 1: 2, 2: 1}  # a marker has a time, too
    assert reads.extent({})[:3] == (
        dict.fromkeys(range(4), 0),
        dict.fromkeys(range(4), 0),
        {0: 5, 1: 5, 2: 3, 3: 0},
    )
    topic_id = reads.first()["topic_id"]
    assert reads.extent({topic_id: {0: 4}}).begins == {0: 4, 1: 0, 2: 0, 3: 0}
    assert records(kafka, topic, starting="latest").extent({}).new == ()


def test_only_committed_records_are_read_and_a_batch_ends_before_an_open_transaction(kafka):
    topic = kafka.topic("transactions")
    reads = records(kafka, topic)
    first = reads.first()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for line, end in (("a", "commit"), ("b", "abort"), ("c", "commit"), ("d", "abort")):
        producer.begin_transaction()
        producer.produce(topic, value=line.encode())
        producer.flush(SECONDS)
        if line == "c":  # open: the last stable offset is before it
            assert lines(reads, first, reads.newest(first)) == ["a"]
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(SECONDS)
    settle(kafka.bootstrap, topic)
    end = reads.newest(first)
    assert end["offsets"] == {
        "0": 8
    }  # a marker takes an offset, and the last one stands behind an aborted record
    assert lines(reads, first, end) == ["a", "c"]
    tail = {**end, "offsets": {"0": 6}}
    assert lines(reads, tail, end) == []  # a range without any record


def test_ranges_that_begin_or_end_inside_an_aborted_transaction(kafka):
    """A reader that begins behind the first record of an aborted transaction leaves out the rest of it all the same."""
    topic = kafka.topic("inside")
    reads = records(kafka, topic)
    first = reads.first()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for sent, end in (
        ("ab", "commit"),
        ("cdefgh", "abort"),
        ("ij", "commit"),
        ("klmn", "abort"),
        ("o", "commit"),
    ):
        producer.begin_transaction()
        for line in sent:
            producer.produce(topic, value=line.encode())
        producer.flush(SECONDS)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(SECONDS)
    settle(kafka.bootstrap, topic)
    whole = reads.newest(first)
    # Offsets: a b - c d e f g h - i j - k l m n - o -, where - is the end of a transaction.
    assert whole["offsets"] == {"0": 20}
    at = {number: {**whole, "offsets": {"0": number}} for number in range(21)}
    expected = {0: "a", 1: "b", 10: "i", 11: "j", 18: "o"}
    for start in range(20):
        found = "".join(line for offset, line in expected.items() if offset >= start)
        assert "".join(lines(reads, at[start], whole)) == found, f"from {start}"
    for start, end in [(3, 9), (4, 7), (5, 11), (2, 15), (14, 16), (8, 19), (0, 6), (15, 20)]:
        found = "".join(line for offset, line in expected.items() if start <= offset < end)
        assert "".join(lines(reads, at[start], at[end])) == found, f"from {start} to {end}"


def test_a_compacted_topic_full_of_gaps(kafka):
    """Ranges of any cut have the records that are left, also those whose ends were removed."""
    gaps = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    topic = kafka.topic("gaps", config={**gaps, "max.compaction.lag.ms": "100", "delete.retention.ms": "0"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(300):
        producer.produce(topic, key=b"hot" if number % 50 else b"%d" % number, value=b"%d" % number)
    assert producer.flush(SECONDS) == 0
    reads = records(kafka, topic)
    whole = (reads.first(), reads.newest(reads.first()))
    left: list[str] = []

    def is_compacted() -> bool:
        left[:] = lines(reads, *whole)
        if len(left) > 10:
            send(kafka, topic, "more", key=b"more")  # a segment is closed when a record comes
        return len(left) <= 10

    wait_until(is_compacted, "the broker has compacted the topic", SECONDS)
    assert left == ["0", "50", "100", "150", "200", "250", "299"]
    cuts = [{**whole[1], "offsets": {"0": at}} for at in (0, 1, 60, 120, 130, 240, 300)]
    assert [lines(reads, *pair) for pair in itertools.pairwise(cuts)] == [
        ["0"], ["50"], ["100"], [], ["150", "200"], ["250", "299"]
    ]  # fmt: skip


def test_a_topic_that_was_made_again(kafka):
    topic = kafka.topic("again")
    send(kafka, topic, "a")
    reads = records(kafka, topic)
    start = reads.newest(reads.first())
    kafka.admin.delete_topics([topic], operation_timeout=SECONDS)[topic].result(SECONDS)
    make_topics(kafka.admin, NewTopic(topic, 1))
    # A broker learns of it from the controller, a little after the answer to the request.
    wait_until(lambda: reads.first()["topic_id"] != start["topic_id"], "the topic has another id", SECONDS)
    send(kafka, topic, "b", "c")
    message = (
        "expected the id .*: the topic was deleted and made again; .*`changed_topics: go-on` of the source"
    )
    with pytest.raises(InputError, match=message):
        reads.newest(start)
    with pytest.raises(InputError, match=message):
        reads.left(start, start)


def test_a_topic_that_got_more_partitions(kafka):
    topic = kafka.topic("more")
    reads = records(kafka, topic)
    start = reads.first()
    kafka.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(SECONDS)
    wait_until(lambda: reads.partitions() == 3, "the topic has its new partitions", SECONDS)
    with pytest.raises(
        InputError,
        match=r"found '3 partitions', expected 1, as at the start .*to keep the state, copy the unread",
    ):
        reads.newest(start)


def test_records_that_were_removed_before_they_were_read(kafka):
    topic = kafka.topic("removed")
    send(kafka, topic, *"abcde")
    reads = records(kafka, topic)
    first = reads.first()
    end = reads.newest(first)
    partition = TopicPartition(topic, 0, 3)
    kafka.admin.delete_records([partition])[partition].result()
    with pytest.raises(
        InputError, match="offset 0: found 'records that the broker no longer has; its first offset is 3'"
    ):
        reads.newest(first)
    with pytest.raises(InputError, match="offset 0: found 'records that the broker no longer has'"):
        lines(reads, first, end)
    assert lines(reads, {**end, "offsets": {"0": 3}}, end) == ["d", "e"]


@pytest.mark.long
def test_a_read_waits_for_a_broker_that_is_started_again():
    with Brokers(1) as brokers, ThreadPoolExecutor(2) as pool:
        make_topics(AdminClient({"bootstrap.servers": brokers.bootstrap}), NewTopic("t", 1))
        kafka = SimpleNamespace(bootstrap=brokers.bootstrap)
        send(kafka, "t", *"abc")
        reads = records(kafka, "t")
        first = reads.first()
        end = reads.newest(first)
        brokers.kill(1)
        found, asked = pool.submit(lines, reads, first, end), pool.submit(reads.newest, first)
        with pytest.raises(TimeoutError):
            found.result(2)
        brokers.restart(1)
        assert (found.result(2 * SECONDS), asked.result(2 * SECONDS)) == (["a", "b", "c"], end)
        send(kafka, "t", "d")
        assert lines(reads, end, reads.newest(end)) == ["d"]


pytest.importorskip("confluent_kafka")


class Counted(OwnReader):
    """A reader whose broker has this count, or none."""

    def __init__(self, count: int | None) -> None:
        self.count = count

    def partitions(self) -> int:
        if self.count is None:
            raise MissingTopic("topic 'x'", found="none", expected="a topic")
        return self.count


def joined(stream: object, table: object, **more: object) -> Topology:
    topo = Topology("t")
    left = topo.source("stream", key="k", reads=stream, **more)
    right = topo.source("table", key="k", reads=table)
    left.join_table(right, TableJoin("j", by={"k": "string"}, columns={"at": "int64"}), name="joined")
    return topo


def test_counts_come_from_the_brokers(world):
    built = with_broker_counts(joined(Counted(3), Counted(3)).build())
    assert built.readiness() and len(built.tasks()) == 3
    assert len(world.open(built).built.tasks()) == 3


@pytest.mark.parametrize(
    ("stream", "table", "kind", "text"),
    [
        (None, 3, "missing", "topic 'stream': missing, its partition count is not known"),
        (
            2,
            3,
            "unequal",
            "joined topics need equal partition counts, found stream=2, table=3; create the topics",
        ),
    ],
)
def test_what_does_not_fit_is_a_reason(world, stream, table, kind, text):
    built = with_broker_counts(joined(Counted(stream), Counted(table)).build())
    (reason,) = built.readiness().reasons
    assert reason.kind == kind and text in reason.text
    with pytest.raises(TopologyNotReady, match=f"not ready: .*{text}"):
        world.open(built)
    assert not (world.folder / "checkpoint").exists()


def test_a_topic_that_comes_makes_the_topology_ready_and_one_that_grows_unready():
    stream, table = Counted(None), Counted(2)
    built = with_broker_counts(joined(stream, table).build())
    assert not built.readiness()
    stream.count = 2
    built = with_broker_counts(built)
    assert built.readiness()
    stream.count = table.count = 4
    reasons = with_broker_counts(built).readiness().reasons
    assert {reason.kind for reason in reasons} == {"changed"}
    assert "go back to 2, or start a new checkpoint" in reasons[0].text


def test_a_topic_is_missing_only_if_the_brokers_say_so(monkeypatch):
    def answering(error: str) -> KafkaTopic:
        monkeypatch.setattr(Clients, "admin", lambda self: FakeAdmin(error))
        return KafkaTopic("t", "nowhere:9092")

    topo = Topology("t")
    topo.source("a", key="k", partition_column="partition")
    assert not with_broker_counts(topo.build(), {"a": answering("UNKNOWN_TOPIC_OR_PART")}).readiness()
    with pytest.raises(InputError, match="allow `Describe` on the topic"):
        with_broker_counts(topo.build(), {"a": answering("TOPIC_AUTHORIZATION_FAILED")})
