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
reports all others (an unknown store, unequal partition counts, a cycle).

Non-goals: running a topology; inspecting processors (except for the stores they declare, see `_connected`), targets and
schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from topology.draft import Stream, TopologyDraft
from topology.entry_fields import PARAMETERS, check_options
from topology.names import listed
from topology.node import Store, StoreSpec

if TYPE_CHECKING:
    from topology.built import BuiltTopology


class Topology(TopologyDraft):
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

        return read_document(mapping, {} if registry is None else registry, targets, new=cls)

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
