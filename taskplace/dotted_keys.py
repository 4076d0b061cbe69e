"""Nests the dotted keys that overrides add to `topology`, `input` and `output`.

**Idea.** A file nests these sections; `check_nested` refuses dotted keys there. An override names a key by its path:
`--set output.totals.path=/data` means `output: {totals: {path: /data}}`. Names may contain dots (`output.a.b.path`).
So if the file has no entry `totals` yet, the settings cannot know where the name ends, and keep the key `totals.path`
unchanged. This module knows the fields that an entry may have: a name ends before a field.

Rules:
- If a name may end in several places, it names an existing entry, or else it is the shortest name.
- A key without a field in it is a name if its value is a mapping. Otherwise it is a mistake, and belongs to the longest
  existing entry, which reports the error.
- Below a field, the longest existing key is followed. The rest is one key (`options.kafka.group.id`).
- A field whose value is a mapping need not be there yet: `input.orders.options.sep` makes `options` in `orders`.

Errors: `ConfigError` for a dotted key in a file, and for a key that is given twice, flat and nested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

from taskplace.errors import ConfigError
from taskplace.yaml_fields import INPUT, OUTPUT, PROCESSOR_OPTIONS
from taskplace.yaml_io import graft
from topology.entry_fields import NESTED, SECTIONS

_FIELDS = frozenset(field for fields in SECTIONS.values() for field in fields)
#: By field whose value is a mapping, the fields below it whose values are mappings.
_Tree: TypeAlias = Mapping[str, Any]
_NONE: _Tree = MappingProxyType({})
_FORMAT: _Tree = {"columns": {}, "schema": {}, "writers": {}}
_ENTRY: _Tree = {field: _NONE for field in NESTED if field != "stores"}  # of the topology; `stores` is a list
_MAPPINGS: Mapping[str, _Tree] = {
    "input": {
        "options": {},
        "schema": {},
        "kafka": {"key": _FORMAT, "value": _FORMAT, "include": {}, "options": {}},
    },
    "output": {"kafka": {"key_schema": {}, "value_schema": {}, "headers": {}, "options": {}}},
}
_OF_PROCESSOR: Mapping[str, _Tree] = {
    name: {
        option: {} for option, field in options.items() if field.value in ("mapping", "columns with types")
    }
    for name, options in PROCESSOR_OPTIONS.items()
}


def check_nested(document: Mapping[str, Any], *, entries: bool) -> None:
    """Refuse dotted keys in `topology`; with `entries`, also in `input` and `output`, whose keys are names then.

    Errors: `ConfigError` that shows the nested form.

    >>> check_nested({"topology": {"sources.orders.key": "id"}}, entries=True)
    Traceback (most recent call last):
    taskplace.errors.ConfigError: topology.sources.orders.key: found 'a dotted key', \
expected the nested form: `topology: {sources: {orders: {key: ...}}}`
    """
    for part, key, value in _keys(document, "topology"):
        head, _, rest = key.partition(".")
        if rest and head in SECTIONS:
            _refuse("topology", head, *(_split_key(rest, value, part.get(head) or {}, _FIELDS) or (rest,)))
    for _, key, value in _keys(document, "topology"):
        if key in SECTIONS:
            _check_entries(("topology", key), value, _ENTRY)
    for section, fields in (("input", INPUT), ("output", OUTPUT)) if entries else ():
        for part, key, value in _keys(document, section):
            if split := _split_key(key, value, part, fields):
                _refuse(section, *split)
        _check_entries((section,), document.get(section), _MAPPINGS[section])


def _check_entries(section: tuple[str, ...], given: Any, mappings: _Tree) -> None:
    """Refuse dotted keys in entries: `options.sep` instead of `options: {sep: ...}`."""
    for name, entry in given.items() if isinstance(given, Mapping) else ():
        for key in entry if isinstance(entry, Mapping) else ():
            field, _, rest = key.partition(".") if isinstance(key, str) else ("", "", "")
            if rest and field in mappings:
                _refuse(*section, f"{name}", key)


def _keys(document: Mapping[str, Any], section: str) -> Iterator[tuple[Mapping[str, Any], str, Any]]:
    part = document.get(section)
    if isinstance(part, Mapping):
        yield from ((part, key, value) for key, value in part.items() if isinstance(key, str))


def _refuse(section: str, *keys: str) -> NoReturn:
    *before, last = keys
    field, _, more = last.partition(".")
    opened = field in NESTED or field in _MAPPINGS.get(section, _NONE)
    words = [section, *before, *((field, more) if more and opened else (last,))]
    text = "..."
    for word in reversed(words[1:]):
        text = f"{{{word}: {text}}}"
    path = ".".join((section, *keys))
    raise ConfigError(path, found="a dotted key", expected=f"the nested form: `{section}: {text}`")


def topology_section(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `topology`, nested.

    >>> topology_section({"nodes": {"o": {"sink": "p"}}, "nodes.p.process": "a"})
    {'nodes': {'o': {'sink': 'p'}, 'p': {'process': 'a'}}}
    """
    whole = {
        key: value for key, value in given.items() if key.partition(".")[0] not in SECTIONS or "." not in key
    }
    for part in SECTIONS:
        flat = {key[len(part) + 1 :]: value for key, value in given.items() if key.startswith(f"{part}.")}
        existing = whole.get(part) or {}
        if flat and not isinstance(existing, Mapping):
            path = f"topology.{part}.{next(iter(flat))}"
            raise ConfigError(
                path, found="a dotted key", expected=f"list entries only: `topology.{part}` is a list"
            )
        if flat:
            existing = _merged(f"topology.{part}", existing, flat, _FIELDS)
        if existing and isinstance(existing, Mapping):
            whole[part] = {
                name: _nested(entry, _of_entry(entry)) if isinstance(entry, Mapping) else entry
                for name, entry in existing.items()
            }
    return whole


def _of_entry(entry: Mapping[str, Any]) -> _Tree:
    """Return the mappings of an entry of the topology, with those among the options of its processor."""
    processor = entry.get("processor")
    known = _OF_PROCESSOR.get(processor, _NONE) if isinstance(processor, str) else _NONE
    return {**_ENTRY, "options": known}


def entries(section: str, given: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return the section `input` or `output`, nested.

    >>> entries("output", {"a.b.path": "/x", "c": {"path": "/y"}}, ["path"])
    {'c': {'path': '/y'}, 'a.b': {'path': '/x'}}
    """
    whole = {key: value for key, value in given.items() if not _split_key(key, value, given, fields)}
    merged = _merged(section, whole, {k: v for k, v in given.items() if k not in whole}, fields)
    return {
        name: _nested(entry, _MAPPINGS[section]) if isinstance(entry, Mapping) else entry
        for name, entry in merged.items()
    }


def nested_options(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry whose flat keys of options, from overrides, are below `options`.

    >>> nested_options({"topic": "t", "options.linger.ms": 5})
    {'topic': 't', 'options': {'linger.ms': 5}}
    """
    return _nested(entry, {"options": {}})


def _nested(tree: Mapping[str, Any], mappings: _Tree) -> dict[str, Any]:
    """Return a tree whose flat keys, from overrides, are below the mappings that they begin with."""
    whole: dict[str, Any] = {}
    for key, value in tree.items():
        field, _, rest = key.partition(".") if isinstance(key, str) else ("", "", "")
        if rest and field in mappings and isinstance(inner := tree.get(field), Mapping | None):
            whole[field] = {**(whole.get(field) or inner or {}), rest: value}
        elif key not in whole or not isinstance(value, Mapping | None):
            whole[key] = value
    for field, below in mappings.items():
        if below and isinstance(inner := whole.get(field), Mapping):
            whole[field] = _nested(inner, below)
    return whole


def _merged(
    section: str, nested: Mapping[str, Any], flat: Mapping[str, Any], fields: Collection[str]
) -> dict[str, Any]:
    whole = dict(nested)
    for key, value in flat.items():
        name, rest = _split_key(key, value, whole, fields) or (key, "")
        entry = whole.get(name) or {}
        if (name in whole and not rest) or not isinstance(entry, Mapping) or _has_value(entry, rest):
            raise ConfigError(f"{section}.{key}", found="a key given twice", expected="one value")
        field, _, more = rest.partition(".")
        if more and entry.get(field) is None:
            entry = {**entry, field: {}}
        whole[name] = graft(entry, rest, value) if rest else value
    return whole


def _has_value(tree: Mapping[str, Any], path: str) -> bool:
    """Return whether a path leads to a value. Follows the longest existing key at each level, as `graft` does."""
    inner = [key for key in tree if path.startswith(f"{key}.") and isinstance(tree[key], Mapping)]
    longest = max(inner, key=len, default=None)
    return path in tree or (longest is not None and _has_value(tree[longest], path[len(longest) + 1 :]))


def _split_key(
    key: str, value: object, known: Collection[str], fields: Collection[str]
) -> tuple[str, str] | None:
    """Split a flat key into the name of its entry and the rest; None: the key is a name itself."""
    words = key.split(".")
    splits = [(".".join(words[:i]), ".".join(words[i:])) for i in range(1, len(words))]
    of_entries = [split for split in reversed(splits) if split[0] in known]
    before_fields = [split for split in splits if split[1].partition(".")[0] in fields]
    mistakes = [] if isinstance(value, Mapping) else of_entries
    both = [split for split in of_entries if split in before_fields]
    return next(iter([*both, *before_fields, *mistakes]), None)
