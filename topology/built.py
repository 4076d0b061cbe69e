"""A checked, immutable topology: subtopologies, partitions, tasks.

**Idea.** `assemble` turns described nodes into a `BuiltTopology`: first the structure (`topology.graph`), then the
topics that must be partitioned alike and the counts (`topology.partitions`).

Properties: immutable. New metadata gives a new object (`with_partitions`). Equal descriptions give equal `to_dict()`
and `fingerprint()`.

Errors: `assemble` raises `TopologyError` for errors of the description. Problems with topic metadata are not
exceptions; `readiness()` returns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from topology.describe import describe as description
from topology.describe import to_dot
from topology.errors import TopologyError, TopologyNotReady, nearest, shown
from topology.graph import Shape, split
from topology.names import MOST_PARTITIONS, check_count
from topology.node import Node, Store, Subtopology, TopologyView
from topology.partitions import Group, changed, copartition_groups, settle, width, with_keys
from topology.structure import fingerprint, to_dict
from topology.tasks import Task, group_partitions, without_collector


@dataclass(frozen=True, eq=False)
class BuiltTopology(TopologyView):
    """A checked topology, the result of `Topology.build`. For its fields, see `TopologyView`.

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> flights = topo.source("flights", key="tailnum", partitions=2)
    >>> _ = flights.process(name="stats", stores=[{"name": "delays"}])
    >>> built = topo.build()
    >>> [str(task.id) for task in built.tasks()]
    ['0_0', '0_1']
    >>> built.tasks()[1].changelog_partitions
    (TopicPartition(topic='delays-changelog', partition=1),)
    """

    _described: _Described = field(repr=False)
    _baseline: Mapping[str, int] = field(repr=False)  # the counts of stores' topics when it was first ready
    _by_name: Mapping[str, Node] = field(repr=False)

    # A read-only view cannot be pickled, but its mapping can.
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "partitions": dict(self.partitions)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, partitions=MappingProxyType(state["partitions"]))

    def __repr__(self) -> str:
        parts = f"{len(self.subtopologies)} subtopologies, {len(self.nodes)} nodes"
        return f"BuiltTopology({self.name!r}: {parts}, {'not ready' if self._reasons else 'ready'})"

    def node(self, name: str) -> Node:
        """Return a node by its name, O(1)."""
        if name not in self._by_name:
            hint = nearest(name, self._by_name)
            raise TopologyError(f"topology {self.name!r}: unknown node {name!r}; {hint}", node=name)
        return self._by_name[name]

    def subtopology_of(self, name: str) -> Subtopology:
        """Return the subtopology that a node belongs to, O(1)."""
        return self.subtopologies[self._described.shape.home[self.node(name).name]]

    def tasks(self) -> tuple[Task, ...]:
        """Return all tasks, sorted by id, O(partitions). Python's garbage collector is paused meanwhile.

        Errors: `TopologyNotReady` with the reason, because an incomplete list would be placed as if it were complete;
        `TopologyError` for more than `MOST_PARTITIONS` tasks.
        """
        if self._reasons:
            raise TopologyNotReady(f"topology {self.name!r} is not ready: {self.readiness().reason}")
        if (total := sum(sub.partitions or 0 for sub in self.subtopologies)) > MOST_PARTITIONS:
            raise TopologyError(
                f"topology {self.name!r}: found {total} tasks in {len(self.subtopologies)} subtopologies, expected at "
                f"most {MOST_PARTITIONS}; use topics with fewer partitions"
            )
        tasks: list[Task] = []
        with without_collector():
            for sub in self.subtopologies:
                topics = [(n.topic, n.partitions) for n in sub.sources if n.topic and n.partitions]
                logs = [store.changelog for store in sub.stores if store.changelog is not None]
                tasks += group_partitions(sub.id, topics, logs, stateful=sub.stateful)
        return tuple(tasks)

    def with_partitions(self, counts: Mapping[str, int | None]) -> BuiltTopology:
        """Return this topology with new topic metadata, checked again; O(nodes).

        `counts`: the external topics to update, with their counts. None means that the topic no longer exists.
        `readiness()` reports counts that do not fit. The state of stores is bound to the counts of the first metadata
        that was ready.

        Errors: `TopologyError` for a topic that this topology does not read, or for a wrong count.

        >>> from topology import Topology
        >>> topo = Topology("t")
        >>> _ = topo.source("flights").process(name="stats", stores=[{"name": "delays"}])
        >>> ready = topo.build().with_partitions({"flights": 12})
        >>> len(ready.tasks())
        12
        >>> ready.with_partitions({"flights": 16}).readiness().reasons[0].kind
        'changed'
        """
        if not isinstance(counts, Mapping):
            expected = "a mapping of topics to counts"
            raise TopologyError(f"with_partitions: found {shown(counts)}, expected {expected}")
        external = {n.topic: self.partitions[n.topic] for n in self.nodes if _is_external(n) and n.topic}
        for topic, count in counts.items():
            where = f"with_partitions[{topic!r}]"
            if topic not in external:
                node = topic if isinstance(topic, str) else None
                raise TopologyError(f"{where}: unknown topic; {nearest(topic, external)}", node=node)
            external[topic] = None if count is None else check_count(count, where, topic)
        # Nodes are listed by subtopology from here on.
        nodes = tuple(node for members in self._described.shape.members for node in members)
        return replace(self._described, nodes=nodes).under(external, self._baseline)

    def describe(self) -> str:
        """Return the description in Kafka Streams' format; see `topology.describe`."""
        return description(self)

    def to_dot(self) -> str:
        """Return the graph in the DOT language, for Graphviz; see `topology.describe`."""
        return to_dot(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the structure as JSON values, without opaque objects. `compare` needs nothing else."""
        return to_dict(self)

    def fingerprint(self) -> str:
        """Return a hash of the structure (names, keys, partitions, stores). It is the same in every process."""
        return fingerprint(self)


def assemble(name: str, nodes: Sequence[Node], stores: Sequence[Store]) -> BuiltTopology:
    """Return the checked topology of described nodes. It is the last step of `Topology.build`."""
    shape = with_keys(split(nodes, stores))
    topics = [n.topic for n in nodes if n.kind == "source" and n.topic is not None]
    groups = copartition_groups(shape, topics)
    external = {n.topic: n.partitions for n in nodes if _is_external(n) and n.topic is not None}
    position = {node.name: i for i, node in enumerate(nodes)}
    declared = sorted((n for members in shape.members for n in members), key=lambda n: position[n.name])
    described = _Described(name=name, nodes=tuple(declared), stores=tuple(stores), shape=shape, groups=groups)
    built = described.under(external, baseline={})
    for reason in built.readiness().reasons:
        if reason.kind == "unequal":  # an error of the description, not a state
            joins = next(g.joins for g in groups if g.topics == reason.topics)
            raise TopologyError(reason.text, node=joins[0])
    return built


def _is_external(node: Node) -> bool:
    return node.kind == "source" and not node.internal


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """The parts of a topology that do not depend on topic metadata."""

    name: str
    nodes: tuple[Node, ...]
    """In the order in which they are listed."""
    stores: tuple[Store, ...]
    shape: Shape
    groups: tuple[Group, ...]

    def under(self, external: Mapping[str, int | None], baseline: Mapping[str, int]) -> BuiltTopology:
        """Return the topology with these counts.

        - `external`: the counts of external topics, None if unknown
        - `baseline`: the counts with which stores first ran
        """
        counts, reasons = settle(self.shape, self.groups, external)
        reasons += changed(self.shape, self.groups, baseline, counts)
        if not reasons:
            baseline = self._held(counts)
        by_name = {
            node.name: node if node.topic is None else replace(node, partitions=counts[node.topic])
            for node in self.nodes
        }
        sources = (node for node in by_name.values() if node.kind == "source")
        return BuiltTopology(
            name=self.name,
            nodes=tuple(by_name.values()),
            stores=self.stores,
            subtopologies=self._subtopologies(by_name, counts),
            order=self.shape.order,
            copartition_groups=tuple(g.topics for g in self.groups),
            partitions=MappingProxyType({n.topic: counts[n.topic] for n in sources if n.topic}),
            _described=self,
            _baseline=baseline,
            _reasons=tuple(reasons),
            _by_name=by_name,
        )

    def _held(self, counts: Mapping[str, int | None]) -> dict[str, int]:
        """Return the counts that stores must keep: those with which they first ran.

        A topology that was never ready has not run.
        """
        stateful = [members for members in self.shape.members if any(node.stores for node in members)]
        topics = [node.topic for members in stateful for node in members if node.kind == "source"]
        return {topic: count for topic in topics if topic and (count := counts[topic]) is not None}

    def _subtopologies(
        self, by_name: Mapping[str, Node], counts: Mapping[str, int | None]
    ) -> tuple[Subtopology, ...]:
        """Return the subtopologies, with partition counts in their nodes."""
        place = {store.name: i for i, store in enumerate(self.stores)}
        writers = self.shape.writers
        subtopologies = []
        for number, members in enumerate(self.shape.members):
            nodes = tuple(by_name[n.name] for n in members)
            used = sorted({place[store] for node in nodes for store in node.stores})
            subtopologies.append(
                Subtopology(
                    id=number,
                    nodes=nodes,
                    sources=tuple(n for n in nodes if n.kind == "source"),
                    sinks=tuple(n for n in nodes if n.kind == "sink"),
                    stores=tuple(self.stores[i] for i in used),
                    partitions=width(members, counts) or 0,
                    repartitions_in=tuple(
                        by_name[writers[n.topic].name] for n in nodes if n.internal and n.topic
                    ),
                    repartitions_out=tuple(n for n in nodes if n.kind == "repartition"),
                )
            )
        return tuple(subtopologies)
