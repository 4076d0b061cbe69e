"""Checks that all rows of one state key reach the same task.

**Idea.** The key columns of a topic decide a row's task. If a processor keeps state by other columns, the rows of one
state key lie in several tasks, each with its own state, and every count is split. So the columns of `by` must contain
all key columns of the topic. Behind a topic keyed by tailnum, state by (tailnum) or by (tailnum, day) is right. State
by (tailnum) behind a topic keyed by (tailnum, day), or by origin, is wrong.

Checked, as the traits of a processor say (`taskplace.spark.processors.traits`):
- aggregates, counts, table joins and functions per key of `taskplace.spark.processors`;
- de-duplication behind several topics: equal ids from two topics meet only if both topics are split alike;
- topics that meet in a merge, a join or a shared store: they must be split by the same columns in the same order, into
  the same number of partitions. Otherwise the rows of one key reach different tasks from different topics;
- topics without a key before any of these: their rows are spread over all tasks.

Not checked:
- a de-duplication after a single topic: its id usually determines the key;
- a processor behind a custom one, which may rename columns. The key is known by name only behind a source or a
  repartition, and behind processors that keep its columns (de-duplication, table join, aggregates, merges);
- the start of a window: the processor computes it, so no input can be split by it;
- a subtopology with one task.

Errors: `TopologyError` with the node, both lists of columns, and the remedy.

The types of the columns are compared elsewhere: `splits` lists the comparisons, `taskplace.spark.worker.splits` makes
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from taskplace.spark.processors.traits import traits_of
from taskplace.spark.worker.splits import Split
from topology import BuiltTopology, Node, Subtopology, TopologyError

Keys = frozenset[tuple[str, ...]] | None  # the keys of the topics that rows come from; None: not known


def check_keys(built: BuiltTopology) -> None:
    """Refuse a processor whose state key does not contain all columns that its input is split by. O(nodes + edges).

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
        known: dict[str, Keys] = {}
        topics = _topics(sub)
        for node in sub.nodes:
            traits = traits_of(node.processor)
            if sub.partitions != 1 and traits.by_has_split_key:
                _check(node, known)
            if sub.partitions != 1 and traits.keeps_state_by_key:
                _check_topics(node, known)
            known[node.name] = _keys(node, known)
        if sub.partitions != 1:
            for nodes in _sharing(sub):
                _check_split(built, nodes, topics)
                _check_shared(nodes, known)


def _check(node: Node, known: Mapping[str, Keys]) -> None:
    by = _by(node.processor)
    inputs = {key: parent for parent in reversed(node.parents) for key in sorted(known[parent] or ())}
    for key, parent in sorted(inputs.items()):
        if lacking := [column for column in key if column not in by]:
            raise TopologyError(
                f"node {node.name!r}: keeps state by ({', '.join(by)}), but its input {parent!r} is partitioned by "
                f"({', '.join(key)}), so rows of one key reach several tasks; repartition the input by "
                f"({', '.join(by)}), or add {', '.join(map(repr, lacking))} to `by`",
                node=node.name,
            )


def _check_topics(node: Node, known: Mapping[str, Keys]) -> None:
    """Refuse inputs from topics that are split by different columns."""
    inputs = {key for parent in node.parents for key in known[parent] or ()}
    if len(inputs) > 1:
        split = " and ".join(f"({', '.join(key)})" for key in sorted(inputs))
        raise TopologyError(
            f"node {node.name!r}: keeps state by ({', '.join(_by(node.processor))}), but its input topics are "
            f"partitioned by {split}, so rows of one key reach several tasks; repartition them by the same columns "
            "in the same order",
            node=node.name,
        )


def _topics(sub: Subtopology) -> dict[str, dict[str, Node]]:
    """Return the sources that each node's rows come from, by name, whatever lies between."""
    topics: dict[str, dict[str, Node]] = {}
    for node in sub.nodes:
        topics[node.name] = {
            name: source for parent in node.parents for name, source in topics[parent].items()
        }
        if node.kind == "source":
            topics[node.name] = {node.name: node}
    return topics


def _sharing(sub: Subtopology) -> list[list[Node]]:
    """Return the nodes that keep state by key: together those that share a store, the others alone."""
    groups: dict[str, list[Node]] = {}
    for node in sub.nodes:
        if traits_of(node.processor).keeps_state_by_key:
            groups.setdefault(node.processor.store, []).append(node)
    return list(groups.values())


def _check_split(built: BuiltTopology, nodes: list[Node], topics: Mapping[str, Mapping[str, Node]]) -> None:
    """Refuse topics without a key, and topics with different numbers of partitions, before state that is kept by key.

    What lies between a topic and the node does not matter: nothing but a repartition moves rows to another task.
    """
    node = nodes[-1]
    sources = {name: source for one in nodes for name, source in topics[one.name].items()}
    without = sorted(name for name, source in sources.items() if not source.key)
    if without:
        raise TopologyError(
            f"node {node.name!r}: keeps state by key, but the rows of {without[0]!r} are partitioned without a key, so "
            "rows of one key reach several tasks; give it a key, or repartition its rows by "
            f"({', '.join(_by(node.processor))})",
            node=node.name,
        )
    counts = {name: built.partitions[source.topic or ""] or 0 for name, source in sources.items()}
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


def _check_shared(nodes: list[Node], known: Mapping[str, Keys]) -> None:
    """Refuse a store that nodes behind topics with different keys share."""
    keys = {
        node.name: known[parent] for node in nodes for parent in node.parents if known[parent] is not None
    }
    every = frozenset().union(*(key for key in keys.values() if key is not None))
    if len(nodes) > 1 and len(every) > 1:
        split = " and ".join(f"({', '.join(key)})" for key in sorted(every))
        raise TopologyError(
            f"nodes {', '.join(repr(node.name) for node in nodes)}: share a store that is kept by key, but their input "
            f"topics are partitioned by {split}, so rows of one key reach several tasks; repartition the inputs by the "
            "same columns",
            node=nodes[-1].name,
        )


def _by(processor: Any) -> tuple[str, ...]:
    return _of_rows(processor, processor.layouts()[processor.store]["key"])


def _of_rows(processor: Any, key: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of a store's key that the rows have, without the computed start of a window."""
    made = getattr(processor, "key_columns_made", ())
    return tuple(name for name in key if name not in made)


def _keys(node: Node, known: Mapping[str, Keys]) -> Keys:
    """Return the key columns by which a node's output rows are split; None if the rows may not have these columns."""
    if node.kind == "source":
        return frozenset({node.key}) if node.key else None
    if node.kind == "merge":
        inputs = [known[parent] for parent in node.parents]
        return None if None in inputs else frozenset().union(*(keys for keys in inputs if keys is not None))
    return known[node.parents[0]] if traits_of(node.processor).keeps_key_columns else None


def splits(sub: Subtopology, keys: Mapping[str, pa.Schema]) -> tuple[Split, ...]:
    """Return the stores whose key contains a topic's key, with the types of these columns. O(nodes x topics).

    `keys`: the key schema of each store. A node is compared with every topic that its rows come from, whatever lies
    between, if the key of one of its stores has all columns of the topic's key. Empty for a subtopology with one task.
    """
    found: dict[Split, None] = {}
    topics: dict[str, dict[str, tuple[str, ...]]] = {}
    for node in sub.nodes:
        topics[node.name] = {topic: key for parent in node.parents for topic, key in topics[parent].items()}
        if node.kind == "source" and node.topic and node.key:
            topics[node.name] = {node.topic: node.key}
        for store in node.stores if sub.partitions != 1 else ():
            own = set(_of_rows(node.processor, keys[store].names))
            for topic, key in topics[node.name].items():
                if set(key) <= own:
                    types = tuple((name, keys[store].field(name).type) for name in key)
                    found[Split(node.name, store, topic, types)] = None
    return tuple(found)
