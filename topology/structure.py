"""A topology's structure as plain JSON values: written, checked, hashed, and read as a `Layout`.

**Idea.** The structure has everything that determines where state is: subtopology numbers, nodes and their inputs,
keys, partition counts, stores. Opaque objects (processors, targets, schemas, options) are not part of it and may change
freely. A checkpoint keeps nothing else. The key columns of a record's topic, in their order, and the partition count
determine the record's partition. So the topics of a node's inputs determine the task in which the node looks up a key:
`Layout` has them for each store.

Properties: equal structures give equal JSON and equal hashes, in every process and Python version. The topics of an
input are the nearest sources and repartitions; nodes before a repartition do not matter. The inputs of a node are
ordered, so the two sides of a join are distinguished. Reading is linear in nodes and edges, times the number of topics
of a merge.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, convert

if TYPE_CHECKING:
    from topology.node import Node, TopologyView


SCHEMA = "taskplace.topology/1"


def to_dict(built: TopologyView) -> dict[str, Any]:
    """Return the structure, with nodes in topological order and stores in declared order.

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> _ = topo.source("flights", key="tailnum", partitions=2)
    >>> to_dict(topo.build())["subtopologies"][0]["nodes"]
    [{'name': 'flights', 'kind': 'source', 'topic': 'flights', 'partitions': 2, 'key': ['tailnum']}]
    """
    return {
        "schema": SCHEMA,
        "name": built.name,
        "order": list(built.order),
        "copartition_groups": [list(group) for group in built.copartition_groups],
        "subtopologies": [
            {
                "id": sub.id,
                "partitions": sub.partitions,
                "nodes": [_node(node) for node in sub.nodes],
                "stores": [
                    {"name": store.name, "logged": store.logged}
                    | ({"retention_ms": store.retention_ms} if store.retention_ms is not None else {})
                    for store in sub.stores
                ],
            }
            for sub in built.subtopologies
        ],
    }


def _node(node: Node) -> dict[str, Any]:
    """Return a node's fields, without those that have no meaning for its kind."""
    topic = {"topic": node.topic, "partitions": node.partitions} if node.topic is not None else {}
    lists = {"key": list(node.key), "parents": list(node.parents), "stores": list(node.stores)}
    others = {"internal": node.internal, "join": node.join, **lists}
    return {"name": node.name, "kind": node.kind, **topic} | {k: v for k, v in others.items() if v}


def fingerprint(built: TopologyView) -> str:
    """Return the SHA-256 of the structure, in hexadecimal.

    >>> from topology import Topology
    >>> one, two = Topology("t"), Topology("t")
    >>> _ = one.source("flights", partitions=2).process(len, name="p")
    >>> _ = two.source("flights", partitions=2).process(max, name="p")
    >>> one.build().fingerprint() == two.build().fingerprint()
    True
    """
    # Sorted keys and no spaces make the text canonical.
    text = json.dumps(to_dict(built), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class NodeEntry(Struct, frozen=True):
    """A node of a structure, as `compare` reads it; fields that it does not know are kept out."""

    name: str
    kind: str
    topic: str | None = None
    partitions: Annotated[int, Meta(ge=1)] | None = None
    internal: bool = False
    join: str | None = None
    key: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.topic is None and self.kind in ("source", "repartition"):
            raise ValueError(f"a {self.kind} without a topic")


class StoreEntry(Struct, frozen=True):
    """A store of a structure."""

    name: str
    logged: bool
    retention_ms: int | None = None


class SubtopologyEntry(Struct, frozen=True):
    """A subtopology of a structure, with its nodes in topological order."""

    id: Annotated[int, Meta(ge=0)]
    partitions: Annotated[int, Meta(ge=0)]
    nodes: tuple[NodeEntry, ...]
    stores: tuple[StoreEntry, ...]


class Structure(Struct, frozen=True):
    """A topology's structure, as `compare` reads it."""

    subtopologies: tuple[SubtopologyEntry, ...]


Inputs = tuple[frozenset[str], ...]  # for each input of a node, the topics that its records come from


@dataclass(frozen=True, slots=True)
class Layout:
    """A topology's structure, by name.

    - `stores`: store -> its entry; `store_home`: store -> its subtopology
    - `uses`: store -> node -> the topics of each input of the node
    - `keys`, `counts`: topic -> key columns and partition count (None if unknown), for each topic that is read
    - `tasks`: subtopology -> its number of tasks, 0 while unknown
    - `node_home`: node -> its subtopology
    - `pipeline`: subtopology -> the first of the subtopologies that repartitions connect it with
    - `external`: external topic -> the subtopology that reads it
    - `joins`: join -> its kind
    """

    stores: Mapping[str, StoreEntry]
    store_home: Mapping[str, int]
    uses: Mapping[str, Mapping[str, Inputs]]
    keys: Mapping[str, tuple[str, ...]]
    counts: Mapping[str, int | None]
    tasks: Mapping[int, int]
    node_home: Mapping[str, int]
    pipeline: Mapping[int, int]
    external: Mapping[str, int]
    joins: Mapping[str, str]

    @classmethod
    def of(cls, structure: Mapping[str, Any]) -> Layout:
        """Return the layout of `BuiltTopology.to_dict()`.

        Errors: `msgspec.ValidationError` with the path, `KeyError` or `ValueError` for what `to_dict` cannot have made.

        >>> from topology import Topology
        >>> topo = Topology("t")
        >>> flights = topo.source("flights", key="tailnum", partitions=4)
        >>> _ = flights.process().process(name="stats", stores=[{"name": "delays"}])
        >>> layout = Layout.of(topo.build().to_dict())
        >>> layout.uses["delays"]["stats"], layout.keys["flights"], layout.counts["flights"]
        ((frozenset({'flights'}),), ('tailnum',), 4)
        """
        subs = convert(dict(structure), Structure).subtopologies
        nodes = [(node, sub.id) for sub in subs for node in sub.nodes]
        stores = [(store, sub.id) for sub in subs for store in sub.stores]
        for names in ([sub.id for sub in subs], [n.name for n, _ in nodes], [s.name for s, _ in stores]):
            if twice := [name for name, times in Counter(names).items() if times > 1]:
                raise ValueError(f"{twice[0]!r} is there twice")
        sources = [(node.topic or "", node, number) for node, number in nodes if node.kind == "source"]
        uses: dict[str, dict[str, Inputs]] = {store.name: {} for store, _ in stores}
        reach: dict[str, frozenset[str]] = {}
        for node, _ in nodes:  # in topological order
            inputs = tuple(reach[parent] for parent in node.parents)
            for store in node.stores:
                uses[store][node.name] = inputs
            own = frozenset((node.topic or "",) if node.kind == "source" else ())
            reach[node.name] = inputs[0] if len(inputs) == 1 else own.union(*inputs)
        return cls(
            stores={store.name: store for store, _ in stores},
            store_home={store.name: number for store, number in stores},
            uses=uses,
            keys={topic: node.key for topic, node, _ in sources},
            counts={topic: node.partitions for topic, node, _ in sources},
            tasks={sub.id: sub.partitions for sub in subs},
            node_home={node.name: number for node, number in nodes},
            pipeline=_pipelines(nodes),
            external={topic: number for topic, node, number in sources if not node.internal},
            joins={node.name: node.join for node, _ in nodes if node.join is not None},
        )

    def topics(self, store: str) -> tuple[str, ...]:
        """Return the topics of all inputs of the nodes that use a store, sorted."""
        return tuple(sorted({t for inputs in self.uses[store].values() for side in inputs for t in side}))


def _pipelines(nodes: list[tuple[NodeEntry, int]]) -> dict[int, int]:
    """Return, for each subtopology, the first of the subtopologies that repartitions connect it with."""
    import networkx as nx

    writers = {node.topic: number for node, number in nodes if node.kind == "repartition"}
    connected = nx.Graph()
    connected.add_nodes_from(number for _, number in nodes)
    connected.add_edges_from((number, writers[node.topic]) for node, number in nodes if node.internal)
    return {number: min(numbers) for numbers in nx.connected_components(connected) for number in numbers}
