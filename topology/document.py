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
from typing import Any, Literal, TypeVar

from topology import entry_fields as parameters
from topology.document import known_fields, placed, read_entries, read_options
from topology.draft import TopologyDraft
from topology.entry_fields import SOURCE, STORE, TOPOLOGY, VERBS
from topology.errors import TopologyError, nearest, shown
from topology.names import check_count, check_key, check_name
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
    for what, given in (("registry", registry), ("targets", targets or {})):
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise TopologyError(f"{what}: found {shown(given)}, expected a mapping by name")
    fields = known_fields(document, "topology", TOPOLOGY)
    for needed in ("name", "sources"):
        if not fields.get(needed):
            raise TopologyError(f"{needed}: missing, expected the topology's {needed}")
    topo = new(check_name(fields["name"], "name"))
    sources = dict(read_entries(fields["sources"], "sources"))
    for name, spec in read_entries(fields.get("stores"), "stores"):
        with placed(f"stores.{name}"):
            topo._declare(_store(name, spec, f"stores.{name}"))
    drafts = list(_drafts(fields.get("nodes"), topo, sources))
    # A node that reads a repartition reads its internal source.
    outputs = {name: name for name in sources}
    outputs |= {d.name: f"{d.name}-source" if d.verb == "repartition" else d.name for d in drafts}
    targets = targets or {}
    sinks = [draft.name for draft in drafts if draft.verb == "sink"]
    for name in targets:
        if name not in sinks:
            raise TopologyError(f"targets.{name}: unknown sink; {nearest(name, sinks)}", node=name)
    above = {draft.name: draft.inputs for draft in drafts}
    for draft in drafts:
        reached = _ancestors(draft.name, above)
        # Also add all sources written before these, so that an unread one keeps its number when a later one gets read.
        places = [place for place, name in enumerate(sources) if name in reached]
        for name in list(sources)[: places[-1] + 1 if places else 0]:
            _read_source(topo, name, sources.pop(name), f"sources.{name}")
        draft.add(topo, registry, outputs, targets)
    for name, spec in sources.items():
        _read_source(topo, name, spec, f"sources.{name}")
    for draft in drafts:
        for store in topo._nodes[draft.name].stores:
            if store not in topo._stores:
                raise TopologyError(
                    f"{draft.path}.stores: unknown store {store!r}; {nearest(store, topo._stores)}",
                    node=draft.name,
                )
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


def _read_source(topo: TopologyDraft, name: str, spec: Any, path: str) -> None:
    fields = known_fields(spec, path, SOURCE)
    partitions = fields.get("partitions")
    options = read_options(fields, path, reserved=parameters.SOURCE)
    key = check_key(fields.get("key"), f"{path}.key")
    if partitions is not None:
        check_count(partitions, f"{path}.partitions", name)
    topic = check_name(fields.get("topic", name), f"{path}.topic")
    with placed(path):
        topo._source(
            topic,
            name=name,
            key=key,
            partitions=partitions,
            schema=fields.get("schema"),
            options=options,
        )


def _store(name: str, spec: Any, path: str, known: tuple[str, ...] = ()) -> Store:
    fields = known_fields(spec, path, (*known, *STORE))
    options = read_options(fields, path, reserved=parameters.STORE)
    return Store(name, fields.get("logged", True), fields.get("retention_ms"), tuple(options.items()))


def _stores(given: Any, path: str) -> Any:
    """Return the stores of a node. An inline store has a `name` and the fields of an entry of `stores`."""
    if given is None:
        return ()
    if not isinstance(given, str | list | tuple | Mapping):
        raise TopologyError(f"{path}: found {shown(given)}, expected a list")
    specs = [given] if isinstance(given, str | Mapping) else given
    read = []
    for position, spec in enumerate(specs):
        if isinstance(spec, Mapping):
            at = f"{path}[{position}]"
            if "name" not in spec:
                raise TopologyError(f"{at}: found {shown(spec)}, expected a store with a 'name'")
            spec = _store(check_name(spec["name"], f"{at}.name"), spec, at, ("name",))
        read.append(spec)
    return read


@dataclass(frozen=True, slots=True)
class _Draft:
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
                raise TopologyError(
                    f"{self.path}.{self.verb}: found {shown(reference)}, expected the name of a source or node; "
                    f"{nearest(reference, outputs)}",
                    node=self.name,
                )
        parents = [outputs[reference] for reference in self.inputs]
        options = read_options(self.fields, self.path)
        name, get = self.name, self.fields.get
        if isinstance(processor := get("processor"), str) and hasattr(registry, "defaults"):
            options = {**registry.defaults(processor, name), **options}
        with placed(self.path):
            if self.verb == "repartition":
                key, partitions = check_key(get("key"), f"{self.path}.key"), get("partitions")
                if partitions is not None:
                    check_count(partitions, f"{self.path}.partitions", name)
                topo._repartition(parents[0], key, name=name, partitions=partitions, options=options)
            elif self.verb == "sink":
                target = targets.get(name, get("target"))
                if get("schema") is not None:
                    options = {**options, "schema": get("schema")}
                topo._step("sink", parents, name, options=options, target=target)
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
            raise TopologyError(f"{self.path}.processor: {error}", node=self.name) from error
        if factory is None:
            raise TopologyError(
                f"{self.path}.processor: found {shown(name)}, expected a registered processor; "
                f"{nearest(name, registry)}",
                node=self.name,
            )
        try:
            return factory(**options)
        except TopologyError as error:
            # An error without an option's name concerns all options.
            path = f"{self.path}.options" + (": " if str(error).startswith("found ") else ".")
            raise TopologyError(f"{path}{error}", node=self.name) from error
        except (TypeError, ValueError) as error:  # the factory refuses its arguments
            raise TopologyError(
                f"{self.path}.options: found {shown(options)}, expected the options of {name!r}: {error}",
                node=self.name,
            ) from error
        except ImportError:  # a missing package is no fault of the document
            raise
        except Exception as error:
            raise TopologyError(
                f"{self.path}.processor: {name!r} failed to make a processor with {options!r}: "
                f"{type(error).__name__}: {error}",
                node=self.name,
            ) from error


def _drafts(nodes: Any, topo: TopologyDraft, sources: Iterable[str]) -> Iterator[_Draft]:
    """Yield all nodes without adding them, so that they may refer to each other in any order."""
    entries: list[tuple[str | None, Any]]
    entries = (
        [(None, n) for n in nodes] if isinstance(nodes, list | tuple) else [*read_entries(nodes, "nodes")]
    )
    taken = set(sources)
    for position, (name, spec) in enumerate(entries):
        path = f"nodes[{position}]" if name is None else f"nodes.{name}"
        if not isinstance(spec, Mapping):
            raise TopologyError(
                f"{path}: found {shown(spec)}, expected a mapping with one of: {_LISTED}", node=name
            )
        verb = _verb(spec, path)
        fewest, most, further = VERBS[verb]
        fields = known_fields(spec, path, (verb, *further, *(("name",) if name is None else ())))
        inputs = _inputs(fields.pop(verb), f"{path}.{verb}", fewest, most, name)
        if "name" in fields:
            name = check_name(fields["name"], f"{path}.name")
        if name is None:
            kind = "join" if verb in _JOINS else verb
            key = check_key(fields.get("key"), f"{path}.key")
            name = topo._names.take(topo._names.make(kind, inputs, key, taken=taken), inputs[0])
        if name in taken:
            raise TopologyError(f"{path}: the name {name!r} is used twice", node=name)
        taken |= {name, f"{name}-source"} if verb == "repartition" else {name}
        yield _Draft(path, name, verb, inputs, fields)


def _verb(spec: Mapping[str, Any], path: str) -> str:
    verbs = [verb for verb in VERBS if verb in spec]
    if len(verbs) == 1:
        return verbs[0]
    hints = [nearest(field, VERBS) for field in spec]
    near = next((f"; {hint}" for hint in hints if hint.startswith("did you mean")), "")
    raise TopologyError(f"{path}: found {' and '.join(verbs) or 'none'}, expected one of: {_LISTED}{near}")


def _inputs(references: Any, path: str, fewest: int, most: int | None, node: str | None) -> tuple[str, ...]:
    given = [references] if isinstance(references, str) else references
    if (
        not isinstance(given, list | tuple)
        or not all(isinstance(name, str) for name in given)
        or not fewest <= len(given) <= (len(given) if most is None else most)
    ):
        wanted = {(1, 1): "the name of one input", (2, 2): "the names of two inputs"}
        expected = wanted.get(
            (fewest, most or 0), f"the names of at least {fewest} input{'s' * (fewest > 1)}"
        )
        raise TopologyError(f"{path}: found {shown(references)}, expected {expected}", node=node)
    return tuple(given)
