"""Describes a topology node by node: sources, processors, joins, merges, repartitions and sinks.

**Idea.** `Topology` collects nodes. A `Stream` is the handle of one node's output, and its methods add the next node.
`Topology.build` checks the whole topology and returns an immutable `BuiltTopology`.

Properties:
- a handle may be used any number of times, and one topology may have several pipelines;
- names are optional. An automatic name consists of the name of the node's ancestor and its verb (`flights-process`), so
  unrelated nodes do not change it, unless one of them has the same name;
- after `build`, more nodes may be added, and the topology may be built again;
- a refused call adds nothing, so it can be corrected and repeated.

Errors: `TopologyError`, which names the node. A call reports its own errors (a bad count, a name used twice). `build`
reports all others (an unknown store, unequal partition counts, a cycle). A processor may be any object, because only
the runtime knows processors; a class and a plain value are refused as mistakes.

Non-goals: running a topology; inspecting processors (except for the stores they declare), targets and schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

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

if TYPE_CHECKING:
    from topology.built import BuiltTopology

_PLAIN = (bool, int, float, complex, bytes, bytearray, list, dict, set, frozenset)


class Topology:
    """A topology that is being described.

    >>> topo = Topology("delays")
    >>> flights = topo.source("flights", key=["origin", "time_hour"], partitions=12)
    >>> weather = topo.source("weather", key=["origin", "time_hour"], partitions=12)
    >>> joined = flights.join_table(weather, name="with-weather", stores=[{"name": "weather-by-hour"}])
    >>> by_tail = joined.repartition(key=["tailnum"], name="by-aircraft", partitions=4)
    >>> by_tail.process(name="stats", stores=[Store("delays-by-aircraft")]).sink("delays")
    >>> built = topo.build()
    >>> for sub in built.subtopologies:
    ...     print(sub.id, sub.partitions, *(node.name for node in sub.nodes))
    0 12 flights weather with-weather by-aircraft
    1 4 by-aircraft-source stats delays
    """

    def __init__(self, name: str) -> None:
        self.name = check_name(name, "topology name")
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, Store] = {}
        self._layouts: dict[str, Store] = {}  # store -> its declaration by the first processor with it
        self._names = AutoNames()
        self._topics: dict[str, str] = {}  # topic -> the node that declares it

    def __repr__(self) -> str:
        return f"Topology({self.name!r}: {len(self._nodes)} nodes, {len(self._stores)} stores)"

    @classmethod
    def from_dict(
        cls,
        mapping: Mapping[str, Any],
        registry: Mapping[str, Callable[..., Any]] | None = None,
        targets: Mapping[str, Any] | None = None,
    ) -> Topology:
        """Return the topology that a mapping describes, as read from YAML; see `topology.document`."""
        from topology.document import read_document

        return read_document(cls, mapping, {} if registry is None else registry, targets)

    def source(
        self,
        topic: str,
        *,
        key: Sequence[str] | str | None = None,
        partitions: int | None = None,
        schema: Any = None,
        name: str | None = None,
        **options: Any,
    ) -> Stream:
        """Add an external topic as an input.

        - `name`: the name of the node, by default the topic
        - `key`: a column, or a list or tuple of columns, whose order matters
        - `partitions`: the partition count. It may be set later (`BuiltTopology.with_partitions`)

        Only one source can read a topic. To use a topic twice, use the returned handle twice.

        >>> Topology("t").source("trips", partitions=0)
        Traceback (most recent call last):
        topology.errors.TopologyError: source 'trips'.partitions: found 0, expected a whole number >= 1
        """
        check_options(options, PARAMETERS["source"], f"source {topic!r}", topic)
        return self._source(topic, name=name, key=key, partitions=partitions, schema=schema, options=options)

    def store(
        self, name: str, *, logged: bool = True, retention_ms: int | None = None, **options: Any
    ) -> Store:
        """Declare a store. Processors and joins that name it share it.

        >>> Topology("t").store("weather-by-hour", logged=False, ttl=3600).options
        {'ttl': 3600}
        """
        with self._all_or_nothing(name):
            check_options(options, PARAMETERS["store"], f"store {name!r}")
            return self._declare(Store(name, logged, retention_ms, tuple(options.items())))

    def process(
        self,
        processor: Any = None,
        *,
        inputs: Iterable[Stream],
        name: str | None = None,
        stores: Iterable[StoreSpec] | str = (),
        **options: Any,
    ) -> Stream:
        """Add a processor that reads one or several streams.

        Additional keyword arguments are options for the runtime. An option whose name is close to a parameter's is
        refused as a typing error.
        """
        where = f"node {name!r}" if name is not None else f"topology {self.name!r}, process"
        given = listed(inputs, f"{where}.inputs", "a list of streams")
        check_options(options, (*PARAMETERS["process"], "inputs"), where, name)
        parents = [self._own(i) for i in given]
        return self._step("processor", parents, name, processor=processor, stores=stores, options=options)

    def build(self) -> BuiltTopology:
        """Return the checked, immutable topology; see `topology.built`.

        Errors: `TopologyError` for a processor without input, an unknown or unused store, a cycle, joined
        inputs without a common key, joined topics with unequal partition counts.

        >>> topo = Topology("t")
        >>> _ = topo.source("flights").process(name="stats", stores=["delay"])
        >>> topo.build()
        Traceback (most recent call last):
        topology.errors.TopologyError: node 'stats': unknown store 'delay'; none is known
        """
        from topology.built import assemble

        return assemble(self.name, tuple(self._nodes.values()), tuple(self._stores.values()))

    # -- what calls and the written form share

    @contextmanager
    def _all_or_nothing(self, node: object) -> Iterator[None]:
        """Undo the additions of a refused call. The error names the node, unless it already names a nearer place.

        All additions are at the ends of the collections, so these are cut off.
        """
        grown: list[dict[str, Any]] = [self._nodes, self._stores, self._layouts, self._topics]
        grown.append(self._names.stems)
        sizes = [len(each) for each in grown]
        try:
            yield
        except BaseException as error:
            if isinstance(error, TopologyError) and error.node is None and isinstance(node, str):
                error.node = node
            for each, size in zip(grown, sizes, strict=True):
                while len(each) > size:
                    each.popitem()
            raise

    def _source(
        self, topic: Any, *, name: Any, key: Any, partitions: Any, schema: Any, options: Mapping[str, Any]
    ) -> Stream:
        topic = check_name(topic, "source topic")
        where = f"source {topic!r}"
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
        where = f"node {name!r}"
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
        where = f"repartition of {parent!r}" if name is None else f"repartition {name!r}"
        with self._all_or_nothing(parent if name is None else name):
            columns = check_key(key, f"{where}.key")
            if name is None:
                made = self._names.make("repartition", [parent], columns, taken=self._nodes)
                name = self._names.take(made, parent)
            check_legal_name(name, "repartition name")
            if partitions is not None:
                check_count(partitions, f"repartition {name!r}.partitions", name)
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
        where = f"node {node.name!r}"
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

    def _declare(self, store: Store) -> Store:
        _check_store(store)
        if store.name in self._stores:
            twice = "declared twice; name it in `stores` to share it"
            raise TopologyError(f"store {store.name!r}: {twice}", node=store.name)
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

    topology: Topology
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


def _check_store(store: Store) -> None:
    """Refuse a store with fields of a wrong type or value.

    >>> _check_store(Store("delays", logged="no"))
    Traceback (most recent call last):
    topology.errors.TopologyError: store 'delays'.logged: found 'no', expected true or false
    """
    check_legal_name(store.name, "store name")
    if not isinstance(store.logged, bool):
        found = f"found {shown(store.logged)}, expected true or false"
        raise TopologyError(f"store {store.name!r}.logged: {found}", node=store.name)
    if store.retention_ms is not None:
        check_count(store.retention_ms, f"store {store.name!r}.retention_ms", store.name, most=None)


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
            _check_store(store)
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
