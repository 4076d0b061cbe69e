"""Translates the path in an error into the path in the application's YAML.

**Idea.** Errors name a value as the code knows it: `node 'spent', Aggregate('spent').by.s`, `stores.spent.key.s`,
`sinks.totals.n`. The author of a YAML file looks for the file's key: `topology.nodes.spent.options.by.s`. This module
translates the first into the second. A value without a key of its own gets the path of the nearest key above it.

Errors: none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from taskplace.spark import targets
from taskplace.spark.stub_processors import STATEFUL
from topology import BuiltTopology, Node
from topology.entry_fields import NODE

_PROCESSOR = re.compile(rf"^(?:{'|'.join(STATEFUL.values())})(?:\('[^']*'\))?(?:\.|$)")
_WINDOW = re.compile(r"^Tumbling(?:\('[^']*'\))?(?:\.|$)")
_NODE = re.compile(r"^node '(?P<node>[^']*)'(?:,? |$)?(?P<rest>.*)$", re.DOTALL)
#: The keys of a node beside its options.
_FIELDS = frozenset(NODE) - {"options"}
#: By part of a store's layout, the options that determine it.
_LAYOUT = {
    "key": ("by",),
    "value": ("columns", "state", "aggregates"),
    "time": ("time",),
    "retention_ms": ("ttl", "window"),
}


def option_path(path: str, options: Mapping[str, Any]) -> str:
    """Translate the path in a processor's error into a path below `options`.

    >>> option_path("TableJoin('w').by.id", {"by": {"id": "innt"}})
    'by.id'
    >>> option_path("Aggregate('spent').cents_sum", {"aggregates": {"cents": {"avg": "cents"}}})
    'aggregates.cents'
    >>> option_path("Tumbling('at').size", {}), option_path("PerKey('p')", {})
    ('window.size', '')
    """
    path, windows = _WINDOW.subn("window.", path)
    path = _PROCESSOR.sub("", path).rstrip(".") if not windows else path.rstrip(".")
    head = path.partition(".")[0]
    aggregates = options.get("aggregates")
    if head not in options and isinstance(aggregates, Mapping):
        for name in (head, re.sub(r"_(sum|count)$", "", head)):
            if name in aggregates:
                return f"aggregates.{name}"
    return path


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
            return f"{path}{_time_option(entry, text)}{text[match.end() :]}"
    return text


def named_entries(section: str, given: object) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Yield the entries of a section with their paths, by name. Entries of a list without a name are left out."""
    if isinstance(given, Mapping):
        yield from ((name, (f"topology.{section}.{name}", entry)) for name, entry in given.items())
    elif isinstance(given, list | tuple):
        for place, entry in enumerate(given):
            if isinstance(entry, Mapping) and isinstance(name := entry.get("name"), str):
                yield name, (f"topology.{section}[{place}]", entry)


def _time_option(entry: object, text: str) -> str:
    """Return the path, below a node, of the option that names the time column of an error; "" without one."""
    options = entry.get("options") if isinstance(entry, Mapping) else None
    column = re.search(r": found the time column '([^']*)'", text)
    if not isinstance(options, Mapping) or not (column or ": uses event time" in text):
        return ""
    if isinstance(options.get("window"), Mapping):
        return ".options.window.column"
    return ".options.time" if "time" in options else ""


class YamlPaths:
    """Translates paths in errors about a built topology into paths in its YAML."""

    def __init__(
        self,
        built: BuiltTopology,
        topology: Mapping[str, Any],
        output: Mapping[str, str] = MappingProxyType({}),
        columns: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`topology`: the section. `output`: by sink, the key of its target. `columns`: by topic, where they are."""
        self._columns = columns
        self._keys = output
        self._nodes = {node.name: node for node in built.nodes}
        self._sources = {
            node.topic: node.name for node in built.nodes if node.kind == "source" and not node.internal
        }
        self._declared = topology.get("stores") or {}
        written = [node.name for node in built.nodes if node.kind != "source"]
        listed = isinstance(topology.get("nodes"), list | tuple)
        self._paths = {
            name: f"topology.nodes[{place}]" if listed else f"topology.nodes.{name}"
            for place, name in enumerate(written)
        }
        self._paths |= {name: f"topology.sources.{name}" for name in self._sources.values()}

    def of(self, path: str) -> str:
        """Return the path in the file. O(nodes)."""
        if (node := _NODE.match(path)) and node["node"] in self._paths:
            return self._of_node(node["node"], node["rest"])
        section, _, rest = path.partition(".")
        if section == "sources":
            return self._of_source(rest)
        if section in ("sinks", "nodes", "stores"):
            known = list(self._stores() if section == "stores" else self._paths)
            name = max((n for n in known if rest == n or rest.startswith(f"{n}.")), key=len, default=None)
            if name is None:
                return f"topology.{path}"
            rest = rest[len(name) + 1 :]
            if section == "sinks":
                return self._of_sink(name, rest)
            return self._of_store(name, rest) if section == "stores" else self._of_node(name, rest)
        if section == "weights":
            return f"runtime.{path}"
        if path.startswith("sources "):  # several of them
            return "topology.sources"
        return "topology" if re.match(r"(subtopology|topics)\b", path) else path

    def _of_source(self, rest: str) -> str:
        """Translate the path of a source. Its columns belong to `input`, its options to the topology."""
        for topic, name in self._sources.items():
            if rest == topic:
                return self._columns.get(topic or "", f"input.{topic}.schema")
            if rest == f"{topic}.topic":
                return f"topology.sources.{name}{'.topic' if name != topic else ''}"
            if topic and rest.startswith(f"{topic}."):
                return f"topology.sources.{name}.options.{rest[len(topic) + 1 :]}"
        return f"input.{rest}" if rest else "input"

    def _of_node(self, name: str, rest: str) -> str:
        """Translate the path of a node."""
        node, path = self._nodes[name], self._paths[name]
        column = re.match(r"column '(.*)'$", rest)
        if column is not None:  # a column of a state's key
            by = node.options.get("by")
            return f"{path}.options.by.{column[1]}" if isinstance(by, Mapping) and column[1] in by else path
        head = rest.partition(".")[0]
        if head in _FIELDS:
            return f"{path}.{rest}"
        inner = option_path(rest, node.options) if node.made_of_options else rest
        if inner.startswith("aggregates."):  # {sum: cents, type: int64}: the function has the column
            spec = node.options["aggregates"][inner.partition(".")[2]]
            inner += "".join(
                f".{name}" for name in (spec if isinstance(spec, Mapping) else ()) if name != "type"
            )
        return f"{path}.options.{inner}" if inner and _is_option(node, inner) else path

    def _of_sink(self, name: str, rest: str) -> str:
        """Translate the path of a sink, or of one of its columns."""
        if rest == "target":
            directory = targets.of(self._nodes[name].target).directory
            return f"output.{name}" if directory is None else f"output.{name}.{self._keys.get(name, 'path')}"
        if rest.startswith("target.") and name in self._keys:  # an option of the target
            return f"output.{name}.{self._keys[name]}.{rest.removeprefix('target.')}"
        if rest.partition(".")[0] in _FIELDS:
            return f"{self._paths[name]}.{rest}"
        return f"{self._paths[name]}, column {rest!r}" if rest else self._paths[name]

    def _stores(self) -> dict[str, Node]:
        return {store: node for node in reversed(self._nodes.values()) for store in node.stores}

    def _of_store(self, name: str, rest: str) -> str:
        """Translate the path of a store into its declaration, or into the options that determine its layout."""
        part, _, column = rest.partition(".")
        if isinstance(self._declared, Mapping) and name in self._declared:
            return ".".join(filter(None, [f"topology.stores.{name}", f"options.{rest}" if rest else ""]))
        node = self._stores()[name]
        for option in _LAYOUT.get(part, ()):
            value = node.options.get(option)
            if isinstance(value, Mapping) and column in value:
                return f"{self._paths[node.name]}.options.{option}.{column}"
            if option in node.options and (not column or not isinstance(value, Mapping)):
                return f"{self._paths[node.name]}.options.{option}"
        return self._paths[node.name]


def _is_option(node: Node, inner: str) -> bool:
    """Return whether the file has this path below the options. A misspelt key counts as well."""
    return not node.made_of_options or inner.partition(".")[0] in node.options
