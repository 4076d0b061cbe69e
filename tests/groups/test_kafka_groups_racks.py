"""A consumer group on three brokers in three racks: consumers get the partitions of their rack."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("kafka")

from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka.broker import Brokers
from tests.support.kafka_broker import make_topics
from tests.support.kafka_consumers import consumer_group


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_consumers_read_in_their_rack_and_go_on_without_a_broker(tmp_path: Path, cooperative: bool) -> None:
    with Brokers(3, racks="abc") as brokers:
        replicas = [[1], [2], [3], [3], [2], [1]]
        make_topics(
            AdminClient({"bootstrap.servers": brokers.bootstrap}),
            NewTopic("t", 6, replica_assignment=replicas),
        )
        with consumer_group(brokers.bootstrap, "racks", ["t"], tmp_path) as group:
            for name, rack in (("A", "c"), ("B", "a"), ("C", "b")):
                group.join(name, {"rack": rack, "cooperative": cooperative})
            near = {
                "A": {("t", 2), ("t", 3)},
                "B": {("t", 0), ("t", 5)},
                "C": {("t", 1), ("t", 4)},
            }
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
