"""Compares a case with itself: with other numbers of partitions, other cuts between batches, and limits on removal.

- Partitions: every batch of every sink and every store is the same. (Results that depend on the order of rows after a
  repartition may differ; `generate.Wanted.orderless` leaves such steps out.)
- Batches: the total output is the same, if no row is late and no step depends on the cuts (see `Shape.moved`), after a
  row far in the future has closed all windows.
- Backlogs: the same for tasks that read topics whose partitions have more rows than a batch takes.
- Limits: the total output is the same after enough further batches. If executors and drivers die, each batch is the
  same.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

from tests.differential.case import Batch, Case, Row, shapes, stateful, time_of
from tests.differential.lives import Mismatch, Told, comparable, live
from tests.differential.routing import with_partitions

DAY = 86_400_000_000


def compare_cuts(case: Case, folder: Path) -> Told:
    """Run a case in six forms. Errors: `Mismatch`, and any error of the runs."""
    draw = Random(len(case.nodes) + 100 * len(case.batches))
    events = case.events
    case = replace(case, events={}, batches=case.batches + ended(case))
    told = live(case, folder / "as it is")
    # Topics with equal counts still have equal counts.
    others = {n: draw.choice([m for m in range(1, 6) if m != n]) for n in range(1, 6)}
    other = live(with_partitions(case, others.__getitem__), folder / "partitions", model=False)
    for sink, batches in told.sinks.items():
        for number, rows in batches.items():
            _same(f"sink {sink} with other partitions", number, rows, other.sinks[sink][number])
    for store, rows in told.stores.items():
        _same(f"store {store} with other partitions", len(case.batches), rows, other.stores[store])
    cut = live(replace(case, batches=cut_anew(case, draw)), folder / "cut", model=False)
    _same_in_sum(case, told, cut, "cut anew")
    behind = replace(case, settings={**case.settings, "most_records": draw.choice([2, 5])})
    caught_up = live(behind, folder / "behind", model=False)
    if not caught_up.totals["refused"]:
        _same("late rows of a backlog", len(case.batches), [0], [caught_up.totals["late"]])
        _same_in_sum(case, told, caught_up, "with a backlog")
    stores = sum(bool(node.options.get("window") or node.options.get("ttl")) for node in case.nodes)
    entries = 2 + stores * sum(len(rows) for batch in case.batches for rows in batch.values())
    limit = max(2, entries // 25)  # so that about 25 batches are enough
    settings = {**case.settings, "limit": limit}
    limited = replace(case, batches=case.batches + [{}] * (3 + entries // limit), settings=settings)
    held = live(limited, folder / "limited", model=False)
    _same_in_sum(case, told, held, "with a limit")
    dying = live(replace(limited, events=events), folder / "limited and dying", model=False)
    for sink, batches in held.sinks.items():
        for number, rows in batches.items():
            _same(f"sink {sink} with losses", number, rows, dying.sinks[sink][number])
    return Told(told.totals + other.totals + cut.totals + caught_up.totals + dying.totals)


def _same(where: str, number: int, expected: list[Any], found: list[Any]) -> None:
    if expected != found:
        raise Mismatch(where, number, expected, found)


def _same_in_sum(case: Case, told: Told, other: Told, how: str) -> None:
    shape = shapes(case)
    for sink in case.sinks:
        if not shape[sink].moved:
            sums = [[row for rows in one.sinks[sink].values() for row in rows] for one in (told, other)]
            _same(f"sink {sink} {how}", len(case.batches), *(sorted(rows, key=repr) for rows in sums))
    for node in case.nodes:
        if not stateful(node) or any(shape[name].moved for name in node.inputs):
            continue
        functions = {function for function, _, _ in node.options.get("aggregates", {}).values()}
        if functions & {"first", "last"} and shape[node.inputs[0]].mixed:
            continue
        if node.op in ("deduplicate", "aggregate") and not node.options.get("ttl"):
            rows = [
                comparable([{c: v for c, v in row if c != "seen_in_batch"} for row in one.stores[node.name]])
                for one in (told, other)
            ]
            _same(f"store {node.name} {how}", len(case.batches), *rows)


def ended(case: Case) -> list[Batch]:
    """Return batches that close all windows: one with a row far in the future for each source, and one without rows."""
    last: dict[str, Row] = {}
    for batch in case.batches:
        last |= {name: rows[-1] for name, rows in batch.items() if rows}
    times = {name: time_of(source) for name, source in case.sources.items()}
    dates = {n for n, c in times.items() if c is not None and case.sources[n].columns[c] == "date"}
    timed = {n: row[times[n]] for n, row in last.items() if times[n] is not None and n not in dates}
    newest = max(timed.values(), default=0)
    found: Batch = {}
    for name, row in last.items():
        later = {"i": 1_000_000}
        if name in dates:
            later[times[name]] = max(row[times[name]], newest // DAY) + 11
        elif times[name] is not None:
            later[times[name]] = newest + 10 * DAY
        found[name] = [{**row, **later}]
    return [found, {}]


def cut_anew(case: Case, draw: Random) -> list[Batch]:
    """Return the rows with other cuts: batches are merged, and split at a time, or in the middle without times."""
    times = {n: time_of(s) for n, s in case.sources.items()}
    times = {n: c for n, c in times.items() if c is not None and case.sources[n].columns[c] != "date"}
    found: list[Batch] = []
    *before, last, empty = case.batches
    for batch in before:
        there = sorted({row[times[name]] for name, rows in batch.items() if name in times for row in rows})
        at = draw.choice(there) if there else None
        if draw.random() < 0.5:
            found.append(batch)
            continue
        parts: list[Batch] = [{}, {}]
        for name, rows in batch.items():
            for i, row in enumerate(rows):
                later = 2 * i >= len(rows) if at is None or name not in times else row[times[name]] >= at
                parts[later].setdefault(name, []).append(row)
        found += parts
    merged: list[Batch] = []
    for _, group in groupby(found, key=lambda _: draw.random() < 0.4):
        one: Batch = {}
        for batch in group:
            for name, rows in batch.items():
                one[name] = one.get(name, []) + rows
        merged.append(one)
    return [*merged, last, empty]
