"""The readable values of a checked topology: subtopologies, nodes, stores, and the known partition counts.

**Idea.** Code that only reads a topology (descriptions, graphs) depends on these values,
and not on how they were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topology.node import Node, Store
from topology.partitions import Readiness, Reason


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A connected part of the graph. One job runs it, with one task per partition.

    - `nodes`: all nodes in topological order, including `sources` (external and internal) and `sinks`
    - `repartitions_in`: the repartition nodes of other subtopologies whose topics this one reads
    - `repartitions_out`: its own repartition nodes
    - `partitions`: the number of tasks, 0 while unknown
    """

    id: int
    nodes: tuple[Node, ...]
    sources: tuple[Node, ...]
    sinks: tuple[Node, ...]
    stores: tuple[Store, ...]
    partitions: int
    repartitions_in: tuple[Node, ...]
    repartitions_out: tuple[Node, ...]

    @property
    def stateful(self) -> bool:
        """Whether it has stores, logged or not."""
        return bool(self.stores)


@dataclass(frozen=True, eq=False)
class TopologyView:
    """The readable values of a checked topology, and whether it can run.

    - `subtopologies`: by id; `order`: their ids in the order they run
    - `nodes`, `stores`: all of them, in declared order
    - `partitions`: the count of every topic read (None: unknown), external and repartition
    - `copartition_groups`: topics that need equal counts, groups of two or more
    """

    name: str
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...]
    subtopologies: tuple[Subtopology, ...]
    order: tuple[int, ...]
    copartition_groups: tuple[tuple[str, ...], ...]
    partitions: Mapping[str, int | None]
    _reasons: tuple[Reason, ...] = field(repr=False)

    def readiness(self) -> Readiness:
        """Return whether the topology can run with the known counts, and otherwise the reasons."""
        return Readiness(self._reasons)
