"""Whether the rows of a key meet: what a processor keeps state by, against what its input is split by.

**Idea.** A row's task follows from the columns its topic is keyed by. A processor that keeps state by other columns
sees the rows of one key in several tasks, each with a state of its own, and counts each key in pieces. So the columns
of `by` have to contain those of the key: by (tailnum) or by (tailnum, day) behind a topic keyed by tailnum is right, by
(tailnum) behind one keyed by (tailnum, day), or by origin, is not.

Properties:
- judged are the aggregates, counts, table joins and functions per key of `taskplace.spark.processors`. A
  de-duplication is not: an id mostly tells the key too, and equal ids then meet;
- only where the key is known by name: behind a source or a repartition, and what keeps its columns (de-duplication,
  table join, aggregates, merges of streams keyed alike). A processor of one's own may rename columns, and hides it;
- topics of different numbers of partitions that are merged are refused where a processor keeps state by their key: one
  key has its rows in one task for one topic, and in another one for the other;
- a source without a key is not judged, nor is a subtopology of one task.

Errors: `TopologyError` with the node, both lists of columns, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin
from topology import BuiltTopology, Node, TopologyError

# Exactly these: one that is derived from them may do otherwise.
_BY_KEY = (Aggregate, Count, PerKey, TableJoin)
_KEEP = (Aggregate, Count, Deduplicate, TableJoin)  # the key columns of their first input

Key = tuple[str, ...] | None  # None: not known


def check_keys(built: BuiltTopology) -> None:
    """Refuse a processor that keeps state by columns which its input is not split by. O(nodes + edges).

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> flights = topo.source("flights", key="origin", partitions=4)
    >>> _ = flights.process(Count("flown", by={"tailnum": "string"}), name="count")
    >>> check_keys(topo.build())
    Traceback (most recent call last):
    topology.errors.TopologyError: node 'count': keeps state by (tailnum), but its input 'flights' is split by \
(origin), so rows of one key lie in several tasks; repartition it by (tailnum) first, or have 'origin' in `by`
    """
    for sub in built.subtopologies:
        known: dict[str, Key] = {}
        split: dict[str, frozenset[int]] = {}
        for node in sub.nodes:
            if sub.partitions != 1 and type(node.processor) in _BY_KEY:
                _check(node, known)
                _check_split(node, known, split)
            known[node.name] = _key(node, known)
            split[node.name] = frozenset().union(*(split[parent] for parent in node.parents))
            if node.kind == "source":
                split[node.name] = frozenset({built.partitions[node.topic or ""] or 0})


def _check(node: Node, known: Mapping[str, Key]) -> None:
    by = _by(node.processor)
    for parent in node.parents:
        key = known[parent]
        lacking = [column for column in key or () if column not in by]
        if key is None or not lacking:
            continue
        raise TopologyError(
            f"node {node.name!r}: keeps state by ({', '.join(by)}), but its input {parent!r} is split by "
            f"({', '.join(key)}), so rows of one key lie in several tasks; repartition it by ({', '.join(by)}) "
            f"first, or have {', '.join(map(repr, lacking))} in `by`",
            node=node.name,
        )


def _check_split(node: Node, known: Mapping[str, Key], split: Mapping[str, frozenset[int]]) -> None:
    for parent in node.parents:
        if known[parent] is not None and len(split[parent]) > 1:
            raise TopologyError(
                f"node {node.name!r}: keeps state by key, but its input {parent!r} merges topics of "
                f"{', '.join(map(str, sorted(split[parent])))} partitions, so rows of one key lie in several tasks; "
                "repartition it first",
                node=node.name,
            )


def _by(processor: Any) -> tuple[str, ...]:
    return tuple(processor.layouts()[processor.store]["key"])


def _key(node: Node, known: Mapping[str, Key]) -> Key:
    """Return the columns by whose values the rows behind a node are split, if those are known to be in them."""
    if node.kind == "source":
        return node.key or None
    inputs = [known[parent] for parent in node.parents]
    if node.kind == "merge":
        return inputs[0] if all(key == inputs[0] for key in inputs) else None
    return inputs[0] if type(node.processor) in _KEEP else None
