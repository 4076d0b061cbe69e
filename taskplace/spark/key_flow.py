"""Follows the columns that rows are split by through the nodes of a subtopology.

**Idea.** The key of a topic decides a row's task, and nothing but a repartition moves a row to another task. So each
node's rows come from topics, and each topic has a *route* to the node: the columns that have the values of the topic's
key there. Sources, merges, and processors that state what they pass on give the names for certain. Behind any other
processor the names are assumed to be unchanged, and the route is not `sure`: the task has to check the values.

Properties:
- a processor that states its traits passes on the rows of its first input; any other may pass on rows of all inputs;
- a processor whose output has the key of its own state passes on the columns for certain, if it may keep state there;
- a topic without a key has a route without columns;
- a route keeps the names that the key columns have in the topic, beside those at the node: the values and types by
  which rows are split are those of the topic.

Errors: as `taskplace.spark.processors.traits.renamed_keys`; `TopologyError` for a node that gives two key columns of a
topic one name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from taskplace.spark.processors.traits import renamed_keys, traits_of
from topology import Node, Subtopology, TopologyError


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """The way of a topic's rows to a node.

    - `source`: the node that reads the topic
    - `key`: the topic's key columns, with their names in the topic; empty for a topic without a key
    - `columns`: the names that these columns have at the node, in the key's order
    - `unsure`: the first node that may have changed the columns' values; "" without one
    """

    topic: str
    source: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    unsure: str = ""


Routes = frozenset[Route]


def routes(sub: Subtopology) -> dict[str, Routes]:
    """Return the routes to each node's output, by node. O(nodes x topics)."""
    by_node: dict[str, Routes] = {}
    for node in sub.nodes:
        by_node[node.name] = _output(node, by_node)
    return by_node


def inputs(node: Node, by_node: Mapping[str, Routes]) -> Routes:
    """Return the routes to a node's inputs."""
    return frozenset(route for parent in node.parents for route in by_node[parent])


def _output(node: Node, by_node: Mapping[str, Routes]) -> Routes:
    if node.kind == "source":
        return frozenset({Route(node.topic or "", node.name, node.key, node.key)})
    if node.kind not in ("processor", "join"):
        return inputs(node, by_node)
    traits = traits_of(node.processor)
    if traits.passes_keys_on:
        names = renamed_keys(node.processor)
        return frozenset(_renamed(node, route, names) for route in by_node[node.parents[0]])
    if traits.keeps_key_columns:
        of_state = traits.by_has_split_key
        return frozenset(
            route if of_state or route.unsure else replace(route, unsure=node.name)
            for route in by_node[node.parents[0]]
        )
    return frozenset(
        route if route.unsure else replace(route, unsure=node.name) for route in inputs(node, by_node)
    )


def _renamed(node: Node, route: Route, names: Mapping[str, str]) -> Route:
    """Return a route behind a node that gives columns new names, by old name."""
    columns = tuple(names.get(column, column) for column in route.columns)
    if len(set(columns)) < len(columns):
        raise TopologyError(
            f"node {node.name!r}: declares that it passes on the columns ({', '.join(route.columns)}), by which "
            f"{route.topic!r} is partitioned, as ({', '.join(columns)}), but two columns cannot have one name; give "
            "each a name of its own in `passes_keys_on` or `keys_renamed`",
            node=node.name,
        )
    return replace(route, columns=columns)
