"""Describes a topology as text, in Kafka Streams' format.

**Idea.** The text lists sub-topologies with their sources, processors and sinks, each with its successors (`-->`) and
predecessors (`<--`). Tools that read `Topology#describe()` can read it.

Properties: sub-topologies are sorted by number, with an empty line after each. A join or merge is a processor, and a
repartition is a sink to its topic, as in Kafka. Nodes are in topological order, and their neighbours are sorted by
name. Kafka instead puts the nodes with most successors first.

Source: the format of Kafka Streams' `TopologyDescription`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topology.node import Node, TopologyView


def describe(built: TopologyView) -> str:
    """Return the description, one line per node and direction; ends with an empty line.

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> topo.source("flights").process(name="stats", stores=[{"name": "delays"}]).sink("out")
    >>> print(describe(topo.build()))
    Topologies:
       Sub-topology: 0
        Source: flights (topics: [flights])
          --> stats
        Processor: stats (stores: [delays])
          --> out
          <-- flights
        Sink: out (topic: out)
          <-- stats
    <BLANKLINE>
    <BLANKLINE>
    """
    children: dict[str, list[str]] = {node.name: [] for node in built.nodes}
    for node in built.nodes:
        for parent in dict.fromkeys(node.parents):  # a self-join has its input twice
            children[parent].append(node.name)
    lines = ["Topologies:"]
    for sub in built.subtopologies:
        # The first one is indented by one more space, as in Kafka; tools depend on it.
        lines.append(f"{'  ' if sub.id else '   '}Sub-topology: {sub.id}")
        for node in sub.nodes:
            lines.append(f"    {_headline(node)}")
            if node.kind not in ("sink", "repartition"):
                lines.append(f"      --> {', '.join(sorted(children[node.name])) or 'none'}")
            if node.parents:
                lines.append(f"      <-- {', '.join(sorted(set(node.parents)))}")
        lines.append("")
    return "\n".join(lines) + "\n"


def _headline(node: Node) -> str:
    if node.kind == "source":
        return f"Source: {node.name} (topics: [{node.topic}])"
    if node.kind == "repartition":
        return f"Sink: {node.name} (topic: {node.topic})"
    if node.kind == "sink":
        # A target that is text is a topic's name. Only the runtime understands other objects.
        return f"Sink: {node.name} (topic: {node.target if isinstance(node.target, str) else node.name})"
    return f"Processor: {node.name} (stores: [{', '.join(sorted(node.stores))}])"
