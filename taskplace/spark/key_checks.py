"""Checks that all rows of one state key reach the same task.

**Idea.** The key columns of a topic decide a row's task. If a processor keeps state by other columns, the rows of one
state key lie in several tasks, each with its own state, and every count is split. So what rows were split by must be a
function of the state's key: the columns of `by` must contain all key columns of every topic that reaches the node.
Behind a topic keyed by tailnum, state by (tailnum) or by (tailnum, day) is right. State by (tailnum) behind a topic
keyed by (tailnum, day), or by origin, is wrong.

Checked, whatever lies between the topic and the node (`taskplace.spark.key_flow`):
- the processors of `taskplace.spark.processors`, classes derived from them, and classes that state such traits;
- every store of a class or function without traits: its key has to contain the columns as well;
- topics that meet in a merge, a join or a shared store: they must be split by the same columns in the same order, into
  the same number of partitions. Otherwise the rows of one key reach different tasks from different topics;
- topics without a key before any of these: their rows are spread over all tasks.

Compared elsewhere:
- the values, behind a node that may have changed them: in the task (`owned` lists the stores,
  `taskplace.spark.worker.partition_checks` checks them);
- the types: `splits` lists the comparisons within a task, `taskplace.spark.worker.partition_checks` makes them; `alike` lists the
  topics whose keys need equal types in all tasks, `taskplace.spark.compile.keys` compares them.

Not checked:
- a class that states traits without `by_has_split_key`: its author answers for the columns;
- the start of a window: the processor computes it, so no input can be split by it;
- a subtopology with one task.

Errors: `TopologyError` with the node, both lists of columns, and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from taskplace.spark.key_flow import Route, Routes, inputs, routes
from taskplace.spark.processors.base import layouts
from taskplace.spark.processors.traits import states_traits, traits_of
from taskplace.spark.worker.partition_checks import KeyColumn, Owned, Split
from topology import BuiltTopology, Node, Subtopology, TopologyError


def check_keys(built: BuiltTopology) -> None:
    """Refuse a processor whose state key does not contain all columns that its input is split by. O(nodes x topics).

    >>> from taskplace.spark.processors import Count
    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> flights = topo.source("flights", key="origin", partitions=4)
    >>> _ = flights.process(Count("flown", by={"tailnum": "string"}), name="count")
    >>> check_keys(topo.build())
    Traceback (most recent call last):
    topology.errors.TopologyError: node 'count': keeps state by (tailnum), but its input 'flights' is partitioned \
by (origin), so rows of one key reach several tasks; repartition the input by (tailnum), or add 'origin' to `by`
    """
    for sub in built.subtopologies:
        if sub.partitions == 1:
            continue
        by_node = routes(sub)
        for node in sub.nodes:
            _check(sub, node, by_node)
            if _keeps_state_by_key(node):
                _check_topics(sub, node, by_node)
        for nodes in _sharing(sub):
            _check_split(built, sub, nodes, by_node)
            _check_shared(nodes, by_node)


def _check(sub: Subtopology, node: Node, by_node: Mapping[str, Routes]) -> None:
    """Refuse a state key that lacks a column by which one of the node's inputs is split."""
    reaching = {
        route: parent for parent in reversed(node.parents) for route in by_node[parent] if route.columns
    }
    for store, by in _keys(sub, node):
        for route, parent in sorted(reaching.items()):
            lacking = [column for column in route.columns if column not in by]
            if not lacking:
                continue
            own = states_traits(node.processor)
            raise TopologyError(
                f"node {node.name!r}: keeps state by ({', '.join(by)}), but its input {parent!r} is partitioned by "
                f"({', '.join(route.columns)}), so rows of one key reach several tasks; repartition the input by "
                f"({', '.join(by)}), or add {', '.join(map(repr, lacking))} to "
                + ("`by`" if own else f"the key of store {store!r}")
                + ("" if own else "; or state `traits`, if the store's keys belong to this task anyway")
                + _renamed(route),
                node=node.name,
            )


def _renamed(route: Route) -> str:
    """Return the remedy for a node that gives the columns other names."""
    if not route.unsure:
        return ""
    return f"; or, if {route.unsure!r} only renames the columns, declare that with `passes_keys_on`"


def _check_topics(sub: Subtopology, node: Node, by_node: Mapping[str, Routes]) -> None:
    """Refuse inputs from topics that are split by different columns."""
    columns = {route.columns for route in inputs(node, by_node) if route.columns}
    if len(columns) > 1:
        split = " and ".join(f"({', '.join(key)})" for key in sorted(columns))
        raise TopologyError(
            f"node {node.name!r}: keeps state by ({', '.join(_by(sub, node))}), but its input topics are "
            f"partitioned by {split}, so rows of one key reach several tasks; repartition them by the same columns "
            "in the same order",
            node=node.name,
        )


def _sharing(sub: Subtopology) -> list[list[Node]]:
    """Return the nodes that keep state by key: together those that share a store, the others alone."""
    groups: dict[str, list[Node]] = {}
    for node in sub.nodes:
        if _keeps_state_by_key(node):
            for store in (node.processor.store,) if states_traits(node.processor) else node.stores:
                groups.setdefault(store, []).append(node)
    return list(groups.values())


def _check_split(
    built: BuiltTopology, sub: Subtopology, nodes: list[Node], by_node: Mapping[str, Routes]
) -> None:
    """Refuse topics without a key, and topics with different numbers of partitions, before state that is kept by key.

    What lies between a topic and the node does not matter: nothing but a repartition moves rows to another task.
    """
    reaching = {route.source: route for one in nodes for route in inputs(one, by_node)}
    without = sorted(name for name, route in reaching.items() if not route.columns)
    node = nodes[-1]
    if without:
        node = next(one for one in nodes if without[0] in {route.source for route in inputs(one, by_node)})
        raise TopologyError(
            f"node {node.name!r}: keeps state by key, but the rows of {without[0]!r} are partitioned without a key, so "
            "rows of one key reach several tasks; give it a key, or repartition its rows by "
            f"({', '.join(_by(sub, node))})",
            node=node.name,
        )
    counts = {name: built.partitions[route.topic] or 0 for name, route in reaching.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name!r} has {count}" for name, count in sorted(counts.items()))
        whose = (
            f"the store of {', '.join(repr(n.name) for n in nodes)}"
            if len(nodes) > 1
            else f"node {node.name!r}"
        )
        raise TopologyError(
            f"{whose}: state is kept by key, but its input topics have different numbers of partitions ({listed}), so "
            "rows of one key reach several tasks; give the topics equal numbers, or repartition the input first",
            node=node.name,
        )


def _check_shared(nodes: list[Node], by_node: Mapping[str, Routes]) -> None:
    """Refuse a store that nodes behind topics with different keys share."""
    every = {route.columns for node in nodes for route in inputs(node, by_node) if route.columns}
    if len(nodes) > 1 and len(every) > 1:
        split = " and ".join(f"({', '.join(key)})" for key in sorted(every))
        raise TopologyError(
            f"nodes {', '.join(repr(node.name) for node in nodes)}: share a store that is kept by key, but their input "
            f"topics are partitioned by {split}, so rows of one key reach several tasks; repartition the inputs by the "
            "same columns",
            node=nodes[-1].name,
        )


# ------------------------------------------------------------------------------------------- keys of stores


def _keeps_state_by_key(node: Node) -> bool:
    """Return whether a node's traits say so, or the node has stores and its class states no traits."""
    if states_traits(node.processor):
        return traits_of(node.processor).keeps_state_by_key
    return node.kind in ("processor", "join") and bool(node.stores)


def _keys(sub: Subtopology, node: Node) -> list[tuple[str, tuple[str, ...]]]:
    """Return the stores whose key has to determine a row's task, with the columns that the rows have."""
    if states_traits(node.processor):
        traits = traits_of(node.processor)
        return [(node.processor.store, _by(sub, node))] if traits.by_has_split_key else []
    given = {store.name: store.options.get("key") for store in sub.stores}
    declared = layouts(node.processor)
    keys = {store: given[store] or declared.get(store, {}).get("key") for store in node.stores}
    return [(store, _of_rows(node.processor, _names(key))) for store, key in keys.items() if key]


def _by(sub: Subtopology, node: Node) -> tuple[str, ...]:
    """Return the columns by which a node keeps its state; of the first store, if its class states no traits."""
    if not states_traits(node.processor):
        return next((by for _, by in _keys(sub, node)), ())
    return _of_rows(node.processor, _names(node.processor.layouts()[node.processor.store]["key"]))


def _names(key: Any) -> Iterable[str]:
    """Return the names of a key's columns; none of what is no columns, which is refused elsewhere."""
    if isinstance(key, pa.Schema):
        return list(key.names)
    return key if isinstance(key, Mapping) else ()


def _of_rows(processor: Any, key: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of a store's key that the rows have, without the computed start of a window."""
    made = getattr(processor, "key_columns_made", ())
    return tuple(name for name in key if name not in made)


# ------------------------------------------------------------------------------------------- for the task


def splits(sub: Subtopology, keys: Mapping[str, pa.Schema]) -> tuple[Split, ...]:
    """Return the stores whose key contains a topic's key, with the names and types of these columns. O(nodes x topics).

    `keys`: the key schema of each store. A node is compared with every topic that its rows come from, whatever lies
    between, if the key of one of its stores has all columns of the topic's key. Empty for a subtopology with one task.
    """
    return tuple(
        dict.fromkeys(
            Split(node.name, store, route.topic, _columns(keys[store], route))
            for node, store, route in _kept(sub, keys)
        )
    )


def owned(
    sub: Subtopology, keys: Mapping[str, pa.Schema], partitions: Mapping[str, int | None]
) -> tuple[Owned, ...]:
    """Return the stores whose keys a task has to check, because a node may have changed the columns. As `splits`.

    `partitions`: the number of each topic; topics that reach one store have equal numbers (`check_keys`).

    A class without traits is checked as well: it may take the keys of its state from anywhere.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], list[Route]] = {}
    for node, store, route in _kept(sub, keys):
        groups.setdefault((node.name, store, route.columns), []).append(route)
    nodes = {node.name: node for node in sub.nodes}
    return tuple(
        Owned(
            node=node,
            store=store,
            columns=_types(keys[store], columns),
            topics=tuple(dict.fromkeys(sorted(route.topic for route in reaching))),
            partitions=max(partitions[route.topic] or 0 for route in reaching),
            changed_by=next((route.unsure for route in sorted(reaching) if route.unsure), node),
        )
        for (node, store, columns), reaching in groups.items()
        if any(route.unsure for route in reaching) or _is_unsure(nodes[node])
    )


def alike(built: BuiltTopology) -> tuple[tuple[str, ...], ...]:
    """Return the topics whose keys need equal types in all tasks and batches, by join and by store. O(nodes x topics).

    The keys of the topics of one tuple have equally many columns, which correspond by position.
    """
    groups: dict[tuple[str, ...], None] = dict.fromkeys(built.copartition_groups)  # a join's topics have keys
    for sub in built.subtopologies:
        if sub.partitions == 1:
            continue
        by_node = routes(sub)
        stores: dict[tuple[str, int], set[str]] = {}
        for node in sub.nodes:
            for store in node.stores if _keeps_state_by_key(node) else ():
                for route in inputs(node, by_node):
                    if route.columns:
                        stores.setdefault((store, len(route.columns)), set()).add(route.topic)
        groups |= {tuple(sorted(topics)): None for topics in stores.values()}
    return tuple(group for group in groups if len(group) > 1)


def keyed(sub: Subtopology, keys: Mapping[str, pa.Schema]) -> frozenset[str]:
    """Return the topics by whose key state is kept, so that a row without one belongs to no task. As `splits`.

    Only the second input of a join that states traits is kept: rows of the first one look for their key in it.
    """
    by_node = routes(sub)
    return frozenset(
        route.topic
        for node, _, route in _kept(sub, keys)
        for parent in node.parents[node.kind == "join" and states_traits(node.processor) :]
        if route in by_node[parent]
    )


def _kept(sub: Subtopology, keys: Mapping[str, pa.Schema]) -> Iterable[tuple[Node, str, Route]]:
    """Yield each store with the routes to its nodes whose columns the store's key has."""
    if sub.partitions == 1:
        return
    by_node = routes(sub)
    for node in sub.nodes:
        traits = traits_of(node.processor)
        if states_traits(node.processor) and not traits.by_has_split_key:
            continue
        for store in node.stores:
            own = set(_of_rows(node.processor, keys[store].names))
            for route in sorted(inputs(node, by_node)):
                if route.columns and set(route.columns) <= own:
                    yield node, store, route


def _is_unsure(node: Node) -> bool:
    """Return whether a node's class may keep state by other values than those of its input.

    So may a class that states no traits, and one that is derived from a class with traits.
    """
    return "traits" not in vars(type(node.processor))


def _columns(key: pa.Schema, route: Route) -> tuple[KeyColumn, ...]:
    """Return the key columns of a route's topic, as a store with the schema `key` keeps them."""
    pairs = zip(route.key, route.columns, strict=True)
    return tuple(KeyColumn(in_topic, name, key.field(name).type) for in_topic, name in pairs)


def _types(key: pa.Schema, columns: Iterable[str]) -> tuple[tuple[str, pa.DataType], ...]:
    return tuple((name, key.field(name).type) for name in columns)
