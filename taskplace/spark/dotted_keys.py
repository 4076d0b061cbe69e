"""Nests the keys that overrides have added to `topology`, `input` and `output`.

**Idea.** A file nests these sections, and needs nothing of this. An override names a key by its path:
`--set output.totals.path=/data` means `output: {totals: {path: /data}}`. Where the file has no entry `totals` yet, the
settings cannot know where its name ends, since names may have dots (`output.a.b.path`), and keep the key `totals.path`
as it is. Here the fields that an entry may have are known: a name ends before a field.

Properties: if a name may end in several places, the one to an entry that is there is meant, else the shortest name. A
key without a field in it is a name, if its value is a mapping; any other is a mistake, and leads into the longest entry
that is there, which has the error. Below a field the longest key that is there is followed, and what is left is one key
(`options.kafka.group.id`).

Errors: `ConfigError` for a key that is given twice, flat and nested.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from taskplace.errors import ConfigError
from taskplace.yaml_io import graft

_PARTS = ("sources", "stores", "nodes")
_FIELDS = (
    *("topic", "key", "partitions", "schema", "options", "logged", "retention_ms", "name"),
    *(
        "process",
        "join_table",
        "join_stream",
        "merge",
        "repartition",
        "sink",
        "processor",
        "stores",
        "target",
    ),
)


def topology_section(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `topology` nested.

    >>> topology_section({"nodes": {"o": {"sink": "p"}}, "nodes.p.process": "a"})
    {'nodes': {'o': {'sink': 'p'}, 'p': {'process': 'a'}}}
    """
    whole = {
        key: value for key, value in given.items() if key.partition(".")[0] not in _PARTS or "." not in key
    }
    for part in _PARTS:
        flat = {key[len(part) + 1 :]: value for key, value in given.items() if key.startswith(f"{part}.")}
        if not flat:
            continue
        there = whole.get(part) or {}
        if not isinstance(there, Mapping):
            path = f"topology.{part}.{next(iter(flat))}"
            raise ConfigError(
                path, found="a dotted key", expected=f"list entries only: `topology.{part}` is a list"
            )
        whole[part] = _merged(f"topology.{part}", there, flat, _FIELDS)
    return whole


def entries(section: str, given: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return a section of entries, `input` or `output`, nested.

    >>> entries("output", {"a.b.path": "/x", "c": {"path": "/y"}}, ["path"])
    {'c': {'path': '/y'}, 'a.b': {'path': '/x'}}
    """
    whole = {key: value for key, value in given.items() if not _way(key, value, given, fields)}
    return _merged(section, whole, {k: v for k, v in given.items() if k not in whole}, fields)


def _merged(
    section: str, nested: Mapping[str, Any], flat: Mapping[str, Any], fields: Collection[str]
) -> dict[str, Any]:
    whole = dict(nested)
    for key, value in flat.items():
        name, rest = _way(key, value, whole, fields) or (key, "")
        entry = whole.get(name) or {}
        if (name in whole and not rest) or not isinstance(entry, Mapping) or _there(entry, rest):
            raise ConfigError(f"{section}.{key}", found="a key given twice", expected="one value")
        field, _, more = rest.partition(".")
        if more and entry.get(field) is None:
            entry = {**entry, field: {}}
        whole[name] = graft(entry, rest, value) if rest else value
    return whole


def _there(tree: Mapping[str, Any], path: str) -> bool:
    """Return whether a path leads to a value; the longest key that leads on is followed, as `graft` does."""
    inner = [key for key in tree if path.startswith(f"{key}.") and isinstance(tree[key], Mapping)]
    longest = max(inner, key=len, default=None)
    return path in tree or (longest is not None and _there(tree[longest], path[len(longest) + 1 :]))


def _way(key: str, value: object, known: Collection[str], fields: Collection[str]) -> tuple[str, str] | None:
    """Return the name of the entry that a flat key leads into, and what follows; None: it is a name itself."""
    words = key.split(".")
    ways = [(".".join(words[:i]), ".".join(words[i:])) for i in range(1, len(words))]
    there = [way for way in reversed(ways) if way[0] in known]
    ends = [way for way in ways if way[1].partition(".")[0] in fields]
    mistakes = [] if isinstance(value, Mapping) else there
    return next(iter([*(way for way in there if way in ends), *ends, *mistakes]), None)
