"""Partition-level assignment for consumer groups: KIP-54's sticky assignor, exact, and Faust's copartitioned one.

Reading order: `subscriptions` (the question), `result` (the answer), `holders` (who has what, and where), `assignors`
(the modes), `columns`, `loads` (how many for each), `optimal` (how many of what), `deal` (which), `classic`,
`rack_range`, `cooperative`, `copartitioned`, `together`, `listener`, `verify`. `kafka_python` fits them into a real
consumer group; it is imported only by those who want that.
"""

from taskplace.partitions.assignors import assign_partitions
from taskplace.partitions.copartitioned import CopartitionedAssignor
from taskplace.partitions.holders import Holders, Location
from taskplace.partitions.listener import StickyListener, change
from taskplace.partitions.result import PartitionAssignment
from taskplace.partitions.subscriptions import Member, Subscriptions
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
