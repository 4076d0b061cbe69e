"""Faults of a real broker under a sink: transactions that take too long, a broker that is killed, wrong credentials."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from examples.kafka.broker import Brokers
from taskplace.errors import SinkError
from taskplace.spark import faults
from taskplace.spark.kafka import brokers as questions
from taskplace.spark.kafka.clients import Clients
from taskplace.spark.kafka.options import ClientOptions
from taskplace.spark.kafka.sink_topics import configuration
from tests.support.kafka_sinks import Stream
from tests.support.kafka_topics import read
from tests.support.kafka_users import credentials

pytestmark = pytest.mark.kafka
SECRET = "hunter2"
SECONDS = 120


def stream_of(kafka, folder, **options) -> Stream:
    return Stream(
        folder, kafka.bootstrap, kafka.topic("out"), kafka.unique("markers"), kafka.unique("cp"), options
    )


def written(stream: Stream) -> list[int]:
    return [value["i"] for _, _, value in read(stream.servers, stream.topic)]


@pytest.mark.parametrize("point", ["sink.sending", "sink.sent"])
def test_a_transaction_that_times_out_once_is_repeated(kafka, tmp_path, monkeypatch, point):
    stream = stream_of(kafka, tmp_path, options={"transaction.timeout.ms": 1000})
    passed: list[str] = []

    def hold(name: str) -> None:
        passed.append(name)
        if name == point and passed.count(point) == 1:
            time.sleep(3.5)  # the broker looks for such transactions every second

    monkeypatch.setattr(faults, "point", hold)
    stream.opened().publish_commit(stream.commit(0))
    assert passed.count(point) == 2
    assert written(stream) == [0]


def test_a_batch_that_is_too_long_for_a_transaction_is_an_error_that_says_so(kafka, tmp_path, monkeypatch):
    stream = stream_of(kafka, tmp_path, options={"transaction.timeout.ms": 1000})
    sink = stream.opened()
    with monkeypatch.context() as patch:
        patch.setattr(faults, "point", lambda name: time.sleep(1.2) if name == "sink.sending" else None)
        rows = pa.table({"k": ["a"] * 5, "i": [0] * 5})
        with pytest.raises(
            SinkError, match=r"batch 0 of sink 'out': its 5 records took longer than transaction\.time"
        ):
            sink.publish_commit(stream.commit(0, rows))
    sink.publish_commit(stream.commit(0))
    assert written(stream) == [0]


def test_a_transaction_timeout_that_the_broker_does_not_allow(kafka, tmp_path):
    stream = stream_of(kafka, tmp_path, options={"transaction.timeout.ms": 100_000_000})
    with pytest.raises(SinkError, match=r"INVALID_TRANSACTION_TIMEOUT\); set `transaction\.timeout\.ms`"):
        stream.opened()  # before the first commit


def test_a_time_that_the_topic_does_not_take(kafka, tmp_path):
    stream = stream_of(kafka, tmp_path, timestamp="at")
    stream.topic = kafka.topic("times", config={"message.timestamp.after.max.ms": "1000"})
    rows = pa.table({"k": ["a"], "i": [0], "at": pa.array([1 << 52], pa.timestamp("us"))})
    sink = stream.opened()
    with pytest.raises(SinkError, match=r"INVALID_TIMESTAMP\); raise `message\.timestamp"):
        sink.publish_commit(stream.commit(0, rows))


def test_brokers_that_do_not_answer(tmp_path):
    stream = Stream(tmp_path, "127.0.0.1:1", "out", "markers", "cp", {"patience": "100 ms"})
    with pytest.raises(
        SinkError, match=r"^batch 0 of sink 'out': not published within 0 s; the last error: init"
    ):
        stream.sink().publish_commit(stream.commit(0))


def test_a_client_without_credentials_is_not_answered_and_shows_none(kafka, tmp_path, caplog):
    options = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "user",
        "sasl.password": SECRET,
    }
    stream = stream_of(kafka, tmp_path, patience="100 ms", options=options)
    with pytest.raises(SinkError) as raised:
        stream.sink().publish_commit(stream.commit(0))
    assert SECRET not in str(raised.value) + caplog.text


@pytest.fixture(scope="module")
def secured():
    """A broker with a user, over plain text and over TLS."""
    from confluent_kafka.admin import AdminClient

    from tests.support.kafka_broker import NewTopic, make_topics

    with Brokers(users={"writer": SECRET}, tls=True) as brokers:
        make_topics(AdminClient({"bootstrap.servers": brokers.bootstrap}), NewTopic("out", 1))
        yield brokers


@pytest.mark.long
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_sink_with_a_password(secured, tmp_path, listener, caplog):
    (tmp_path / "password").write_text("wrong-secret")
    options = credentials(secured, listener, "writer", tmp_path / "password")
    stream = Stream(tmp_path, secured.listener(listener), "out", "markers", listener, {"options": options})
    for refused in (stream.opened, lambda: stream.sink().publish_commit(stream.commit(0))):
        with pytest.raises(SinkError, match=r"_AUTHENTICATION\); check the credentials") as raised:
            refused()
        assert "wrong-secret" not in str(raised.value) + caplog.text + repr(stream.sink())
    (tmp_path / "password").write_text(f"{SECRET}\n")
    stream.opened().publish_commit(stream.commit(0))
    assert SECRET not in caplog.text
    stream.servers = secured.bootstrap
    assert written(stream)[-1] == 0


@pytest.mark.long
def test_a_sink_that_does_not_trust_the_broker(secured, tmp_path):
    (tmp_path / "password").write_text(SECRET)
    options = credentials(secured, "SASL_SSL", "writer", tmp_path / "password")
    del options["ssl.ca.location"]
    stream = Stream(tmp_path, secured.listener("SASL_SSL"), "out", "markers", "cp", {"options": options})
    with pytest.raises(SinkError, match=r"_SSL\); check the certificates"):
        stream.opened()


class Load:
    """Publishes one batch after the other in a thread, until it is ended. A context manager."""

    ROWS = 2000

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ended = threading.Event()
        self.published = 0
        self.failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(2 * SECONDS)

    def wait(self) -> None:
        """Wait until a batch is published that begins from now on."""
        batches, deadline = self.published + 2, time.monotonic() + SECONDS
        while self.published < batches:
            if self.failed or time.monotonic() > deadline:
                raise TimeoutError(f"{batches} batches were not published; {self.failed}")
            time.sleep(0.05)

    def _run(self) -> None:
        try:
            sink = self._stream.opened()
            while not self._ended.is_set():
                first = self.published * self.ROWS
                numbers = list(range(first, first + self.ROWS))
                rows = pa.table({"k": [f"k{number % 7}" for number in numbers], "i": numbers})
                sink.publish_commit(self._stream.commit(self.published, rows))
                self.published += 1
        except BaseException as error:
            self.failed.append(error)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("count", "delivery"), [(1, "exactly-once"), (3, "exactly-once"), (3, "at-least-once")]
)
def test_brokers_that_are_killed_and_come_back_under_load(tmp_path, count, delivery):
    from confluent_kafka.admin import AdminClient

    from tests.support.kafka_broker import NewTopic, make_topics

    with Brokers(count) as brokers:
        make_topics(AdminClient({"bootstrap.servers": brokers.bootstrap}), NewTopic("out", 2))
        stream = Stream(tmp_path, brokers.bootstrap, "out", "markers", "cp", {"delivery": delivery})
        with Load(stream) as load:
            load.wait()
            for number in (1, 2, 3) if count == 3 else (1, 1):
                brokers.kill(number)
                if count == 3:
                    load.wait()  # the other two are enough
                brokers.restart(number)
                load.wait()
        assert not load.failed
        numbers = sorted(written(stream))
        if delivery == "at-least-once":
            numbers = sorted(set(numbers))
        assert numbers == list(range(load.published * Load.ROWS))


@pytest.mark.long
def test_one_of_three_brokers_is_missing(tmp_path):
    from confluent_kafka.admin import AdminClient

    from tests.support.kafka_broker import NewTopic, make_topics

    with Brokers(3) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        make_topics(admin, NewTopic("out", 3))
        stream = Stream(tmp_path, brokers.bootstrap, "out", "markers", "cp")
        sink = stream.opened()
        sink.publish_commit(stream.commit(0))
        assert questions.Admin(admin, 60).describe("markers", new=60).replicas == 3
        clients = Clients(ClientOptions("test", brokers.bootstrap, {}), "test")
        assert configuration(clients, "markers")["min.insync.replicas"] == "2"
        for batch, number in enumerate((1, 2, 3), start=1):
            brokers.kill(number)
            sink.publish_commit(stream.commit(2 * batch - 1))  # by the driver that was connected
            stream.sink().publish_commit(stream.commit(2 * batch))  # and by one that connects now
            brokers.restart(number)
        assert written(stream) == list(range(7))
