"""Describes a topology as text in Kafka Streams' format, and as a graph in the DOT language.

**Text.** It lists sub-topologies with their sources, processors and sinks, each with its successors (`-->`) and
predecessors (`<--`). Tools that read `Topology#describe()` can read it. Sub-topologies are sorted by number, with an
empty line after each. A join or merge is a processor, and a repartition is a sink to its topic, as in Kafka. Nodes are
in topological order, and their neighbours are sorted by name. Kafka instead puts the nodes with most successors first.

**Graph.** Each subtopology is a cluster, each kind of node has a shape, and stores are cylinders. Topics are outside
the clusters, so a repartition is visible as the path from one subtopology to the next. Names are quoted, so any name is
possible; different names give different identifiers, and equal topologies equal text. Graphviz does the layout.

Source: the format of Kafka Streams' `TopologyDescription`; the DOT language and Graphviz' node shapes.
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


_SHAPES = {"processor": "box", "join": "diamond", "merge": "invtriangle"}  # topics have another one
# Stores are yellow, repartitions are blue, everything else is neutral.
_HEAD = (
    "  rankdir=LR;",
    '  graph [fontname="Helvetica", style="rounded,filled", color="#c4c9d2", fillcolor="#f4f5f8"];',
    '  node [fontname="Helvetica", fontsize="12", style=filled, fillcolor=white, color="#6b7280"];',
    '  edge [color="#6b7280", arrowsize="0.7"];',
)
_STORE, _INTERNAL = "#fdf1cd", "#dbe8fb"


def quoted(text: str) -> str:
    r"""Return text as a DOT identifier whose label shows exactly that text.

    In a label, a backslash starts an escape (`\n`, `\N`). So backslashes are doubled, and a line end is written as
    `\n`.

    >>> print(quoted('say "hi"'), quoted('a\\N'), quoted('two\nlines'))
    "say \"hi\"" "a\\N" "two\nlines"
    """
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def to_dot(built: TopologyView) -> str:
    r"""Return the graph as DOT text, which ends with a newline.

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> _ = topo.source("flights", partitions=2)
    >>> print(to_dot(topo.build()))
    digraph "t" {
      rankdir=LR;
      graph [fontname="Helvetica", style="rounded,filled", color="#c4c9d2", fillcolor="#f4f5f8"];
      node [fontname="Helvetica", fontsize="12", style=filled, fillcolor=white, color="#6b7280"];
      edge [color="#6b7280", arrowsize="0.7"];
      "topic:flights" [label="flights\n2 partitions", shape=plaintext];
      subgraph "cluster_0" {
        label="Sub-topology 0: 2 tasks";
        "node:flights" [label="flights", shape=cds];
      }
      "topic:flights" -> "node:flights";
    }
    <BLANKLINE>
    """
    lines = [f"digraph {quoted(built.name)} {{", *_HEAD]
    internal = {node.topic for node in built.nodes if node.internal}
    for topic, count in built.partitions.items():
        size = "partitions unknown" if count is None else f"{count} partition{'s' if count != 1 else ''}"
        label = quoted(f"{topic}\n{size}")
        look = f'shape=box, fillcolor="{_INTERNAL}"' if topic in internal else "shape=plaintext"
        lines.append(f"  {quoted(f'topic:{topic}')} [label={label}, {look}];")
    for sub in built.subtopologies:
        title = f"Sub-topology {sub.id}: {sub.partitions} task{'s' if sub.partitions != 1 else ''}"
        lines += [f"  subgraph {quoted(f'cluster_{sub.id}')} {{", f"    label={quoted(title)};"]
        for node in sub.nodes:
            lines.append(
                f"    {_id(node.name)} [label={quoted(node.name)}, shape={_SHAPES.get(node.kind, 'cds')}];"
            )
        for store in sub.stores:
            style = "filled" if store.logged else '"filled,dashed"'
            look = f'shape=cylinder, style={style}, fillcolor="{_STORE}"'
            lines.append(f"    {_store(store.name)} [label={quoted(store.name)}, {look}];")
        lines.append("  }")
    for node in built.nodes:
        lines += _edges(node)
    return "\n".join([*lines, "}"]) + "\n"


def _edges(node: Node) -> list[str]:
    """Return the edges from a node's parents, and those to its stores and its topic."""
    # The table side of a join is dashed: its rows are only looked up.
    dashed = [node.join == "table" and i == 1 for i in range(len(node.parents))]
    edges = [
        f"  {_id(parent)} -> {_id(node.name)}{' [style=dashed]' if dash else ''};"
        for parent, dash in zip(node.parents, dashed, strict=True)
    ]
    edges += [f"  {_id(node.name)} -> {_store(store)} [dir=none];" for store in node.stores]
    if node.topic is not None:
        ends = (quoted(f"topic:{node.topic}"), _id(node.name))
        edges.append("  {} -> {};".format(*(ends if node.kind == "source" else ends[::-1])))
    return edges


def _id(node: str) -> str:
    return quoted(f"node:{node}")


def _store(name: str) -> str:
    return quoted(f"store:{name}")
