"""What one subtopology does to a batch, in a form that travels to executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.processors.base import Context, call, runs_every_batch
from taskplace.spark.state.expiry import as_datetime, micros
from taskplace.spark.state.store import Store, StoreSchema
from taskplace.spark.worker.hashing import hashed_as
from taskplace.spark.worker.splits import Split, check_splits


@dataclass(frozen=True)
class Operator:
    """One node: what it is, whose output it takes, and what it runs."""

    name: str
    kind: str
    parents: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    topic: str = ""
    key: tuple[str, ...] = ()
    partitions: int = 0
    processor: object = None
    #: Of a sink: names of columns that its target keeps for itself, in lower case.
    reserved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outputs:
    """What a run gave: rows per sink, and rows per internal topic."""

    sinks: Mapping[str, pa.Table]
    topics: Mapping[str, pa.Table]


@dataclass(frozen=True)
class Program:
    """The operators of one subtopology, parents first, and the layout of its stores.

    `external` has the topics read from Spark, and the tag of each in the united input; `internal` those read
    from boundaries.
    """

    subtopology: int
    operators: tuple[Operator, ...]
    stores: Mapping[str, StoreSchema]
    external: Mapping[str, int] = field(default_factory=dict)
    internal: tuple[str, ...] = ()
    repartitions: Mapping[str, Operator] = field(default_factory=dict)
    #: Per external topic that has one, the column of its event time.
    event_times: Mapping[str, str] = field(default_factory=dict)
    #: Per co-partition group, the topics read here and the key columns of each.
    groups: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = ()

    #: Where state is kept by what a topic is split by.
    splits: tuple[Split, ...] = ()

    def check_keys(self, inputs: Mapping[str, pa.Table]) -> None:
        """Raise `InputError` if rows of one key would not meet: for co-partitioned topics whose keys have different
        types, and for keys that are kept as types which do not tell all of their values apart."""
        check_splits(
            self.splits,
            {
                topic: {field.name: field.type for field in rows.schema}
                for topic, rows in inputs.items()
                if rows.num_rows  # an empty table may have been made from nothing
            },
        )
        for group in self.groups:
            # An empty table may have been made from nothing, and have columns of any type.
            some = [(topic, key) for topic, key in group if inputs[topic].num_rows]
            types = {topic: [hashed_as(inputs[topic][name].type) for name in key] for topic, key in some}
            if len({tuple(kinds) for kinds in types.values()}) > 1:
                raise InputError(
                    f"subtopology {self.subtopology}",
                    found=f"co-partitioned keys of different types: {types}",
                    expected="equal types; cast the keys before the repartition",
                )

    @property
    def databases(self) -> tuple[str, ...]:
        """The names under which its stores lie in a copy, those of their indexes too."""
        return tuple(name for store in self.stores.values() for name in store.databases)

    @property
    def logged(self) -> frozenset[str]:
        """Those of `databases` that have a changelog."""
        return frozenset(name for store in self.stores.values() if store.logged for name in store.databases)

    @property
    def forgets(self) -> bool:
        """Whether a store of it has a time to live."""
        return any(store.ttl for store in self.stores.values())

    @property
    def every_batch(self) -> bool:
        """Whether its tasks have to run in batches that bring them no rows."""
        return any(runs_every_batch(operator.processor) for operator in self.operators)

    def newest(self, inputs: Mapping[str, pa.Table]) -> dict[str, int]:
        """Return the newest event time (microseconds) of each topic that has one and brought rows."""
        found = {}
        for topic, column in self.event_times.items():
            times, known = micros(inputs[topic][column])
            if known.any():
                found[topic] = int(times[known].max())
        return found

    @property
    def stateful(self) -> bool:
        """Whether there is anything to keep."""
        return bool(self.stores)

    def run(
        self,
        task: str,
        partition: int,
        batch_id: int,
        inputs: Mapping[str, pa.Table],
        stores: Mapping[str, Store],
        watermark: int | None = None,
    ) -> Outputs:
        """Run all operators on a batch's rows of one partition."""
        rows: dict[str, pa.Table] = {}
        sinks: dict[str, pa.Table] = {}
        topics: dict[str, pa.Table] = {}
        at = as_datetime(watermark)
        for operator in self.operators:
            parents = [rows[parent] for parent in operator.parents]
            if operator.kind == "source":
                rows[operator.name] = inputs[operator.topic]
            elif operator.kind == "merge":
                rows[operator.name] = self._merged(operator, parents)
            elif operator.kind == "sink":
                sinks[operator.name] = self._named(operator, parents[0])
            elif operator.kind == "repartition":
                topics[operator.topic] = parents[0]
            else:
                own = {name: stores[name] for name in operator.stores}
                context = Context(task, partition, batch_id, own, at)
                rows[operator.name] = call(operator.processor, context, *parents)
        return Outputs(sinks, topics)

    @staticmethod
    def _named(operator: Operator, rows: pa.Table) -> pa.Table:
        """Return a sink's rows. Errors: `InputError` for names that Spark, which ignores case, would mix up."""
        taken = dict.fromkeys(operator.reserved, "the sink's own")
        for name in rows.column_names if rows.num_rows else ():
            if (other := taken.get(name.lower())) is not None:
                raise InputError(
                    f"sink {operator.name!r}",
                    found=f"a column {name!r} beside {other}",
                    expected="names that differ by more than their case; rename it in a processor before the sink",
                )
            taken[name.lower()] = f"a column {name!r}"
        return rows

    @staticmethod
    def _merged(operator: Operator, parents: list[pa.Table]) -> pa.Table:
        try:
            return pa.concat_tables(parents)
        except pa.ArrowInvalid as error:
            raise InputError(
                operator.name, found="parents of different columns", expected=f"the same columns ({error})"
            ) from None
