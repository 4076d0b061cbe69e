"""Walks a topology once, parents first: what is known of each node's rows, and what is refused before they come.

**Idea.** A source's columns are known from its data frame or its declared schema. Each node says what it sends, given
what its inputs send (`taskplace.spark.processors.facts`), and refuses what it cannot use. What is known of the rows of
a repartition is known in the subtopologies that read it. Types are tested by running the task's operations on a row of
nulls, so the answer is the same as in the first batch.

Rules, beside those of the processors:
- Keys: `taskplace.spark.compile.keys`.
- Times: a source's event time, a window's column, the `time` of a `ttl`, and every column that a store declares as a
  timestamp or date must be a timestamp or date. An integer would be read as microseconds. A store that expires entries
  needs a column that is an event time of its input.
- Changes: a node that declares nothing passes them on, with columns of which nothing is known. What a function of the
  user, or of a `PerKey`, makes of them is not checked.
- A repartition needs key columns of types that tasks can hash.
- A merge needs the same columns in all inputs, with types that have a common supertype.
- A sink needs columns that Spark can read. A sink with a declared schema needs exactly its columns, with fitting types;
  so does a sink whose schema the checkpoint has kept.

Limit: behind a processor that does not declare its output, columns are unknown. There the task refuses the same errors,
before it writes anything.

Errors: `InputError` and `TopologyError` with the node, what was found, and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark import targets
from taskplace.spark.casts import united
from taskplace.spark.compile.forms import EVENT_TIME_OPTIONS, check_form, event_times
from taskplace.spark.compile.keys import answers_itself, check_keys
from taskplace.spark.messages import SinkSchema
from taskplace.spark.processors import changes, times
from taskplace.spark.processors.base import layouts
from taskplace.spark.processors.changes import Changes
from taskplace.spark.processors.facts import Columns, Facts, Route, TimeColumn
from taskplace.spark.processors.times import Times
from taskplace.spark.state.expiry import DAY
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.types import text, untyped
from taskplace.spark.worker.hashing import spark_hash
from taskplace.spark.worker.schemas import declare, fitted
from taskplace.validation import nearest
from topology import BuiltTopology, Node, Subtopology, TopologyError

_Inputs = tuple[Facts, ...]


def infer(
    built: BuiltTopology,
    sources: Mapping[str, Columns] = MappingProxyType({}),
    *,
    utc: Callable[[], bool] = lambda: True,
    sinks: Mapping[str, SinkSchema] = MappingProxyType({}),
) -> dict[str, Facts]:
    """Return what is known of each node's output, by node. Refuse nodes that cannot work. O(nodes x columns).

    - `sources`: by external topic, its columns; other topics are not known
    - `utc`: whether the session's time zone is UTC. In any other, an event time without a zone is refused
    - `sinks`: the schemas of sinks that earlier batches have fixed

    >>> from taskplace.spark.processors import Aggregate, Count, sum_
    >>> from topology import Topology
    >>> flights = Topology("t").source("flights", key="origin", partitions=4)
    >>> flown = flights.process(Count("flown", by={"origin": "string"}), name="count")
    >>> infer(flights.topology.build())["count"].columns
    {'origin': DataType(string), 'count': DataType(int64)}
    >>> _ = flights.process(Count("planes", by={"tailnum": "string"}), name="planes")
    >>> infer(flights.topology.build())
    Traceback (most recent call last):
    topology.errors.TopologyError: node 'planes': keeps state by (tailnum), but its input 'flights' is partitioned \
by (origin), so rows of one key reach several tasks; repartition the input by (tailnum), or add 'origin' to `by`
    """
    for node in built.nodes:
        check_form(node)
    declared = {topic: time.column for topic, time in event_times(built).items()}
    walk = _Walk(sources, declared, utc, sinks)
    by_id = {sub.id: sub for sub in built.subtopologies}
    for number in built.order:
        sub = by_id[number]
        stores = stores_of(sub)
        for node in sub.nodes:
            walk.add(node, {name: stores[name] for name in node.stores})
        check_keys(sub, built.partitions, {name: s.key for name, s in stores.items()}, walk.facts)
    return walk.facts


def stores_of(sub: Subtopology) -> dict[str, StoreSchema]:
    """Return the schemas of a subtopology's stores: what the topology says, else what the processors declare.

    Errors: `InputError` for a store that nobody gave a layout.
    """
    declared = {name: layout for node in sub.nodes for name, layout in layouts(node.processor).items()}
    return {
        store.name: StoreSchema.of(
            store.name,
            {
                "retention_ms": store.retention_ms,
                **(store.options if store.options.get("key") else declared.get(store.name, {})),
            },
            logged=store.logged,
        )
        for store in sub.stores
    }


def declared_time(node: Node) -> str:
    """Return the output column that a node declares as event time; "" if it declares none."""
    return str(node.options.get("event_time") or getattr(node.processor, "event_time", None) or "")


@dataclass(frozen=True)
class _Walk:
    """One walk: what is known of the nodes, and of the internal topics, that it has come by so far."""

    columns: Mapping[str, Columns]
    event_times: Mapping[str, str]
    utc: Callable[[], bool]
    sinks: Mapping[str, SinkSchema]
    facts: dict[str, Facts] = field(default_factory=dict)
    written: dict[str, Facts] = field(default_factory=dict)

    def add(self, node: Node, stores: Mapping[str, StoreSchema]) -> None:
        """Add what is known of a node's output; that of its parents is known. `stores`: those of the node."""
        inputs = tuple(self.facts[parent] for parent in node.parents)
        match node.kind:
            case "source":
                facts = self._source(node)
            case "merge":
                facts = _merge(node, inputs)
            case "repartition":
                _check_hashed(node, facts := inputs[0])
                self.written[node.topic or ""] = facts
            case "sink":
                _check_sink(node, facts := inputs[0], self.sinks.get(node.name))
            case _:
                facts = self._processed(node, inputs, stores)
        own = node.kind in ("processor", "join")
        self.facts[node.name] = facts if own else replace(facts, states={}, lag=0)

    def _source(self, node: Node) -> Facts:
        topic = node.topic or ""
        routes = frozenset({Route(topic, node.name, node.key, node.key)})
        if topic in self.written:
            return replace(self.written[topic], routes=routes)
        facts = Facts(columns=self.columns.get(topic), changes=None, routes=routes)
        if (column := self.event_times.get(topic)) is None:
            return replace(facts, times=Times(every=bool(self.event_times)))
        facts.require(column, path := f"sources.{topic}.event_time", time=True)
        self._check_zone(path, facts, column)
        return replace(facts, times=Times({column: 0}))

    def _processed(self, node: Node, inputs: _Inputs, stores: Mapping[str, StoreSchema]) -> Facts:
        """Return what a processor answers, completed: what it does not say is what follows from its inputs."""
        answer = self._answer(node, inputs, stores)
        if column := declared_time(node):
            answer.require(column, f"node {node.name!r}, event_time", time=True)
        return Facts(
            columns=answer.columns,
            times=_times(node, inputs, answer),
            changes=_changes(node, inputs, answer),
            routes=_routes(node, inputs, answer),
            states=answer.states,
            lag=_lag(node, inputs, answer.time, [store for store in stores.values() if store.ttl]),
        )

    def _answer(self, node: Node, inputs: _Inputs, stores: Mapping[str, StoreSchema]) -> Facts:
        """Return what a processor answers to `infer`; of an inherited answer, only what another `process` keeps."""
        processor: Any = node.processor
        if not callable(getattr(processor, "infer", None)):
            return Facts()
        inherited, path = _overrides_process(processor), f"nodes.{node.name}.processor.infer"
        given = tuple(replace(facts, states={}, lag=0) for facts in inputs)
        if inherited:
            given = tuple(replace(facts, columns=None) for facts in given)
        try:
            answer = processor.infer(given)
        except TopologyError as error:
            raise TopologyError(f"node {node.name!r}: {error}", node=node.name) from None
        except InputError as error:
            where = f"node {node.name!r}, {error.path}"
            raise InputError(where, found=error.found, expected=error.expected, hint=error.hint) from None
        if not isinstance(answer, Facts):
            raise InputError(path, found=answer, expected="an object of Facts")
        if unknown := [store for store in answer.states if store not in stores]:
            expected = f"a store of the node, one of {sorted(stores)}"
            raise InputError(path, found=f"the state of {unknown[0]!r}", expected=expected)
        if (time := answer.time) is not None and time.input < len(given):
            self._check_zone(f"node {node.name!r}, {time.path}", given[time.input], time.column)
        if not inherited:
            return answer
        changes = answer.changes
        if changes is not None and changes != Changes():
            changes = Changes(changes.origin or node.name)
        return replace(answer, columns=None, changes=changes)

    def _check_zone(self, path: str, rows: Facts, column: str) -> None:
        """Refuse an event time without a zone if the session's zone is not UTC: Spark would assume the session's."""
        kind = (rows.columns or {}).get(column)
        given = [columns[column] for columns in self.columns.values() if column in columns]
        if kind is not None and _zoneless(kind) and any(map(_zoneless, given)) and not self.utc():
            raise InputError(
                path,
                found=f"{column!r}, {text(kind)}, in a session whose time zone is not UTC",
                expected="a timestamp column: taskplace reads a time without a zone as UTC, Spark in the session's",
                hint="cast it to a timestamp in the source, or set spark.sql.session.timeZone to UTC",
            )


def _zoneless(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))


def _overrides_process(processor: object) -> bool:
    """Return whether a class overrides `process`, and inherits `infer` from a class above it."""
    own = [{"infer", "process"} & vars(each).keys() for each in type(processor).__mro__]
    return next(filter(None, own), set()) == {"process"} and any("infer" in names for names in own)


# ------------------------------------------------------------------------------------------- processors


def _routes(node: Node, inputs: _Inputs, answer: Facts) -> frozenset[Route]:
    """Return the routes to a processor's output: its own, or those of all inputs, with values that may have changed."""
    if answer.routes and answers_itself(node.processor):
        return answer.routes
    every = frozenset[Route]().union(*(facts.routes for facts in inputs))
    return frozenset(route if route.unsure else replace(route, unsure=node.name) for route in every)


def _changes(node: Node, inputs: _Inputs, answer: Facts) -> Changes | None:
    """Return the changes of a processor's output. Without a declaration, those of its inputs, with unknown columns."""
    if answer.changes == Changes():
        first = next((facts.changes for facts in inputs if facts.changes is not None), None)
        return None if first is None else Changes(first.origin)
    if answer.changes is not None and not answer.changes.origin:
        return replace(answer.changes, origin=node.name)
    return answer.changes


def _times(node: Node, inputs: _Inputs, answer: Facts) -> Times:
    """Return the time columns of a processor's output."""
    together = times.together(_times_of(inputs))
    if answer.times is None:
        return times.declared(node.processor, node.options, together, node.name)
    kind = type(node.processor).__name__
    if given := sorted(set(EVENT_TIME_OPTIONS) & set(node.options)):
        what = f"expected none: {kind} defines the event time of its output"
        raise TopologyError(f"node {node.name!r}: found the option {given[0]}, {what}", node=node.name)
    if answer.times.known or answer.times.lost is not None:
        return answer.times
    remedy = (
        "put one into its key, add a max_ of one to its aggregates, or declare a column and its delay in a node "
        "behind it: process(f, event_time='at', delay='0 s')"
    )
    return together.losing(node.name, f"whose output has no event time ({kind})", remedy)


def _lag(node: Node, inputs: _Inputs, time: TimeColumn | None, forgetting: Sequence[StoreSchema]) -> int:
    """Return how far a node's entries may be behind the watermark of its inputs. `forgetting`: stores that expire."""
    streams = _times_of(inputs)
    if time is not None and time.input < len(streams):
        streams = [streams[time.input]]
    known = times.together(streams)
    if not forgetting:
        return known.largest
    if known.lost is not None:
        lost = f"{known.lost.node!r}, {known.lost.why}; {known.lost.remedy}"
        text = f"node {node.name!r}: uses event time, but its input passes through {lost}"
        raise TopologyError(text, node=node.name)
    coarser = max(map(_coarser, forgetting))
    if time is None or not time.strict:
        return known.largest + coarser
    lag = known.lag(time.column)
    if lag is None and known.known:
        expected = "a column of the stream, not of a table that it was joined with; declare the column and its delay "
        expected += "in a node behind the join: process(f, event_time='at', delay='1 day')"
        if known.lags:
            expected = (
                f"an event time of its input, one of {', '.join(sorted(known.lags))}; use that column, or "
            )
            expected += f"declare {time.column!r} as the source's event_time"
        what = f"found the time column {time.column!r}, expected {expected}"
        raise TopologyError(f"node {node.name!r}: {what}", node=node.name)
    return (lag or 0) + coarser


def _coarser(store: StoreSchema) -> int:
    """Return how far a store's times may be before the times of the rows: a date stands for its whole day."""
    kinds = {field.name: field.type for part in (store.key, store.value) for field in part}
    return DAY - 1 if pa.types.is_date(kinds[store.time]) else 0


def _times_of(inputs: _Inputs) -> list[Times]:
    return [facts.times or Times() for facts in inputs]


# ------------------------------------------------------------------------------------------- other nodes


def _merge(node: Node, inputs: _Inputs) -> Facts:
    """Return what is known of a merge: columns in the common types of all inputs whose columns are known."""
    by_parent = dict(zip(node.parents, inputs, strict=True))
    columns = None
    if known := {parent: facts.columns for parent, facts in by_parent.items() if facts.columns is not None}:
        schemas = [(parent, pa.schema(list(each.items()))) for parent, each in known.items()]
        columns = united(schemas, f"node {node.name!r}")
    return Facts(
        columns=columns,
        times=times.merged(dict(zip(node.parents, _times_of(inputs), strict=True)), node.name),
        changes=changes.merged([facts.changes for facts in inputs]),
        routes=frozenset[Route]().union(*(facts.routes for facts in inputs)),
    )


def _check_hashed(node: Node, rows: Facts) -> None:
    """Refuse key columns of a repartition that are missing, or that tasks cannot hash."""
    if rows.columns is None:
        return
    path = f"node {node.name!r}, key"
    for column in node.key:
        rows.require(column, path)
        kind = rows.columns[column]
        try:
            if not pa.types.is_null(kind):
                spark_hash([pa.nulls(1, kind)])
        except InputError as error:
            found = f"{column!r}, {text(kind)}"
            raise InputError(path, found=found, expected=error.expected, hint=error.hint) from None


def _check_sink(node: Node, rows: Facts, kept: SinkSchema | None) -> None:
    """Refuse columns that are not in the sink's schema, or whose type cannot be staged.

    `kept`: the schema of the sink in the checkpoint.
    """
    if (types := rows.columns) is None:
        return
    schema, path = None, f"sinks.{node.name}"
    if node.options.get("schema") is not None:
        schema = declare(node.name, node.options["schema"])
        names = [name for name, _ in schema.columns]
        if wrong := sorted(set(names) ^ set(types)):
            missing = wrong[0] not in types
            found = f"{'a' if missing else 'no'} column {wrong[0]!r}"
            expected = f"the columns of the sink's input: {', '.join(sorted(types))}"
            hint = nearest(wrong[0], sorted(set(types) - set(names))) if missing else ""
            raise InputError(f"{path}.schema", found=found, expected=expected, hint=hint)
    target = targets.of(node.target)
    if taken := next((name for name in types if name.lower() in target.reserved), None):
        found = f"a column {taken!r}, which the sink's target adds itself"
        raise InputError(path, found=found, expected="another name")
    try:
        row = fitted(rows.nulls(), node.name, schema or kept)
    except InputError as error:
        within = error.path.replace(path, f"{path}.schema", 1) if schema is not None else error.path
        raise InputError(within, found=error.found, expected=error.expected, hint=error.hint) from None
    if target.row_check is not None:
        target.row_check.check_columns(node.name, row.schema)
    if kept is None and schema is None:
        check_typed(node.name, pa.schema(list(types.items())))


def check_typed(sink: str, schema: pa.Schema) -> None:
    """Refuse columns that no file can have: a nested one with a part without a type, or only nulls in all columns.

    Errors: `InputError` with the remedy.
    """
    for each in schema:
        if untyped(each.type) and not pa.types.is_null(each.type):
            expected = "a typed value in the sink's first batch"
            hint = f"declare the type: sink({sink!r}, schema={{{each.name!r}: ..., ...}})"
            raise InputError(f"sinks.{sink}.{each.name}", found=text(each.type), expected=expected, hint=hint)
    if all(pa.types.is_null(kind) for kind in schema.types):
        found, expected = (
            f"only nulls without a type in {schema.names}",
            "a column with a type in the first batch",
        )
        hint = f"declare the schema: sink({sink!r}, schema={{...}})"
        raise InputError(f"sinks.{sink}", found=found, expected=expected, hint=hint)
