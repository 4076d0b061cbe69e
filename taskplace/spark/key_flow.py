"""Follows the columns that rows are split by through the nodes of a subtopology.

**Idea.** The key of a topic decides a row's task, and nothing but a repartition moves a row to another task. So each
node's rows come from topics, and each topic has a *route* to the node: the columns that have the values of the topic's
key there. Sources, merges, and processors that state what they pass on give the names for certain. Behind any other
processor the names are assumed to be unchanged, and the route is not `sure`: the task has to check the values.

Properties:
- a processor that states its traits passes on the rows of its first input; any other may pass on rows of all inputs;
- a processor whose output has the key of its own state passes on the columns for certain, if it may keep state there;
- a topic without a key has a route without columns.

Errors: as `taskplace.spark.processors.traits.renamed_keys`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from taskplace.spark.processors.traits import renamed_keys, traits_of
from topology import Node, Subtopology


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """The way of a topic's rows to a node.

    - `source`: the node that reads the topic
    - `columns`: the names of the topic's key columns at the node, in the key's order; empty for a topic without a key
    - `unsure`: the first node that may have changed the columns' values; "" without one
    """

    topic: str
    source: str
    columns: tuple[str, ...]
    unsure: str = ""


Routes = frozenset[Route]


def routes(sub: Subtopology) -> dict[str, Routes]:
    """Return the routes to each node's output, by node. O(nodes x topics)."""
    found: dict[str, Routes] = {}
    for node in sub.nodes:
        found[node.name] = _output(node, found)
    return found


def inputs(node: Node, found: Mapping[str, Routes]) -> Routes:
    """Return the routes to a node's inputs."""
    return frozenset(route for parent in node.parents for route in found[parent])


def _output(node: Node, found: Mapping[str, Routes]) -> Routes:
    if node.kind == "source":
        return frozenset({Route(node.topic or "", node.name, node.key)})
    if node.kind not in ("processor", "join"):
        return inputs(node, found)
    traits = traits_of(node.processor)
    if traits.passes_keys_on:
        names = renamed_keys(node.processor)
        return frozenset(
            replace(route, columns=tuple(names.get(column, column) for column in route.columns))
            for route in found[node.parents[0]]
        )
    if traits.keeps_key_columns:
        of_state = traits.by_has_split_key
        return frozenset(
            route if of_state or route.unsure else replace(route, unsure=node.name)
            for route in found[node.parents[0]]
        )
    return frozenset(
        route if route.unsure else replace(route, unsure=node.name) for route in inputs(node, found)
    )
