"""A cluster and a consumer group of kafka-python, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

kafka = pytest.importorskip("kafka")

from kafka.cluster import ClusterMetadata  # noqa: E402
from kafka.protocol.consumer.group import JoinGroupResponse  # noqa: E402
from kafka.protocol.consumer.metadata import (  # noqa: E402
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.protocol.metadata import MetadataResponse  # noqa: E402

Held = set[tuple[str, int]]


def cluster(topics: dict[str, int], racks: tuple[str, ...] = ("a", "b")) -> Any:
    """Return cluster metadata: one broker in each rack, partition p on the broker p modulo their number."""
    brokers = [
        MetadataResponse.MetadataResponseBroker(node_id=k, host="broker", port=1000 + k, rack=rack)
        for k, rack in enumerate(racks)
    ]
    topic, part = (
        MetadataResponse.MetadataResponseTopic,
        MetadataResponse.MetadataResponseTopic.MetadataResponsePartition,
    )
    found = ClusterMetadata()
    response = MetadataResponse(
        version=5,
        throttle_time_ms=0,
        cluster_id=None,
        brokers=brokers,
        controller_id=0,
        topics=[
            topic(
                error_code=0,
                name=name,
                is_internal=False,
                partitions=[
                    part(
                        error_code=0,
                        partition_index=p,
                        leader_id=p % len(racks),
                        replica_nodes=[p % len(racks)],
                        isr_nodes=[p % len(racks)],
                        offline_replicas=[],
                    )
                    for p in range(count)
                ],
            )
            for name, count in topics.items()
        ],
    )
    found.update_metadata(MetadataResponse.decode(response.encode(), version=5))
    return found


PAIR = ConsumerProtocolSubscription.TopicPartition


def made_of(made: dict[str, Any]) -> dict[str, Held]:
    return {n: {(tp.topic, tp.partition) for tp in a.partitions()} for n, a in made.items()}


def subscription(**fields: Any) -> Any:
    """Return a subscription; `owned_partitions` are given as pairs of a topic and numbers."""
    owned = [PAIR(topic=topic, partitions=numbers) for topic, numbers in fields.pop("owned_partitions", ())]
    return ConsumerProtocolSubscription(
        **{"topics": ["t", "u"], "user_data": b"", "owned_partitions": owned, **fields}
    )


def told(*partitions: tuple[str, int]) -> Any:
    """Return the assignment of these partitions, made by one of our leaders."""
    held: dict[str, list[int]] = {}
    for topic, number in partitions:
        held.setdefault(topic, []).append(number)
    return ConsumerProtocolAssignment(3, list(held.items()), b"taskplace")


def members(*pairs: tuple[str, Any]) -> list[Any]:
    return [member(name, metadata) for name, metadata in pairs]


def member(name: str, metadata: Any, instance: str | None = None) -> Any:
    return JoinGroupResponse.JoinGroupResponseMember(
        member_id=name, group_instance_id=instance, metadata=metadata
    )
