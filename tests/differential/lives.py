"""Runs a case in a whole `Placed` without Spark, and compares it with the model, batch by batch.

It compares the rows of every sink with their columns and types, the number of late rows, and, at the end and at some
batches, the state of every store, read from outside. The events between and within batches (`Case.events`, per batch):

- `["kill", point, own]`: the executor that passes the point dies, or another one (not `own`); a new one replaces it
- `["crash", point]`: the driver dies at the point, and another driver runs the batch
- `["restart"]`: another driver takes over before the batch; `["application"]`: the same, with new executors
- `["follow"]`: standbys follow; `["join"]`: an executor comes; `["leave"]`: one is decommissioned
- `["drain"]`: one is drained, or ends if it is said to be removable
- `["backup"]`: the checkpoint is copied; `["restore", with_state]`: another application goes on from the copy, with
  other rows, and with the executors' directories or without. Outputs stay as they are
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskplace.errors import CheckpointError, Fenced, InputError, TaskplaceError
from taskplace.spark.compile import programs
from taskplace.spark.placed import Placed
from taskplace.spark.state import expiry
from tests.differential import build
from tests.differential.case import Batch, Case, Row, canonical, shapes, stateful, store_of
from tests.differential.model import Model, Sent, Task
from tests.differential.routing import MUST, one_task, predicted
from tests.differential.topics import Log
from tests.differential.values import Unfit
from tests.support.placed_without_spark import Died, World
from topology import TaskId, TopologyError

#: With how many pipelines a case is compared at most: some state may be lost, or not.
MOST_MODELS = 64


class Crash(BaseException):
    """The driver crashes here: no error handler must run."""


class Mismatch(AssertionError):
    """A result differs from the expected one. `where`: the place, such as "sink windows"; equal for the same cause."""

    def __init__(self, where: str, batch: int, expected: list[Any], found: list[Any]) -> None:
        self.where = where
        missing, more = _few(_less(expected, found)), _few(_less(found, expected))
        super().__init__(f"{where}, batch {batch}\n  only expected: {missing}\n  only found:    {more}")


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
        most = settings.get("most_records")
        keyed = {name: source for name, source in case.sources.items() if source.key and most is not None}
        self.logs = {name: Log(name, source, most) for name, source in keyed.items()}
        patch.setattr(programs, "topic_rows", lambda part, program, topic: part.sources[topic].rows)
        self.unlogged = {*settings.get("unlogged", ())}
        # What has no changelog cannot be read from outside.
        stores = dict.fromkeys(store_of(node) for node in case.nodes if stateful(node))
        self.stores = [name for name in stores if name not in self.unlogged]
        self.models: list[Model] = []  # what may have happened
        self.number = 0  # of the next batch, as Spark counts
        self.drained = ""
        self.owners: dict[TaskId, str] = {}  # the executors of the tasks after the last batch
        self.backup: tuple[int, list[Model], dict[str, Any]] | None = None
        self._forgotten: frozenset[Task] = frozenset()
        self._forgotten_next: frozenset[Task] = frozenset()
        self._pending: list[list[Any]] = []
        self._lost = False  # in this batch
        self.placed = self._open()

    def _open(self) -> Placed:
        config = {"probing.rebalance.interval.ms": 1, "acceptable.recovery.lag": 0}
        config["num.standby.replicas"] = self.settings["standbys"]
        options = {"snapshot_interval": self.settings["snapshot_interval"], "follower_share": 1.0}
        return self.world.open(build.topology(self.case, self.folder, self.logs), config=config, **options)

    def run(self, compare: bool) -> Told:
        if compare:
            self.models = [Model(one_task(self.case) if predicted(self.case) == MUST else self.case)]
        try:
            for at, batch in enumerate(self.case.batches):
                self._before(self.case.events.get(at, []))
                if not self._batch(batch):
                    return self.told
            self._before([])
            while any(log.backlog for log in self.logs.values()):
                if not self._batch({}):
                    return self.told
            if self._batch({}, last=True):
                self.told.stores = {name: comparable(self._stored(name) or []) for name in self.stores}
        finally:
            self.placed.close()
        return self.told

    # -- what happens

    def _before(self, events: list[list[Any]]) -> None:
        leaving = sorted(self.world.leaving)
        for id in leaving:
            self._lose(id)
        for event, *how in events:
            getattr(self, f"_{event}", lambda *_: None)(*how)
        self._pending = [event for event in events if event[0] in ("kill", "crash")]
        self._lost = bool(events or leaving)

    def _follow(self) -> None:
        self.world.follow(self.placed, 3)

    def _restart(self) -> None:
        self.placed.close()
        self.placed = self._open()
        self.told.totals["restart"] += 1

    def _application(self) -> None:
        self.told.totals["application"] += 1
        self._forget({*self.owners, *self._owned()})
        self.placed.close()
        self.world.restart(self.settings["executors"])
        self.placed = self._open()

    def _join(self) -> None:
        self.told.totals["join"] += 1
        self.world.come()

    def _leave(self) -> None:
        """Decommission an executor; it ends before the next batch."""
        if len(self.world.usable()) > 1:
            self.told.totals["leave"] += 1
            self._forget_those_of(min(self.world.usable()))
            self.world.leave(min(self.world.usable()))

    def _drain(self) -> None:
        """Drain an executor, or end the drained one if that is said to cost nothing."""
        if self.drained in self.world.usable() and self.drained in self._members():
            if self.placed.can_remove(self.drained):
                self.told.totals["emptied"] += 1
                self.world.lose(self.drained)
        elif len(known := sorted(self._members() & self.world.usable())) > 1:
            try:
                self.placed.drain(known[0])
                self.drained = known[0]
                self.told.totals["drain"] += 1
            except InputError:
                if not self.unlogged:
                    raise
                self.told.totals["drain refused"] += 1

    def _members(self) -> set[str]:
        return {name.removeprefix("executor-") for name in self.placed.state.members}

    def _backup(self) -> None:
        positions = {name: log.at for name, log in self.logs.items()}
        self.backup = self.number, [model.fork() for model in self.models], positions
        shutil.rmtree(self.folder / "backup", ignore_errors=True)
        shutil.copytree(self.folder / "checkpoint", self.folder / "backup")

    def _restore(self, with_state: bool) -> None:
        """Go on from the backup, as another application. Executors' copies may be ahead of it, and outputs are."""
        if self.backup is None:
            return
        self.told.totals["restore"] += 1
        self._forget({*self.owners, *self._owned()})
        self.placed.close()
        self.world.restart(self.settings["executors"])
        shutil.rmtree(self.folder / "checkpoint")
        shutil.copytree(self.folder / "backup", self.folder / "checkpoint")
        if not with_state:
            shutil.rmtree(self.folder / "state", ignore_errors=True)
        self.number, models, positions = self.backup
        for name, at in positions.items():
            self.logs[name].at = at
        self.models = [model.fork() for model in models]
        self.placed = self._open()

    def _lose(self, id: str) -> None:
        self._forget_those_of(id)
        self.world.lose(id)

    def _forget_those_of(self, id: str) -> None:
        """Note that an executor is lost. A driver that has just begun has no plan yet."""
        owned = (self.owners, self._owned())
        self._forget({task for owners in owned for task, owner in owners.items() if owner == id})

    def _owned(self) -> dict[TaskId, str]:
        return {task: owner.id for task, owner in self.placed.state.owners().items() if owner}

    def _forget(self, tasks: Iterable[TaskId]) -> None:
        """Note that the active copies of tasks are lost: of state without a changelog nothing need be left."""
        parts = self.placed.built.subtopologies
        stores = {sub.id: frozenset(s.name for s in sub.stores) & self.unlogged for sub in parts}
        lost = {(task.partition, stores[task.subtopology]) for task in tasks}
        self._forgotten |= {(partition, names) for partition, names in lost if names}

    def _batch(self, rows: Batch, *, last: bool = False) -> bool:
        """Run a batch, and compare it. Return whether it was run: it may be one that has to be refused."""
        number, refusal, late = self.number, None, 0
        tables = {n: build.table(s.columns, rows.get(n, [])) for n, s in self.case.sources.items()}
        for name, log in self.logs.items():
            tables[name], taken = log.batch(rows.get(name, []))
            rows = {**rows, name: taken}
        backlogs = {name: log.backlog for name, log in self.logs.items()}
        try:
            late = self._run(number, tables)
        except InputError as error:
            refusal = error
        self.told.totals["batches"] += 1
        self.number += 1
        self.told.totals["late"] += late or 0
        found = self._read(number) if refusal is None else {}
        if not self.models:
            if refusal is not None:
                raise refusal
            return True
        forgotten, self._forgotten, self._forgotten_next = self._forgotten, self._forgotten_next, frozenset()
        if len(self.models) << len(forgotten) > MOST_MODELS:
            self.told.totals["lost too much"] += 1
            return False
        left: list[Model] = []
        error: Exception | None = refusal
        for model in [each for one in self.models for each in one.without(forgotten)]:
            try:
                sent = model.batch(rows, backlogs)
            except Unfit as unfit:
                if refusal is not None:
                    self.told.totals["values refused"] += 1
                    return False
                error = error or Mismatch("values", number, [f"{unfit.args[0]!r} refused"], ["taken"])
                continue
            if refusal is not None and model.unsure:
                self.told.totals["values refused"] += 1
                return False
            if refusal is None:
                try:
                    self._compare(model, sent, number, found, late, last)
                    left.append(model)
                except Mismatch as mismatch:
                    error = error or mismatch
        if not left and error is not None:
            raise error
        self.models = list({repr((model.state, model.away)): model for model in left}.values())
        self.told.totals["rows sent"] += sum(map(len, found.values()))
        return True

    def _run(self, number: int, tables: dict[str, pa.Table]) -> int | None:
        """Run a batch until it has ended. Return the number of late rows; None after a crash."""
        crashed = False
        while True:
            before = self.placed.stats.late
            try:
                self.world.batch(self.placed, number, **tables)
                break
            except Crash:
                crashed = True
            except (CheckpointError, Fenced) as error:
                if not self._way_out(error, number):
                    raise
                crashed = self._lost = True
            self.placed.close()
            self.placed = self._open()
        self._pending, self.owners = [], self._owned() or self.owners
        return None if crashed else self.placed.stats.late - before

    def _way_out(self, error: TaskplaceError, number: int) -> bool:
        """Remove what an error names that lies there from before a backup was restored. Return whether it does."""
        words = [word for word in str(error).split() if word.startswith(f"{self.folder}")]
        named = [Path(word.rstrip(".,:;")) for word in words]
        if not self.told.totals["restore"] or not named:
            return False
        self.told.totals["ways out"] += 1
        for path in named:
            if "state" in path.parts:  # no executor uses it then
                self._forget({*self.owners, *self._owned()})
                self.world.restart(self.settings["executors"])
                shutil.rmtree(path)
            for one in path.parent.glob("batch_id=*"):
                if int(one.name.partition("=")[2]) >= number:
                    shutil.rmtree(one)
        return True

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
            self._lose(victim)
            # Whether its tasks had ended before, nobody knows.
            self._forgotten_next = self._forgotten
            if victim == world.running:
                raise Died(point)
            return

    # -- what came of it

    def _compare(
        self, model: Model, sent: Sent, number: int, found: dict[str, list[Any]], late: int | None, last: bool
    ) -> None:
        for name in self.case.sinks:
            self._same(f"sink {name}", number, comparable(sent.sinks[name]), found[name])
        for name in self.stores if number % 3 == 2 or last else ():
            rows = self._stored(name)
            if rows is not None:
                self._same(f"store {name}", number, comparable(model.store(name)), comparable(rows))
        if late is not None and not last:
            self._same("late rows", number, [sent.late], [late])

    def _same(self, where: str, number: int, expected: list[Any], found: list[Any]) -> None:
        if expected != found:
            raise Mismatch(where, number, expected, found)

    def _read(self, number: int) -> dict[str, list[Any]]:
        found = {}
        for name in self.case.sinks:
            files = (self.folder / "sinks" / name / f"batch_id={number}").glob("*.parquet")
            tables = [pq.ParquetFile(path).read(use_threads=False) for path in files]
            found[name] = comparable([row for one in tables for row in build.plain(one)])
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
