"""Finds the key in an application's YAML that an error is about.

**Idea.** Errors name a value as the code knows it: `node 'spent', Aggregate('spent').by.s`, `stores.spent.key.s`,
`sinks.totals.n`. Each begins with the name of an entry, and ends with the names of its keys. So the entry is looked up
in the file, and below it the key that ends with the most of these names. What has no key of its own gets the path of
the entry.

Errors: none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from taskplace.spark import targets
from topology import BuiltTopology
from topology.entry_fields import NODE


def key_path(tree: Any, path: str) -> str:
    """Return the key of a tree that ends with the most names of a path, and what the path has after it; or "".

    >>> key_path({"by": {"id": "innt"}, "window": {"size": 1}}, "TableJoin('w').by.id")
    'by.id'
    >>> key_path({"by": {"id": "innt"}, "window": {"size": 1}}, "Tumbling('at').size")
    'window.size'
    >>> key_path({"aggregates": {"cents": {"avg": "cents"}}}, "Aggregate('spent').cents_sum")
    'aggregates.cents'
    """
    keys = sorted((key for key, _ in _keys(tree)), key=lambda key: key.count("."))
    words = re.sub(r"_(sum|count)$", "", path).split(".")
    for end in range(len(words), 0, -1):
        for start in range(end):
            ending = ".".join(words[start:end])
            for key in keys:
                if f".{key}".endswith(f".{ending}"):
                    return ".".join([key, *words[end:]])
    return ""


def _keys(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a tree, and the texts in its lists, each with its value."""
    if isinstance(tree, list):
        tree = {each: None for each in tree if isinstance(each, str)}
    for name, value in tree.items() if isinstance(tree, Mapping) else ():
        yield f"{path}{name}", value
        yield from _keys(value, f"{path}{name}.")


def node_path(text: str, topology: Mapping[str, Any]) -> str:
    """Return the text of a `TopologyError`, beginning with the path of its node, source or store.

    >>> node_path("node 'stats': unknown store 'delay'", {"nodes": {"stats": {}}})
    "topology.nodes.stats: unknown store 'delay'"
    >>> node_path("node 'n': found the time column 'at', expected ...", {"nodes": {"n": {"options": {"time": "at"}}}})
    "topology.nodes.n.options.time: found the time column 'at', expected ..."
    """
    match = re.match(r"(?:node|source|store|repartition) '([^']*)'", text)
    for section in ("nodes", "sources", "stores") if match else ():
        found = dict(named_entries(section, topology.get(section)))
        if match is not None and match[1] in found:
            path, entry = found[match[1]]
            column = re.search(r": found the time column '([^']*)'", text)
            uses = ("options.window.column", "options.time") if ": uses event time" in text else ()
            keys = [key for key, value in _keys(entry) if key in uses or (column and value == column[1])]
            return f"{path}{'.' * bool(keys)}{max(keys, key=len, default='')}{text[match.end() :]}"
    return text


def named_entries(section: str, given: object) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Yield the entries of a section with their paths, by name. Entries of a list without a name are left out."""
    if isinstance(given, Mapping):
        yield from ((name, (f"topology.{section}.{name}", entry)) for name, entry in given.items())
    elif isinstance(given, list | tuple):
        for place, entry in enumerate(given):
            if isinstance(entry, Mapping) and isinstance(name := entry.get("name"), str):
                yield name, (f"topology.{section}[{place}]", entry)


def _split(path: str, names: Iterable[str]) -> tuple[str, str]:
    """Return the longest of the names that a path begins with, and the rest of the path.

    >>> _split("a.b.by.id", ["a", "a.b", "by"]), _split("c.by", ["a"])
    (('a.b', 'by.id'), ('', 'c.by'))
    """
    name = max((name for name in names if f"{path}.".startswith(f"{name}.")), key=len, default="")
    return name, path.removeprefix(name).removeprefix(".")


class YamlPaths:
    """Finds the paths in errors about a built topology in its YAML."""

    def __init__(
        self,
        built: BuiltTopology,
        topology: Mapping[str, Any],
        output: Mapping[str, str] = MappingProxyType({}),
        columns: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`topology`: the section. `output`: by sink, the key of its target. `columns`: by topic, where they are."""
        self._output, self._columns = output, columns
        self._nodes = {node.name: node for node in built.nodes}
        self._entries = {
            section: dict(named_entries(section, topology.get(section))) for section in ("nodes", "sources")
        }
        self._stores = dict(named_entries("stores", topology.get("stores")))
        for node in built.nodes:  # those that a processor makes of its options
            for store in node.stores:
                if store not in self._stores and node.name in self._entries["nodes"]:
                    self._stores[store] = self._entries["nodes"][node.name]

    def of(self, path: str) -> str:
        """Return the path in the file. O(keys of the entry)."""
        node = re.match(r"node '([^']*)'(?:, ?)?(?:column '(.*)'$)?(.*)$", path, re.DOTALL)
        if node is not None:
            return self._below(self._entries["nodes"], node[1], node[2] or node[3]) or path
        section, _, rest = path.partition(".")
        if section == "sources":
            return self._of_source(rest)
        if section == "sinks":
            return self._of_sink(rest)
        if section in ("nodes", "stores"):
            entries = self._stores if section == "stores" else self._entries["nodes"]
            name, rest = _split(rest, entries)
            if section == "stores":
                part, dot, column = rest.partition(".")
                if part == "retention_ms":
                    part = "ttl" if key_path(entries[name][1], "ttl") else "window"
                rest = f"{'by' if part == 'key' else part}{dot}{column}"
            found = self._below(entries, name, rest)
            missing = found and section == "nodes" and rest in NODE and not found.endswith(f".{rest}")
            return f"{found}.{rest}" if missing else found or f"topology.{path}"
        if section == "weights":
            return f"runtime.{path}"
        if path.startswith("sources "):  # several of them
            return "topology.sources"
        return "topology" if re.match(r"(subtopology|topics)\b", path) else path

    @staticmethod
    def _below(entries: Mapping[str, tuple[str, Any]], name: str, rest: str) -> str:
        """Return the path of the key of an entry; "" if there is no such entry."""
        if name not in entries:
            return ""
        path, entry = entries[name]
        return f"{path}.{key}" if rest and (key := key_path(entry, rest)) else path

    def _of_source(self, rest: str) -> str:
        """Return the path of a source. Its columns belong to `input`, its options to the topology."""
        for node in self._nodes.values():
            if node.kind != "source" or node.internal or not f"{rest}.".startswith(f"{node.topic}."):
                continue
            if rest == node.topic:
                return self._columns.get(rest, f"input.{rest}.schema")
            return self._below(self._entries["sources"], node.name, rest[len(node.topic or "") + 1 :])
        return f"input.{rest}" if rest else "input"

    def _of_sink(self, path: str) -> str:
        """Return the path of a sink, or of one of its columns."""
        name, rest = _split(path, self._entries["nodes"])
        if rest == "target":
            directory = targets.of(self._nodes[name].target).directory
            return (
                f"output.{name}" if directory is None else f"output.{name}.{self._output.get(name, 'path')}"
            )
        if rest.startswith("target.") and name in self._output:  # an option of the target
            return f"output.{name}.{self._output[name]}.{rest.removeprefix('target.')}"
        found = self._below(self._entries["nodes"], name, rest) or f"topology.sinks.{path}"
        return f"{found}, column {rest!r}" if rest and found.endswith(name) else found
