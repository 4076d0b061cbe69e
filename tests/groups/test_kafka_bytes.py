"""The bytes that consumers send, compared with those of Kafka's Java consumer.

`kafka_bytes/4.3.1.txt` was printed by `kafka_bytes/KafkaBytes.java`, which says how.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kafka")

from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from examples.kafka.broker import jars
from taskplace.groups.kafka_python import TaskplaceAssignor
from tests.support.kafka_python_group import cluster, member, members, told

HERE = Path(__file__).parent / "kafka_bytes"
PRINTED = (HERE / "4.3.1.txt").read_text()
JAVA = dict(line.split() for line in PRINTED.splitlines())
MANY = [("audits", 1), ("orders", 0), ("orders", 2), ("payments", 3), ("ünïcode", 7)]
ALL = ["audits", "orders", "payments", "ünïcode"]
NEWEST = 2**31 - 1
#: What the consumer holds, the generation, the rack, and the topics it subscribes to; no generation before the first.
CASES: dict[str, tuple[list[tuple[str, int]], int | None, str | None, list[str]]] = {
    "first": ([], None, None, ["t"]),
    "held": ([("t", 0), ("t", 1)], 5, None, ["t"]),
    "nothing": ([], 6, "rack-b", ["t"]),
    "many": (MANY, NEWEST, "rack-a", ALL),
}


def joining(case: str, *, cooperative: bool, **options: Any) -> Any:
    held, generation, rack, topics = CASES[case]
    assignor = TaskplaceAssignor(cooperative=cooperative, rack=rack, **options)
    if generation is not None:
        assignor.on_assignment(told(*held), generation)
    return assignor.metadata(topics)


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("javac") is None and "TASKPLACE_TEST_EVERYTHING" not in os.environ,
    reason="compiles a Java program: needs javac, of a JDK",
)
def test_the_bytes_are_those_of_kafkas_jars():
    command = ["java", "-Dfile.encoding=UTF-8", "-cp", jars(), str(HERE / "KafkaBytes.java")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == PRINTED, done.stderr


@pytest.mark.parametrize("case", CASES)
def test_a_cooperative_subscription(case):
    made = joining(case, cooperative=True)
    assert made.user_data.hex() == JAVA[f"cooperative-{case}-user-data"]
    assert made.encode().hex() == JAVA[f"cooperative-{case}"]


@pytest.mark.parametrize("case", ["first", "held", "nothing"])
def test_an_eager_subscription(case):
    made = joining(case, cooperative=False)
    assert made.user_data is None or made.user_data.hex() == JAVA[f"sticky-{case}-user-data"]
    assert made.encode().hex() == JAVA[f"sticky-{case}"]


def test_user_data_with_many_topics_has_them_in_order():
    """Java has them in the order of a hash table, so the bytes are the same up to that order."""
    made = joining("many", cooperative=False)
    java = bytes.fromhex(JAVA["sticky-many-user-data"])

    def topics(data):
        told = StickyAssignorUserData.decode(data, version=1, header=False)
        assert told.generation == NEWEST
        return [(one.topic, tuple(one.partitions)) for one in told.previous_assignment]

    assert topics(made.user_data) == sorted(topics(java))
    assert made.encode().hex().replace(made.user_data.hex(), java.hex()) == JAVA["sticky-many"]


@pytest.mark.parametrize("case", ["held", "nothing", "many"])
def test_an_assignment(case):
    held, _, _, topics = CASES[case]
    partitions = dict(held)  # the topics, each with its highest partition
    known = cluster({topic: partitions.get(topic, -1) + 1 for topic in topics})
    others = [(t, p) for t in topics for p in known.partitions_for_topic(t) or () if (t, p) not in held]
    joined = []
    for name, owned in (("A", held), ("B", others)):
        assignor = TaskplaceAssignor("sticky_fair", name="sticky")
        assignor.on_assignment(told(*owned), 1)
        joined.append((name, assignor.metadata(topics)))
    made = TaskplaceAssignor("sticky_fair", name="sticky").assign(known, members(*joined))
    assert made["A"].encode().hex() == JAVA[f"assignment-{case}"]


@pytest.mark.parametrize("case", ["held", "nothing", "many"])
def test_what_java_sends_is_read(case):
    held, _, _, topics = CASES[case]
    known = cluster(dict.fromkeys(topics, 8))
    for protocol in ("sticky", "cooperative-sticky"):
        wire = ConsumerProtocolSubscription.decode(
            bytes.fromhex(JAVA[f"{protocol.removesuffix('-sticky')}-{case}"])
        )
        claims = TaskplaceAssignor("sticky_fair", cooperative=protocol != "sticky")
        fresh = TaskplaceAssignor("sticky_fair").metadata(topics)
        made = claims.assign(known, members(("A", fresh), ("J", wire), ("Z", fresh)))
        assert set(held) <= set(made["J"].partitions())


def test_a_leader_of_kafka_python_reads_its_own_form_only():
    known = cluster({"t": 4})

    def kept(user_data):
        joined = []
        for name, owned in (("A", [("t", 2), ("t", 3)]), ("B", [("t", 0), ("t", 1)])):
            assignor = TaskplaceAssignor(user_data=user_data)
            assignor.on_assignment(told(*owned), 1)
            wire = ConsumerProtocolSubscription.decode(assignor.metadata(["t"]).encode())
            joined.append(member(name, wire))
        made = StickyPartitionAssignor().assign(known, joined)
        return {tuple(tp) for tp in made["A"].partitions()} == {("t", 2), ("t", 3)}

    assert kept("kafka-python")
    assert not kept("java")
