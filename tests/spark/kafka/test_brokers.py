"""What brokers cannot answer just now is asked again, by sources and by sinks; what does not pass ends at once."""

from __future__ import annotations

import itertools
import logging

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from taskplace.errors import InputError, SinkError
from taskplace.logs import RepeatedWarnings
from taskplace.spark.kafka import brokers as questions
from taskplace.spark.kafka import clients, offsets
from taskplace.spark.kafka.clients import PERMANENT, refuses
from taskplace.spark.kafka.options import ClientOptions
from taskplace.spark.kafka.sink_topics import MarkerTopic, configuration, described
from tests.support.kafka_admin import CONFIG, AdminClients, FakeAdmin

#: What came while one of three brokers was killed, and at a start.
ELECTION = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "_NOENT",
    "_DESTROY_BROKER",
    "_TRANSPORT",
    "_TIMED_OUT",
    "REQUEST_TIMED_OUT",
)
UNTOLD = -1001  # librdkafka's offset of a partition whose leader died while it was asked
ERRORS = (KafkaException, InputError, SinkError)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Time passes with each look at the clock."""
    ticks = itertools.count()
    monkeypatch.setattr(questions.time, "monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr(questions.time, "sleep", lambda seconds: None)


def source(admin: FakeAdmin, seconds: float, monkeypatch, *rights: str) -> offsets.TopicOffsets:
    found = offsets.TopicOffsets("t", ClientOptions("p", "nowhere:9092", {}), seconds, *rights)
    found._clients = AdminClients(admin)
    return found


#: Each question, with the answer to it.
QUESTIONS = {
    "ends": (lambda admin, patch: source(admin, 60, patch).ends(2), {0: 7, 1: 7}),
    "described": (lambda admin, patch: source(admin, 60, patch).described()[:3], ("t", "id", 2)),
    "create": (lambda admin, patch: questions.Admin(admin, 60).create(NewTopic("t", 2)), True),
    "end of the markers": (lambda admin, patch: marker(admin)._end(60), 7),
    "configuration": (lambda admin, patch: configuration(AdminClients(admin), "t"), CONFIG),
    "markers": (lambda admin, patch: marker(admin).exists(), True),
}


def marker(admin: FakeAdmin) -> MarkerTopic:
    admin._partitions = admin._partitions[:1]
    return MarkerTopic(AdminClients(admin), "t", None)


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_passes_by_itself_is_asked_again(name, monkeypatch):
    question, answer = QUESTIONS[name]
    assert question(FakeAdmin(*ELECTION, TimeoutError()), monkeypatch) == answer


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("final", ["TOPIC_AUTHORIZATION_FAILED", "INVALID_REQUEST"])
def test_what_does_not_pass_ends_at_once(name, final, monkeypatch):
    question, _ = QUESTIONS[name]
    admin = FakeAdmin(final)
    if (name, final) == ("configuration", "TOPIC_AUTHORIZATION_FAILED"):
        assert question(admin, monkeypatch) == {}  # a warning says so
    else:
        with pytest.raises(ERRORS, match=final):
            question(admin, monkeypatch)
    assert len(admin.asked) == 1


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_does_not_pass_in_time_ends(name, monkeypatch):
    question, _ = QUESTIONS[name]
    admin = FakeAdmin(*["LEADER_NOT_AVAILABLE"] * 1000)
    with pytest.raises(ERRORS, match="LEADER_NOT_AVAILABLE"):
        question(admin, monkeypatch)
    assert 5 < len(admin.asked) < 60


@pytest.mark.parametrize("name", ["ends", "end of the markers", "markers"])
def test_a_client_that_is_refused_does_not_ask_again(name, monkeypatch):
    question, _ = QUESTIONS[name]
    admin = FakeAdmin("_TIMED_OUT", says="_AUTHENTICATION")
    with pytest.raises(ERRORS, match=r"_AUTHENTICATION.*check the credentials in the options"):
        question(admin, monkeypatch)
    assert len(admin.asked) == 1


@pytest.mark.parametrize("name", ["ends", "end of the markers"])
def test_an_offset_that_no_broker_has_told_is_no_answer(name, monkeypatch):
    question, answer = QUESTIONS[name]
    admin = FakeAdmin(UNTOLD, None, UNTOLD)
    assert question(admin, monkeypatch) == answer
    assert admin.asked == ["offsets", "list", "offsets", "list", "offsets"], (
        "the leaders are looked for in between"
    )
    with pytest.raises(ERRORS, match="no broker has told the offset of partition 0"):
        question(FakeAdmin(*[UNTOLD, None] * 1000), monkeypatch)


def test_a_question_gets_little_time_at_first_and_none_beyond_that_of_its_caller():
    admin = FakeAdmin(*["_TIMED_OUT"] * 1000)
    with pytest.raises(KafkaException):
        questions.Admin(admin, 100).describe("t")
    assert admin.seconds[:6] == [1, 2, 4, 8, 16, 30] and max(admin.seconds) == 30
    assert admin.seconds[-1] == pytest.approx(questions.PAUSE_SECONDS, abs=2)
    questions.Admin(once := FakeAdmin(), -1).describe("t")
    assert len(once.asked) == 1


def test_a_topic_that_is_made_is_waited_for_and_one_that_is_there_is_not_made():
    topic = NewTopic("t", 2)
    slow = FakeAdmin(None, "UNKNOWN_TOPIC_OR_PART", None, "UNKNOWN_TOPIC_OR_PART")
    assert questions.Admin(slow, 60).create(topic)
    assert slow.asked == ["create", "describe", *["list", "describe"] * 2]
    assert not questions.Admin(FakeAdmin("TOPIC_ALREADY_EXISTS"), 60).create(topic)
    assert questions.Admin(FakeAdmin("_TIMED_OUT", None, "TOPIC_ALREADY_EXISTS"), 60).create(topic), (
        "it was made by the first"
    )


def test_a_marker_topic_is_made_although_a_broker_does_not_know_it_yet():
    unknown = "UNKNOWN_TOPIC_OR_PART"
    admin = FakeAdmin(unknown, None, unknown, None, unknown)
    marker(admin).create()
    assert admin.asked[:7] == ["describe", "create", "describe", *["list", "describe"] * 2]


def test_another_client_may_ask_a_broker_that_does_not_know_the_marker_topic_yet():
    unknown = "UNKNOWN_TOPIC_OR_PART"
    lagging = FakeAdmin(unknown, None, None, unknown, None, unknown)
    marker(lagging).create()
    assert lagging.asked[:8] == ["describe", "create", "describe", "describe", *["list", "describe"] * 2]
    gone = FakeAdmin(unknown, None, None, *[unknown, None] * 1000)
    with pytest.raises(SinkError, match=r"^topic 't': not there after it was created; start again$"):
        marker(gone).create()
    assert len(gone.asked) < 30, "it is not asked for until the end of all patience"


def test_the_right_that_is_missing_is_named(monkeypatch):
    may_read = FakeAdmin(rights=("DESCRIBE", "READ"))
    assert source(may_read, 60, monkeypatch, "Read").described().id == "id"
    with pytest.raises(InputError, match=r"found 'no right to Read', .*allow `Read` on the topic"):
        source(FakeAdmin(rights=("DESCRIBE",)), 60, monkeypatch, "Read").described()
    with pytest.raises(SinkError, match=r"this client has no right to Write; allow `Write` on the topic$"):
        marker(may_read).exists()
    with pytest.raises(SinkError, match=r"TOPIC_AUTHORIZATION_FAILED\); allow `Describe` on the topic$"):
        marker(FakeAdmin("TOPIC_AUTHORIZATION_FAILED")).exists()
    with pytest.raises(
        SinkError, match=r"allow `Create` on it, or create it with 1 partition, .* 3 replicas"
    ):
        marker(FakeAdmin("UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED")).create()


@pytest.mark.parametrize(
    ("name", "text", "final"),
    [
        ("_AUTHENTICATION", "SASL authentication error: Authentication failed", True),
        ("_SSL", "SSL handshake failed: certificate verify failed", True),
        ("_SSL", "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?", False),
        ("_AUTHENTICATION", "SASL authentication error: Local: Broker transport failure", False),
        ("_TRANSPORT", "Connection refused", False),
    ],
)
def test_a_broker_that_ends_while_it_greets_a_client_does_not_refuse_it(name, text, final):
    assert refuses(KafkaError(getattr(KafkaError, name), text)) is final
    assert not questions.PASSING & set(PERMANENT)


@pytest.fixture
def lines(monkeypatch, caplog):
    """The warnings of the clients of this process, from a fresh start."""
    now = [0.0]
    monkeypatch.setattr(clients, "REPEATED", RepeatedWarnings(clock=lambda: now[0], wall_clock=lambda: 0.0))
    monkeypatch.setattr(clients.time, "monotonic", lambda: now[0])
    return now, lambda: [each.getMessage() for each in caplog.records if each.name == "taskplace.kafka"]


def test_an_outage_is_one_line_of_one_logger_that_comes_again_at_growing_intervals(lines):
    """Ten seconds in which each of four clients of sources and sinks loses each broker every tenth of a second."""
    now, said = lines
    options = ClientOptions("p", "a:1,b:2", {"sasl.password": "hunter2"})
    for tick in range(100):
        now[0] = tick / 10
        for client in range(4):
            for address in ("a:1/bootstrap", "b:2/7"):
                clients.ClientLog(options).log(
                    logging.ERROR,
                    "FAIL [%s#p-%d] [thrd:%s]: %s: Connect to ipv4#x failed: refused hunter2 (after %dms in CONNECT)",
                    "hunter2", client, address, address, tick,
                )  # fmt: skip
    first = [f"{address}: Connect to ipv4#x failed: refused (hidden)" for address in ("a:1", "b:2")]
    again = [
        f"{line} ({count} times since 1970-01-01 00:00:00 UTC)"
        for line, count in zip(first, (201, 201), strict=True)
    ]
    assert said() == first + again


def test_brokers_that_say_nothing_are_named_after_some_seconds(lines, monkeypatch):
    now, said = lines
    admin = FakeAdmin(*["_TIMED_OUT"] * 1000)
    monkeypatch.setattr(questions.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + 1.0))
    source_ = source(admin, 30, monkeypatch)
    with pytest.raises(
        InputError, match=r"no answer of nowhere:9092: .*_TIMED_OUT.*, expected an answer of the brokers; che"
    ):
        source_.ends(2)
    assert said()[0] == "no answer of nowhere:9092 for 4 s; waiting" and 2 <= len(said()) <= 4
    with pytest.raises(
        SinkError, match=r"no answer of nowhere:9092: .*check `servers`, and that the brokers run"
    ):
        described(AdminClients(admin), "t")


def test_what_a_client_of_a_source_logs_has_no_secret(caplog):
    """librdkafka's own lines, from a client that no broker answers."""
    caplog.set_level("DEBUG", "taskplace.kafka")
    options = ClientOptions(
        "test", "127.0.0.1:1", {"sasl.password": "hunter2", "client.id": "hunter2", "debug": "broker"}
    )
    client = clients.Clients(options, "t").made(AdminClient)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.1)
    client.poll(0)
    assert "127.0.0.1:1" in caplog.text and "hunter2" not in caplog.text
    assert "(hidden)" in caplog.text
