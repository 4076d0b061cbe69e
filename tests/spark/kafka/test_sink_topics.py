"""A sink knows its topics again: one that is gone, was made again, or has more partitions is noticed, and says so."""

from __future__ import annotations

import itertools
import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from taskplace.errors import CheckpointError, SinkError
from taskplace.spark.kafka import brokers as questions
from taskplace.spark.kafka.clients import RetriableSinkError
from taskplace.spark.kafka.sink_topics import Marker, MarkerKey, MarkerTopic, SinkTopics
from tests.support import kafka_admin
from tests.support.fake_kafka import error
from tests.support.kafka_admin import AdminClients, FakeAdmin

UNKNOWN = MISSING = "UNKNOWN_TOPIC_OR_PART"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Time passes with each look at the clock: a quarter of a second."""
    ticks = itertools.count()
    monkeypatch.setattr(questions.time, "monotonic", lambda: next(ticks) / 4)
    monkeypatch.setattr(questions.time, "sleep", lambda seconds: None)


class Topics(FakeAdmin):
    """A client of brokers with topics: their ids and partition counts by name."""

    def __init__(self, **topics: tuple[str, int]) -> None:
        super().__init__()
        self.topics = topics

    def describe_topics(self, topics: Any, *, request_timeout: float, **_: object) -> dict[str, Any]:
        return {name: self._future("describe", name, request_timeout) for name in topics.topic_names}

    def _answer(self, question: str, right: Any, seconds: float) -> Any:
        answered = super()._answer(question, right, seconds)

        def answer() -> object:
            name = answered()
            if question != "describe":
                return name
            if name not in self.topics:
                raise error("UNKNOWN_TOPIC_OR_PART")
            id_, partitions = self.topics[name]
            return SimpleNamespace(
                topic_id=id_,
                partitions=[SimpleNamespace(replicas=[1])] * partitions,
                authorized_operations=None,
            )

        return answer


def topics_of(admin: Topics, markers: str = "m", **more: Any) -> SinkTopics:
    options = {"delivery": "exactly-once", "ordered": True, "go_on": False} | more
    return SinkTopics(AdminClients(admin), "out", markers, **options)


def kept(
    out: tuple[str, int] = ("a", 2), m: tuple[str, int] | None = ("b", 1), **more: Any
) -> dict[str, Any]:
    admin = Topics(out=out, **({} if m is None else {"m": m}))
    topics = topics_of(admin, "" if m is None else "m", **more)
    topics.bind({}, 1)
    return topics.kept()


def test_what_is_kept():
    assert kept() == {
        "delivery": "exactly-once",
        "topic": {"name": "out", "id": "a", "partitions": 2},
        "markers": {"name": "m", "id": "b", "partitions": 1},
    }
    assert topics_of(Topics()).kept() == {}


def test_topics_that_are_as_they_were():
    admin = Topics(out=("a", 2), m=("b", 1))
    topics_of(admin).check(kept(), 7, 1)
    topics_of(admin).check({}, 7, 1)  # a checkpoint of an earlier version
    topics = topics_of(admin)
    topics.check_now(1)
    assert len(admin.asked) == 2, "before it is bound, nothing is asked"
    topics.bind(kept(), 1)
    topics.check_now(1)


@pytest.mark.parametrize(
    ("out", "says"),
    [
        (
            ("x", 2),
            r"'out' was deleted and made again: found the id x, expected a; .* start a new checkpoint",
        ),
        (("a", 3), r"'out': found 3 partitions, expected 2; keys go to other partitions"),
    ],
)
def test_a_topic_that_was_made_again_or_has_other_partitions(caplog, out, says):
    admin = Topics(out=("a", 2), m=("b", 1))
    running = topics_of(admin)
    running.bind({}, 1)
    admin.topics["out"] = out
    with pytest.raises(CheckpointError, match=says + r".*`changed_topics: go-on`"):
        topics_of(admin).check(kept(), None, 1)
    with pytest.raises(CheckpointError, match=says):
        running.check_now(1)
    accepting = topics_of(admin, go_on=True)
    accepting.check(kept(), None, 1)
    accepting.bind(kept(), 1)
    assert accepting.kept()["topic"] == {"name": "out", "id": out[0], "partitions": out[1]}
    assert caplog.records[-1].levelno == logging.WARNING


def test_another_topic_that_the_user_has_named_is_taken():
    admin = Topics(other=("x", 9), m=("b", 1))
    SinkTopics(AdminClients(admin), "other", "m", delivery="exactly-once", ordered=True, go_on=False).check(
        kept(), 7, 1
    )


@pytest.mark.parametrize("now", [{}, {"m": ("x", 1)}, {"m2": ("x", 1)}])
def test_lost_markers_matter_only_if_a_batch_is_published_again(caplog, now):
    admin = Topics(out=("a", 2), **now)
    name = "m2" if "m2" in now else "m"
    topics_of(admin, name).check(kept(), None, 1)
    says = r"^topic of markers: found .*, expected 'm' with the id b; nobody knows whether topic 'out' has batch 7"
    with pytest.raises(CheckpointError, match=says + r".*`changed_topics: go-on` .* twice then"):
        topics_of(admin, name).check(kept(), 7, 1)
    topics_of(admin, name, go_on=True).check(kept(), 7, 1)
    assert "nobody knows" in caplog.text
    admin.topics[name] = now.get(name, ("x", 1))
    topics_of(admin, name).bind(kept(), 1)
    assert f"from now on they are in {name!r} (id x)" in caplog.text


def test_another_delivery_may_publish_a_batch_again():
    admin = Topics(out=("a", 2), m=("b", 1))
    topics_of(admin, "", delivery="at-least-once").check(kept(), 7, 1)
    topics_of(admin).check(kept(m=None, delivery="at-least-once"), 7, 1)


@pytest.mark.parametrize("gone", ["out", "m"])
def test_a_topic_that_is_deleted_while_the_stream_runs(gone):
    admin = Topics(out=("a", 2), m=("b", 1))
    topics = topics_of(admin)
    topics.bind({}, 1)
    del admin.topics[gone]
    with pytest.raises(SinkError, match=rf"^topic '{gone}' does not exist any more; what was in it is lost"):
        topics.check_now(1)


@pytest.mark.parametrize(
    "lagging",
    [[UNKNOWN], [None, UNKNOWN], [UNKNOWN, None, None, UNKNOWN]],
    ids=["topic", "markers", "both"],
)
def test_a_broker_that_lags_behind_is_asked_again(lagging):
    admin = Topics(out=("a", 2), m=("b", 1))
    topics = topics_of(admin)
    admin.failures = list(lagging)
    topics.bind({}, 30)
    assert topics.kept()["markers"]["id"] == "b"
    admin.failures = list(lagging)
    topics.check_now(5)
    assert not admin.failures


@pytest.mark.parametrize("gone", ["out", "m"])
def test_a_topic_that_no_broker_knows_is_missing_at_the_start(gone):
    admin = Topics(out=("a", 2), m=("b", 1))
    del admin.topics[gone]
    with pytest.raises(SinkError, match=rf"^topic '{gone}' does not exist any more"):
        topics_of(admin).bind({}, 30)
    assert 5 < len(admin.asked) < 60, "asked again for some seconds, and not until patience is over"


def test_a_missing_topic_of_the_last_manifest_is_an_error_at_once():
    admin = Topics(m=("b", 1))
    with pytest.raises(SinkError, match=r"^topic 'out' does not exist any more"):
        topics_of(admin).check(kept(), None, 30)
    assert len(admin.asked) == 2


def test_markers_that_are_made_again_while_the_stream_runs():
    admin = Topics(out=("a", 2), m=("b", 1))
    topics = topics_of(admin)
    topics.bind({}, 1)
    admin.topics["m"] = ("x", 1)
    with pytest.raises(CheckpointError, match=r"^topic 'm' was deleted and made again while the stream ran"):
        topics.check_now(1)


def test_brokers_without_ids_of_topics():
    admin = Topics(out=("None", 2), m=("None", 1))
    topics = topics_of(admin)
    topics.check(kept(), 7, 1)
    topics.bind({}, 1)
    assert topics.kept()["topic"]["id"] == ""


def test_brokers_that_do_not_answer_and_brokers_that_refuse(monkeypatch):
    admin = Topics(out=("a", 2), m=("b", 1))
    topics = topics_of(admin)
    topics.bind({}, 1)
    admin.failures = ["LEADER_NOT_AVAILABLE"] * 1000
    with pytest.raises(RetriableSinkError, match="LEADER_NOT_AVAILABLE"):
        topics.check_now(0)
    with pytest.raises(SinkError, match=r"LEADER_NOT_AVAILABLE\); check `servers`"):
        topics.check(kept(), None, 0)
    admin.failures = ["TOPIC_AUTHORIZATION_FAILED"]
    with pytest.raises(SinkError, match=r"allow `Describe` on the topic"):
        topics.check_now(1)


# -- markers

TOO_FEW = "INVALID_REPLICATION_FACTOR"


class Creating(FakeAdmin):
    """A client that keeps the replicas of the topics that it is asked to make."""

    def __init__(self, *failures: object) -> None:
        super().__init__(*failures, partitions=1)
        self.replicas: list[int] = []

    def create_topics(self, topics, **more):
        self.replicas += [topic.replication_factor for topic in topics]
        return super().create_topics(topics, **more)


def markers(admin: FakeAdmin, replication: int | None = None) -> MarkerTopic:
    return MarkerTopic(AdminClients(admin), "t", replication)


def test_three_replicas_are_tried_first(caplog):
    admin = Creating(MISSING)
    admin.brokers = [1, 2]  # the third one is down
    markers(admin).create()
    assert admin.replicas == [3]
    assert not caplog.records


@pytest.mark.parametrize(("brokers", "failures"), [(2, [TOO_FEW]), (1, [TOO_FEW, TOO_FEW])])
def test_fewer_replicas_on_fewer_brokers_are_a_warning(caplog, brokers, failures):
    admin = Creating(MISSING, *failures)
    admin.brokers = admin.others = list(range(1, brokers + 1))
    for partition in admin._partitions:
        partition.replicas = admin.brokers
    markers(admin).create()
    assert admin.replicas == list(range(3, brokers - 1, -1))
    (warning,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert f"topic 't' has {brokers} replicas" in warning.getMessage()


def test_a_number_that_is_given_is_the_only_one_that_is_tried(caplog):
    admin = Creating(MISSING, TOO_FEW)
    with pytest.raises(
        SinkError, match=r"INVALID_REPLICATION_FACTOR\); create it with 1 partition, .* 2 replicas"
    ):
        markers(admin, 2).create()
    admin = Creating(MISSING)
    admin._partitions[0].replicas = [1]
    markers(admin, 1).create()
    assert admin.replicas == [1]
    assert not [each for each in caplog.records if each.levelno == logging.WARNING]


def test_a_broker_that_is_down_counts_if_a_topic_has_a_replica_there():
    admin = FakeAdmin(partitions=1)
    admin.brokers = [1, 2]
    admin._partitions[0].replicas = [1, 2]
    with pytest.raises(SinkError, match=r"found replicas = 2, expected at least 3; add replicas"):
        markers(admin).exists()  # replicas of other topics are on brokers 1, 2 and 3
    assert markers(admin, 2).exists()


@pytest.mark.parametrize(
    ("policy", "in_sync", "says"),
    [
        ("compact,delete", "2", "cleanup.policy = compact,delete, expected compact; change it with"),
        ("compact", "1", "min.insync.replicas = 1, expected at least 2; change it with"),
    ],
)
def test_a_marker_topic_that_would_lose_markers(monkeypatch, policy, in_sync, says):
    config = {"cleanup.policy": policy, "min.insync.replicas": in_sync}
    monkeypatch.setattr(kafka_admin, "CONFIG", config)
    with pytest.raises(SinkError, match=f"found {says}"):
        markers(FakeAdmin(partitions=1)).exists()


class Reading(AdminClients):
    """Clients whose consumer gets these values, all with the key of one sink."""

    KEY = MarkerKey("cp", "s")

    def __init__(self, *values: bytes | None) -> None:
        super().__init__(FakeAdmin(partitions=1))
        self.values = [b"other"] * (7 - len(values)) + list(values)  # the end of the topic is 7
        self.closed = False

    def made(self, kind, own=None, defaults=None):
        messages = [
            SimpleNamespace(
                error=lambda: None,
                offset=lambda at=at: at,
                key=lambda value=value: b"other" if value == b"other" else self.KEY.encode(),
                value=lambda value=value: value,
            )
            for at, value in enumerate(self.values)
        ]
        return SimpleNamespace(
            assign=lambda _: None,
            poll=lambda _: messages.pop(0),
            close=lambda: setattr(self, "closed", True),
        )


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, "a tombstone"),
        (b"hello", "5 bytes that are no marker"),
        (b"\xff\xfe", "2 bytes that are no marker"),
        (b'{"batch": 1, "manifest": "\xff"}', "29 bytes that are no marker"),
        (b'{"batch": "12", "manifest": "m"}', "32 bytes that are no marker"),
    ],
)
def test_a_record_that_is_no_marker_is_an_error_that_says_where_it_is(value, found):
    clients = Reading(b'{"batch":1,"manifest":"m"}', value)
    says = rf"^topic 't', partition 0, offset 6: found {found}, expected the marker of sink 's' of checkpoint cp; "
    with pytest.raises(SinkError, match=says):
        MarkerTopic(clients, "t", None).read(Reading.KEY, 10)
    assert clients.closed


def test_the_last_marker_counts():
    clients = Reading(None, b"garbage", b'{"batch":1,"manifest":"m"}', b'{"batch":2,"manifest":"n"}')
    assert MarkerTopic(clients, "t", None).read(Reading.KEY, 10) == Marker(2, "n")
    assert MarkerTopic(Reading(), "t", None).read(Reading.KEY, 10) is None


def test_more_partitions_do_not_matter_without_keys():
    admin = Topics(out=("a", 3), m=("b", 1))
    topics_of(admin, ordered=False).check(kept(), None, 1)
