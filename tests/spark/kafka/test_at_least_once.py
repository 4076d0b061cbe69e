"""Without transactions, a batch is given up when no record is acknowledged for `patience`. Brokers are in memory."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from taskplace.errors import SinkError
from taskplace.logs import RepeatedWarnings
from taskplace.spark.kafka import transactions as at_least_once
from taskplace.spark.kafka.record_format import Record
from taskplace.spark.kafka.transactions import AtLeastOnce
from taskplace.spark.targets import Commit
from tests.support.fake_kafka import FakeBrokers, FakeClients, error

PATIENCE = 10.0
QUEUE = 3


class Clock:
    """The time, which passes when a client waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class SlowProducer:
    """A producer that gets one record acknowledged with each wait, up to `acknowledges`; then they fail, or wait."""

    def __init__(self, clock: Clock, report: Any, *, acknowledges: int, failure: str, seconds: float) -> None:
        self.clock, self.report, self.seconds = clock, report, seconds
        self.queue: list[bytes | None] = []
        self.taken: list[bytes | None] = []
        self.acknowledges, self.failure = acknowledges, failure

    def __len__(self) -> int:
        return len(self.queue)

    def produce(self, topic: str, *, value: bytes | None, **_: Any) -> None:
        if len(self.queue) >= QUEUE:
            raise BufferError
        self.queue.append(value)

    def poll(self, timeout: float) -> int:
        if not timeout:
            return 0
        self.clock.sleep(self.seconds)
        if self.queue and len(self.taken) < self.acknowledges:
            self.taken.append(self.queue.pop(0))
        elif self.queue and self.failure:
            self.queue.pop(0)
            self.report(error(self.failure).args[0], None)
        return 0

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return len(self.queue)

    def purge(self) -> None:
        self.queue.clear()


class SlowClients(FakeClients):
    """Clients whose producers acknowledge as many records as `tries` say, one after the other."""

    def __init__(self, clock: Clock, *tries: int, failure: str = "", seconds: float = 1.0) -> None:
        super().__init__(FakeBrokers())
        self.clock, self.tries, self.failure, self.seconds = clock, list(tries), failure, seconds
        self.producers: list[SlowProducer] = []

    def made(self, kind: Any, own: Any = None, defaults: Any = None) -> Any:
        number = self.tries.pop(0) if len(self.tries) > 1 else self.tries[0]
        self.producers.append(
            SlowProducer(
                self.clock,
                own["on_delivery"],
                acknowledges=number,
                failure=self.failure,
                seconds=self.seconds,
            )
        )
        return self.producers[-1]


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(at_least_once.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(at_least_once.time, "sleep", clock.sleep)
    monkeypatch.setattr(at_least_once, "REPEATED", RepeatedWarnings())
    return clock


def publish(clients: SlowClients, number: int) -> None:
    writer = AtLeastOnce(clients=clients, topic="out", patience=PATIENCE)
    commit = Commit(
        spark=None,  # type: ignore[arg-type]
        checkpoint_id="cp",
        sink="s",
        batch_id=0,
        files=[],
        check_epoch=lambda: None,
        read_checksum=lambda: "m",
    )
    writer.publish(commit, lambda: [Record(None, b"%d" % at, [], 0) for at in range(number)])


@pytest.mark.parametrize("number", [50, QUEUE], ids=["the queue is full", "all are queued"])
def test_a_batch_may_take_longer_than_patience_while_records_are_acknowledged(clock, number):
    clients = SlowClients(clock, number, seconds=0.9 * PATIENCE)
    publish(clients, number)
    assert clock.now > 2 * PATIENCE
    (producer,) = clients.producers
    assert producer.taken == [b"%d" % at for at in range(number)], "in order, and in one try"


@pytest.mark.parametrize("number", [50, QUEUE])
def test_brokers_that_acknowledge_nothing_any_more_end_it_after_patience(clock, number):
    clients = SlowClients(clock, 1)
    with pytest.raises(SinkError, match=r"^batch 0 of sink 's': not published within 10 s; .*no answer"):
        publish(clients, number)
    assert PATIENCE <= clock.now < 2 * PATIENCE + 2


def test_a_record_that_has_failed_is_no_progress(clock, caplog):
    clients = SlowClients(clock, 0, failure="_MSG_TIMED_OUT", seconds=4.0)
    with pytest.raises(SinkError, match=r"not published within 10 s; the last error: .*_MSG_TIMED_OUT"):
        publish(clients, 50)
    assert clock.now < 2 * PATIENCE
    assert len(clients.producers) == 3, "each try ends with its first failure"
    again = {one.getMessage() for one in caplog.records}
    assert again == {"batch 0 of sink 's' is sent again: Local: Message timed out (_MSG_TIMED_OUT)"}


def test_tries_that_get_further_go_on_and_tries_that_do_not_end(clock):
    further = SlowClients(clock, *range(2, 50, 6), 50, failure="_MSG_TIMED_OUT")
    publish(further, 50)
    assert clock.now > 10 * PATIENCE and len(further.producers) == 9
    stuck = SlowClients(clock, 5, failure="_MSG_TIMED_OUT")
    with pytest.raises(SinkError, match="not published within"):
        publish(stuck, 50)
    assert len(stuck.producers) == 3
