"""One member assigns for all: its strategy and its view count, and what it cannot read is probed or forwarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from taskplace.groups.membership import (
    ConsistentHash,
    ConsumerMetadata,
    ConsumerProtocol,
    Mode,
    PartitionAssigner,
    Topics,
    always,
)
from taskplace.groups.messages import Writer
from taskplace.groups.metadata import NEWEST
from tests.support.consumers import consumer, numbers
from tests.support.network import GROUP, Network
from topology import TopicPartition


class First(PartitionAssigner[Any]):
    """Everything to whom has the most processors; not deterministic on purpose."""

    name = "first"

    def __init__(self, cpus: int) -> None:
        self.cpus = cpus
        self.calls = 0

    def metadata(self) -> Any:
        return {"cpus": self.cpus}

    def assign(
        self,
        consumer: str,
        partitions_per_topic: Mapping[str, int],
        consumers: Sequence[ConsumerMetadata[Any]],
    ) -> list[TopicPartition]:
        best = max(consumers, key=lambda c: c.metadata["cpus"]).name
        parts = [TopicPartition(t, p) for t, n in partitions_per_topic.items() for p in range(n)]
        return parts if consumer == best else []


def test_the_leader_s_strategy_and_the_leader_s_view_count() -> None:
    network = Network()
    network.join("a", consumer({"t": 99}, assigners=[First(8)], mode=Mode.SINGLE))
    network.run(1)
    network.join("b", consumer({"t": 3}, assigners=[First(2)], mode=Mode.SINGLE))
    network.settle(10)
    assert network.coordinator.describe(GROUP).leader == "b"
    assert numbers(network) == {"a": [0, 1, 2], "b": []}


def test_strategies_change_by_configuration_alone() -> None:
    network = Network()
    network.join("a", consumer({"t": 4}, mode=Mode.SINGLE))
    network.join("b", consumer({"t": 4}, assigners=[ConsistentHash()], mode=Mode.SINGLE))
    network.settle(10)
    assert not network.failures() and sum(map(len, network.owned().values())) == 4


def test_what_the_leader_cannot_read_is_forwarded_with_the_name_of_who_said_it() -> None:
    network = Network()

    class Odd(ConsumerProtocol):
        def _metadata(self, *_: Any) -> bytes:
            return Writer().uint(0).uint(0).uint(9).take()

    network.join("b", consumer({"t": 1}, mode=Mode.SINGLE))
    network.run(2)
    network.join("odd", Odd(["t"], fetch=lambda: Topics({"t": 1}), mode=Mode.SINGLE, newest=0))
    network.run(5)
    assert set(network.failures()) == {"b", "odd"}
    assert "members['odd'].subscription" in str(network.failures()["b"].error)


def test_metadata_of_a_newer_version_is_answered_with_the_highest_known_one() -> None:
    """Version probing: an old leader, a new member; the member says it again in the leader's version."""
    network = Network()
    network.coordinator = type(network.coordinator)(network.settings, leader_rule=always("old"))
    network.join("old", consumer({"t": 4}, mode=Mode.SINGLE, newest=0))
    network.settle(10)
    network.join("new", consumer({"t": 4}, mode=Mode.SINGLE, rack="r1"))
    network.settle(10)
    assert numbers(network) == {"new": [0, 2], "old": [1, 3]}
    said = network.members["new"].protocol.offers()[0].metadata
    assert said[0] == 0 and said[1] == NEWEST
    # The old one is upgraded: what the new ones have to say is heard again, at the latest with their next join.
    network.leave("old")
    network.join("other", consumer({"t": 4}, mode=Mode.SINGLE))
    network.settle(10)
    assert network.members["new"].protocol.offers()[0].metadata[0] == 1  # a rack, no standbys


def test_by_default_the_newest_leads_so_that_nobody_is_probed() -> None:
    network = Network()
    network.join("new", consumer({"t": 4}, mode=Mode.SINGLE))
    network.join("old", consumer({"t": 4}, mode=Mode.SINGLE, newest=0))
    network.settle(10)
    assert network.coordinator.describe(GROUP).leader == "new"
