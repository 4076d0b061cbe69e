"""Shrinks a failing case while it fails in the same way: fewer batches, sinks, nodes, rows and events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.differential.case import Batch, Case


def shrunk(case: Case, fails: Callable[[Case], bool], seconds: float) -> Case:
    """Return the smallest case that still fails. Tries one step after the other until none works."""
    deadline = time.monotonic() + seconds
    going = True
    while going:
        going = False
        for step in (_events, _settings, _batches, _sinks, _nodes, _rows, _partitions, _aggregates):
            found = True
            while found:
                found = False
                for smaller in step(case):
                    if time.monotonic() > deadline:
                        return case
                    if fails(smaller):
                        case, found, going = smaller, True, True
                        break
    return case


def _events(case: Case) -> Iterator[Case]:
    if case.events:
        yield replace(case, events={})
    for number, events in case.events.items():
        for i in range(len(events)):
            fewer = {**case.events, number: events[:i] + events[i + 1 :]}
            yield replace(case, events={n: left for n, left in fewer.items() if left})


def _settings(case: Case) -> Iterator[Case]:
    for name in case.settings:
        yield replace(case, settings={n: v for n, v in case.settings.items() if n != name})


def _batches(case: Case) -> Iterator[Case]:
    for size in (8, 4, 2, 1):
        for start in range(0, len(case.batches) - size + 1):
            left = case.batches[:start] + case.batches[start + size :]
            kept = {n: e for n, e in case.events.items() if not start <= n < start + size}
            events = {n - size * (n >= start + size): e for n, e in kept.items()}
            if left:
                yield replace(case, batches=left, events=events)


def _sinks(case: Case) -> Iterator[Case]:
    if len(case.sinks) > 1:
        for sink in case.sinks:
            yield replace(case, sinks=[name for name in case.sinks if name != sink])


def _nodes(case: Case) -> Iterator[Case]:
    """Leave out nodes whose output is unused, and nodes that the others do not need."""
    read = {name for node in case.nodes for name in node.inputs}
    for node in case.nodes:
        others = [other for other in case.nodes if other is not node]
        if node.name not in read and node.name not in case.sinks:
            yield replace(case, nodes=others)
        if node.op in ("where", "rename", "merge", "deduplicate", "join", "repartition"):
            instead = {node.name: node.inputs[0]}
            moved = [replace(n, inputs=[instead.get(i, i) for i in n.inputs]) for n in others]
            sinks = list(dict.fromkeys(instead.get(name, name) for name in case.sinks))
            yield replace(case, nodes=moved, sinks=sinks)
    for name in case.sources:
        if name not in read and name not in case.sinks and len(case.sources) > 1:
            batches = [{n: rows for n, rows in batch.items() if n != name} for batch in case.batches]
            sources = {n: s for n, s in case.sources.items() if n != name}
            yield replace(case, sources=sources, batches=batches)


def _rows(case: Case) -> Iterator[Case]:
    for size in (16, 4, 1):
        for number, batch in enumerate(case.batches):
            for topic, rows in batch.items():
                for start in range(0, len(rows), size):
                    fewer: Batch = {**batch, topic: rows[:start] + rows[start + size :]}
                    yield replace(case, batches=[*case.batches[:number], fewer, *case.batches[number + 1 :]])


def _partitions(case: Case) -> Iterator[Case]:
    if any(source.partitions > 1 for source in case.sources.values()):
        yield replace(case, sources={n: replace(s, partitions=1) for n, s in case.sources.items()})
    for i, node in enumerate(case.nodes):
        if node.options.get("partitions", 1) > 1:
            one = replace(node, options={**node.options, "partitions": 1})
            yield replace(case, nodes=[*case.nodes[:i], one, *case.nodes[i + 1 :]])


def _aggregates(case: Case) -> Iterator[Case]:
    for i, node in enumerate(case.nodes):
        aggregates = node.options.get("aggregates", {})
        for name in aggregates if len(aggregates) > 1 else ():
            left = {n: a for n, a in aggregates.items() if n != name}
            fewer = replace(node, options={**node.options, "aggregates": left})
            yield replace(case, nodes=[*case.nodes[:i], fewer, *case.nodes[i + 1 :]])
