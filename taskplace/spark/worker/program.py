"""The program of one subtopology: its operators and stores, in the form that is sent to executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.casts import canonical_rows, concat
from taskplace.spark.messages import Watermark
from taskplace.spark.processors.base import Context, call, runs_every_batch
from taskplace.spark.state.expiry import as_datetime, micros
from taskplace.spark.state.store import Store, StoreSchema
from taskplace.spark.worker.clock import Clock, slowest
from taskplace.spark.worker.hashing import hashed_as
from taskplace.spark.worker.operators import Operator as Operator
from taskplace.spark.worker.operators import RowCheck
from taskplace.spark.worker.partition_checks import Owned, Ownership, PartitionedTopic, Split, check_splits
from taskplace.spark.worker.topic_reader import TopicReader
from topology.tasks import TaskId


@dataclass(frozen=True)
class Outputs:
    """The output of a run: rows per sink, rows per internal topic, and watermarks.

    `watermarks`: of each store that expires entries; `behind`: of each internal topic's rows.
    """

    sinks: Mapping[str, pa.Table]
    topics: Mapping[str, pa.Table]
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)
    behind: Mapping[str, Watermark] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """The operators of one subtopology, parents first, and the layout of its stores.

    `external` has the topics read from Spark, with the tag of each in the united input; `internal` has the topics
    read from boundary files.
    """

    subtopology: int
    operators: tuple[Operator, ...]
    stores: Mapping[str, StoreSchema]
    external: Mapping[str, int] = field(default_factory=dict)
    internal: tuple[str, ...] = ()
    repartitions: Mapping[str, Operator] = field(default_factory=dict)
    #: By external topic with an event time: the column.
    event_times: Mapping[str, str] = field(default_factory=dict)
    #: The nodes that keep state by the key of a topic.
    splits: tuple[Split, ...] = ()
    #: The stores whose keys a task checks, because a node may have changed the columns that rows are split by.
    owned: tuple[Owned, ...] = ()
    #: The topics that are read here and are split by a partition column.
    partitioned: Mapping[str, PartitionedTopic] = field(default_factory=dict)

    #: The topics that are read here whose records a task reads itself.
    reads: Mapping[str, TopicReader] = field(default_factory=dict)

    def check_samples(self, inputs: Mapping[str, pa.Table], partition: int) -> None:
        """Check that sampled keys belong to a task's partition. Errors: as for `PartitionedTopic.check`."""
        for topic, split in self.partitioned.items():
            split.check(inputs[topic], partition)

    def check_keys(self, inputs: Mapping[str, pa.Table]) -> None:
        """Check that all rows of a state key reach this task. Errors: as for `check_splits`."""
        check_splits(
            self.splits,
            {
                topic: {field.name: field.type for field in rows.schema}
                for topic, rows in inputs.items()
                if rows.num_rows  # an empty table may have columns of any type
            },
        )

    def hashed(
        self, inputs: Mapping[str, pa.Table], bound: Mapping[str, Sequence[str]]
    ) -> dict[str, Sequence[str]]:
        """Return the types as which the key of each topic is hashed, as far as they are known.

        `bound`: those of internal topics that the checkpoint is bound to. A table without rows may have any types, but
        for external topics.
        """
        types = dict(bound)
        for operator in self.operators if self.owned else ():
            if operator.kind != "source" or operator.topic in bound or not operator.key:
                continue
            schema = inputs[operator.topic].schema
            if operator.topic in self.external or inputs[operator.topic].num_rows:
                types[operator.topic] = [hashed_as(schema.field(name).type) for name in operator.key]
        return types

    @property
    def databases(self) -> tuple[str, ...]:
        """The names of its stores in a copy, with those of their expiry indexes."""
        return tuple(name for store in self.stores.values() for name in store.databases)

    @property
    def logged(self) -> frozenset[str]:
        """The `databases` that have a changelog."""
        return frozenset(name for store in self.stores.values() if store.logged for name in store.databases)

    @property
    def sinks(self) -> tuple[str, ...]:
        """The names of its sinks."""
        return tuple(operator.name for operator in self.operators if operator.kind == "sink")

    @property
    def row_checks(self) -> dict[str, RowCheck]:
        """By sink: the check of its rows, if its target has one."""
        return {
            operator.name: operator.row_check for operator in self.operators if operator.row_check is not None
        }

    @property
    def forgets(self) -> bool:
        """Whether one of its stores expires entries."""
        return any(store.ttl for store in self.stores.values())

    @property
    def every_batch(self) -> bool:
        """Whether its tasks must also run in batches without rows for them."""
        return any(runs_every_batch(operator.processor) for operator in self.operators)

    def newest(self, inputs: Mapping[str, pa.Table]) -> dict[str, int]:
        """Return the newest event time (microseconds) of each topic that has event times and rows."""
        newest = {}
        for topic, column in self.event_times.items():
            times, known = micros(inputs[topic][column], f"sources.{topic}.event_time")
            if known.any():
                newest[topic] = int(times[known].max())
        return newest

    @property
    def stateful(self) -> bool:
        """Whether it has a store."""
        return bool(self.stores)

    def run(
        self,
        task: TaskId,
        batch_id: int,
        inputs: Mapping[str, pa.Table],
        stores: Mapping[str, Store],
        watermarks: Mapping[str, Watermark] = MappingProxyType({}),
        bound: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> Outputs:
        """Run all operators on a batch's rows of one task; `watermarks` are those of the topics that it reads.

        `bound`: the key types of internal topics that the checkpoint is bound to. Expired entries of a store are
        removed after the last operator that uses it has run.
        """
        rows: dict[str, pa.Table] = {}
        sinks: dict[str, pa.Table] = {}
        topics: dict[str, pa.Table] = {}
        behind: dict[str, Watermark] = {}
        clock = Clock(watermarks)
        owned = self._ownership(task, inputs, bound)
        last_user = {name: operator.name for operator in self.operators for name in operator.stores}
        for operator in self.operators:
            sends_expired: list[Store] = []
            parents = [rows[parent] for parent in operator.parents]
            if operator.kind == "source":
                rows[operator.name] = inputs[operator.topic]
            elif operator.kind == "merge":
                rows[operator.name] = concat(list(zip(operator.parents, parents, strict=True)), operator.name)
            elif operator.kind == "sink":
                sinks[operator.name] = self._named(operator, parents[0])
            elif operator.kind == "repartition":
                topics[operator.topic] = parents[0]
            else:
                own = {name: stores[name] for name in operator.stores}
                for name, store in own.items():
                    store.check_keys = owned.get((operator.name, name))
                    store.now = clock.of_store(operator, store.schema, store.late_watermark)
                rows[operator.name] = self._called(
                    operator, parents, task=task, batch_id=batch_id, stores=own, clock=clock
                )
                sends_expired = [store for store in own.values() if store.expired]
                for name, store in own.items():
                    if last_user[name] == operator.name:
                        store.expire(by_slot=True)
            clock.passed(operator, sends_expired)
            if operator.kind == "repartition":
                behind[operator.topic] = clock.behind(operator)
        forgetting = {store.schema.database: store.now for store in stores.values() if store.schema.ttl}
        return Outputs(sinks, topics, forgetting, behind)

    def _ownership(
        self, task: TaskId, inputs: Mapping[str, pa.Table], bound: Mapping[str, Sequence[str]]
    ) -> dict[tuple[str, str], Ownership]:
        """Return the checks of keys, by node and store."""
        if not self.owned:
            return {}
        hashed = self.hashed(inputs, bound)
        return {
            (owned.node, owned.store): Ownership(owned, hashed, task.partition)
            for owned in self.owned
            if owned.partitions > 1
        }

    def _called(
        self,
        operator: Operator,
        parents: list[pa.Table],
        *,
        task: TaskId,
        batch_id: int,
        stores: Mapping[str, Store],
        clock: Clock,
    ) -> pa.Table:
        late = slowest(store.late_watermark for store in stores.values() if store.schema.ttl)
        now = clock.at(operator)
        context = Context(
            task=str(task),
            partition=task.partition,
            batch_id=batch_id,
            stores=stores,
            watermark=as_datetime(now),
            late_watermark=as_datetime(late),
        )
        output = canonical_rows(call(operator.processor, context, *parents), operator.name)
        if output.num_rows and len(set(output.column_names)) != output.num_columns:
            raise InputError(
                f"node {operator.name!r}",
                found=f"columns {output.column_names}",
                expected="each column name once: nodes find columns by their names",
                hint="rename or drop one of them in the processor",
            )
        if operator.event_time and output.num_rows:
            kind = (
                output.schema.field(operator.event_time).type
                if operator.event_time in output.schema.names
                else None
            )
            if kind is None or not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
                raise InputError(
                    f"{operator.name}.event_time",
                    found=f"{operator.event_time!r}, {'no column' if kind is None else kind}",
                    expected=f"a timestamp or date column of its output: {output.schema.names}",
                )
        return output

    def watermarks(
        self, topics: Mapping[str, Watermark], late: Mapping[str, Watermark]
    ) -> tuple[dict[str, Watermark], dict[str, Watermark]]:
        """Return the watermarks of stores that expire entries, and of the internal topics that are written here.

        These hold for a task in which nothing holds time back; `run` returns the actual ones. `topics`: the watermarks
        of the topics that are read; `late`: the watermark of each store in the batch before.
        """
        clock = Clock(topics)
        of_stores: dict[str, Watermark] = {}
        for operator in self.operators:
            for schema in (self.stores[name] for name in operator.stores):
                if schema.ttl:
                    of_stores[schema.database] = clock.of_store(operator, schema, late.get(schema.database))
            clock.passed(operator)
        return of_stores, {o.topic: clock.behind(o) for o in self.operators if o.kind == "repartition"}

    @staticmethod
    def _named(operator: Operator, rows: pa.Table) -> pa.Table:
        """Return a sink's rows. Errors: `InputError` for column names that differ only by case."""
        taken = dict.fromkeys(operator.reserved, "the sink's own")
        for name in rows.column_names if rows.num_rows else ():
            if (other := taken.get(name.lower())) is not None:
                raise InputError(
                    f"sink {operator.name!r}",
                    found=f"a column {name!r} beside {other}",
                    expected="column names that differ by more than case",
                    hint="rename the column in a processor before the sink",
                )
            taken[name.lower()] = f"a column {name!r}"
        return rows
