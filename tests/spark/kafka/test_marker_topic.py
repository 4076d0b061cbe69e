"""The marker topic gets three replicas wherever there are three brokers, also while one of them is down."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

pytest.importorskip("confluent_kafka")

from taskplace.errors import SinkError
from taskplace.spark.kafka.sink_topics import Marker, MarkerKey, MarkerTopic
from tests.support.kafka_admin import AdminClients, FakeAdmin

MISSING, TOO_FEW = "UNKNOWN_TOPIC_OR_PART", "INVALID_REPLICATION_FACTOR"


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


def test_the_keys_of_markers_stay_as_they_are():
    assert MarkerKey("cp", "s").encode() == b'{"checkpoint":"cp","sink":"s"}'
