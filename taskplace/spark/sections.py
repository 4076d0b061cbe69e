"""The free sections of an application's YAML, nested, however their keys were written.

**Idea.** `output.totals.path: /data` and `output: {totals: {path: /data}}` mean the same, as everywhere in the file.
The settings leave `topology`, `input` and `output` as they were written, because their entries have names of the user's
own, which may have dots: where a name ends is only known by the fields that may follow it.

Properties: a flat key belongs to the longest entry that is there; else its name ends before the first field in it.
Below a field the longest key that is there is followed, and what is left is one key (`options.kafka.group.id`).

Errors: `ConfigError` for what is given twice, flat and nested.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from taskplace.errors import ConfigError
from taskplace.written import graft

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
            raise ConfigError(path, found="a name", expected=f"a list alone, as `topology.{part}` is one")
        whole[part] = _merged(f"topology.{part}", there, flat, _FIELDS)
    return whole


def entries(section: str, given: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return a section of entries, `input` or `output`, nested.

    >>> entries("output", {"a.b.path": "/x", "c": {"path": "/y"}}, ["path"])
    {'c': {'path': '/y'}, 'a.b': {'path': '/x'}}
    """
    whole = {key: value for key, value in given.items() if not _way(key, given, fields)}
    return _merged(section, whole, {k: v for k, v in given.items() if k not in whole}, fields)


def _merged(
    section: str, nested: Mapping[str, Any], flat: Mapping[str, Any], fields: Collection[str]
) -> dict[str, Any]:
    whole = dict(nested)
    for key, value in flat.items():
        name, rest = _way(key, whole, fields) or (key, "")
        entry = whole.get(name) or {}
        if (name in whole and not rest) or not isinstance(entry, Mapping) or rest in entry:
            raise ConfigError(f"{section}.{key}", found="a key given twice", expected="one value")
        field, _, more = rest.partition(".")
        if more and entry.get(field) is None:
            entry = {**entry, field: {}}
        whole[name] = graft(entry, rest, value) if rest else value
    return whole


def _way(key: str, known: Collection[str], fields: Collection[str]) -> tuple[str, str] | None:
    """Return the name of the entry that a flat key leads into, and what follows; None: it is a name itself."""
    holders = [name for name in known if key.startswith(f"{name}.")]
    if holders:
        name = max(holders, key=len)
        return name, key[len(name) + 1 :]
    words = key.split(".")
    ends = [i for i in range(1, len(words)) if words[i] in fields]
    return (".".join(words[: ends[0]]), ".".join(words[ends[0] :])) if ends else None
