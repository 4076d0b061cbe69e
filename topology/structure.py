"""A topology's structure as plain JSON values, and its hash.

**Idea.** What decides where state lies is written down: subtopology numbers, nodes and their inputs, keys,
partition counts, stores. Opaque objects (processors, targets, schemas, options) are not: they may change
freely.

Properties: equal structure gives equal JSON and an equal hash, in every process and Python version; `compare`
works on this form, so that a checkpoint needs to keep nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topology.built import BuiltTopology
    from topology.node import Node

SCHEMA = "taskplace.topology/1"


def to_dict(built: BuiltTopology) -> dict[str, Any]:
    """Return the structure; nodes in topological order, stores in declared order.

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> _ = topo.source("flights", key="tailnum", partitions=2)
    >>> to_dict(topo.build())["subtopologies"][0]["nodes"]
    [{'name': 'flights', 'kind': 'source', 'topic': 'flights', 'partitions': 2, 'key': ['tailnum']}]
    """
    return {
        "schema": SCHEMA,
        "name": built.name,
        "order": list(built.order),
        "copartition_groups": [list(group) for group in built.copartition_groups],
        "subtopologies": [
            {
                "id": sub.id,
                "partitions": sub.partitions,
                "nodes": [_node(node) for node in sub.nodes],
                "stores": [
                    {"name": store.name, "logged": store.logged}
                    | ({"retention_ms": store.retention_ms} if store.retention_ms is not None else {})
                    for store in sub.stores
                ],
            }
            for sub in built.subtopologies
        ],
    }


def _node(node: Node) -> dict[str, Any]:
    """Return a node's own fields; those that say nothing for its kind are left out."""
    found: dict[str, Any] = {"name": node.name, "kind": node.kind}
    if node.topic is not None:
        found |= {"topic": node.topic, "partitions": node.partitions}
    if node.internal:
        found["internal"] = True
    if node.join is not None:
        found["join"] = node.join
    if node.key:
        found["key"] = list(node.key)
    if node.parents:
        found["parents"] = list(node.parents)
    if node.stores:
        found["stores"] = list(node.stores)
    return found


def fingerprint(built: BuiltTopology) -> str:
    """Return the SHA-256 of the structure, in hexadecimal.

    >>> from topology import Topology
    >>> one, two = Topology("t"), Topology("t")
    >>> _ = one.source("flights", partitions=2).process(len, name="p")
    >>> _ = two.source("flights", partitions=2).process(max, name="p")
    >>> one.build().fingerprint() == two.build().fingerprint()
    True
    """
    import hashlib
    import json

    # Sorted keys and no spaces: one spelling only.
    text = json.dumps(to_dict(built), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
