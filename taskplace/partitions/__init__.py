"""Assigns partitions to the members of a consumer group: KIP-54's sticky assignor, exactly, and Faust's assignor.

Reading order: `subscriptions` (the input), `result` (the output), `holders` (the members of a partition), `assignors`
(the modes), `subscription_columns`, `loads` (partitions per member), `optimal` (partitions per class and member),
`deal` (the partitions themselves), `classic`, `rack_range`, `cooperative`, `copartitioned`, `together`, `listener`,
`verify`, `joining`. `kafka_python` and `aiokafka` run them in a Kafka consumer group. Each needs its client, so nothing
here imports them.
"""

from taskplace.groups.assignment import Holders, Location, PartitionAssignment, StickyListener, change
from taskplace.groups.copartitioned import CopartitionedAssignor
from taskplace.groups.partitions import assign_partitions
from taskplace.groups.subscriptions import Member, Subscriptions
from topology.node import TopicPartition

__all__ = [
    "CopartitionedAssignor",
    "Holders",
    "Location",
    "Member",
    "PartitionAssignment",
    "StickyListener",
    "Subscriptions",
    "TopicPartition",
    "assign_partitions",
    "change",
]
