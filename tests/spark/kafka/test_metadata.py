"""Partition counts come from the brokers: what is missing or unequal makes a topology unready, with the reason."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

from taskplace.errors import InputError
from taskplace.spark.kafka import offsets
from taskplace.spark.kafka.offsets import KafkaTopic, MissingTopic, broker_counts, with_broker_counts
from taskplace.spark.processors import TableJoin
from tests.support.kafka_admin import FakeAdmin
from tests.support.own_reads import OwnReader
from topology import Topology, TopologyNotReady


class Counted(OwnReader):
    """A reader whose broker has this count, or none."""

    def __init__(self, count: int | None) -> None:
        self.count = count

    def partitions(self) -> int:
        if self.count is None:
            raise MissingTopic("topic 'x'", found="none", expected="a topic")
        return self.count


def joined(stream: object, table: object, **more: object) -> Topology:
    topo = Topology("t")
    left = topo.source("stream", key="k", reads=stream, **more)
    right = topo.source("table", key="k", reads=table)
    left.join_table(right, TableJoin("j", by={"k": "string"}, columns={"at": "int64"}), name="joined")
    return topo


def test_counts_come_from_the_brokers(world):
    built = with_broker_counts(joined(Counted(3), Counted(3)).build())
    assert built.readiness() and len(built.tasks()) == 3
    assert len(world.open(built).built.tasks()) == 3


@pytest.mark.parametrize(
    ("stream", "table", "kind", "text"),
    [
        (None, 3, "missing", "topic 'stream': missing, its partition count is not known"),
        (
            2,
            3,
            "unequal",
            "joined topics need equal partition counts, found stream=2, table=3; create the topics",
        ),
    ],
)
def test_what_does_not_fit_is_a_reason(world, stream, table, kind, text):
    built = with_broker_counts(joined(Counted(stream), Counted(table)).build())
    (reason,) = built.readiness().reasons
    assert reason.kind == kind and text in reason.text
    with pytest.raises(TopologyNotReady, match=f"not ready: .*{text}"):
        world.open(built)
    assert not (world.folder / "checkpoint").exists()


def test_a_topic_that_comes_makes_the_topology_ready_and_one_that_grows_unready():
    stream, table = Counted(None), Counted(2)
    built = with_broker_counts(joined(stream, table).build())
    assert not built.readiness()
    stream.count = 2
    built = with_broker_counts(built)
    assert built.readiness()
    stream.count = table.count = 4
    reasons = with_broker_counts(built).readiness().reasons
    assert {reason.kind for reason in reasons} == {"changed"}
    assert "go back to 2, or start a new checkpoint" in reasons[0].text


def test_a_declared_count_is_compared_with_the_brokers():
    built = with_broker_counts(
        joined(Counted(4), Counted(4), partitions=2).build().with_partitions({"table": 2})
    )
    assert "2 -> 4 partitions" in built.readiness().reason


def test_topics_of_other_sources_are_named():
    topo = Topology("t")
    for name in ("a", "b"):
        topo.source(name, key="k", partition_column="partition")
    built = topo.build()
    assert broker_counts(built, {"a": Counted(5)}) == {"a": 5}
    with pytest.raises(InputError, match=r"topics\.c: found 'c', expected an external topic .*'a', 'b'"):
        broker_counts(built, {"c": Counted(5)})
    with pytest.raises(InputError, match=r"topics\.a: found 5, expected a KafkaTopic"):
        broker_counts(built, {"a": 5})


def test_a_topic_is_missing_only_if_the_brokers_say_so(monkeypatch):
    def answering(error: str) -> KafkaTopic:
        monkeypatch.setattr(offsets, "made", lambda *_: FakeAdmin(error))
        return KafkaTopic("t", "nowhere:9092")

    topo = Topology("t")
    topo.source("a", key="k", partition_column="partition")
    assert broker_counts(topo.build(), {"a": answering("UNKNOWN_TOPIC_OR_PART")}) == {"a": None}
    with pytest.raises(InputError, match="allow `Describe` on the topic to this user"):
        broker_counts(topo.build(), {"a": answering("TOPIC_AUTHORIZATION_FAILED")})


@pytest.mark.kafka
def test_a_real_broker_has_the_counts(kafka):
    topo = Topology("t")
    topo.source("a", key="k", partition_column="partition")
    name = kafka.topic("counted", partitions=3)
    assert broker_counts(topo.build(), {"a": KafkaTopic(name, kafka.bootstrap)}) == {"a": 3}
    gone = KafkaTopic(kafka.unique("gone"), kafka.bootstrap)
    assert broker_counts(topo.build(), {"a": gone}) == {"a": None}
