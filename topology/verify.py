"""Checks every invariant of a built topology, in one function.

Tests run it after every random description. It is cheap enough to run anywhere: O(nodes + partitions).

Non-goals: errors of users, which `Topology.build` refuses. A violation is a defect of this package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from topology.node import TopicPartition

if TYPE_CHECKING:
    from topology.built import BuiltTopology


def violations(built: BuiltTopology) -> tuple[str, ...]:
    """Return one line for each violated invariant.

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> _ = topo.source("flights", partitions=2).process(name="clean")
    >>> violations(topo.build())
    ()
    """
    return (*_structure(built), *_flow(built), *(_tasks(built) if built.readiness() else ()))


def _structure(built: BuiltTopology) -> Iterator[str]:
    # Every node is in exactly one subtopology, and there are no other nodes.
    seen = Counter(node.name for sub in built.subtopologies for node in sub.nodes)
    if seen != Counter(node.name for node in built.nodes):
        yield f"nodes are not split into subtopologies one to one: {seen}"
    # Subtopology numbers are positions, and each subtopology runs once.
    if [sub.id for sub in built.subtopologies] != list(range(len(built.subtopologies))):
        yield f"subtopology ids are not 0, 1, ...: {[sub.id for sub in built.subtopologies]}"
    if sorted(built.order) != [sub.id for sub in built.subtopologies]:
        yield f"order {built.order} is not a permutation of the subtopologies"
    # A store belongs to one subtopology.
    for store, count in Counter(s.name for sub in built.subtopologies for s in sub.stores).items():
        if count != 1:
            yield f"store {store!r} is in {count} subtopologies"


def _flow(built: BuiltTopology) -> Iterator[str]:
    place = {node.name: (sub.id, i) for sub in built.subtopologies for i, node in enumerate(sub.nodes)}
    turn = {sub: i for i, sub in enumerate(built.order)}
    for node in built.nodes:
        # Data flows within a subtopology, from earlier to later nodes.
        for parent in node.parents:
            if place[parent][0] != place[node.name][0] or place[parent] >= place[node.name]:
                yield f"node {node.name!r} does not follow its input {parent!r}"
    writers = {n.topic: n for n in built.nodes if n.kind == "repartition"}
    readers = {n.topic: n for n in built.nodes if n.internal}
    # A repartition is written by one subtopology, and read by one that runs later.
    if set(writers) != set(readers):
        yield f"repartitions written {sorted(map(str, writers))}, read {sorted(map(str, readers))}"
        return
    for topic, writer in writers.items():
        if turn[place[writer.name][0]] >= turn[place[readers[topic].name][0]]:
            yield f"repartition {writer.name!r} is read before it is written"


def _tasks(built: BuiltTopology) -> Iterator[str]:
    tasks = built.tasks()
    if list(tasks) != sorted(tasks, key=lambda task: task.id):
        yield "tasks are not sorted by id"
    # Every partition of every topic, and of every changelog, belongs to exactly one task.
    read = Counter(tp for task in tasks for tp in task.topic_partitions)
    wanted = {
        TopicPartition(topic, p) for topic, count in built.partitions.items() for p in range(count or 0)
    }
    if set(read) != wanted or any(count != 1 for count in read.values()):
        yield "topic partitions are not read by exactly one task each"
    logs = Counter(tp for task in tasks for tp in task.changelog_partitions)
    sizes = {s.changelog: sub.partitions for sub in built.subtopologies for s in sub.stores if s.logged}
    wanted = {TopicPartition(log, p) for log, count in sizes.items() if log for p in range(count)}
    if set(logs) != wanted or any(count != 1 for count in logs.values()):
        yield "changelog partitions do not belong to exactly one task each"
    # Partition p of all topics of a co-partition group is in one task.
    owner = {tp: task.id for task in tasks for tp in task.topic_partitions}
    for group in built.copartition_groups:
        counts = {built.partitions[topic] for topic in group}
        if len(counts) != 1:
            yield f"co-partitioned topics {group} have counts {counts}"
        for p in range(min(c or 0 for c in counts)):
            if len({owner[TopicPartition(topic, p)] for topic in group}) != 1:
                yield f"partition {p} of {group} is spread over several tasks"
