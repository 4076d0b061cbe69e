"""Reads the written form of a topology: a mapping, as parsed from YAML or JSON.

**Idea.** Each entry corresponds to a call in Python. The verb (`process`, `join_table`, ...) names the call, and its
value the node's inputs. The other keys are arguments of the call::

    name: flights
    sources:
      flights: {key: [origin, time_hour], partitions: 12}
      weather: {key: [origin, time_hour], partitions: 12}
    stores:
      weather-by-hour: {logged: true}
    nodes:
      with-weather: {join_table: [flights, weather], processor: table-join, stores: [weather-by-hour]}
      by-aircraft:  {repartition: with-weather, key: [tailnum], partitions: 12}
      stats:        {process: by-aircraft, processor: aggregate, options: {keep: 10}, stores: [{name: delays}]}
      out:          {sink: stats, target: delays}

Properties:
- a node may refer to a later node. Nodes are numbered in file order. A source is numbered just before its first reader,
  and an unread source comes last. So sources and nodes that are added at the ends of their sections do not renumber the
  others;
- `nodes` may also be a list, whose entries may have a `name`;
- a node that reads a repartition names the repartition;
- `processor` is a name in the registry. Its factory is called with `options` as keyword arguments. The node keeps the
  options too. A registry may have a method `defaults(processor, node)`, which returns default options. A factory
  reports a wrong option with a `TopologyError` that begins with the option's path (`by.tailnum: found ...`);
- an inline store of a node has a `name` and the fields of `stores`;
- the `schema` of a sink (columns with their types) is an option for the runtime;
- `targets` maps the names of sinks to their target objects, which YAML cannot express. It overrides `target`.

Errors: `TopologyError` with the path (`nodes.stats.processor`), the value found, the values expected, and the nearest
name. `Topology.build` finds the errors that need the whole topology (cycles, unequal counts).

Non-goals: reading files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from topology.draft import TopologyDraft
from topology.entry_fields import PARAMETERS, SOURCE, STORE, TOPOLOGY, VERBS, check_options
from topology.errors import TopologyError, nearest, shown
from topology.names import check_key, check_name
from topology.node import Store

Registry = Mapping[str, Callable[..., Any]]
DraftT = TypeVar("DraftT", bound=TopologyDraft)

_LISTED = ", ".join(VERBS)
_JOINS: dict[str, Literal["table", "stream"]] = {"join_table": "table", "join_stream": "stream"}


def read_document(
    document: Mapping[str, Any],
    registry: Registry,
    targets: Mapping[str, Any] | None,
    new: Callable[[str], DraftT],
) -> DraftT:
    """Create a topology with `new(name)`, and add everything that the document describes.

    `registry` maps names to processor factories.

    >>> from topology import Topology
    >>> written = {"name": "t", "sources": {"a": None}, "nodes": [{"process": "a", "processor": "upper"}]}
    >>> topo = read_document(written, {"upper": lambda: str.upper}, None, new=Topology)
    >>> topo.build().node("a-process").processor is str.upper
    True
    """
    targets = targets or {}
    for what, given in (("registry", registry), ("targets", targets)):
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise TopologyError(f"{what}: found {shown(given)}, expected a mapping by name")
    fields = _fields(document, "topology", TOPOLOGY)
    for needed in ("name", "sources"):
        if not fields.get(needed):
            raise TopologyError(f"{needed}: missing, expected the topology's {needed}")
    topo = new(check_name(fields["name"], "name"))
    sources = dict(_entries(fields["sources"], "sources"))
    for name, spec in _entries(fields.get("stores"), "stores"):
        with topo._all_or_nothing(name, f"stores.{name}"):
            topo._declare(_store(name, spec, f"stores.{name}"), f"stores.{name}")
    nodes = list(_nodes(fields.get("nodes"), topo, sources))
    # A node that reads a repartition reads its internal source.
    outputs = {name: name for name in sources}
    outputs |= {n.name: f"{n.name}-source" if n.verb == "repartition" else n.name for n in nodes}
    sinks = [node.name for node in nodes if node.verb == "sink"]
    for name in targets:
        if name not in sinks:
            raise TopologyError(f"targets.{name}: unknown sink; {nearest(name, sinks)}", node=name)
    above = {node.name: node.inputs for node in nodes}
    for node in nodes:
        reached = _ancestors(node.name, above)
        # Also add all sources written before these, so that an unread one keeps its number when a later one gets read.
        places = [place for place, name in enumerate(sources) if name in reached]
        for name in list(sources)[: places[-1] + 1 if places else 0]:
            _add_source(topo, name, sources.pop(name))
        node.add(topo, registry, outputs, targets)
    for name, spec in sources.items():
        _add_source(topo, name, spec)
    for node in nodes:
        for store in topo._nodes[node.name].stores:
            if store not in topo._stores:
                unknown = f"unknown store {store!r}; {nearest(store, topo._stores)}"
                raise TopologyError(f"{node.path}.stores: {unknown}", node=node.name)
    return topo


def _ancestors(name: str, above: dict[str, tuple[str, ...]]) -> set[str]:
    """Return everything that `name` reads, directly or not, and remove it from `above`. O(references) in all."""
    ancestors: set[str] = set()
    open_ = [name]
    while open_:
        inputs = above.pop(open_.pop(), ())
        ancestors.update(inputs)
        open_ += inputs
    return ancestors


def _add_source(topo: TopologyDraft, name: str, spec: Any) -> None:
    path = f"sources.{name}"
    given = _fields(spec, path, SOURCE)
    options = _options(given, path, reserved=PARAMETERS["source"])
    topic = check_name(given.get("topic", name), f"{path}.topic")
    key, partitions, schema = (given.get(field) for field in ("key", "partitions", "schema"))
    with topo._all_or_nothing(topic, path):
        topo._source(topic, name=name, key=key, partitions=partitions, schema=schema, options=options)


def _store(name: str, spec: Any, path: str, known: tuple[str, ...] = ()) -> Store:
    fields = _fields(spec, path, (*known, *STORE))
    options = _options(fields, path, reserved=PARAMETERS["store"])
    return Store(name, fields.get("logged", True), fields.get("retention_ms"), tuple(options.items()))


def _stores(given: Any, path: str) -> Any:
    """Return the stores of a node. An inline store has a `name` and the fields of an entry of `stores`."""
    if given is None:
        return ()
    if not isinstance(given, str | list | tuple | Mapping):
        raise TopologyError(f"{path}: found {shown(given)}, expected a list")
    read = [given] if isinstance(given, str | Mapping) else list(given)
    for position, spec in enumerate(read):
        if isinstance(spec, Mapping):
            at = f"{path}[{position}]"
            if "name" not in spec:
                raise TopologyError(f"{at}: found {shown(spec)}, expected a store with a 'name'")
            read[position] = _store(check_name(spec["name"], f"{at}.name"), spec, at, ("name",))
    return read


@dataclass(frozen=True, slots=True)
class _NodeEntry:
    """An entry of `nodes`: its verb, its inputs (names that are not resolved yet), and its other fields."""

    path: str
    name: str
    verb: str
    inputs: tuple[str, ...]
    fields: Mapping[str, Any]

    def add(
        self, topo: TopologyDraft, registry: Registry, outputs: Mapping[str, str], targets: Mapping[str, Any]
    ) -> None:
        """Add the node to the topology."""
        for reference in self.inputs:
            if reference not in outputs:
                expected = f"the name of a source or node; {nearest(reference, outputs)}"
                self._refuse(self.verb, f"found {shown(reference)}, expected {expected}")
        parents = [outputs[reference] for reference in self.inputs]
        options = _options(self.fields, self.path)
        name, get = self.name, self.fields.get
        if isinstance(processor := get("processor"), str) and hasattr(registry, "defaults"):
            options = {**registry.defaults(processor, name), **options}
        with topo._all_or_nothing(name, self.path):
            if self.verb == "repartition":
                topo._repartition(
                    parents[0], get("key"), name=name, partitions=get("partitions"), options=options
                )
            elif self.verb == "sink":
                if get("schema") is not None:
                    options = {**options, "schema": get("schema")}
                topo._step("sink", parents, name, options=options, target=targets.get(name, get("target")))
            elif self.verb == "merge":
                topo._step("merge", parents, name, options=options)
            else:
                topo._step(
                    "join" if self.verb in _JOINS else "processor",
                    parents,
                    name,
                    processor=self._processor(registry, options),
                    stores=_stores(get("stores"), f"{self.path}.stores"),
                    options=options,
                    join=_JOINS.get(self.verb),
                    made=True,
                )

    def _processor(self, registry: Registry, options: Mapping[str, Any]) -> Any:
        """Return the processor that the registry creates from `processor` and `options`; None without a `processor`."""
        name = self.fields.get("processor")
        if name is None:
            return None
        try:
            factory = registry[name] if isinstance(name, str) else None
        except KeyError:
            factory = None
        except TopologyError as error:  # the registry's own error for this name
            self._refuse("processor", str(error), error)
        if factory is None:
            expected = f"a registered processor; {nearest(name, registry)}"
            self._refuse("processor", f"found {shown(name)}, expected {expected}")
        try:
            return factory(**options)
        except ImportError:  # a missing package is no fault of the document
            raise
        except TopologyError as error:
            # An error without an option's name concerns all options.
            colon = ": " if str(error).startswith("found ") else "."
            raise TopologyError(f"{self.path}.options{colon}{error}", node=self.name) from error
        except (TypeError, ValueError) as error:  # the factory refuses its arguments
            expected = f"the options of {name!r}: {error}"
            self._refuse("options", f"found {shown(options)}, expected {expected}", error)
        except Exception as error:
            failed = f"{name!r} failed to make a processor with {options!r}: {type(error).__name__}: {error}"
            self._refuse("processor", failed, error)

    def _refuse(self, field: str, text: str, cause: Exception | None = None) -> NoReturn:
        raise TopologyError(f"{self.path}.{field}: {text}", node=self.name) from cause


def _nodes(nodes: Any, topo: TopologyDraft, sources: Iterable[str]) -> Iterator[_NodeEntry]:
    """Yield all nodes without adding them, so that they may refer to each other in any order."""
    unnamed = isinstance(nodes, list | tuple)
    entries: list[tuple[str | None, Any]]
    entries = [(None, node) for node in nodes] if unnamed else [*_entries(nodes, "nodes")]
    taken = set(sources)
    for position, (name, spec) in enumerate(entries):
        path = f"nodes[{position}]" if name is None else f"nodes.{name}"
        if not isinstance(spec, Mapping):
            expected = f"a mapping with one of: {_LISTED}"
            raise TopologyError(f"{path}: found {shown(spec)}, expected {expected}", node=name)
        verb = _verb(spec, path)
        fields = _fields(spec, path, (verb, *VERBS[verb].fields, *(("name",) if unnamed else ())))
        inputs = _inputs(fields.pop(verb), f"{path}.{verb}", verb, name)
        if "name" in fields:
            name = check_name(fields["name"], f"{path}.name")
        if name is None:
            kind = "join" if verb in _JOINS else verb
            key = check_key(fields.get("key"), f"{path}.key")
            name = topo._names.take(topo._names.make(kind, inputs, key, taken=taken), inputs[0])
        if name in taken:
            raise TopologyError(f"{path}: the name {name!r} is used twice", node=name)
        taken |= {name, f"{name}-source"} if verb == "repartition" else {name}
        yield _NodeEntry(path, name, verb, inputs, fields)


def _verb(spec: Mapping[str, Any], path: str) -> str:
    verbs = [verb for verb in VERBS if verb in spec]
    if len(verbs) == 1:
        return verbs[0]
    hints = [nearest(field, VERBS) for field in spec]
    near = next((f"; {hint}" for hint in hints if hint.startswith("did you mean")), "")
    raise TopologyError(f"{path}: found {' and '.join(verbs) or 'none'}, expected one of: {_LISTED}{near}")


def _inputs(references: Any, path: str, verb: str, node: str | None) -> tuple[str, ...]:
    given = [references] if isinstance(references, str) else references
    fewest, most, _ = VERBS[verb]
    named = isinstance(given, list | tuple) and all(isinstance(name, str) for name in given)
    if named and fewest <= len(given) <= (most or len(given)):
        return tuple(given)
    wanted = {(1, 1): "the name of one input", (2, 2): "the names of two inputs"}
    expected = wanted.get((fewest, most or 0), f"the names of at least {fewest} input{'s' * (fewest > 1)}")
    raise TopologyError(f"{path}: found {shown(references)}, expected {expected}", node=node)


def _options(fields: Mapping[str, Any], path: str, reserved: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the entry's `options`, which become keyword arguments."""
    options = dict(_entries(fields.get("options"), f"{path}.options"))
    for name in reserved:
        if name in options:
            raise TopologyError(f"{path}.options.{name}: belongs one level higher, beside `options`")
    check_options(options, reserved, f"{path}.options")
    return options


def _entries(value: Any, path: str) -> list[tuple[str, Any]]:
    """Return the entries of a mapping, and check their names. Empty for None."""
    if value is None and path != "topology":  # an empty entry in YAML
        return []
    if not isinstance(value, Mapping):
        raise TopologyError(f"{path}: found {shown(value)}, expected a mapping")
    return [(check_name(name, f"{path}: the name of an entry"), spec) for name, spec in value.items()]


def _fields(value: Any, path: str, known: tuple[str, ...]) -> dict[str, Any]:
    """Return an entry's fields. Errors: `TopologyError` for an unknown field."""
    fields = dict(_entries(value, path))
    for name in fields:
        if name not in known:
            hint = f"expected one of {len(known)}; {nearest(name, known)}"
            raise TopologyError(f"{path}.{name}: found an unknown field, {hint}")
    return fields
