"""The values of a topology, frozen: nodes and stores, subtopologies, and whether it can run with the known counts.

Objects of the user (processors, targets, schemas, options) are opaque: they are stored and returned, but never
inspected. They do not affect equality, `repr` or the fingerprint. Code that only reads a topology (descriptions,
structures) depends on these values, and not on how they were computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal["source", "processor", "join", "merge", "sink", "repartition"]


class TopicPartition(NamedTuple):
    """One partition of a topic.

    >>> TopicPartition("flights", 3)
    TopicPartition(topic='flights', partition=3)
    """

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Node:
    """One step of a topology.

    The `kind` determines which fields have a value:

    | kind | fields |
    |---|---|
    | `source` | `topic`, `key`, `partitions`, `internal` (reads a repartition), `schema` |
    | `processor` | `processor`, `stores`; any number of parents |
    | `join` | `processor`, `stores`, `join` ("table", "stream"); parents: (stream, table), (left, right) |
    | `merge` | two parents or more |
    | `sink` | `target` |
    | `repartition` | `topic`, `key`, `partitions`; the same topic is read by an internal source downstream |

    - `parents`: node names, in declared order
    - `key`: the columns, in order, by which the node's output is partitioned; `()` means no (common) key
    - `partitions`: None while unknown

    >>> Node("with-weather", "join", parents=("flights", "weather"), join="table").parents
    ('flights', 'weather')
    """

    name: str
    kind: Kind
    parents: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    topic: str | None = None
    internal: bool = False
    partitions: int | None = None
    join: Literal["table", "stream"] | None = None
    processor: Any = field(default=None, compare=False, repr=False)
    target: Any = field(default=None, compare=False, repr=False)
    schema: Any = field(default=None, compare=False, repr=False)
    option_items: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)
    #: Whether the processor was created from the node's options, as in a document.
    made_of_options: bool = field(default=False, compare=False, repr=False)
    #: The `stores` that the call named; the processor declares the others.
    named_stores: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """The additional keyword arguments of the call that added the node, as a new dict.

        >>> Node("n", "processor", option_items=(("rows", 3),)).options
        {'rows': 3}
        """
        return dict(self.option_items)


@dataclass(frozen=True, slots=True)
class Store:
    """The state of a processor or join, one piece per task.

    A `logged` store has a changelog, from which other copies are restored and updated. With `retention_ms` the state
    expires (as in a window): its changelog may drop records older than that.

    >>> Store("weather-by-hour").changelog
    'weather-by-hour-changelog'
    >>> Store("scratch", logged=False).changelog is None
    True
    """

    name: str
    logged: bool = True
    retention_ms: int | None = None
    option_items: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """The additional keyword arguments of the declaration, as a new dict."""
        return dict(self.option_items)

    @property
    def changelog(self) -> str | None:
        """The name of the changelog topic; None for a store that is not logged."""
        return f"{self.name}-changelog" if self.logged else None


StoreSpec = str | Store | Mapping[str, Any]  # the name of a declared store, or an inline declaration


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


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why a topology cannot run (yet).

    - `missing`: an external topic has no known count
    - `unequal`: co-partitioned topics have different counts
    - `changed`: a count is not the one that a store was built with
    """

    kind: Literal["missing", "unequal", "changed"]
    topics: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a topology can run: true if there is no reason against it.

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> _ = topo.source("flights").process(name="clean")
    >>> state = topo.build().readiness()
    >>> bool(state), state.reason
    (False, "topic 'flights': missing, its partition count is not known")
    """

    reasons: tuple[Reason, ...] = ()

    def __bool__(self) -> bool:
        return not self.reasons

    @property
    def reason(self) -> str:
        """All reasons in one line; "" if the topology is ready."""
        return "; ".join(r.text for r in self.reasons)

    def __str__(self) -> str:
        return self.reason or "ready"


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
