"""Splits nodes into subtopologies: the connected parts of the graph, with their numbers and their order.

**Idea.** Nodes that are connected by data flow or by a shared store belong to one subtopology. A repartition separates
two subtopologies.

Properties:
- every node is in exactly one subtopology;
- numbers are canonical: subtopologies are numbered by their first nodes in declared order, so adding unrelated nodes at
  the end never changes them;
- in `order`, every subtopology comes after all those whose repartitions it reads. The number breaks ties.

Errors: `TopologyError` for a cycle through nodes or repartitions, with the nodes of the cycle.

Source: Kafka Streams' topology (sub-topologies); grouping and ordering by networkx, loaded on first use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topology.errors import TopologyError, nearest
from topology.node import Node, Store


@dataclass(frozen=True, slots=True)
class Shape:
    """The graph's structure, without partition counts.

    - `members`: subtopology -> its nodes, in topological order
    - `order`: the subtopologies in the order in which they run
    - `home`: node -> its subtopology
    - `writers`: internal topic -> the repartition that writes it
    """

    members: tuple[tuple[Node, ...], ...]
    order: tuple[int, ...]
    home: Mapping[str, int]
    writers: Mapping[str, Node]


def split(nodes: Sequence[Node], stores: Sequence[Store]) -> Shape:
    """Return the subtopologies of a graph, O(nodes log nodes + edges).

    >>> [[n.name for n in m] for m in split(
    ...     [Node("a", "source"), Node("b", "source"), Node("c", "processor", ("a",))], []).members]
    [['a', 'c'], ['b']]
    """
    check_references(nodes, stores)
    import networkx as nx

    position = {node.name: i for i, node in enumerate(nodes)}
    readers = {node.topic: node.name for node in nodes if node.internal}
    flow = nx.DiGraph()
    flow.add_nodes_from(position)
    flow.add_edges_from((parent, node.name) for node in nodes for parent in node.parents)
    joined = flow.to_undirected()
    joined.add_edges_from((node.name, ("store", store)) for node in nodes for store in node.stores)
    cuts = [(node.name, readers[node.topic]) for node in nodes if node.kind == "repartition"]
    flow.add_edges_from(cuts)
    _refuse_cycle(nx, flow, position)

    # A canonical topological order of all nodes, with ties in declared order. Each subtopology keeps it.
    rank = {name: i for i, name in enumerate(nx.lexicographical_topological_sort(flow, key=position.get))}
    parts = [[n for n in part if n in position] for part in nx.connected_components(joined)]
    parts.sort(key=lambda part: min(position[n] for n in part))
    home = {name: number for number, part in enumerate(parts) for name in part}
    order = _order(nx, len(parts), cuts, home, nodes)
    return Shape(
        members=tuple(
            tuple(nodes[position[n]] for n in sorted(part, key=rank.__getitem__)) for part in parts
        ),
        order=order,
        home=home,
        writers={node.topic: node for node in nodes if node.kind == "repartition" and node.topic is not None},
    )


def check_references(nodes: Sequence[Node], stores: Sequence[Store]) -> None:
    """Refuse a topology without nodes, undeclared inputs or stores, and unused stores."""
    if not nodes:
        raise TopologyError("topology: found no nodes, expected at least one source")
    kinds = {node.name: node.kind for node in nodes}
    names = {store.name for store in stores}
    used = set()
    for node in nodes:
        for parent in node.parents:
            if parent not in kinds:
                hint = nearest(parent, kinds)
                raise TopologyError(f"node {node.name!r}: unknown input {parent!r}; {hint}", node=node.name)
            if kinds[parent] in ("sink", "repartition"):
                text = f"input {parent!r} is a {kinds[parent]}, which nothing can read"
                raise TopologyError(f"node {node.name!r}: {text}", node=node.name)
        for store in node.stores:
            if store not in names:
                hint = nearest(store, names)
                raise TopologyError(f"node {node.name!r}: unknown store {store!r}; {hint}", node=node.name)
            used.add(store)
    for declared in stores:
        if declared.name not in used:
            text = "no node uses it; name it in the `stores` of a processor or join"
            raise TopologyError(f"store {declared.name!r}: {text}", node=declared.name)
    _refuse_collisions(nodes, stores)


def _refuse_collisions(nodes: Sequence[Node], stores: Sequence[Store]) -> None:
    """Refuse internal topics with the name of another topic. Kafka does not distinguish "." and "_"."""
    outside = [(n.topic, "source", n.name) for n in nodes if n.kind == "source" and not n.internal]
    outside += [(n.target, "sink", n.name) for n in nodes if n.kind == "sink" and isinstance(n.target, str)]
    ours = [(n.topic, "repartition", n.name) for n in nodes if n.kind == "repartition"]
    ours += [(store.changelog, "store", store.name) for store in stores]
    # Keys are names as Kafka distinguishes them. External topics exist already, so they do not collide.
    taken = {topic.replace(".", "_"): (topic, kind, name) for topic, kind, name in outside if topic}
    for topic, kind, name in ours:
        if topic is None:
            continue
        if (mark := topic.replace(".", "_")) in taken:
            other, holder, its = taken[mark]
            text = f"its topic {topic!r} and {other!r} of {holder} {its!r} are the same to Kafka; rename one of them"
            raise TopologyError(f"{kind} {name!r}: {text}", node=name)
        taken[mark] = (topic, kind, name)


def _refuse_cycle(nx: Any, flow: Any, position: Mapping[str, int]) -> None:
    if nx.is_directed_acyclic_graph(flow):
        return
    way = [edge[0] for edge in nx.find_cycle(flow)]
    first = min(range(len(way)), key=lambda i: position[way[i]])  # start at the first declared node
    way = way[first:] + way[:first]
    text = f"a cycle, {' -> '.join([*way, way[0]])}; remove one of these inputs"
    raise TopologyError(f"node {way[0]!r}: {text}", node=way[0])


def _order(
    nx: Any, count: int, cuts: list[tuple[str, str]], home: Mapping[str, int], nodes: Sequence[Node]
) -> tuple[int, ...]:
    """Return the subtopologies in running order. Refuse a subtopology that (indirectly) reads its own output.

    Kafka Streams can run such a topology, because it never stops reading. Here a batch must end, and its batch would
    not.
    """
    parts = nx.DiGraph()
    parts.add_nodes_from(range(count))
    for repartition, reader in cuts:
        parts.add_edge(home[repartition], home[reader], via=repartition)
    if nx.is_directed_acyclic_graph(parts):
        return tuple(nx.lexicographical_topological_sort(parts))
    loop = nx.find_cycle(parts)
    start = min(range(len(loop)), key=lambda i: loop[i][0])
    loop = loop[start:] + loop[:start]
    via = [parts.edges[edge[0], edge[1]]["via"] for edge in loop]
    inside = {edge[0] for edge in loop}
    members = [node for node in nodes if home[node.name] in inside]
    sharers = Counter(store for node in members for store in node.stores)
    cause = [f"store {store!r}" for store in sorted(sharers) if sharers[store] > 1]
    cause += [f"node {node.name!r}" for node in members if len(node.parents) > 1]
    text = (
        f"a cycle, its records return to subtopology {loop[0][0]} through {' -> '.join(via)}, because of "
        f"{', '.join(cause)}; add a repartition or a separate store on one side"
    )
    raise TopologyError(f"node {via[0]!r}: {text}", node=via[0])
