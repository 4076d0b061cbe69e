"""Users and access control lists of a real broker: wrong credentials, rights that are missing, and enough of them."""

from __future__ import annotations

import itertools
import json
import time

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka.broker import Brokers
from taskplace.errors import InputError, SinkError
from taskplace.spark.kafka import reading
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.worker.topic_reader import RANGES
from tests.support.kafka_broker import make_topics
from tests.support.kafka_sinks import Stream
from tests.support.kafka_topics import committed
from tests.support.kafka_users import allow, credentials
from tests.support.own_reads import ROOM

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.xdist_group("kafka-rights")]
SECRET, WRONG = "hunter2", "wrong-secret"
PATIENCE = 60
names = itertools.count(1)


@pytest.fixture(scope="module")
def brokers():
    users = dict.fromkeys(("full", "reader", "writer", "once"), SECRET)
    with Brokers(users=users, tls=True, acls=True) as brokers:
        for kind, name in (("TOPIC", "*"), ("TRANSACTIONAL_ID", "*"), ("GROUP", "*")):
            allow(brokers, "full", kind, name, "ALL")
        yield brokers


@pytest.fixture(autouse=True)
def _closed():
    yield
    reading.close_consumers()


@pytest.fixture
def topic(brokers) -> str:
    """A topic of its own, with the records a, b and c."""
    name = f"lines-{next(names)}"
    make_topics(AdminClient({"bootstrap.servers": brokers.bootstrap}), NewTopic(name, 1))
    producer = Producer({"bootstrap.servers": brokers.bootstrap})
    for line in "abc":
        producer.produce(name, line)
    assert producer.flush(PATIENCE) == 0
    return name


@pytest.fixture
def password(tmp_path):
    (tmp_path / "password").write_text(f"{SECRET}\n")
    return tmp_path / "password"


def records(brokers, topic, user, password, listener="SASL_PLAINTEXT", **options) -> KafkaRecords:
    given = {**credentials(brokers, listener, user, password), **options}
    decoder = Decoder(value=Raw("line", "string"))
    return KafkaRecords(topic, brokers.listener(listener), decoder, options=given, patience=f"{PATIENCE} s")


def ranges(start: int, end: int) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(RANGES.names, ("id", 0, start, end, []), strict=True))], RANGES)


def lines(reads: KafkaRecords, start: int = 0, end: int = 3) -> list[str]:
    return reads.read(ranges(start, end), ROOM)["line"].to_pylist()


def refused_soon(ask, match: str, *secrets: str, caplog=None) -> None:
    """The error comes long before the patience is over, and shows no secret. Nor does the log."""
    begun = time.monotonic()
    with pytest.raises((InputError, SinkError), match=match) as raised:
        ask()
    assert time.monotonic() - begun < PATIENCE / 2
    shown = str(raised.value) + repr(raised.value) + (caplog.text if caplog else "")
    assert not [secret for secret in secrets if secret in shown]


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_source_with_a_password(brokers, topic, password, listener, caplog):
    reads = records(brokers, topic, "full", password, listener)
    says = r"_AUTHENTICATION.*check the credentials in the options"
    password.write_text(WRONG)
    refused_soon(reads.partitions, says, WRONG, caplog=caplog)
    refused_soon(lambda: lines(reads), says, WRONG, caplog=caplog)
    password.write_text(f"{SECRET}\n")  # the same reader: a password that is corrected is found
    assert reads.newest(reads.first())["offsets"] == {"0": 3}
    assert lines(reads) == ["a", "b", "c"]
    assert SECRET not in caplog.text + repr(reads)


def test_a_source_that_does_not_trust_the_broker(brokers, topic, password):
    reads = records(brokers, topic, "full", password, "SASL_SSL", **{"ssl.ca.location": "probe"})
    for ask in (reads.partitions, lambda: lines(reads)):
        refused_soon(ask, r"_SSL.*check the certificates in the options", SECRET)


def test_a_source_needs_the_rights_of_the_docs_and_no_more(brokers, topic, password):
    reads = records(brokers, topic, "reader", password)
    refused_soon(reads.partitions, r"TOPIC_AUTHORIZATION_FAILED.*; allow `Describe` on the topic")
    allow(brokers, "reader", "TOPIC", topic, "DESCRIBE")
    refused_soon(reads.partitions, r"no right to Read.*; allow `Read` on the topic")
    refused_soon(lambda: lines(reads), r"TOPIC_AUTHORIZATION_FAILED.*; allow `Read` on the topic")
    allow(brokers, "reader", "TOPIC", topic, "READ")
    first = reads.first()
    end = reads.newest(first)
    assert list(reads.ranges(first, end)) == [(end["topic_id"], 0, 0, 3, [])]
    assert lines(reads) == ["a", "b", "c"]


def test_a_sink_needs_the_rights_of_the_docs_and_no_more(brokers, topic, password, tmp_path):
    options = {"options": credentials(brokers, "SASL_PLAINTEXT", "writer", password)}
    markers = f"markers-{next(names)}"
    stream = Stream(tmp_path, brokers.listener("SASL_PLAINTEXT"), topic, markers, "cp", options)

    opened = stream.opened

    def publish():
        stream.opened().publish_commit(stream.commit(0))

    looks, ids = ("DESCRIBE", "DESCRIBE_CONFIGS"), ("TRANSACTIONAL_ID", "taskplace-")
    for ask, of, says, resource, operations in (
        (opened, topic, "cannot be checked: .*; allow `Describe` on the topic", ("TOPIC", topic), looks),
        (opened, topic, "this client has no right to Write; allow `Write` on", ("TOPIC", topic), ["WRITE"]),
        (opened, markers, "cannot be checked: .*; allow `Describe` on the topic", ("TOPIC", markers), looks),
        (opened, markers, "cannot be created: .*; allow `Create` on it, or", ("TOPIC", markers), ["CREATE"]),
        (
            opened,
            markers,
            "no right to Read or Write; allow `Read` and",
            ("TOPIC", markers),
            ["READ", "WRITE"],
        ),
        (
            opened,
            "",
            "the start of sink 'out': .*allow `Write` and `Describe` on transactional ids with",
            ids,
            ["WRITE", "DESCRIBE"],
        ),
    ):
        refused_soon(ask, rf"topic '{of}'.*{says}" if of else says)
        allow(brokers, "writer", *resource, *operations, prefix=resource is ids)
    publish()
    sink = stream.opened()
    for batch in (0, 1, 2):
        sink.publish_commit(stream.commit(batch))
    assert written(brokers, topic) == [0, 1, 2]


def test_a_sink_without_transactions_needs_less(brokers, topic, password, tmp_path, caplog):
    options = {
        "options": credentials(brokers, "SASL_PLAINTEXT", "once", password),
        "delivery": "at-least-once",
    }
    stream = Stream(tmp_path, brokers.listener("SASL_PLAINTEXT"), topic, "none", "cp", options)
    allow(brokers, "once", "TOPIC", topic, "WRITE", "DESCRIBE")
    stream.opened().publish_commit(stream.commit(0))
    assert f"the configuration of topic '{topic}' is not checked (allow `DescribeConfigs`)" in caplog.text
    assert written(brokers, topic) == [0]


def written(brokers, topic: str) -> list[int]:
    """Return what the sink has written behind the records a, b and c."""
    return [json.loads(message.value())["i"] for message in [*committed(brokers.bootstrap, topic)][3:]]
