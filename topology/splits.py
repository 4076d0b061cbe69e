"""Determines, for each store of a topology, how the inputs of the nodes that use it are partitioned.

**Idea.** The key columns of a record's topic, in their order, and the partition count determine the record's partition.
So the topics of a node's inputs determine the task in which the node looks up a key. `Layout` reads these topics from a
topology's structure, which is all that a checkpoint keeps.

Properties: the topics of an input are the nearest sources and repartitions; nodes before a repartition do not matter.
The inputs of a node are ordered, so the two sides of a join are distinguished. Reading is linear in nodes and edges,
times the number of topics of a merge.

Errors: `KeyError`, `TypeError`, `ValueError` or `AttributeError` for a value that is not a structure. `evolution` turns
them into a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Inputs = tuple[frozenset[str], ...]  # for each input of a node, the topics that its records come from


@dataclass(frozen=True, slots=True)
class Layout:
    """A topology's structure, by name.

    - `stores`: store -> its fields; `store_home`: store -> its subtopology
    - `uses`: store -> node -> the topics of each input of the node
    - `keys`, `counts`: topic -> key columns and partition count (None if unknown), for each topic that is read
    - `tasks`: subtopology -> its number of tasks, 0 while unknown
    - `node_home`: node -> its subtopology
    - `pipeline`: subtopology -> the first of the subtopologies that repartitions connect it with
    - `external`: external topic -> the subtopology that reads it
    - `joins`: join -> its kind
    """

    stores: Mapping[str, Mapping[str, Any]]
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

        >>> from topology import Topology
        >>> topo = Topology("t")
        >>> flights = topo.source("flights", key="tailnum", partitions=4)
        >>> _ = flights.process().process(name="stats", stores=[{"name": "delays"}])
        >>> layout = Layout.of(topo.build().to_dict())
        >>> layout.uses["delays"]["stats"], layout.keys["flights"], layout.counts["flights"]
        ((frozenset({'flights'}),), ('tailnum',), 4)
        """
        subs = {sub["id"]: sub for sub in structure["subtopologies"]}
        nodes = [(node, number) for number, sub in subs.items() for node in sub["nodes"]]
        stores = {store["name"]: (store, number) for number, sub in subs.items() for store in sub["stores"]}
        sources = [(node, number) for node, number in nodes if node["kind"] == "source"]
        uses: dict[str, dict[str, Inputs]] = {store: {} for store in stores}
        reach: dict[str, frozenset[str]] = {}
        for node, _ in nodes:  # in topological order
            inputs = tuple(reach[parent] for parent in node.get("parents", ()))
            for store in node.get("stores", ()):
                uses[store][node["name"]] = inputs
            own = (node["topic"],) if node["kind"] == "source" else ()
            reach[node["name"]] = inputs[0] if len(inputs) == 1 else frozenset(own).union(*inputs)
        return cls(
            stores={name: store for name, (store, _) in stores.items()},
            store_home={name: number for name, (_, number) in stores.items()},
            uses=uses,
            keys={node["topic"]: tuple(node.get("key", ())) for node, _ in sources},
            counts={node["topic"]: node["partitions"] for node, _ in sources},
            tasks={number: sub["partitions"] for number, sub in subs.items()},
            node_home={node["name"]: number for node, number in nodes},
            pipeline=_pipelines(nodes, subs),
            external={node["topic"]: number for node, number in sources if not node.get("internal")},
            joins={node["name"]: node["join"] for node, _ in nodes if node["kind"] == "join"},
        )

    def topics(self, store: str) -> tuple[str, ...]:
        """Return the topics of all inputs of the nodes that use a store, sorted."""
        return tuple(sorted({t for inputs in self.uses[store].values() for side in inputs for t in side}))


def _pipelines(nodes: list[tuple[Any, int]], subs: Mapping[int, Any]) -> dict[int, int]:
    """Return, for each subtopology, the first of the subtopologies that repartitions connect it with."""
    import networkx as nx

    writers = {node["topic"]: number for node, number in nodes if node["kind"] == "repartition"}
    connected = nx.Graph()
    connected.add_nodes_from(subs)
    connected.add_edges_from(
        (number, writers[node["topic"]]) for node, number in nodes if node.get("internal")
    )
    return {number: min(numbers) for numbers in nx.connected_components(connected) for number in numbers}
