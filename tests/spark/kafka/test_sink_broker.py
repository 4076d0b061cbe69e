"""A sink on a real broker: what it writes, and what it asks of topics."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import confluent_kafka as ck

from taskplace.errors import Fenced, InputError, SinkError
from taskplace.spark.kafka.sink_topics import Marker, MarkerKey
from tests.support.kafka_sinks import Stream
from tests.support.kafka_topics import committed, read
from topology import Topology

pytestmark = pytest.mark.kafka


@pytest.fixture
def stream(kafka, tmp_path) -> Stream:
    checkpoint = kafka.unique("cp")
    return Stream(tmp_path, kafka.bootstrap, kafka.topic("out", 2), kafka.unique("markers"), checkpoint)


def written(stream: Stream) -> list[int]:
    return [value["i"] for _, _, value in read(stream.servers, stream.topic)]


def test_records_with_everything(stream):
    rows = pa.table(
        {
            "k": ["a", "b"],
            "i": [1, 2],
            "gone": [False, True],
            "trace": ["x", None],
            "at": pa.array([datetime(2026, 1, 1, tzinfo=timezone.utc), None], pa.timestamp("us", "UTC")),
        }
    )
    sink = stream.opened(headers={"trace-id": "trace"}, timestamp="at", deleted="gone")
    sink.publish_commit(stream.commit(0, rows))
    first, second = sorted(committed(stream.servers, stream.topic), key=lambda message: message.key())
    assert (first.key(), first.value(), first.headers()) == (b"a", b'{"k":"a","i":1}', [("trace-id", b"x")])
    assert first.timestamp() == (ck.TIMESTAMP_CREATE_TIME, 1767225600000)
    assert (second.key(), second.value(), second.headers()) == (b"b", None, None)


def test_keys_go_where_kafkas_own_clients_send_them(kafka, stream):
    from kafka import KafkaProducer

    keys = [f"key-{i}" for i in range(40)]
    stream.opened().publish_commit(stream.commit(0, pa.table({"k": keys, "i": list(range(40))})))
    found = {key: partition for partition, key, _ in read(stream.servers, stream.topic)}
    other = kafka.topic("other", 2)
    producer = KafkaProducer(bootstrap_servers=stream.servers)
    try:
        sent = {key: producer.send(other, b"{}", key=key.encode()) for key in keys}
        assert found == {key.encode(): future.get(30).partition for key, future in sent.items()}
    finally:
        producer.close()


def test_each_batch_once_whoever_publishes_it(stream):
    one, other = stream.opened(), stream.opened()
    for sink, batch in [(one, 0), (one, 0), (one, 1), (other, 1), (other, 2), (one, 2), (one, 3), (other, 4)]:
        sink.publish_commit(stream.commit(batch))
    assert written(stream) == [0, 1, 2, 3, 4]

    def replaced() -> None:
        raise Fenced("another driver")

    with pytest.raises(Fenced):
        one.publish_commit(stream.commit(4, check_epoch=replaced))
    assert written(stream) == [0, 1, 2, 3, 4]


def test_an_open_transaction_of_a_killed_driver_is_ended_by_the_next_one(stream):
    dead = ck.Producer(
        {
            "bootstrap.servers": stream.servers,
            "transactional.id": f"taskplace-{stream.checkpoint}-out",
        }
    )
    dead.init_transactions(30)
    dead.begin_transaction()
    dead.produce(stream.topic, b'{"k":"a","i":99}', key=b"a")
    dead.flush(30)
    stream.opened().publish_commit(stream.commit(0))
    assert written(stream) == [0]


def test_the_marker_is_read_to_the_end_behind_others_transactions(kafka, stream):
    sink = stream.opened()
    sink.publish_commit(stream.commit(0))
    other = ck.Producer({"bootstrap.servers": stream.servers, "transactional.id": kafka.unique("other")})
    other.init_transactions(30)
    key = MarkerKey(stream.checkpoint, "out")
    other.begin_transaction()
    other.produce(stream.markers, b'{"batch":7,"manifest":""}', key=b"another sink's")
    other.flush(30)
    with pytest.raises(
        SinkError, match=r"read up to offset \d+ of \d+ in 5 s; .*transaction of another sink is open"
    ):
        sink._markers.read(key, 5)
    other.abort_transaction(30)  # what is left of it are gaps, up to the end of the partition
    assert sink._markers.read(key, 30) == Marker(0, "m0")
    assert sink._markers.read(MarkerKey(stream.checkpoint, "unknown"), 30) is None


@pytest.mark.parametrize(
    ("partitions", "config", "options", "says"),
    [
        (
            2,
            {"cleanup.policy": "compact"},
            {},
            r"found partitions = 2, expected 1; set another `marker_topic`",
        ),
        (1, {}, {}, r"found cleanup\.policy = delete, expected compact"),
        (
            1,
            {"cleanup.policy": "compact,delete"},
            {},
            r"found cleanup\.policy = compact,delete, expected compact; change it",
        ),
        (1, {"cleanup.policy": "compact"}, {"replication": 3}, r"found replicas = 1, expected at least 3"),
    ],
)
def test_a_marker_topic_that_would_lose_markers(kafka, stream, partitions, config, options, says):
    stream.markers = kafka.topic("markers", partitions, config)
    with pytest.raises(SinkError, match=rf"^topic '{stream.markers}': {says}"):
        stream.sink(**options).probe()


def test_topics_that_cannot_take_the_rows(kafka, stream):
    name, stream.topic = stream.topic, stream.topic[:-1] + "x"
    with pytest.raises(SinkError, match=rf"does not exist; create it first; did you mean '{name[:5]}"):
        stream.sink().probe()
    stream.topic = kafka.topic("small", config={"max.message.bytes": "100000"})
    with pytest.raises(
        SinkError, match=r"found max\.message\.bytes = 100000, expected at least .* = 1000000: .* change one"
    ):
        stream.sink().probe()
    stream.sink(options={"message.max.bytes": 90000}).probe()
    stream.topic = kafka.topic("compacted", config={"cleanup.policy": "compact"})
    with pytest.raises(SinkError, match=r"it is compacted, so its records need a key; set `key`"):
        stream.sink(key=None).probe()


def test_a_key_of_a_megabyte_is_refused_before_the_commit_or_sent(world, kafka, stream):
    def numbers(target) -> Topology:
        topo = Topology("t")
        topo.source("in", key="k", partitions=1).sink("out", target=target)
        return topo

    large = pa.table({"k": ["k" * (1 << 20)], "i": [1]})
    placed = world.open(numbers(stream.sink()))
    with pytest.raises(
        InputError, match=r"^sinks\.out: found 'a record of \d+ bytes, of which 1048576 are its key'"
    ):
        world.batch(placed, 0, **{"in": large})
    assert not list((world.folder / "checkpoint" / "manifests").glob("*.json"))
    stream.topic = kafka.topic("large", config={"max.message.bytes": "4000000"})
    placed = world.open(numbers(stream.sink(options={"message.max.bytes": 3_000_000})), checkpoint="another")
    world.batch(placed, 0, **{"in": large})
    ((_, key, value),) = read(stream.servers, stream.topic)
    assert (len(key or b""), value["i"]) == (1 << 20, 1)


def test_at_least_once(stream):
    stream.options["delivery"] = "at-least-once"
    stream.opened().publish_commit(stream.commit(0, pa.table({"k": ["a"] * 3000, "i": list(range(3000))})))
    assert written(stream) == list(range(3000))
    stream.opened().publish_commit(stream.commit(0))
    assert written(stream) == [*range(3000), 0]
