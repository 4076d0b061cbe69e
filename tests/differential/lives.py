"""Runs a case in a whole `Placed` without Spark, and compares it with the model, batch by batch.

It compares the rows of every sink with their columns and types, the number of late rows, and, at the end and at some
batches, the state of every store, read from outside. The events between and within batches (`Case.events`, per batch):

- `["kill", point, own]`: the executor that passes the point dies, or another one (not `own`); a new one replaces it
- `["crash", point]`: the driver dies at the point, and another driver runs the batch
- `["restart"]`: another driver takes over before the batch; `["application"]`: the same, with new executors
- `["follow"]`: standbys follow
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskplace.errors import InputError, TaskplaceError
from taskplace.spark.placed import Placed
from taskplace.spark.state import expiry
from tests.differential import build
from tests.differential.case import Case, Row, canonical, shapes, stateful, store_of
from tests.differential.model import Model
from tests.differential.routing import MUST, one_task, predicted
from tests.support.placed_without_spark import Died, World
from topology import TopologyError


class Crash(BaseException):
    """The driver crashes here: no error handler must run."""


class Mismatch(AssertionError):
    """A result differs from the expected one. `where`: the place, such as "sink windows"; equal for the same cause."""

    def __init__(self, where: str, batch: int, expected: list[Any], found: list[Any]) -> None:
        self.where = where
        super().__init__(
            f"{where}, batch {batch}\n  only expected: {_few(_less(expected, found))}"
            f"\n  only found:    {_few(_less(found, expected))}"
        )


@dataclass
class Told:
    """The events and the results of a run: the rows of each sink by batch, and of each store at the end."""

    totals: Counter[str] = field(default_factory=Counter)
    sinks: dict[str, dict[int, list[Any]]] = field(default_factory=dict)
    stores: dict[str, list[Any]] = field(default_factory=dict)


def comparable(rows: list[Row]) -> list[Any]:
    """Return rows in a canonical order, with columns sorted by name."""
    return sorted((tuple((c, canonical(row[c])) for c in sorted(row)) for row in rows), key=repr)


def live(case: Case, folder: Path, *, model: bool = True) -> Told:
    """Live a case to its end, or until it is refused: `Told.totals` has "refused" then, if the model allows for it.

    Errors: `Mismatch` where it is not what the model says, and whatever else is raised in it.
    """
    life: _Life | None = None
    with pytest.MonkeyPatch.context() as patch:
        try:
            life = _Life(case, folder, patch)
            return life.run(model)
        except (InputError, TopologyError):
            if not predicted(case):
                raise
            # Types behind a repartition are known when rows come.
            return Told(Counter({"refused": 1} if life is None else {"refused": 1, "refused in a batch": 1}))


class _Life:
    def __init__(self, case: Case, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.case, self.folder, self.told = case, folder, Told()
        settings = {"executors": 1, "standbys": 0, "snapshot_interval": 10, "limit": None, **case.settings}
        if settings["limit"]:
            patch.setattr(expiry, "REMOVED_PER_BATCH", settings["limit"])
        self.settings = settings
        self.world = World(folder, patch, executors=settings["executors"])
        self.world.at = self._at
        self.shapes = shapes(case)
        self.stores = list(dict.fromkeys(store_of(node) for node in case.nodes if stateful(node)))
        self._pending: list[list[Any]] = []
        self._lost = False  # in this batch
        self.placed = self._open()

    def _open(self) -> Placed:
        return self.world.open(
            build.topology(self.case, self.folder),
            config={
                "num.standby.replicas": self.settings["standbys"],
                "probing.rebalance.interval.ms": 1,
                "acceptable.recovery.lag": 0,
            },
            snapshot_interval=self.settings["snapshot_interval"],
            follower_share=1.0,
        )

    def run(self, compare: bool) -> Told:
        model = Model(one_task(self.case) if predicted(self.case) == MUST else self.case)
        try:
            for number, batch in enumerate(self.case.batches):
                self._before(self.case.events.get(number, []))
                tables = {
                    name: build.table(source.columns, batch.get(name, []))
                    for name, source in self.case.sources.items()
                }
                late, crashed = self._batch(number, tables)
                self.told.totals["batches"] += 1
                if compare:
                    self._compare(model, number, batch, None if crashed else late)
                else:
                    self._read(number)
            self._end(model if compare else None)
        finally:
            self.placed.close()
        return self.told

    def _end(self, model: Model | None) -> None:
        """Run one more batch, without rows and without losses, and read all stores."""
        number = len(self.case.batches)
        self._before([])
        self._batch(number, {name: build.table(s.columns, []) for name, s in self.case.sources.items()})
        self._lost = False
        if model is not None:
            self._compare(model, number, {}, None)
        else:
            self._read(number)
        self.told.stores = {name: comparable(self._stored(name) or []) for name in self.stores}

    # -- what happens

    def _before(self, events: list[list[Any]]) -> None:
        for event, *_ in events:
            if event == "follow":
                self.world.follow(self.placed, 3)
            elif event in ("restart", "application"):
                self.placed.close()
                if event == "application":
                    self.world.restart(self.settings["executors"])
                self.placed = self._open()
                self.told.totals[event] += 1
        self._pending = [event for event in events if event[0] in ("kill", "crash")]
        self._lost = bool(events)

    def _batch(self, number: int, tables: dict[str, pa.Table]) -> tuple[int, bool]:
        crashed = False
        while True:
            before = self.placed.stats.late
            try:
                self.world.batch(self.placed, number, **tables)
                break
            except Crash:
                crashed = True
                self.placed.close()
                self.placed = self._open()
        self._pending = []
        return self.placed.stats.late - before, crashed

    def _at(self, point: str) -> None:
        world = self.world
        for event in self._pending:
            if event[1] != point or (event[0] == "kill" and world.running is None):
                continue
            self._pending.remove(event)
            self.told.totals[event[0]] += 1
            if event[0] == "crash":
                raise Crash(point)
            others = sorted(world.usable() - {world.running})
            victim = world.running if event[2] or not others else others[0]
            assert victim is not None
            world.come()
            world.lose(victim)
            if victim == world.running:
                raise Died(point)
            return

    # -- what came of it

    def _compare(self, model: Model, number: int, batch: dict[str, list[Row]], late: int | None) -> None:
        sent = model.batch(batch)
        found = self._read(number)
        for name in self.case.sinks:
            self._same(f"sink {name}", number, comparable(sent.sinks[name]), found[name])
        for name in self.stores if number % 3 == 2 or number >= len(self.case.batches) else ():
            rows = self._stored(name)
            if rows is not None:
                self._same(f"store {name}", number, comparable(model.store(name)), comparable(rows))
        if late is not None:
            self._same("late rows", number, [sent.late], [late])
        self.told.totals["rows sent"] += sum(map(len, found.values()))
        self.told.totals["late"] += sent.late

    def _same(self, where: str, number: int, expected: list[Any], found: list[Any]) -> None:
        if expected != found:
            raise Mismatch(where, number, expected, found)

    def _read(self, number: int) -> dict[str, list[Any]]:
        found = {}
        for name in self.case.sinks:
            tables = [
                pq.ParquetFile(path).read(use_threads=False)
                for path in (self.folder / "sinks" / name / f"batch_id={number}").glob("*.parquet")
            ]
            rows = [row for one in tables for row in build.plain(one)]
            found[name] = comparable(rows)
            self.told.sinks.setdefault(name, {})[number] = found[name]
            for one in tables:
                kinds = {c: str(build.arrow(kind)) for c, kind in self.shapes[name].columns.items()}
                there = {field.name: str(field.type) for field in one.schema}
                self._same(f"types of sink {name}", number, sorted(kinds.items()), sorted(there.items()))
        return found

    def _stored(self, name: str) -> list[Row] | None:
        """Return a store's rows; None if they cannot be read now because an executor was lost."""
        try:
            found: Any = self.placed.store(name).to_df()
        except TaskplaceError:
            if not self._lost:
                raise
            return None
        return build.plain(found) if found.num_columns else []


def _less(rows: list[Any], others: list[Any]) -> list[Any]:
    return list((Counter(map(repr, rows)) - Counter(map(repr, others))).elements())


def _few(rows: list[Any]) -> str:
    return "; ".join(map(str, rows[:4])) + (f"; and {len(rows) - 4} more" if len(rows) > 4 else "") or "-"
