"""Determines, for each store of a topology, how the inputs of the nodes that use it are partitioned.

**Idea.** A record's partition follows from its topic: its key columns in their order, and the partition count. So the
task in which a node looks up a key follows from the topics that each of its inputs comes from. `Layout` reads
that off a topology's structure, which is all that a checkpoint keeps.

Properties: an input's topics are the nearest ones, sources and repartitions; what lies before a repartition does not
matter. The inputs of a node stand in their order, so the two sides of a join are told apart. Reading is linear in
nodes and edges, times the topics behind a merge.

Errors: KeyError, TypeError, ValueError or AttributeError for a value that is not a structure. `evolution` turns them
into a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Inputs = tuple[frozenset[str], ...]  # for each input of a node, the topics that its records come from


@dataclass(frozen=True, slots=True)
class Layout:
    """A topology's structure, by name.

    - `stores`, `store_home`: its stores, and their subtopologies; `uses`: store -> node -> that node's inputs
    - `keys`, `counts`: key columns and partition count of each topic that is read, None where unknown
    - `tasks`: tasks of each subtopology, 0 while unknown; `node_home`: the subtopology of each node
    - `pipeline`: subtopology -> the first of those that repartitions connect it with
    - `external`: the topics that come from outside, and the subtopologies that read them
    - `joins`: the joins, and the kind of each
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
        """Return the topics that the users of a store read it by, sorted."""
        return tuple(sorted({t for inputs in self.uses[store].values() for side in inputs for t in side}))


def _pipelines(nodes: list[tuple[Any, int]], subs: Mapping[int, Any]) -> dict[int, int]:
    """Return, for each subtopology, the first of those that repartitions connect it with."""
    import networkx as nx

    writers = {node["topic"]: number for node, number in nodes if node["kind"] == "repartition"}
    connected = nx.Graph()
    connected.add_nodes_from(subs)
    connected.add_edges_from(
        (number, writers[node["topic"]]) for node, number in nodes if node.get("internal")
    )
    return {number: min(numbers) for numbers in nx.connected_components(connected) for number in numbers}
