"""The draft of a topology: collects nodes, stores and names, and checks each when it is added.

Properties: a refused call adds nothing. `Topology.build` makes the checks that need the whole topology.

Errors: `TopologyError`, which names the node, for errors of a single call: a bad count, a name used twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from topology.draft import Stream, check_processor
from topology.errors import TopologyError, shown
from topology.names import (
    AutoNames,
    check_count,
    check_key,
    check_legal_name,
    check_name,
    check_sink_name,
)
from topology.node import Node, Store, StoreSpec
from topology.stores import check_store, inline, laid_out, listed, unlike


class TopologyDraft:
    """Collects the nodes and stores of a topology; `Topology` and its written form add to it."""

    def __init__(self, name: str) -> None:
        self.name = check_name(name, "topology name")
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, Store] = {}
        self._layouts: dict[str, Store] = {}  # store -> its declaration by the first processor with it
        self._names = AutoNames()
        self._topics: dict[str, str] = {}  # topic -> the node that declares it

    @contextmanager
    def _all_or_nothing(self, node: object) -> Iterator[None]:
        """Undo the additions of a refused call. The error names the node, unless it already names a nearer place.

        All additions are at the ends of the collections, so these are cut off.
        """
        grown: tuple[dict[str, Any], ...] = (
            self._nodes,
            self._stores,
            self._layouts,
            self._topics,
            self._names.stems,
        )
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
            return self._add(
                Node(
                    name=topic if name is None else name,
                    kind="source",
                    key=check_key(key, f"{where}.key"),
                    topic=topic,
                    partitions=None if partitions is None else check_count(partitions, f"{where}.partitions"),
                    schema=schema,
                    option_items=tuple(options.items()),
                )
            )

    def _declare(self, store: Store) -> Store:
        check_store(store)
        if store.name in self._stores:
            raise TopologyError(
                f"store {store.name!r}: declared twice; name it in `stores` to share it", node=store.name
            )
        self._stores[store.name] = store
        return store

    def _store_names(self, stores: Iterable[StoreSpec] | str, where: str) -> tuple[str, ...]:
        """Return the names in `stores`, declaring the stores that are given inline."""
        single = isinstance(stores, str | Store | Mapping)
        specs = [stores] if single else listed(stores, f"{where}.stores", "a list of stores")
        names = []
        for spec in specs:
            if isinstance(spec, str):
                names.append(spec)
                continue
            if isinstance(spec, Mapping):
                names.append(self._declare(inline(spec, f"{where}.stores")).name)
                continue
            if not isinstance(spec, Store):
                raise TopologyError(
                    f"{where}.stores: found {shown(spec)}, expected the name of a store, or a Store"
                )
            if self._stores.get(spec.name) is not spec:  # a store from `Topology.store` is declared already
                self._declare(spec)
            names.append(spec.name)
        if len(set(names)) != len(names):
            raise TopologyError(f"{where}.stores: found {shown(names)}, expected each store once")
        return tuple(names)

    def _connected(self, processor: Any, names: tuple[str, ...], where: str) -> tuple[str, ...]:
        """Return `names` and the stores that the processor declares itself. Declares the new ones.

        A processor may have a method `layouts()`, which returns store name -> options, as in Kafka Streams'
        ConnectedStoreProvider. Two processors that share a store must declare it alike. A separate declaration
        (`Topology.store`) sets the fields that processors leave open, and may leave the options to them.
        """
        declared_here = laid_out(processor, where)
        for name, (store, said) in declared_here.items():
            first = self._layouts.get(name)
            if name not in self._stores:
                self._declare(store)
            elif (declared := self._stores[name]) is not first:
                own = {"logged", "retention_ms"}
                self._alike(declared, store, [f for f in said if f in own or declared.option_items], where)
            if first is not None:
                fields = ("logged", "retention_ms", *first.options, *store.options)
                self._alike(first, store, fields, where)
            self._layouts.setdefault(name, store)
        return (*names, *(name for name in declared_here if name not in names))

    @staticmethod
    def _alike(one: Store, other: Store, fields: Iterable[str], where: str) -> None:
        how = unlike(one, other, fields)
        if how is not None:
            raise TopologyError(f"{where}: store {one.name!r} is declared {how}", node=one.name)

    def _own(self, stream: object, beside: str | None = None) -> str:
        """Return the node name behind a handle of this topology. `beside`: the node that it is read together with."""
        if not isinstance(stream, Stream):
            where = f"topology {self.name!r}" + (f", beside {beside!r}" if beside is not None else "")
            raise TopologyError(
                f"{where}: found {shown(stream)} as an input, expected a stream of this topology", node=beside
            )
        if stream.topology is not self:
            raise TopologyError(
                f"node {stream.name!r}: belongs to topology {stream.topology.name!r}, not to {self.name!r}",
                node=stream.name,
            )
        return stream.name

    def _add(self, node: Node) -> Stream:
        """Add a node under its name, which must not be taken."""
        check_name(node.name, f"{node.kind} name")
        if node.kind == "sink":
            check_sink_name(node.name)
        other = self._nodes.get(node.name)
        if other is not None:
            raise TopologyError(
                f"node {node.name!r}: the name is used twice, by a {other.kind} and by a {node.kind}",
                node=node.name,
            )
        if node.topic is not None and not node.internal:
            reader = self._topics.setdefault(node.topic, node.name)
            if reader != node.name:
                raise TopologyError(
                    f"node {node.name!r}: topic {node.topic!r} is already read by node {reader!r}; "
                    "use the stream that this call returned",
                    node=node.name,
                )
        self._nodes[node.name] = node
        return Stream(self, node.name)

    def _step(
        self,
        kind: Literal["processor", "join", "merge", "sink"],
        parents: list[str],
        name: str | None,
        *,
        processor: Any = None,
        stores: Iterable[StoreSpec] | str = (),
        options: Mapping[str, Any] | None = None,
        join: Literal["table", "stream"] | None = None,
        target: Any = None,
        made: bool = False,
    ) -> Stream:
        """Add a node that reads other nodes. `made`: its processor was created from its options."""
        with self._all_or_nothing(name if name is not None else next(iter(parents), None)):
            if name is None:
                name = self._names.make(
                    "process" if kind == "processor" else kind, parents, taken=self._nodes
                )
                self._names.take(name, *parents[:1])
            with self._all_or_nothing(name):
                if not made:  # only the runtime can check processors of a registry
                    check_processor(processor, f"node {name!r}", name)
                node = self._read(
                    kind,
                    parents,
                    name,
                    processor=processor,
                    stores=stores,
                    options=options or {},
                    join=join,
                    target=target,
                )
                return self._add(replace(node, made_of_options=made))

    def _read(
        self,
        kind: Literal["processor", "join", "merge", "sink"],
        parents: list[str],
        name: Any,
        *,
        processor: Any,
        stores: Any,
        options: Mapping[str, Any],
        join: Literal["table", "stream"] | None,
        target: Any,
    ) -> Node:
        """Return the node, with its stores declared."""
        where = f"node {name!r}"
        if not parents:
            raise TopologyError(f"{where}: a {kind} without input; pass at least one stream", node=name)
        # A stream may be joined with itself. Merged with itself, it would have each record twice.
        if kind != "join" and len(set(parents)) != len(parents):
            raise TopologyError(
                f"{where}: found inputs {shown(parents)}, expected each stream once", node=name
            )
        if kind == "merge" and len(parents) < 2:
            raise TopologyError(f"{where}: a merge of one stream; pass at least two streams", node=name)
        if isinstance(target, str):  # it is the name of a topic
            check_name(target, f"{where}.target")
        named = self._store_names(stores, where)
        return Node(
            name=name,
            kind=kind,
            parents=tuple(parents),
            stores=self._connected(processor, named, where),
            named_stores=named,
            join=join,
            processor=processor,
            target=target,
            option_items=tuple(options.items()),
        )

    def _repartition(
        self,
        parent: str,
        key: object,
        *,
        name: str | None,
        partitions: int | None,
        options: Mapping[str, Any],
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
            topic = f"{name}-repartition"
            items = tuple(options.items())
            self._add(
                Node(
                    name=name,
                    kind="repartition",
                    parents=(parent,),
                    key=columns,
                    topic=topic,
                    partitions=partitions,
                    option_items=items,
                )
            )
            reader = self._add(Node(f"{name}-source", "source", (), key=columns, topic=topic, internal=True))
            self._names.take(reader.name, name)
            return reader
