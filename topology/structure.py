"""Writes a topology's structure as plain JSON values, and computes its hash.

**Idea.** The structure has everything that determines where state is: subtopology numbers, nodes and their inputs,
keys, partition counts, stores. Opaque objects (processors, targets, schemas, options) are not part of it and may change
freely.

Properties: equal structures give equal JSON and equal hashes, in every process and Python version. `compare` works on
this form, so a checkpoint needs to keep nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from topology.errors import shown

if TYPE_CHECKING:
    from topology.node import Node, TopologyView

SCHEMA = "taskplace.topology/1"


def to_dict(built: TopologyView) -> dict[str, Any]:
    """Return the structure, with nodes in topological order and stores in declared order.

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
    """Return a node's fields, without those that have no meaning for its kind."""
    fields: dict[str, Any] = {"name": node.name, "kind": node.kind}
    if node.topic is not None:
        fields |= {"topic": node.topic, "partitions": node.partitions}
    if node.internal:
        fields["internal"] = True
    if node.join is not None:
        fields["join"] = node.join
    if node.key:
        fields["key"] = list(node.key)
    if node.parents:
        fields["parents"] = list(node.parents)
    if node.stores:
        fields["stores"] = list(node.stores)
    return fields


def fingerprint(built: TopologyView) -> str:
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

    # Sorted keys and no spaces make the text canonical.
    text = json.dumps(to_dict(built), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def damage(structure: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each value that `to_dict` cannot have written, with its path.

    Errors: `KeyError`, `TypeError` or `AttributeError` for a value without the form of a structure.

    >>> list(damage({"subtopologies": [{"id": 0, "partitions": "4", "nodes": [], "stores": []}]}))
    ["subtopologies[0].partitions: found '4', expected a whole number >= 0"]
    """
    seen: set[tuple[str, object]] = set()
    for place, sub in enumerate(structure["subtopologies"]):
        path = f"subtopologies[{place}]"
        yield from _fields(sub, path, {"id": _WHOLE, "partitions": _WHOLE})
        yield from _twice(seen, "id", sub["id"], path)
        for number, node in enumerate(sub["nodes"]):
            at = f"{path}.nodes[{number}]"
            if node.get("kind") in ("source", "repartition"):
                yield from _fields(node, at, {"topic": _TEXT, "partitions": _COUNT})
            yield from _fields(node, at, {"name": _TEXT, "kind": _TEXT})
            lists = {field: _TEXTS for field in ("key", "parents", "stores") if field in node}
            yield from _fields(node, at, lists)
            yield from _twice(seen, "name", node["name"], at)
        for number, store in enumerate(sub["stores"]):
            at = f"{path}.stores[{number}]"
            yield from _fields(store, at, {"name": _TEXT, "logged": _TRUTH})
            yield from _twice(seen, "store", store["name"], at)


Rule = tuple[Callable[[Any], bool], str]

_TEXT: Rule = (lambda value: isinstance(value, str), "text")
_TEXTS: Rule = (
    lambda value: isinstance(value, list | tuple) and all(isinstance(each, str) for each in value),
    "a list of texts",
)
_TRUTH: Rule = (lambda value: isinstance(value, bool), "true or false")
_WHOLE: Rule = (lambda value: type(value) is int and value >= 0, "a whole number >= 0")
_COUNT: Rule = (lambda value: value is None or (type(value) is int and value >= 1), "a whole number >= 1")


def _fields(entry: Mapping[str, Any], path: str, rules: Mapping[str, Rule]) -> Iterator[str]:
    for field, (fits, expected) in rules.items():
        if not fits(entry[field]):
            yield f"{path}.{field}: found {shown(entry[field])}, expected {expected}"


def _twice(seen: set[tuple[str, object]], what: str, value: object, path: str) -> Iterator[str]:
    if (what, value) in seen:
        yield f"{path}: {value!r} is there twice"
    seen.add((what, value))
