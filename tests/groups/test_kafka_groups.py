"""Consumer groups on real brokers: kafka-python and aiokafka join, leave, crash, change assignors, and have racks."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing

import pytest

pytest.importorskip("kafka")

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka.broker import Brokers
from taskplace.groups.kafka_python import finish_joins
from tests.support.kafka_broker import make_topics
from tests.support.kafka_consumers import SECONDS, Assignor, ConsumerGroup, Held, consumer_group
from tests.support.kafka_consumers import group as group

pytestmark = pytest.mark.kafka

STICKY: Assignor = {}
COOPERATIVE: Assignor = {"cooperative": True}


def aiokafka_joins(g: ConsumerGroup, name: str, assignor: Assignor) -> None:
    """Start a consumer of aiokafka with our assignor, or with its own sticky one."""
    pytest.importorskip("aiokafka")
    given = {"bootstrap": g.bootstrap, "group": g.group, "topics": g.topics, "assignor": assignor}
    g.start(name, [sys.executable, "-m", "tests.support.aiokafka_member", json.dumps(given)])


def numbers(held: Held, topic: str) -> set[int]:
    return {partition for of, partition in held if of == topic}


@pytest.mark.parametrize(
    ("join", "assignor"),
    [(ConsumerGroup.join, STICKY), (ConsumerGroup.join, COOPERATIVE), (aiokafka_joins, STICKY)],
    ids=["eager", "cooperative", "aiokafka"],
)
def test_members_join_leave_and_crash(group, join, assignor):
    g = group(7, 5)
    join(g, "A", assignor)
    g.balanced(12)
    join(g, "B", assignor)
    two = g.balanced(6, 6)
    for consumer in g.consumers.values():
        consumer.forget()
    join(g, "C", assignor)
    three = g.balanced(4, 4, 4)
    assert three["A"] < two["A"] and three["B"] < two["B"]
    if assignor is COOPERATIVE:  # only what moves is let go
        assert {name: g.consumers[name].revoked() for name in "AB"} == {n: two[n] - three[n] for n in "AB"}
    g.leave("A")  # the leader, and with it all it knew
    left = g.balanced(6, 6)
    assert left["B"] > three["B"] and left["C"] > three["C"]
    g.crash("B")
    assert g.balanced(12)["C"] > left["C"]
    assert g.overlaps() == []


def test_a_group_has_consumers_of_both_clients(group):
    g = group(8)
    fair = {"mode": "fair"}
    aiokafka_joins(g, "A", fair)
    g.balanced(8)
    g.join("B", fair)
    g.balanced(4, 4, protocol="taskplace-fair")
    g.leave("A")
    g.balanced(8, protocol="taskplace-fair")
    aiokafka_joins(g, "A", fair)  # kafka-python's leads now
    g.balanced(4, 4, protocol="taskplace-fair")
    assert g.overlaps() == []


def test_a_group_changes_over_from_aiokafkas_own_sticky_assignor(group):
    g = group(6)
    for name, sizes in (("A", [6]), ("B", [3, 3])):
        aiokafka_joins(g, name, "sticky")
        g.balanced(*sizes)
    for name in "AB":
        g.leave(name)
        g.balanced(6)
        aiokafka_joins(g, name, STICKY)
        g.balanced(3, 3)
    assert g.overlaps() == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("sticky", {"user_data": "kafka-python"}), ("cooperative-sticky", COOPERATIVE)],
    ids=["sticky", "cooperative-sticky"],
)
def test_a_group_of_the_same_protocol_changes_over_and_back(group, theirs, ours):
    """One consumer after the other. Where ours leads, only partitions that must move do.

    kafka-python's own assignor at times moves one or two partitions more.
    """
    g = group(7, 5)
    for name, size in zip("ABC", ([12], [6, 6], [4, 4, 4]), strict=True):
        g.join(name, theirs)
        g.balanced(*size)
    uses = dict.fromkeys("ABC", theirs)
    led = set()
    for assignor, name in [*((ours, name) for name in "BAC"), *((theirs, name) for name in "BAC")]:
        g.leave(name)
        left = g.balanced(6, 6)
        uses[name] = assignor
        g.join(name, assignor)
        now = g.balanced(4, 4, 4, protocol=theirs)
        ours_led = uses[g.leader()] is ours
        led.add(ours_led)
        stayed = sum(len(now[other] & left[other]) for other in left)
        assert stayed == 8 if ours_led else stayed >= 6, g.told()
    assert led == {True, False}
    assert g.overlaps() == []


@pytest.mark.long
@pytest.mark.parametrize("theirs", ["range", "roundrobin"])
def test_a_group_of_another_protocol_changes_over_and_back(group, theirs):
    """In two rounds, as Kafka says: first all consumers support both protocols, then the old one goes."""
    g = group(8)
    for name in "AB":
        g.join(name, theirs)
    g.balanced(4, 4, protocol=theirs)
    fair = "taskplace-fair"
    ours: Assignor = {"mode": "fair"}
    for assignors, before, after in (
        ((ours, theirs), theirs, fair),
        ((ours,), fair, fair),
        ((theirs, ours), fair, theirs),
        ((theirs,), theirs, theirs),
    ):
        g.leave("B")
        g.join("B", *assignors)
        g.balanced(4, 4, protocol=before)
        g.leave("A")
        g.join("A", *assignors)
        g.balanced(4, 4, protocol=after)
    assert g.overlaps() == []


def test_copartitioned_topics_go_together(group):
    g = group(6, 6, 4)
    together, also, alone = g.topics
    for name in "ABC":
        g.join(name, {"mode": "copartitioned"})
    held = g.balanced(5, 5, 6)
    assert all(numbers(h, together) == numbers(h, also) for h in held.values())
    g.crash("C")
    left = g.balanced(8, 8)
    assert all(numbers(h, together) == numbers(h, also) for h in left.values())
    assert all(numbers(left[n], together) >= numbers(held[n], together) for n in "AB")
    assert sum(len(numbers(h, alone)) for h in left.values()) == 4
    g.leave("A")
    (all_of_them,) = g.balanced(16).values()
    assert all_of_them > left["B"]


def test_an_eager_group_becomes_a_cooperative_one_when_all_its_consumers_have_stopped(group):
    g = group(6)
    for name in "AB":
        g.join(name, STICKY)
    g.balanced(3, 3, protocol="sticky")
    refused = g.join("C", COOPERATIVE)
    assert refused.process.wait(SECONDS) != 0
    assert "InconsistentGroupProtocol" in refused.errors.read_text()
    g.consumers.pop("C")
    for name in "AB":
        g.leave(name)
    for name in "AB":
        g.join(name, COOPERATIVE)
    g.balanced(3, 3, protocol="cooperative-sticky")


def test_members_with_different_topics_are_as_balanced_as_they_can_be(group):
    g = group(2, 6)
    few, many = g.topics
    g.join("A", STICKY, topics=[few])
    g.join("B", STICKY, topics=[few, many])
    g.join("C", STICKY, topics=[many])
    held = g.balanced(2, 3, 3)
    assert held["A"] == {(few, 0), (few, 1)}


def test_a_join_that_outlasts_a_poll_is_ended_by_the_next(group):
    """A leader joins again for the other member's topic, and takes longer to assign than its polls wait."""
    g = group(2, 6)
    few, many = g.topics
    g.join("A", STICKY, topics=[few], assign_seconds=1.2)
    g.balanced(2)
    g.join("B", STICKY, topics=[many], assign_seconds=1.2)
    held = g.balanced(2, 6)
    assert held["A"] == {(few, 0), (few, 1)}


def test_only_a_consumer_of_kafka_python_can_end_its_joins():
    with pytest.raises(TypeError, match=r"consumer: found 5, expected a KafkaConsumer of kafka-python 3\.0"):
        finish_joins(5)


def new_consumer(g: ConsumerGroup) -> Consumer:
    """Return a consumer of the new protocol (KIP-848), which has the broker assign."""
    settings = {"bootstrap.servers": g.bootstrap, "group.id": g.group, "group.protocol": "consumer"}
    theirs = Consumer({**settings, "log_level": 0})
    theirs.subscribe(g.topics)
    return theirs


def test_a_consumer_of_the_new_protocol_is_refused_where_ours_leads(group):
    g = group(4)
    g.join("A", {"mode": "fair"})
    g.balanced(4)
    with closing(new_consumer(g)) as theirs:
        deadline = time.monotonic() + SECONDS
        told: list[str] = []
        while "_FATAL" not in told:
            assert time.monotonic() < deadline, told
            if (message := theirs.poll(0.2)) is not None:
                told.append(message.error().name())
    assert g.balanced(4, protocol="taskplace-fair")


def test_a_group_of_the_new_protocol_is_refused_by_ours(group):
    g = group(4)
    with closing(new_consumer(g)) as theirs:
        deadline = time.monotonic() + SECONDS
        while len(theirs.assignment()) < 4:
            assert time.monotonic() < deadline, "the consumer of the new protocol has got no partitions"
            theirs.poll(0.2)
        member = g.join("A", {"mode": "fair"})
        deadline = time.monotonic() + SECONDS
        while member.process.poll() is None and time.monotonic() < deadline:
            theirs.poll(0.2)
    assert member.process.poll() not in (None, 0)
    assert "restart it with group.protocol=classic" in member.errors.read_text()


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_consumers_read_in_their_rack_and_go_on_without_a_broker(tmp_path, cooperative):
    with Brokers(3, racks="abc") as brokers:
        replicas = [[1], [2], [3], [3], [2], [1]]
        make_topics(
            AdminClient({"bootstrap.servers": brokers.bootstrap}),
            NewTopic("t", 6, replica_assignment=replicas),
        )
        with consumer_group(brokers.bootstrap, "racks", ["t"], tmp_path) as group:
            for name, rack in (("A", "c"), ("B", "a"), ("C", "b")):
                group.join(name, {"rack": rack, "cooperative": cooperative})
            near = {"A": {("t", 2), ("t", 3)}, "B": {("t", 0), ("t", 5)}, "C": {("t", 1), ("t", 4)}}
            assert group.balanced(2, 2, 2) == near
            for number in (1, 2, 3):  # each is the coordinator's broker at some time, or might be
                brokers.kill(number)
                brokers.restart(number)
            group.crash("C")
            left = group.balanced(3, 3)
            assert left["A"] > near["A"] and left["B"] > near["B"]
            group.join("C", {"rack": "b", "cooperative": cooperative})
            assert group.balanced(2, 2, 2) == near
            assert group.overlaps() == []
