"""Computes event time along a topology: the time columns of each node, and how far they lag behind the watermark.

**Idea.** Each node declares which columns of its output are event times (`taskplace.spark.processors.times`), parents
first. The declaration of a repartition applies in the subtopologies that read it. A node that expires entries gets
the lag of its time column.

Errors: `TopologyError` naming the node: for a window or a de-duplication over a column that is no event time, and for a
node that needs event time behind a node that has lost it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from taskplace.spark.compile.forms import EVENT_TIME_OPTIONS
from taskplace.spark.processors.times import TimeColumn, Times, declared, merged, together
from taskplace.spark.state.expiry import DAY
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.worker.program import Operator, Program
from topology import BuiltTopology, Node, TopologyError


def with_times(
    built: BuiltTopology, programs: Sequence[Program], event_times: Mapping[str, str]
) -> tuple[Program, ...]:
    """Return the programs with the lags of their operators. `event_times`: by source, its event-time column, if any.

    O(nodes + edges).
    """
    timed = list(programs)
    topics: dict[str, Times] = {}
    for number in built.order:
        program, known = timed[number], dict[str, Times]()
        nodes = {node.name: node for node in built.subtopologies[number].nodes}
        operators = []
        for operator in program.operators:
            inputs = [known[parent] for parent in operator.parents]
            node = nodes[operator.name]
            if operator.kind == "source":
                known[operator.name] = _source(operator, topics, event_times)
            elif operator.kind in ("processor", "join"):
                known[operator.name] = _output(node, inputs)
                forgetting = [store for name in operator.stores if (store := program.stores[name]).ttl]
                lag = _lag(node, inputs, forgets=bool(forgetting))
                lag += max(map(_coarser, forgetting), default=0)
                operator = replace(operator, lag=lag, event_time=_declared(node))
            else:
                known[operator.name] = merged(dict(zip(operator.parents, inputs, strict=True)), operator.name)
            if operator.kind == "repartition":
                topics[operator.topic] = known[operator.name]
            operators.append(operator)
        timed[number] = replace(program, operators=tuple(operators))
    return tuple(timed)


def _source(operator: Operator, topics: Mapping[str, Times], event_times: Mapping[str, str]) -> Times:
    if operator.topic in topics:
        return topics[operator.topic]
    column = event_times.get(operator.topic)
    return Times(every=bool(event_times)) if column is None else Times({column: 0})


def _coarser(store: StoreSchema) -> int:
    """Return how far a store's times may be before the times of the rows: a date stands for its whole day."""
    kinds = {field.name: field.type for part in (store.key, store.value) for field in part}
    return DAY - 1 if pa.types.is_date(kinds[store.time]) else 0


def _declared(node: Node) -> str:
    return str(node.options.get("event_time") or getattr(node.processor, "event_time", None) or "")


def _output(node: Node, inputs: Sequence[Times]) -> Times:
    of_processor = getattr(node.processor, "output_times", None)
    if of_processor is not None:
        if given := sorted(set(EVENT_TIME_OPTIONS) & set(node.options)):
            raise TopologyError(
                f"node {node.name!r}: found the option {given[0]}, expected none: {type(node.processor).__name__} "
                "defines the event time of its output; only PerKey and custom processors declare it",
                node=node.name,
            )
        times: Times = of_processor(*inputs)
        if times.known or times.lost is not None:
            return times
        return together(inputs).losing(
            node.name,
            f"whose output has no event time ({type(node.processor).__name__})",
            "put one into its key, add a max_ of one to its aggregates, or declare a column and its delay in a node "
            "behind it: process(f, event_time='at', delay='0 s')",
        )
    return declared(node.processor, node.options, together(inputs), node.name)


def _lag(node: Node, inputs: Sequence[Times], *, forgets: bool) -> int:
    """Return the lag of a node: how far its time column is behind the watermark of its input."""
    asked = getattr(node.processor, "input_time", None)
    column: TimeColumn | None = asked() if asked is not None else None
    read = [inputs[column.input]] if column is not None and column.input < len(inputs) else list(inputs)
    times = together(read)
    if forgets and times.lost is not None:
        raise TopologyError(
            f"node {node.name!r}: uses event time, but its input passes through {times.lost.node!r}, "
            f"{times.lost.why}; {times.lost.remedy}",
            node=node.name,
        )
    if column is None or not column.strict or not forgets:
        return times.largest
    lag = times.lag(column.column)
    if lag is None and times.known:
        remedy = (
            f"an event time of its input, one of {', '.join(sorted(times.lags))}; use that column, or declare "
            f"{column.column!r} as the source's event_time"
            if times.lags
            else "a column of the stream, not of a table that it was joined with; declare the column and its delay "
            "in a node behind the join: process(f, event_time='at', delay='1 day')"
        )
        raise TopologyError(
            f"node {node.name!r}: found the time column {column.column!r}, expected {remedy}", node=node.name
        )
    return lag or 0
