"""The handle of a node's output, with methods that add the next node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from topology.entry_fields import MERGE, REPARTITION, SINK, STEP, check_options
from topology.node import StoreSpec


class NodeCollector(Protocol):
    """The methods of a topology that a stream uses to add the next node."""

    @property
    def name(self) -> str:
        """The name of the topology."""

    def _own(self, stream: object, beside: str | None = None) -> str: ...

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
    ) -> Stream: ...

    def _repartition(
        self,
        parent: str,
        key: Sequence[str] | str | None,
        *,
        name: str | None,
        partitions: int | None,
        options: Mapping[str, Any],
    ) -> Stream: ...


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of one node. `Topology.source` and the methods of this class return it.

    `name`: the name of the node; for a repartition, the name of its internal source (`by-aircraft-source`).
    """

    topology: NodeCollector
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
        self._check(options, STEP, "process", name)
        return self.topology._step(
            "processor", [self.name], name, processor=processor, stores=stores, options=options
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
        self._check(options, (*STEP, "table"), "join_table", name)
        pair = [self.name, self.topology._own(table, self.name)]
        return self.topology._step(
            "join", pair, name, processor=processor, stores=stores, options=options, join="table"
        )

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
        self._check(options, (*STEP, "other"), "join_stream", name)
        pair = [self.name, self.topology._own(other, self.name)]
        return self.topology._step(
            "join", pair, name, processor=processor, stores=stores, options=options, join="stream"
        )

    def merge(self, *others: Stream, name: str | None = None, **options: Any) -> Stream:
        """Merge several streams into one. Their partition counts may differ."""
        self._check(options, MERGE, "merge", name)
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
        self._check(options, REPARTITION, "repartition", name)
        return self.topology._repartition(self.name, key, name=name, partitions=partitions, options=options)

    def sink(self, name: str | None = None, target: Any = None, **options: Any) -> None:
        """Send the records to `target`, outside the topology. Only the runtime interprets the target.

        The same holds for the option `schema`: the columns of the records, such as `{"k": "string", "n": "int64"}`.
        """
        self._check(options, SINK, "sink", name)
        self.topology._step("sink", [self.name], name, options=options, target=target)

    def _check(self, options: Iterable[str], parameters: tuple[str, ...], call: str, name: object) -> None:
        where = f"{call} of {self.name!r}" if name is None else f"node {name!r}"
        check_options(options, parameters, where, self.name if name is None else name)
