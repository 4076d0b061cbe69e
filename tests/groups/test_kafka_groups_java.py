"""Consumer groups of kafka-python's consumers and Kafka's Java consumers, on a real broker."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("kafka")

from examples.kafka.broker import jars
from tests.support.kafka_consumers import Assignor, ConsumerGroup
from tests.support.kafka_consumers import group as group

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("javac") is None and "TASKPLACE_TEST_EVERYTHING" not in os.environ,
        reason="compiles a Java consumer: needs javac, of a JDK",
    ),
]
SOURCE = Path(__file__).parents[1] / "support" / "KafkaMember.java"


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    """The command of a Java consumer, up to its arguments."""
    if shutil.which("javac") is None:
        pytest.fail("found no javac on the PATH, expected a JDK (Debian: openjdk-17-jdk-headless)")
    classes = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-cp", jars(), "-d", classes, SOURCE], check=True)
    return [
        "java",
        "-Xmx96m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{jars()}:{classes}",
        "KafkaMember",
    ]


def java_joins(group: ConsumerGroup, java: list[str], name: str, *assignors: str) -> None:
    """Start a Java consumer with these assignors."""
    topics = ",".join(group.topics)
    group.start(name, [*java, group.bootstrap, group.group, topics, ",".join(assignors)])


@pytest.mark.parametrize(
    ("protocol", "ours"),
    [("sticky", {}), ("cooperative-sticky", {"cooperative": True})],
    ids=["sticky", "cooperative-sticky"],
)
def test_either_leads_and_nobody_loses_what_it_may_keep(group, java, protocol, ours):
    group = group(7, 5)
    java_joins(group, java, "J", protocol)
    group.balanced(12)
    group.join("A", ours)
    two = group.balanced(6, 6, protocol=protocol)
    group.join("B", ours)
    three = group.balanced(4, 4, 4, protocol=protocol)
    assert group.consumers["J"].led() and not group.consumers["A"].led()
    assert three["J"] < two["J"] and three["A"] < two["A"]

    group.leave("J")
    left = group.balanced(6, 6)
    assert all(left[name] > three[name] for name in "AB")
    group.crash("B" if group.consumers["A"].led() else "A")
    (mine,) = group.balanced(12).values()
    java_joins(group, java, "J", protocol)
    again = group.balanced(6, 6, protocol=protocol)
    assert not group.consumers["J"].led()
    (name,) = set(again) - {"J"}
    assert again[name] < mine
    group.leave(name)
    assert group.balanced(12)["J"] > again["J"]
    assert group.overlaps() == []


def test_a_group_of_range_changes_over_and_back(group, java):
    """In two rounds each way, with a Java consumer: first all consumers have both assignors, then only the new one."""
    group, of_range, of_sticky = group(7, 5), (5, 7), (6, 6)
    java_joins(group, java, "J", "range")
    group.join("A", "range")
    group.balanced(*of_range, protocol="range")
    ours: Assignor = {}
    led = set()
    for before, after, rounds in (
        (of_range, of_sticky, (("sticky", "range"), ("sticky",))),
        (of_sticky, of_range, (("range", "sticky"), ("range",))),
    ):
        for number, names in enumerate(rounds):
            group.leave("J")
            java_joins(group, java, "J", *names)
            old = before if number == 0 else after
            group.balanced(*old, protocol="range" if old == of_range else "sticky")
            if names == ("sticky",):
                led.add(group.leader())
            group.leave("A")
            group.join("A", *(ours if name == "sticky" else name for name in names))
            group.balanced(*after, protocol=names[0])
            if names == ("sticky",):
                led.add(group.leader())
    assert led == {"A", "J"}, (
        "under the new protocol, each has led: ours for the Java consumer, and the other way round"
    )
    assert group.overlaps() == []
