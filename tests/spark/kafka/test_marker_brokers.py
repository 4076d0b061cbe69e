"""The topic of markers on three brokers: it is made, read and written while one is down, and waits while two are."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka.admin import AdminClient

from examples.kafka.broker import Brokers
from taskplace.errors import SinkError
from taskplace.spark import faults
from taskplace.spark.kafka import brokers as questions
from taskplace.spark.kafka import sink_topics as marker
from taskplace.spark.kafka.clients import Clients
from taskplace.spark.kafka.options import ClientOptions
from taskplace.spark.kafka.sink_topics import Marker, MarkerKey, MarkerTopic, configuration
from tests.support.kafka_broker import NewTopic, make_topics
from tests.support.kafka_sinks import Stream
from tests.support.kafka_topics import read
from tests.support.placed_harness import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(900)]
SECONDS = 120
NUMBERS = (1, 2, 3)


@pytest.fixture(scope="module")
def brokers():
    with Brokers(3) as brokers:
        yield brokers


def admin_of(brokers: Brokers) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})


def markers_of(brokers: Brokers, name: str) -> MarkerTopic:
    return MarkerTopic(Clients(ClientOptions("test", brokers.bootstrap, {}), "test"), name, None)


def partitions_of(brokers: Brokers, name: str):
    return questions.Admin(admin_of(brokers), SECONDS).metadata().topics[name].partitions


def only_partition(brokers: Brokers, name: str):
    (partition,) = partitions_of(brokers, name).values()
    return partition


def in_sync(brokers: Brokers, name: str) -> set[int]:
    """Return the brokers that are in sync in any partition of a topic."""
    return {id_ for partition in partitions_of(brokers, name).values() for id_ in partition.isrs}


def in_sync_needed(brokers: Brokers, name: str) -> str:
    clients = Clients(ClientOptions("test", brokers.bootstrap, {}), "test")
    return configuration(clients, name)["min.insync.replicas"]


def written(stream: Stream) -> list[int]:
    return [value["i"] for _, _, value in read(stream.servers, stream.topic)]


@pytest.mark.parametrize("down", NUMBERS)
def test_it_is_made_and_read_while_a_broker_is_down(brokers, tmp_path, caplog, down):
    stream = Stream(tmp_path, brokers.bootstrap, f"out-{down}", f"markers-{down}", "cp")
    make_topics(admin_of(brokers), NewTopic(stream.topic, 3))
    brokers.kill(down)
    wait_until(lambda: down not in in_sync(brokers, stream.topic), "the others know that it is down", SECONDS)
    stream.opened().publish_commit(stream.commit(0))
    made = only_partition(brokers, stream.markers)
    assert sorted(made.replicas) == [*NUMBERS], "the broker that is down has a replica"
    assert down not in in_sync(brokers, stream.markers)
    assert in_sync_needed(brokers, stream.markers) == "2"
    assert not [each for each in caplog.records if each.name == marker.__name__], "fewer replicas"
    brokers.restart(down)

    leader = only_partition(brokers, stream.markers).leader
    brokers.kill(leader)
    sink = stream.opened(repeated=0)  # a start reads the marker, of which the leader has just died
    sink.publish_commit(stream.commit(0))
    assert markers_of(brokers, stream.markers).read(MarkerKey("cp", "out"), SECONDS) == Marker(0, "m0")
    sink.publish_commit(stream.commit(1))
    brokers.restart(leader)
    assert written(stream) == [0, 1]


def test_two_of_three_brokers_are_down(brokers, tmp_path, monkeypatch):
    """The broker that is left leads both topics, so it takes records that nobody else gets."""
    markers_of(brokers, "markers").create()
    left = only_partition(brokers, "markers").leader
    others = [number for number in NUMBERS if number != left]
    make_topics(admin_of(brokers), NewTopic("out", 1, replica_assignment=[[left, *others]]))
    stream = Stream(tmp_path, brokers.bootstrap, "out", "markers", "cp")
    hasty = {"options": {"transaction.timeout.ms": 10_000}, "patience": "15 s"}
    sink = stream.opened(**hasty)
    sink.publish_commit(stream.commit(0))
    for number in others:
        brokers.kill(number)

    for _ in range(2):  # also by a new producer
        with pytest.raises(
            SinkError, match=r"^batch 1 of sink 'out': not published within 15 s; the last error: "
        ):
            sink.publish_commit(stream.commit(1))
    # Which question is the first without an answer depends on when the last broker gives up being the controller. So
    # the words differ, but each names the sink, or one of its topics.
    says = r"^[^:]*\b(sink|topic) '(out|markers)'|^the brokers of the sink do not answer: "
    with pytest.raises(SinkError, match=says) as raised:
        stream.opened(repeated=1, **hasty)
    final = ("does not exist", "made again", "expected", "allow `")
    assert not [words for words in final if words in str(raised.value)], "they are only away"

    failed: list[BaseException] = []
    begun = threading.Event()

    def publish() -> None:
        try:
            stream.sink().publish_commit(stream.commit(1))
        except BaseException as error:
            failed.append(error)

    monkeypatch.setattr(faults, "point", lambda name: begun.set() if name == "sink.starting" else None)
    waiting = threading.Thread(target=publish)
    waiting.start()
    assert begun.wait(SECONDS)
    brokers.restart(others[0])
    waiting.join(2 * SECONDS)
    assert not waiting.is_alive() and not failed, failed
    stream.opened(repeated=1).publish_commit(stream.commit(1))
    stream.opened().publish_commit(stream.commit(2))
    assert written(stream) == [0, 1, 2]
    brokers.restart(others[1])
    assert written(stream) == [0, 1, 2]
