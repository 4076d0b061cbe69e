"""The program of one subtopology: its operators and stores, in the form that is sent to executors.

**Watermarks.** Each topic has a watermark. The watermark behind an operator is that of its slowest input. Due windows
that are not sent yet hold it back: a batch sends a limited number of windows, and the rows of the others will follow.
So behind the operator, time is not beyond the oldest of these windows. A store's watermark is that of its operator's
input, less the operator's `lag` (`taskplace.spark.processors.times`). It never goes back below `late`, the store's
watermark in the batch before. Units: microseconds since 1970 (UTC); None: unknown yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Protocol

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.casts import canonical_rows, concat
from taskplace.spark.messages import Watermark
from taskplace.spark.processors.base import Context, call, runs_every_batch
from taskplace.spark.state.expiry import as_datetime, check_time, micros
from taskplace.spark.state.store import Store, StoreSchema
from taskplace.spark.types import column_of
from taskplace.spark.worker.hashing import hashed_as
from taskplace.spark.worker.partition_checks import Owned, PartitionedTopic, Split, check_splits
from taskplace.spark.worker.topic_reader import TopicReader
from topology.node import Kind
from topology.tasks import TaskId


class RowCheck(Protocol):
    """Refuses rows that a target could not take after the commit. It is sent to executors, so it can be pickled.

    Errors: `InputError`, with a path that begins with `sinks.<sink>`.
    """

    def check_columns(self, sink: str, schema: pa.Schema) -> None:
        """Refuse columns. Called before the first batch, where they are known."""
        ...

    def check_rows(self, sink: str, rows: pa.Table) -> None:
        """Refuse rows. Called in their task, before the batch is committed, under the sink's schema."""
        ...


@dataclass(frozen=True)
class Operator:
    """One node: its kind, its parents and its processor.

    - `reserved`: of a sink, the column names that its target reserves, in lower case
    - `row_check`: of a sink, refuses rows that its target could not take
    - `lag`: how far the node's time column is behind the watermark of its input, in microseconds
    - `event_time`: the output column that the node declares as event time; "" if it declares none
    """

    name: str
    kind: Kind
    parents: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    topic: str = ""
    key: tuple[str, ...] = ()
    partitions: int = 0
    processor: object = None
    reserved: tuple[str, ...] = ()
    row_check: RowCheck | None = None
    lag: int = 0
    event_time: str = ""


def slowest(watermarks: Iterable[Watermark]) -> Watermark:
    """Return the smallest watermark; None if one is unknown, or there are none.

    >>> slowest([5, 3]), slowest([5, None]), slowest([])
    (3, None, None)
    """
    given = list(watermarks)
    known = [watermark for watermark in given if watermark is not None]
    return min(known) if known and len(known) == len(given) else None


class _Clock:
    """Computes the watermark of each operator of a task from those of the topics. Call it for parents first."""

    def __init__(self, topics: Mapping[str, Watermark]) -> None:
        self._topics = topics
        self._behind: dict[str, Watermark] = {}
        self._stores: dict[str, Watermark] = {}

    def before(self, operator: Operator) -> Watermark:
        """Return the watermark of an operator's input."""
        if operator.kind == "source":
            return self._topics.get(operator.topic)
        return slowest(self._behind[parent] for parent in operator.parents)

    def at(self, operator: Operator) -> Watermark:
        """Return the watermark of an operator: that of its input, less its lag."""
        before = self.before(operator)
        return None if before is None else before - operator.lag

    def of_store(self, operator: Operator, schema: StoreSchema, late: Watermark) -> Watermark:
        """Return the watermark of a store: the smallest of this operator and the earlier ones that use the store."""
        users = [self.at(operator)]
        if schema.database in self._stores:
            users.append(self._stores[schema.database])
        now = self._stores[schema.database] = slowest(users)
        return max((w for w in (late, now) if w is not None), default=None)

    def passed(self, operator: Operator, sent_by_time: Iterable[Store] = ()) -> None:
        """Note that an operator has run. `sent_by_time`: its stores whose expired entries it emits."""
        watermark = self.before(operator)
        for store in sent_by_time:
            if watermark is not None and store.held is not None:
                watermark = min(watermark, store.held + store.schema.ttl + operator.lag - 1)
        self._behind[operator.name] = watermark

    def behind(self, operators: Iterable[Operator]) -> dict[str, Watermark]:
        """Return the watermark of each internal topic that these operators write to."""
        return {each.topic: self._behind[each.name] for each in operators if each.kind == "repartition"}


@dataclass(frozen=True)
class Outputs:
    """The output of a run: rows per sink, rows per internal topic, and watermarks.

    `watermarks`: of each store that expires entries, by its name in copies; `behind`: of each internal topic's rows.
    """

    sinks: Mapping[str, pa.Table]
    topics: Mapping[str, pa.Table]
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)
    behind: Mapping[str, Watermark] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """The operators of one subtopology, parents first, and the layout of its stores.

    - `external`: the topics read from Spark, with the tag of each in the united input
    - `internal`: the topics read from boundary files
    - `event_times`: by external topic with an event time, its column
    - `splits`: the nodes that keep state by the key of a topic
    - `owned`: the stores whose keys a task checks, because a node may have changed the columns that rows are split by
    - `partitioned`: the topics that are read here and are split by a partition column
    - `reads`: the topics that are read here whose records a task reads itself
    """

    subtopology: int
    operators: tuple[Operator, ...]
    stores: Mapping[str, StoreSchema]
    external: Mapping[str, int] = field(default_factory=dict)
    internal: tuple[str, ...] = ()
    repartitions: Mapping[str, Operator] = field(default_factory=dict)
    event_times: Mapping[str, str] = field(default_factory=dict)
    splits: tuple[Split, ...] = ()
    owned: tuple[Owned, ...] = ()
    partitioned: Mapping[str, PartitionedTopic] = field(default_factory=dict)
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

    def _hashed(
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
        clock = _Clock(watermarks)
        hashed = self._hashed(inputs, bound)
        checks = {
            (owned.node, owned.store): partial(owned.check, hashed=hashed, partition=task.partition)
            for owned in self.owned
            if owned.partitions > 1
        }
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
                    store.check_keys = checks.get((operator.name, name))
                    store.now = clock.of_store(operator, store.schema, store.late_watermark)
                rows[operator.name] = self._called(
                    operator, parents, task=task, batch_id=batch_id, stores=own, clock=clock
                )
                sends_expired = [store for store in own.values() if store.expired]
                for name, store in own.items():
                    if last_user[name] == operator.name:
                        store.expire(by_slot=True)
            clock.passed(operator, sends_expired)
        expiring = {store.schema.database: store.now for store in stores.values() if store.schema.ttl}
        return Outputs(sinks, topics, expiring, clock.behind(self.operators))

    def _called(
        self,
        operator: Operator,
        parents: list[pa.Table],
        *,
        task: TaskId,
        batch_id: int,
        stores: Mapping[str, Store],
        clock: _Clock,
    ) -> pa.Table:
        context = Context(
            task=str(task),
            partition=task.partition,
            batch_id=batch_id,
            stores=stores,
            watermark=as_datetime(clock.at(operator)),
            late_watermark=as_datetime(
                slowest(store.late_watermark for store in stores.values() if store.schema.ttl)
            ),
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
            path = f"{operator.name}.event_time"
            check_time(column_of(output, operator.event_time, path).type, path)
        return output

    def watermarks(
        self, topics: Mapping[str, Watermark], late: Mapping[str, Watermark]
    ) -> tuple[dict[str, Watermark], dict[str, Watermark]]:
        """Return the watermarks of stores that expire entries, and of the internal topics that are written here.

        These hold for a task in which nothing holds time back; `run` returns the actual ones. `topics`: the watermarks
        of the topics that are read; `late`: the watermark of each store in the batch before.
        """
        clock = _Clock(topics)
        of_stores: dict[str, Watermark] = {}
        for operator in self.operators:
            for schema in (self.stores[name] for name in operator.stores):
                if schema.ttl:
                    of_stores[schema.database] = clock.of_store(operator, schema, late.get(schema.database))
            clock.passed(operator)
        return of_stores, clock.behind(self.operators)

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
