"""The handle of a node's output, by which the next node is added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from topology.node import StoreSpec
from topology.options import MERGE, REPARTITION, SINK, STEP, check_options


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
    """The output of one node: what the next node reads. Made by `Topology.source` and by the methods here.

    `name` is the node's; for a repartition that is the internal source behind it (`by-aircraft-source`).
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
        """Add a processor. It must leave the key columns unchanged; otherwise add a `repartition` behind it."""
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
        """Join this stream with a table; the topics of both become one co-partition group."""
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
        """Join two streams; the topics of both become one co-partition group."""
        self._check(options, (*STEP, "other"), "join_stream", name)
        pair = [self.name, self.topology._own(other, self.name)]
        return self.topology._step(
            "join", pair, name, processor=processor, stores=stores, options=options, join="stream"
        )

    def merge(self, *others: Stream, name: str | None = None, **options: Any) -> Stream:
        """Put the records of several streams into one; their partition counts may differ."""
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
        """Send the records through an internal topic, partitioned by `key` (none: spread evenly).

        The nodes behind it belong to another subtopology. Without `partitions` the topic gets the count of its
        co-partition group; without a group, the number of partitions of the subtopology that writes it.
        """
        self._check(options, REPARTITION, "repartition", name)
        return self.topology._repartition(self.name, key, name=name, partitions=partitions, options=options)

    def sink(self, name: str | None = None, target: Any = None, **options: Any) -> None:
        """Send the records out of the topology to `target`, an object only the runtime understands.

        So is the option `schema`: the columns of the records, such as `{"k": "string", "n": "int64"}`.
        """
        self._check(options, SINK, "sink", name)
        self.topology._step("sink", [self.name], name, options=options, target=target)

    def _check(self, options: Iterable[str], parameters: tuple[str, ...], call: str, name: object) -> None:
        where = f"{call} of {self.name!r}" if name is None else f"node {name!r}"
        check_options(options, parameters, where, self.name if name is None else name)
