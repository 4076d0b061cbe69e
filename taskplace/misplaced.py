"""Refuses keys that are known, but not where they stand: the error says where they belong.

**Idea.** Most wrong keys in a file are no misspellings: `event_time` of a source belongs in its `options`, `path` of a
sink into `output`, `spark.executor.memory` in `spark.conf`. The list of the keys that are known at the wrong place does
not help then, and the most similar one misleads. So before a section is read, each key that is unknown where it stands
is looked up in all other places. Keys that are known nowhere are left to the checks of their section.

The options of a Spark source are Spark's own, and it ignores those that it does not know. There, the keys of taskplace
are refused, unless the source's format is one that taskplace does not know: it may have options of these names.

Errors: `ConfigError` with the path of the key, and the nested form of its right place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from taskplace.errors import ConfigError
from taskplace.yaml_fields import (
    FORMATS,
    INPUT,
    KAFKA_INPUT,
    KAFKA_OUTPUT,
    OUTPUT,
    PROCESSOR_OPTIONS,
    SOURCE_OPTIONS,
    STORE_OPTIONS,
    WINDOW,
)
from topology.entry_fields import SECTIONS as TOPOLOGY_SECTIONS
from topology.entry_fields import SOURCE, STORE, VERBS

_SPARK = "spark."
#: Words that people try, by section ("": the top), and the section and the key that they mean.
_MEANT: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "": {
        "trigger": ("spark", "trigger.interval"),
        "interval": ("spark", "trigger.interval"),
        "name": ("application", "id"),
        "app": ("application", "id"),
        "id": ("application", "id"),
        "state_dir": ("state", "dir"),
        "checkpoint_dir": ("checkpoint", "dir"),
        "checkpoint_location": ("checkpoint", "dir"),
        "standbys": ("placement", "num.standby.replicas"),
        "sources": ("topology", "sources"),
        "sinks": ("topology", "nodes"),
    },
    "application": {"name": ("application", "id"), "main": ("application", "class")},
    "spark": {
        "checkpoint": ("checkpoint", "dir"),
        "checkpoint_dir": ("checkpoint", "dir"),
        "trigger": ("spark", "trigger.interval"),
        "name": ("spark", "app.name"),
        "properties": ("spark", "conf"),
    },
    "checkpoint": {"path": ("checkpoint", "dir"), "location": ("checkpoint", "dir")},
    "state": {"path": ("state", "dir"), "location": ("state", "dir")},
    "runtime": {
        "state_dir": ("state", "dir"),
        "checkpoint_dir": ("checkpoint", "dir"),
        "trigger": ("spark", "trigger.interval"),
        "standbys": ("placement", "num.standby.replicas"),
    },
    "placement": {
        "standbys": ("placement", "num.standby.replicas"),
        "warmups": ("placement", "max.warmup.replicas"),
        "assignor": ("placement", "task.assignor.class"),
    },
    "report": {
        "port": ("report", "ui.port"),
        "ui": ("report", "ui.port"),
        "metrics": ("report", "metrics.port"),
    },
}
#: By section, its keys; a section that is read elsewhere has none.
Sections: TypeAlias = Mapping[str, Collection[str]]
_NONE: Sections = MappingProxyType({})


class _Place(NamedTuple):
    """Where a key may stand: the path of the mapping, and the keys that it may have."""

    path: str
    keys: Collection[str]


def check_sections(document: Mapping[str, Any], sections: Sections) -> None:
    """Refuse keys at the top, in the sections, and in `spark.conf`, that belong in another section.

    >>> check_sections({"num.standby.replicas": 1}, {"placement": ["num.standby.replicas"]})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: num.standby.replicas: found a misplaced key, expected it in `placement`: \
`placement: {num.standby.replicas: ...}`
    """
    _check_words("", document, sections)
    for name in sections:
        if name in _MEANT and isinstance(inside := document.get(name), Mapping):
            _check_words(name, inside, sections)
    places = _homes(sections)
    places.append(_Place("topology", [name for name in TOPOLOGY_SECTIONS if name not in sections]))
    for key in [key for key in document if isinstance(key, str) and key not in sections]:
        section, _, rest = key.partition(".")
        if rest not in sections.get(section, ()):
            _look("", key, [*_conf(key), *places])
    spark = document.get("spark")
    conf = spark.get("conf") if isinstance(spark, Mapping) else None
    for key in conf if isinstance(conf, Mapping) else ():
        if isinstance(key, str) and not key.startswith(_SPARK):
            section, _, rest = key.partition(".")
            if rest and rest in sections.get(section, ()):
                _refuse("spark.conf", key, section, rest)
            _look("spark.conf", key, places)
    for name, keys in sections.items():
        inside = document.get(name)
        for key in inside if keys and isinstance(inside, Mapping) else ():
            if isinstance(key, str) and key not in keys:
                section, _, rest = key.partition(".")
                if rest and rest in sections.get(section, ()) and section != name:
                    _refuse(name, key, section, rest)
                others = [place for place in places if place.path != name]
                _look(name, key, [*_conf(key), *others])


def _check_words(section: str, given: Mapping[str, Any], sections: Sections) -> None:
    """Refuse words that are no keys here, and mean one."""
    for key in given:
        if not isinstance(key, str) or key in (sections.get(section, ()) if section else sections):
            continue
        home, meant = _MEANT[section].get(key.replace(".", "_").replace("-", "_"), ("", ""))
        if home and (not sections.get(home) or meant in sections[home]):
            _refuse(section, key, home, meant)


def check_topology(
    topology: Mapping[str, Any], sections: Sections = _NONE, *, source: Collection[str] = SOURCE
) -> None:
    """Refuse fields and options in the section `topology`, in its nested form, that belong elsewhere.

    - `sections`: as of `check_sections`
    - `source`: the fields that a source may have here

    >>> check_topology({"sources": {"orders": {"event_time": "at"}}})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: topology.sources.orders.event_time: found a misplaced key, expected it in \
`topology.sources.orders.options`: `options: {event_time: ...}`
    """
    homes = _homes(sections, entries=True)
    for name, entry in _entries(topology.get("sources")):
        path = f"topology.sources.{name}"
        options = _Place(f"{path}.options", SOURCE_OPTIONS)
        topic = entry.get("topic", name)
        given = _Place(f"input.{topic}", INPUT)
        _check(path, entry, source, [options, given, *homes])
        _check(f"{path}.options", entry.get("options"), SOURCE_OPTIONS, [_Place(path, SOURCE), given, *homes])
    for name, entry in _entries(topology.get("stores")):
        path = f"topology.stores.{name}"
        _check(path, entry, STORE, [_Place(f"{path}.options", STORE_OPTIONS), *homes])
        _check(f"{path}.options", entry.get("options"), STORE_OPTIONS, [_Place(path, STORE), *homes])
    for name, entry in _entries(topology.get("nodes")):
        _check_node(f"topology.nodes.{name}", name, entry, homes)


def check_entries(
    section: str, entries: Mapping[str, Any], nodes: Mapping[str, str], sections: Sections = _NONE
) -> None:
    """Refuse keys in entries of `input` or `output`, in their nested form, that belong elsewhere.

    - `nodes`: by entry, the path of the source or sink in the topology
    - `sections`: as of `check_sections`

    >>> check_entries("output", {"totals": {"path": "/out", "topic": "t"}}, {})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: output.totals.topic: found a misplaced key, expected it in `output.totals.kafka`: \
`kafka: {topic: ...}`
    """
    fields, kafka = (INPUT, KAFKA_INPUT) if section == "input" else (OUTPUT, KAFKA_OUTPUT)
    own: tuple[tuple[str, Collection[str]], ...] = (("", ("schema",)),)
    if section == "input":
        own = (("", ("key", "partitions", "topic")), (".options", SOURCE_OPTIONS))
    homes = _homes(sections, entries=True)
    for name, entry in _entries(entries):
        path = f"{section}.{name}"
        inner = _Place(f"{path}.kafka", kafka)
        of_node = [_Place(f"{nodes[name]}{below}", keys) for below, keys in own] if name in nodes else []
        places = [inner, *of_node] if "kafka" in entry or section == "output" else [*of_node, inner]
        _check(path, entry, fields, [*places, *homes])
        _check(f"{path}.kafka", entry.get("kafka"), kafka, [*of_node, *homes])
        if section == "input" and str(entry.get("format")).lower() in FORMATS:
            ours = [place._replace(keys=[key for key in place.keys if key != "topic"]) for place in of_node]
            dotted = [place._replace(keys=[key for key in place.keys if "." in key]) for place in homes]
            _check(f"{path}.options", entry.get("options"), (), [*ours, *dotted])


def _homes(sections: Sections, *, entries: bool = False) -> list[_Place]:
    """Return the sections as places of the keys that no other section has.

    - `entries`: for keys of entries. The keys of `application`, such as `id`, are too common there to say anything
    """
    homes = Counter(key for keys in sections.values() for key in keys)
    return [
        _Place(name, [key for key in keys if homes[key] == 1])
        for name, keys in sections.items()
        if keys and not (entries and name == "application")
    ]


def _check_node(path: str, name: str, entry: Mapping[str, Any], homes: list[_Place]) -> None:
    verb = next((verb for verb in VERBS if verb in entry), None)
    if verb is None:
        return
    processor = entry.get("processor")
    known = PROCESSOR_OPTIONS.get(processor) if isinstance(processor, str) else None
    taken = {option for options in PROCESSOR_OPTIONS.values() for option in options}
    options = _Place(f"{path}.options", (known or taken) if "processor" in VERBS[verb].fields else ())
    places = [options]
    if verb == "sink":
        places.append(_Place(f"output.{name}", OUTPUT))
    for other, (_, _, fields) in VERBS.items():
        if other != verb:
            places.append(_Place(f"a node with `{other}`", fields))
    _check(path, entry, ("name", verb, *VERBS[verb].fields), [*places, *homes])
    given = entry.get("options")
    if known is None or not isinstance(given, Mapping):
        return
    window = _Place(f"{path}.options.window", WINDOW if "window" in known else ())
    aggregates = _Place(f"{path}.options.aggregates", _aggregates(given) if "aggregates" in known else ())
    _check(
        f"{path}.options",
        given,
        (*known, "event_time", "delay"),
        [_Place(path, VERBS[verb].fields), window, aggregates, *homes],
    )
    _check(f"{path}.options.window", given.get("window"), WINDOW, [options, *homes])


def _aggregates(options: Mapping[str, Any]) -> list[str]:
    """Return the options that are written like aggregates: `count`, or a function of a column."""
    functions = {"count", "sum", "min", "max", "avg", "first", "last", "type"}
    return [
        name
        for name, value in options.items()
        if value == "count" or (isinstance(value, Mapping) and value and functions >= {*map(str, value)})
    ]


def _check(path: str, entry: Any, known: Collection[str], places: list[_Place]) -> None:
    for key in entry if isinstance(entry, Mapping) else ():
        if isinstance(key, str) and key not in known:
            _look(path, key, [*_conf(key), *places])


def _look(path: str, key: str, places: list[_Place]) -> None:
    """Refuse a key that one of these places has, also if it is written with underscores instead of dots.

    A key that two sections have, such as `dir`, does not say where it belongs.
    """
    for place in places:
        for written in (key, key.replace("_", ".")):
            if written in place.keys:
                _refuse(path, key, place.path, written)


def _conf(key: str) -> list[_Place]:
    """Return the place of the properties of Spark."""
    return [_Place("spark.conf", [key])] if key.startswith(_SPARK) else []


def _refuse(path: str, key: str, place: str, written: str) -> None:
    if path and place == path:
        expected = f"`{written}`"
    elif " " in place:
        expected = f"it in {place}"
    elif path.startswith(f"{place}."):
        expected = f"it one level higher, beside `{path.removeprefix(place).strip('.')}`"
    else:
        head, _, last = place.rpartition(".")
        form = f"{written}: ..."
        for word in reversed([last] if head == path or not head else place.split(".")):
            form = f"{word}: {{{form}}}"
        expected = f"it in `{place}`: `{form}`"
    at = f"{path}.{key}" if path else key
    error = ConfigError(at, found=key, expected=expected)
    what = "an unknown key" if path and place == path else "a misplaced key"
    error.args = (f"{at}: found {what}, expected {expected}",)  # the name of a key is no secret
    raise error


def _entries(given: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the entries that are mappings. Lists are left to their own checks, which name entries by position."""
    for name, entry in given.items() if isinstance(given, Mapping) else ():
        if isinstance(name, str) and isinstance(entry, Mapping):
            yield name, entry
