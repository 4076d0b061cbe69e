"""The draft of a topology and its streams: collects nodes, stores and names, and checks each when it is added.

Properties: a refused call adds nothing. `Topology.build` makes the checks that need the whole topology.

Errors: `TopologyError`, which names the node, for errors of a single call: a bad count, a name used twice. A processor
may be any object, because only the runtime knows processors; a class and a plain value are refused as mistakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from topology.entry_fields import PARAMETERS, check_options
from topology.errors import TopologyError, shown
from topology.names import (
    AutoNames,
    check_count,
    check_key,
    check_legal_name,
    check_name,
    check_sink_name,
    listed,
)
from topology.node import Node, Store, StoreSpec

_PLAIN = (bool, int, float, complex, bytes, bytearray, list, dict, set, frozenset)


class TopologyDraft:
    """Collects the nodes and stores of a topology; `Topology` and its written form add to it."""

    def __init__(self, name: str) -> None:
        self.name = check_name(name, "topology name")
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, Store] = {}
        self._layouts: dict[str, Store] = {}  # store -> its declaration by the first processor with it
        self._names = AutoNames()
        self._topics: dict[str, str] = {}  # topic -> the node that declares it
        self._path = ""  # of the entry of a document that is being added

    @contextmanager
    def _all_or_nothing(self, node: object, path: str = "") -> Iterator[None]:
        """Undo the additions of a refused call. The error names the node, unless it already names a nearer place.

        All additions are at the ends of the collections, so these are cut off. `path`: of the node's entry in a
        document. Errors begin with it.
        """
        grown: list[dict[str, Any]] = [self._nodes, self._stores, self._layouts, self._topics]
        grown.append(self._names.stems)
        sizes = [len(each) for each in grown]
        above, self._path = self._path, path or self._path
        try:
            yield
        except BaseException as error:
            for each, size in zip(grown, sizes, strict=True):
                while len(each) > size:
                    each.popitem()
            if isinstance(error, TopologyError):
                if error.node is None and isinstance(node, str):
                    error.node = node
                if not str(error).startswith(path):
                    raise TopologyError(f"{path}: {error}", node=error.node) from error
            raise
        finally:
            self._path = above

    def _source(
        self, topic: Any, *, name: Any, key: Any, partitions: Any, schema: Any, options: Mapping[str, Any]
    ) -> Stream:
        topic = check_name(topic, "source topic")
        where = self._path or f"source {topic!r}"
        with self._all_or_nothing(topic):
            count = None if partitions is None else check_count(partitions, f"{where}.partitions")
            node = Node(
                topic if name is None else name, "source", key=check_key(key, f"{where}.key"), topic=topic
            )
            items = tuple(options.items())
            return self._add(replace(node, partitions=count, schema=schema, option_items=items))

    def _step(
        self,
        kind: Literal["processor", "join", "merge", "sink"],
        parents: list[str],
        name: str | None,
        *,
        processor: Any = None,
        stores: Iterable[StoreSpec] | str = (),
        options: Mapping[str, Any],
        join: Literal["table", "stream"] | None = None,
        target: Any = None,
        made: bool = False,
    ) -> Stream:
        """Add a node that reads other nodes. `made`: its processor was created from its options, by a registry."""
        automatic = name is None
        if name is None:
            verb = "process" if kind == "processor" else kind
            name = self._names.make(verb, parents, taken=self._nodes)
        where = self._path or f"node {name!r}"
        with self._all_or_nothing(name):
            if automatic:
                self._names.take(name, *parents[:1])
            if not made:  # only the runtime can check processors of a registry
                _check_processor(processor, where)
            if not parents:
                raise TopologyError(f"{where}: a {kind} without input; pass at least one stream")
            # A stream may be joined with itself. Merged with itself, it would have each record twice.
            if kind != "join" and len(set(parents)) != len(parents):
                raise TopologyError(f"{where}: found inputs {shown(parents)}, expected each stream once")
            if kind == "merge" and len(parents) < 2:
                raise TopologyError(f"{where}: a merge of one stream; pass at least two streams")
            if isinstance(target, str):  # it is the name of a topic
                check_name(target, f"{where}.target")
            named = self._store_names(stores, where)
            used = self._with_declared(processor, named, where)
            node = Node(name, kind, tuple(parents), used, join=join, named_stores=named, made_of_options=made)
            items = tuple(options.items())
            return self._add(replace(node, processor=processor, target=target, option_items=items))

    def _repartition(
        self, parent: str, key: object, *, name: str | None, partitions: Any, options: Mapping[str, Any]
    ) -> Stream:
        """Add both ends of a repartition: the node that writes the topic, and the source that reads it."""
        where = self._path or (f"repartition of {parent!r}" if name is None else f"repartition {name!r}")
        with self._all_or_nothing(parent if name is None else name):
            columns = check_key(key, f"{where}.key")
            if name is None:
                made = self._names.make("repartition", [parent], columns, taken=self._nodes)
                name = self._names.take(made, parent)
            check_legal_name(name, "repartition name")
            if partitions is not None:
                check_count(partitions, f"{where}.partitions", name)
            writer = Node(name, "repartition", (parent,), key=columns, topic=f"{name}-repartition")
            self._add(replace(writer, partitions=partitions, option_items=tuple(options.items())))
            reader = replace(writer, name=f"{name}-source", kind="source", parents=(), internal=True)
            self._names.take(reader.name, name)
            return self._add(reader)

    def _add(self, node: Node) -> Stream:
        """Add a node under its name, which must not be taken."""
        check_name(node.name, f"{node.kind} name")
        if node.kind == "sink":
            check_sink_name(node.name)
        where = f"node {node.name!r}" if node.internal or not self._path else self._path
        if (other := self._nodes.get(node.name)) is not None:
            both = f"the name is used twice, by a {other.kind} and by a {node.kind}"
            raise TopologyError(f"{where}: {both}", node=node.name)
        if node.topic is not None and not node.internal:
            reader = self._topics.setdefault(node.topic, node.name)
            if reader != node.name:
                hint = "use the stream that this call returned"
                read = f"topic {node.topic!r} is already read by node {reader!r}; {hint}"
                raise TopologyError(f"{where}: {read}", node=node.name)
        self._nodes[node.name] = node
        return Stream(self, node.name)

    def _own(self, stream: object, beside: str | None = None) -> str:
        """Return the node name behind a handle of this topology. `beside`: the node that it is read together with."""
        if not isinstance(stream, Stream):
            where = f"topology {self.name!r}" + (f", beside {beside!r}" if beside is not None else "")
            found = f"found {shown(stream)} as an input, expected a stream of this topology"
            raise TopologyError(f"{where}: {found}", node=beside)
        if stream.topology is not self:
            other = f"belongs to topology {stream.topology.name!r}, not to {self.name!r}"
            raise TopologyError(f"node {stream.name!r}: {other}", node=stream.name)
        return stream.name

    def _declare(self, store: Store, path: str = "") -> Store:
        where = path or f"store {store.name!r}"
        _check_store(store, where)
        if store.name in self._stores:
            twice = "declared twice; name it in `stores` to share it"
            raise TopologyError(f"{where}: {twice}", node=store.name)
        self._stores[store.name] = store
        return store

    def _store_names(self, stores: Iterable[StoreSpec] | str, where: str) -> tuple[str, ...]:
        """Return the names in `stores`, declaring the stores that are given inline."""
        single = isinstance(stores, str | Store | Mapping)
        names = []
        for spec in [stores] if single else listed(stores, f"{where}.stores", "a list of stores"):
            if isinstance(spec, str):
                names.append(spec)
                continue
            store = _inline(spec, f"{where}.stores") if isinstance(spec, Mapping) else spec
            if not isinstance(store, Store):
                expected = "the name of a store, or a Store"
                raise TopologyError(f"{where}.stores: found {shown(spec)}, expected {expected}")
            if self._stores.get(store.name) is not store:  # one of `Topology.store` is declared already
                self._declare(store)
            names.append(store.name)
        if len(set(names)) != len(names):
            raise TopologyError(f"{where}.stores: found {shown(names)}, expected each store once")
        return tuple(names)

    def _with_declared(self, processor: Any, names: tuple[str, ...], where: str) -> tuple[str, ...]:
        """Return `names` and the stores that the processor declares itself. Declares the new ones.

        A processor may have a method `layouts()`, which returns store name -> options, as in Kafka Streams'
        ConnectedStoreProvider. Two processors that share a store must declare it alike. A separate declaration
        (`Topology.store`) sets the fields that processors leave open, and may leave the options to them.
        """
        declared_here = _declared_by(processor, where)
        for name, (store, said) in declared_here.items():
            first = self._layouts.get(name)
            if name not in self._stores:
                self._declare(store)
            elif (declared := self._stores[name]) is not first:
                own = {"logged", "retention_ms"}
                _check_alike(declared, store, [f for f in said if f in own or declared.option_items], where)
            if first is not None:
                fields = ("logged", "retention_ms", *first.options, *store.options)
                _check_alike(first, store, fields, where)
            self._layouts.setdefault(name, store)
        return (*names, *(name for name in declared_here if name not in names))


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of one node: a handle, whose methods add the next node. `Topology.source` returns the first one.

    `name`: the name of the node; for a repartition, the name of its internal source (`by-aircraft-source`).
    """

    topology: TopologyDraft
    name: str

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"

    def process(
        self,
        processor: Any = None,
        *,
        name: str | None = None,
        stores: Iterable[StoreSpec] | str = (),
        **options: Any,
    ) -> Stream:
        """Add a processor. If it changes the key columns, add a `repartition` after it."""
        self._check("process", options, name)
        parents = [self.name]
        return self.topology._step(
            "processor", parents, name, processor=processor, stores=stores, options=options
        )

    def join_table(
        self,
        table: Stream,
        processor: Any = None,
        *,
        name: str | None = None,
        stores: Iterable[StoreSpec] | str = (),
        **options: Any,
    ) -> Stream:
        """Join this stream with a table. The topics of both become one co-partition group."""
        self._check("join_table", options, name, "table")
        pair, step = [self.name, self.topology._own(table, self.name)], self.topology._step
        return step("join", pair, name, processor=processor, stores=stores, options=options, join="table")

    def join_stream(
        self,
        other: Stream,
        processor: Any = None,
        *,
        name: str | None = None,
        stores: Iterable[StoreSpec] | str = (),
        **options: Any,
    ) -> Stream:
        """Join this stream with another stream. The topics of both become one co-partition group."""
        self._check("join_stream", options, name, "other")
        pair, step = [self.name, self.topology._own(other, self.name)], self.topology._step
        return step("join", pair, name, processor=processor, stores=stores, options=options, join="stream")

    def merge(self, *others: Stream, name: str | None = None, **options: Any) -> Stream:
        """Merge several streams into one. Their partition counts may differ."""
        self._check("merge", options, name)
        parents = [self.name, *(self.topology._own(o, self.name) for o in others)]
        return self.topology._step("merge", parents, name, options=options)

    def repartition(
        self,
        key: Sequence[str] | str | None = None,
        *,
        name: str | None = None,
        partitions: int | None = None,
        **options: Any,
    ) -> Stream:
        """Send the records through an internal topic, partitioned by `key`. Without a key, they are spread evenly.

        The nodes after it belong to another subtopology. `partitions`: the count of the topic, by default that of its
        co-partition group, else the number of tasks of the subtopology that writes it.
        """
        self._check("repartition", options, name)
        return self.topology._repartition(self.name, key, name=name, partitions=partitions, options=options)

    def sink(self, name: str | None = None, target: Any = None, **options: Any) -> None:
        """Send the records to `target`, outside the topology. Only the runtime interprets the target.

        The same holds for the option `schema`: the columns of the records, such as `{"k": "string", "n": "int64"}`.
        """
        self._check("sink", options, name)
        self.topology._step("sink", [self.name], name, options=options, target=target)

    def _check(self, call: str, options: Iterable[str], name: object, *further: str) -> None:
        """Refuse options that look like parameters of the call, or like one of `further`."""
        where = f"{call} of {self.name!r}" if name is None else f"node {name!r}"
        check_options(options, (*PARAMETERS[call], *further), where, self.name if name is None else name)


def _check_processor(processor: object, where: str) -> None:
    """Refuse a class and a plain value.

    >>> _check_processor(print, "node 'stats'")
    >>> _check_processor(dict, "node 'stats'")
    Traceback (most recent call last):
    topology.errors.TopologyError: node 'stats'.processor: found the class dict, expected an object of it: dict(...)
    """
    if isinstance(processor, type):
        name = processor.__name__
        raise TopologyError(
            f"{where}.processor: found the class {name}, expected an object of it: {name}(...)"
        )
    if isinstance(processor, _PLAIN):
        expected = "an object with process(context, *inputs), or a function of the same arguments"
        raise TopologyError(f"{where}.processor: found {shown(processor)}, expected {expected}")


def _inline(spec: Mapping[Any, Any], where: str) -> Store:
    """Return the store that a mapping describes: the arguments of `Topology.store`.

    >>> _inline({"name": "delays", "logged": False, "ttl": 5}, "node 'stats'.stores").options
    {'ttl': 5}
    """
    if "name" not in spec:
        raise TopologyError(f"{where}: found {shown(spec)}, expected a store with a 'name'")
    for field in spec:
        if not isinstance(field, str):  # `on: 1` is true in YAML 1.1
            raise TopologyError(f"{where}: found the field {field!r}, expected strings as field names")
    check_options(spec, PARAMETERS["store"], f"{where}, store {spec['name']!r}")
    items = tuple((field, value) for field, value in spec.items() if field not in PARAMETERS["store"])
    return Store(spec["name"], spec.get("logged", True), spec.get("retention_ms"), items)


def _check_store(store: Store, where: str) -> None:
    """Refuse a store with fields of a wrong type or value.

    >>> _check_store(Store("delays", logged="no"), "store 'delays'")
    Traceback (most recent call last):
    topology.errors.TopologyError: store 'delays'.logged: found 'no', expected true or false
    """
    check_legal_name(store.name, "store name")
    if not isinstance(store.logged, bool):
        found = f"found {shown(store.logged)}, expected true or false"
        raise TopologyError(f"{where}.logged: {found}", node=store.name)
    if store.retention_ms is not None:
        check_count(store.retention_ms, f"{where}.retention_ms", store.name, most=None)


def _declared_by(processor: Any, where: str) -> dict[str, tuple[Store, Mapping[str, Any]]]:
    """Return the stores that a processor declares by `layouts()`, by name, each with the declared fields.

    >>> class Counts:
    ...     def layouts(self):
    ...         return {"counts": {"ttl": 5}}
    >>> _declared_by(Counts(), "node 'stats'")["counts"][0].options
    {'ttl': 5}
    """
    # A class has the method too, but only its instances have stores.
    declare = None if isinstance(processor, type) else getattr(processor, "layouts", None)
    if not callable(declare):
        return {}
    given, where = declare(), f"{where}, layouts()"
    if not isinstance(given, Mapping):
        raise TopologyError(f"{where}: found {shown(given)}, expected a mapping of stores to their layouts")
    stores = {}
    for name, layout in given.items():
        if not isinstance(layout, Mapping):
            raise TopologyError(f"{where}: found {shown(layout)} for store {name!r}, expected a mapping")
        store = _inline({**layout, "name": name}, where)
        try:
            _check_store(store, f"store {name!r}")
        except TopologyError as error:
            raise TopologyError(f"{where}: {error}") from error
        stores[name] = (store, layout)
    return stores


def _check_alike(one: Store, other: Store, fields: Iterable[str], where: str) -> None:
    """Refuse another declaration of a store that differs in a field.

    >>> _check_alike(Store("delays"), Store("delays", retention_ms=5), ["logged", "retention_ms"], "node 'stats'")
    Traceback (most recent call last):
    topology.errors.TopologyError: node 'stats': store 'delays' is declared without retention_ms elsewhere, \
here with 5
    """
    there, here = (
        {"logged": store.logged, **store.options}
        | ({"retention_ms": store.retention_ms} if store.retention_ms else {})
        for store in (one, other)
    )
    for field in fields:
        if (field in there, there.get(field)) != (field in here, here.get(field)):
            was = f"with {field} {there[field]!r}" if field in there else f"without {field}"
            now = f"with {here[field]!r}" if field in here else "without"
            text = f"store {one.name!r} is declared {was} elsewhere, here {now}"
            raise TopologyError(f"{where}: {text}", node=one.name)
