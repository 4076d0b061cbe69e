"""A batch is in the topic once, whatever becomes of its transaction. The brokers are in memory here."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from taskplace.errors import CheckpointError, Fenced, SinkError
from taskplace.logs import RepeatedWarnings
from taskplace.spark.kafka import transactions
from taskplace.spark.kafka.clients import RetriableSinkError
from taskplace.spark.kafka.record_format import Record
from taskplace.spark.kafka.transactions import FENCED_AT_MOST, AtLeastOnce, Progress, Transactions
from taskplace.spark.targets import Commit, Output
from tests.support.fake_kafka import ABORTABLE, RETRIABLE, FakeBrokers, FakeClients, FakeMarkers, error

ROWS = [b"a", b"b", b"c"]
OUTPUT = Output(checkpoint_id="cp", sink="s")
SENT = ["begin", *["produce"] * (len(ROWS) + 1), "commit"]


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers()


class Time:
    """The time, which passes in a pause, and by `tick` seconds with each look at it."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 0 if self.tick else seconds


@pytest.fixture(autouse=True)
def time(request, monkeypatch) -> Time:
    """Tests that name it have a time that stands still."""
    made = Time(0.0 if "time" in inspect.signature(request.function).parameters else 1.0)
    monkeypatch.setattr(transactions, "time", made)
    monkeypatch.setattr(transactions, "REPEATED", RepeatedWarnings())
    return made


def writer(brokers: FakeBrokers, *, timeout: float = 1000.0, patience: float = 10_000.0) -> Transactions:
    return Transactions(
        clients=FakeClients(brokers, {"sasl.password": "hunter2"}),
        topic="out",
        markers=FakeMarkers(brokers),  # type: ignore[arg-type]
        timeout=timeout,
        patience=patience,
    )


def commit(batch: int, checksum: str = "m", check_epoch=lambda: None) -> Commit:
    return Commit(
        spark=None,  # type: ignore[arg-type]
        checkpoint_id="cp",
        sink="s",
        batch_id=batch,
        files=[],
        check_epoch=check_epoch,
        read_checksum=lambda: f"{checksum}{batch}",
    )


def records(*values: bytes):
    return lambda: [Record(value, value, [], 0) for value in values or ROWS]


def out(brokers: FakeBrokers) -> list[bytes | None]:
    return [value for _, value in brokers.committed["out"]]


def replaced() -> None:
    raise Fenced("another driver")


def test_the_predecessor_is_fenced_before_the_marker_is_read(brokers):
    one = writer(brokers)
    one.publish(commit(0), records())
    assert brokers.calls == ["init", "read", *SENT]
    assert brokers.producers[0].id == "taskplace-cp-s"
    assert out(brokers) == ROWS
    assert brokers.committed["markers"] == [
        (b'{"checkpoint":"cp","sink":"s"}', b'{"batch":0,"manifest":"m0"}')
    ]
    brokers.calls.clear()
    one.publish(commit(1), records(b"d"))
    assert brokers.calls == ["begin", "produce", "produce", "commit"]


def test_a_batch_that_the_topic_has_is_not_written_again(brokers):
    writer(brokers).publish(commit(3), records())
    brokers.calls.clear()
    again = writer(brokers)
    again.publish(commit(3), records())
    again.publish(commit(3), records())
    assert brokers.calls == ["init", "read"]
    assert out(brokers) == ROWS
    again.publish(commit(4), records(b"d"))
    assert out(brokers) == [*ROWS, b"d"]


@pytest.mark.parametrize(("batch", "checksum"), [(3, "other"), (2, "m")])
def test_a_marker_of_a_batch_that_the_checkpoint_does_not_have(brokers, batch, checksum):
    writer(brokers).publish(commit(3), records())
    with pytest.raises(CheckpointError, match=r"topic 'out' has batch 3 .*was set back.* another name"):
        writer(brokers).publish(commit(batch, checksum), records())
    asked: list[int] = []

    def replaced_after_the_start() -> None:
        asked.append(1)
        if len(asked) > 1:
            replaced()

    with pytest.raises(Fenced):
        writer(brokers).publish(commit(batch, checksum, replaced_after_the_start), records())
    assert out(brokers) == ROWS


@pytest.mark.parametrize("call", ["begin", "produce", "commit"])
def test_an_aborted_transaction_is_repeated_by_the_same_producer(brokers, call):
    brokers.fail(call, error("_INCONSISTENT", **ABORTABLE), times=2)
    writer(brokers).publish(commit(0), records())
    assert out(brokers) == ROWS
    assert brokers.calls.count("abort") == 2
    assert brokers.calls.count("init") == 1


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(
    "failure", [error("_TIMED_OUT"), error("_FATAL", fatal=True)], ids=["unknown", "fatal"]
)
def test_after_an_unknown_outcome_the_marker_decides(brokers, done, failure):
    brokers.fail("commit", failure, done=done)
    writer(brokers).publish(commit(0), records())
    assert out(brokers) == ROWS
    assert brokers.calls.count("init") == brokers.calls.count("read") == 2
    assert brokers.calls.count("commit") == (1 if done else 2)


def test_a_commit_that_can_be_resumed_is_resumed_until_its_transaction_is_over(brokers):
    brokers.fail("commit", error("_TIMED_OUT", **RETRIABLE), times=3)
    writer(brokers).publish(commit(0), records())
    assert brokers.calls.count("commit") == 4
    assert brokers.calls.count("init") == 1
    brokers.fail("commit", error("_TIMED_OUT", **RETRIABLE), done=True)
    brokers.fail("commit", error("_TIMED_OUT", **RETRIABLE), times=100)
    brokers.calls.clear()
    writer(brokers, timeout=10).publish(commit(1), records())
    assert out(brokers) == ROWS + ROWS, "the first call had committed it"
    assert brokers.calls.count("init") == 2


def test_a_fenced_producer_stops_if_its_driver_is_replaced(brokers):
    one, other = writer(brokers), writer(brokers)
    one.publish(commit(0), records())
    other.publish(commit(1), records(b"d"))
    with pytest.raises(Fenced):
        one.publish(commit(1, check_epoch=replaced), records(b"d"))
    one.publish(commit(1), records(b"d"))  # it is in charge: it fences the other one, and finds its batch
    assert out(brokers) == [*ROWS, b"d"]
    other.publish(commit(2), records(b"e"))
    assert out(brokers) == [*ROWS, b"d", b"e"]


def test_two_users_of_one_checkpoint_end_with_an_error(brokers):
    brokers.fail("produce", error("_FENCED", fatal=True), times=100)
    with pytest.raises(SinkError, match=r"fenced 6 times .*'taskplace-cp-s'; is a copy of the checkpoint"):
        writer(brokers).publish(commit(0), records())
    assert brokers.calls.count("init") == FENCED_AT_MOST + 1


def test_a_transaction_that_is_too_long_is_an_error_that_says_so(brokers):
    many = records(*[b"x"] * 30_000)
    with pytest.raises(
        SinkError,
        match=r"its 30000 records took longer than transaction\.timeout\.ms = 20000; raise it .* limits it",
    ):
        writer(brokers, timeout=20).publish(commit(0), many)
    assert out(brokers) == []
    assert brokers.calls.count("abort") == 2


def test_brokers_that_cannot_be_reached_are_not_the_batchs_fault(brokers):
    one = writer(brokers, timeout=20, patience=300)
    brokers.acknowledge = False
    says = r"within 300 s; .* the brokers have taken no record for \d+ s of a transaction that may take 20 s"
    with pytest.raises(SinkError, match=says):
        one.publish(commit(0), records(*[b"x"] * 30_000))
    assert brokers.calls.count("init") > 3
    brokers.acknowledge = True
    one.publish(commit(0), records())
    assert out(brokers) == ROWS


def test_brokers_that_end_a_transaction_in_time_are_told_from_a_fence(brokers):
    brokers.fail("commit", error("INVALID_PRODUCER_EPOCH", fatal=True), times=2)
    with pytest.raises(SinkError, match=r"transaction\.timeout\.ms = 7000\b"):
        writer(brokers, timeout=7).publish(commit(0), records(*[b"x"] * 3000))
    assert brokers.calls.count("commit") == 1


def test_records_that_no_broker_takes_are_not_the_batchs_fault(brokers):
    """Too few replicas are in sync: the brokers answer, and the records time out in the client."""
    brokers.undelivered = error("_MSG_TIMED_OUT").args[0]
    brokers.fail("commit", error("_INCONSISTENT", **ABORTABLE), times=4)
    writer(brokers, timeout=1.5).publish(commit(0), records())
    assert out(brokers) == ROWS
    brokers.fail("commit", error("_INCONSISTENT", **ABORTABLE), times=1000)
    says = r"^batch 1 .*: not published within 100 s; .* have taken no record .* `min\.insync\.replicas`"
    with pytest.raises(SinkError, match=says):
        writer(brokers, timeout=1.5, patience=100).publish(commit(1), records(b"d"))
    assert out(brokers) == ROWS


def test_a_refusal_is_an_error_at_once(brokers):
    brokers.fail("init", error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", fatal=True))
    with pytest.raises(
        SinkError, match=r"^batch 0 of sink 's': .*TRANSACTIONAL_ID_AUTHORIZATION_FAILED\); allow `Write`"
    ):
        writer(brokers).publish(commit(0), records())
    assert brokers.calls.count("init") == 1


def test_a_refused_record_is_an_error_that_names_the_reason(brokers):
    one = writer(brokers)
    one.open(OUTPUT)
    one._on_delivery(error("INVALID_TIMESTAMP").args[0], None)
    with pytest.raises(SinkError, match=r"INVALID_TIMESTAMP\); raise `message\.timestamp\.before"):
        one._abort(
            transactions._Work(output=OUTPUT, what="batch 0", until=1e9), error("_INCONSISTENT", **ABORTABLE)
        )


def test_a_start_fences_and_reads_before_the_first_commit(brokers):
    writer(brokers).publish(commit(3), records())
    brokers.calls.clear()
    one = writer(brokers)
    one.open(OUTPUT)
    assert brokers.calls == ["init", "read"]
    one.publish(commit(3), records())
    one.publish(commit(4), records(b"d"))
    assert brokers.calls == ["init", "read", "begin", "produce", "produce", "commit"]
    assert out(brokers) == [*ROWS, b"d"]


@pytest.mark.parametrize("name", ["TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "INVALID_TRANSACTION_TIMEOUT"])
def test_what_a_broker_refuses_is_an_error_of_the_start(brokers, name):
    brokers.fail("init", error(name, fatal=True))
    with pytest.raises(SinkError, match=rf"^the start of sink 's': .*{name}\); "):
        writer(brokers).open(OUTPUT)
    with pytest.raises(Fenced):
        writer(brokers).open(Output(checkpoint_id="cp", sink="s", check_epoch=replaced))


class LostTopics:
    """Topics that are there for some questions, and then lost."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)

    def check_now(self, seconds: float) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer


def test_topics_are_compared_before_each_try_and_while_a_call_does_not_succeed(brokers):
    one = writer(brokers)
    one.topics = LostTopics(RetriableSinkError("no leader"), None, None, SinkError("it is gone"))  # type: ignore[assignment]
    one.publish(commit(0), records())
    brokers.fail("commit", error("_TIMED_OUT", **RETRIABLE), times=1000)
    with pytest.raises(SinkError, match="it is gone"):
        one.publish(commit(1), records(b"d"))
    assert brokers.calls.count("commit") == 2
    assert out(brokers) == ROWS
    one.patience = 100
    one.topics = LostTopics(*[RetriableSinkError("no leader")] * 1000)  # type: ignore[assignment]
    with pytest.raises(SinkError, match=r"not published within .* the last error: no leader"):
        one.publish(commit(1), records(b"d"))


def test_rows_that_cannot_be_read_leave_no_open_transaction(brokers):
    def damaged():
        yield Record(b"a", b"a", [], 0)
        raise CheckpointError("damaged")

    one = writer(brokers)
    with pytest.raises(CheckpointError, match="damaged"):
        one.publish(commit(0), damaged)
    assert brokers.calls[-2:] == ["abort", "purge"]
    one.publish(commit(0), records())
    assert out(brokers) == ROWS


def test_patience_begins_when_the_brokers_take_no_more_records(brokers):
    brokers.fail("commit", error("_TIMED_OUT"))
    writer(brokers, patience=20).publish(commit(0), records(*[b"x"] * 30_000))
    assert len(out(brokers)) == 30_000
    brokers.fail("commit", error("_TIMED_OUT"), times=1000)
    with pytest.raises(SinkError, match=r"not published within 20 s"):
        writer(brokers, patience=20).publish(commit(1), records(*[b"x"] * 30_000))
    assert brokers.calls.count("commit") <= 2 + 2, (
        "a try that gets no further than the one before is no progress"
    )


def test_a_start_after_a_failed_try_is_not_part_of_its_transaction(brokers):
    """The next producer has nothing to send yet: it has got nothing acknowledged, and its start may take its time."""
    one = writer(brokers, timeout=20, patience=100)
    one.open(OUTPUT)
    brokers.acknowledge = False
    brokers.fail("commit", error("_TIMED_OUT"))
    brokers.fail("init", error("_TIMED_OUT"), times=1000)
    with pytest.raises(SinkError, match=r"not published within 100 s; .*nowhere:9092: _timed_out"):
        one.publish(commit(0), records())
    assert brokers.calls.count("init") > 5
    brokers.errors["init"] = [(error("_TIMED_OUT", **RETRIABLE), False)] * 1000
    brokers.fail("commit", error("_TIMED_OUT"))
    tries = transactions._Work(output=OUTPUT, what="batch 0")
    tries.sent = transactions.Progress()
    tries.sent.sent = 3
    with pytest.raises(RetriableSinkError):
        one._start(tries)
    assert tries.until == 0.0, "patience does not begin anew"


def test_brokers_that_do_not_come_back_are_an_error_without_secrets(brokers, caplog):
    brokers.fail("init", error("_TIMED_OUT", **RETRIABLE), times=1000)
    with pytest.raises(
        SinkError, match=r"^batch 0 of sink 's': not published within 100 s; the last error: init"
    ):
        writer(brokers, patience=100).publish(commit(0), records())
    brokers.errors["init"] = []
    brokers.fail("begin", ck_error_with("password is hunter2"), times=1000)
    with pytest.raises(SinkError) as raised:
        writer(brokers, patience=100).publish(commit(0), records())
    assert "hunter2" not in str(raised.value)
    assert "(hidden)" in str(raised.value)
    assert "is sent again: Local: Communication failure with broker (_FAIL)" in caplog.text
    assert "password" not in caplog.text


def ck_error_with(text: str):
    import confluent_kafka as ck

    return ck.KafkaException(ck.KafkaError(ck.KafkaError._FAIL, text))


# -- without transactions: a batch is given up when no record is acknowledged for `patience`

PATIENCE = 10.0
QUEUE = 3


class SlowProducer:
    """A producer that gets one record acknowledged with each wait, up to `acknowledges`; then they fail, or wait."""

    def __init__(self, clock: Time, report: Any, *, acknowledges: int, failure: str, seconds: float) -> None:
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

    def __init__(self, clock: Time, *tries: int, failure: str = "", seconds: float = 1.0) -> None:
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


def publish(clients: SlowClients, number: int) -> None:
    writer = AtLeastOnce(clients=clients, topic="out", patience=PATIENCE)
    writer.publish(commit(0), lambda: [Record(None, b"%d" % at, [], 0) for at in range(number)])


@pytest.mark.parametrize("number", [50, QUEUE], ids=["the queue is full", "all are queued"])
def test_a_batch_may_take_longer_than_patience_while_records_are_acknowledged(time, number):
    clients = SlowClients(time, number, seconds=0.9 * PATIENCE)
    publish(clients, number)
    assert time.now > 2 * PATIENCE
    (producer,) = clients.producers
    assert producer.taken == [b"%d" % at for at in range(number)], "in order, and in one try"


@pytest.mark.parametrize("number", [50, QUEUE])
def test_brokers_that_acknowledge_nothing_any_more_end_it_after_patience(time, number):
    clients = SlowClients(time, 1)
    with pytest.raises(SinkError, match=r"^batch 0 of sink 's': not published within 10 s; .*no answer"):
        publish(clients, number)
    assert PATIENCE <= time.now < 2 * PATIENCE + 2


def test_a_record_that_has_failed_is_no_progress(time, caplog):
    clients = SlowClients(time, 0, failure="_MSG_TIMED_OUT", seconds=4.0)
    with pytest.raises(SinkError, match=r"not published within 10 s; the last error: .*_MSG_TIMED_OUT"):
        publish(clients, 50)
    assert time.now < 2 * PATIENCE
    assert len(clients.producers) == 3, "each try ends with its first failure"
    again = {one.getMessage() for one in caplog.records}
    assert again == {"batch 0 of sink 's' is sent again: Local: Message timed out (_MSG_TIMED_OUT)"}


def test_tries_that_get_further_go_on_and_tries_that_do_not_end(time):
    further = SlowClients(time, *range(2, 50, 6), 50, failure="_MSG_TIMED_OUT")
    publish(further, 50)
    assert time.now > 10 * PATIENCE and len(further.producers) == 9
    stuck = SlowClients(time, 5, failure="_MSG_TIMED_OUT")
    with pytest.raises(SinkError, match="not published within"):
        publish(stuck, 50)
    assert len(stuck.producers) == 3


# -- brokers that take no records, and a slow batch


def looks(time: Time, *each: tuple[float, int], waiting: bool = False) -> Progress:
    """Return the progress of a try with 100 records, after looks: how long each comes after the last one, and what the
    producer still has then.
    """
    found = Progress()
    found.sent = 100
    for seconds, waiting_for in each:
        time.now += seconds
        found.seen(range(waiting_for), waiting=waiting)
    return found


@pytest.mark.parametrize(
    ("each", "lost"),
    [
        ([(5, 90), (5, 80), (5, 10)], 0),  # it goes on with each look
        ([(0.9, 100 - number // 2) for number in range(60)], 0),  # pauses between acknowledgements
        ([(5, 90), (10, 90), (10, 90)], 20),
        ([(5, 90), (10, 90), (10, 90), (1, 80), (1, 80)], 20),
        ([(5, 90), (10, 90), (1, 80), (10, 80), (1, 0)], 20),
        ([(5, 0), (50, 0)], 0),  # nothing is waited for: the rows are slow
    ],
)
def test_the_time_in_which_no_record_is_taken(time, each, lost):
    assert looks(time, *each).stalled() == lost


def test_a_commit_that_is_waited_for(time):
    assert looks(time, (5, 0), (5, 0), (5, 0), waiting=True).stalled() == 10


def test_what_was_acknowledged(time):
    found = Progress()
    found.sent = 10
    assert found.seen(range(7)) and found.acknowledged == 3
    assert not found.seen(range(7))
    assert not found.seen(range(9)), "events of the client count as well"
    assert found.acknowledged == 3
    assert found.seen(range(0)) and found.acknowledged == 10
