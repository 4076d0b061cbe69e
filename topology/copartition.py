"""Finds the topics that need equal partition counts: propagates keys along the flow, and groups the topics of joins.

**Idea.** A join finds matching records only if both sides are partitioned by the same key into the same number of
partitions. So every join puts all topics of its inputs into one co-partition group.

Properties: a topic is in at most one group. Groups that share a topic are one group. After a repartition, only the
repartition's topic counts. A merge without a join groups nothing.

Errors: `TopologyError` for a join whose inputs have no key, keys with unequal numbers of columns, or the same columns
in another order, which is another key. `topology.partitions` finds unequal partition *counts*, because counts may be
known only later.

Source: Kafka Streams' co-partitioning requirements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from topology.errors import TopologyError
from topology.graph import Shape
from topology.node import Node


@dataclass(frozen=True, slots=True)
class Group:
    """Topics that need equal partition counts, and the joins that require it, both in declared order."""

    topics: tuple[str, ...]
    joins: tuple[str, ...]


def with_keys(shape: Shape) -> Shape:
    """Return the shape with the `key` of every node.

    A source or repartition has its own key. Any other node has the common key of its inputs, or `()` if they differ. A
    join has the key of its first input (the stream), and is refused if its inputs cannot be joined by key.
    """
    keys: dict[str, tuple[str, ...]] = {}
    done = []
    for members in shape.members:
        keyed = []
        for node in members:
            if node.kind == "join":
                _check_join(node, keys)
            key = node.key if node.topic is not None else _inherited(node, keys)
            keys[node.name] = key
            keyed.append(node if key == node.key else replace(node, key=key))
        done.append(tuple(keyed))
    return replace(shape, members=tuple(done))


def _inherited(node: Node, keys: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    first = keys[node.parents[0]]
    return first if node.kind == "join" or all(keys[p] == first for p in node.parents) else ()


def _check_join(node: Node, keys: Mapping[str, tuple[str, ...]]) -> None:
    left, right = (keys[p] for p in node.parents)
    for parent, key in zip(node.parents, (left, right), strict=True):
        if not key:
            raise TopologyError(
                f"node {node.name!r}: cannot join {parent!r}, which has no (common) key; "
                "declare a key of its source, or repartition it by one",
                node=node.name,
            )
    one, two = (f"{p!r} by ({', '.join(k)})" for p, k in zip(node.parents, (left, right), strict=True))
    if left != right and sorted(left) == sorted(right):  # a hash of several columns depends on their order
        raise TopologyError(
            f"node {node.name!r}: cannot join {one} with {two}: equal keys would lie in different partitions; "
            "declare the columns in the same order, or repartition one of them",
            node=node.name,
        )
    if len(left) != len(right):
        raise TopologyError(
            f"node {node.name!r}: cannot join {one} with {two}; repartition one of them, so that both are "
            "partitioned by the same columns",
            node=node.name,
        )


def copartition_groups(shape: Shape, topics: Iterable[str]) -> tuple[Group, ...]:
    """Return the groups of at least two topics, in the order of `topics`. Nearly linear in nodes and edges."""
    from networkx.utils import UnionFind

    group_of = UnionFind()  # topic -> the topic that stands for its group
    asked: list[tuple[str, str]] = []  # (a topic of the group, join)
    for members in shape.members:
        reach: dict[str, frozenset[str]] = {}  # node -> topics its records come from, one per group
        for node in members:
            if node.kind == "source" and node.topic is not None:
                reach[node.name] = frozenset((node.topic,))
                continue
            read = frozenset(group_of[topic] for parent in node.parents for topic in reach[parent])
            if node.kind == "join":
                group_of.union(*read)
                first = min(read)
                asked.append((first, node.name))
                read = frozenset((group_of[first],))
            reach[node.name] = read
    groups: dict[str, list[str]] = {}
    for topic in topics:
        groups.setdefault(group_of[topic], []).append(topic)
    joins: dict[str, list[str]] = {}
    for topic, name in asked:
        joins.setdefault(group_of[topic], []).append(name)
    return tuple(
        Group(tuple(members), tuple(joins[root])) for root, members in groups.items() if len(members) > 1
    )
