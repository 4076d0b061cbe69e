"""A driver without Spark, and a bench for one processor. The code of executors runs in this process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from taskplace.spark.checkpoint.files import Changes, encode_changes, write_file
from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import (
    AttemptDescriptor,
    Boundary,
    Change,
    FollowReport,
    FollowRequest,
    History,
    Report,
    ReportGroup,
    Setting,
)
from taskplace.spark.processors import Aggregate, Count, TableJoin, count, max_
from taskplace.spark.processors.base import Context, call, layouts
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.store import Store, StoreSchema
from taskplace.spark.worker.attempt import run_attempt
from taskplace.spark.worker.bin_context import BinContext
from taskplace.spark.worker.bins import AttemptReports
from taskplace.spark.worker.boundary import InternalRows, write_listing
from taskplace.spark.worker.external import PARTITION, TAG, ExternalRows
from taskplace.spark.worker.follow import follow
from taskplace.spark.worker.hashing import partition_of
from taskplace.spark.worker.program import Operator, Program
from topology import TaskId


class Bench:
    """Runs one processor over several batches on a real copy. Each batch is committed at once."""

    def __init__(self, path: Path, processor: Any) -> None:
        self.path, self.processor = path, processor
        self.schemas = {name: StoreSchema.of(name, layout) for name, layout in layouts(processor).items()}
        self.history = History()

    @property
    def batch(self) -> int:
        return len(self.history.changes)

    def run(self, *inputs: pa.Table) -> pa.Table:
        with Copy(self.path, list(self.schemas)) as copy:
            copy.bring_to(self.history, self.path)
            stores = {name: Store(schema, copy) for name, schema in self.schemas.items()}
            out = call(self.processor, Context("0_0", 0, self.batch, stores), *inputs)
            base = self.history.end
            change = Change(self.batch, f"a{self.batch}", base.attempt, base.offset, 0)
            copy.commit({name: store.writes for name, store in stores.items()}, change.position)
        self.history = History((*self.history.changes, change))
        return out

    def stored(self, name: str) -> list[dict[str, Any]]:
        """Return a store's committed rows, sorted as text."""
        with Copy(self.path, list(self.schemas)) as copy:
            copy.bring_to(self.history, self.path)
            rows = [row for table in Store(self.schemas[name], copy).scan() for row in table.to_pylist()]
        return sorted(rows, key=repr)


def committed(history: History, root: Path, changes: Changes, batch: int) -> History:
    """Write the file of one more change, and return the history with it."""
    records = sum(map(len, changes.values()))
    data = encode_changes(changes, {})
    file = f"changelog/{batch}.arrow"
    write_file(root / file, data, sync=False)
    base = history.end
    end, seal = base.offset + records, checksum_of(data)
    change = Change(batch, f"won-{batch}", base.attempt, end, records, file, data.size, seal)
    return History((*history.changes, change), history.snapshots)


def contents(copy: Copy) -> dict[str, dict[bytes, bytes]]:
    return {store: dict(copy.scan(store)) for store in copy.stores}


class Runtime:
    """A driver without Spark: two subtopologies, two tasks of the first and three of the second.

    flights, planes -> joined -> totals -> sink "out"; joined -> by-delay -> days -> sink "days".
    """

    TASKS = (2, 3)
    FLIGHT = pa.struct([("tailnum", pa.string()), ("delay", pa.int64())])
    PLANE = pa.struct([("tailnum", pa.string()), ("seats", pa.int64())])
    UNITED = pa.schema([(TAG, pa.int32()), (PARTITION, pa.int32()), ("flights", FLIGHT), ("planes", PLANE)])

    def __init__(self, folder: Path, be_executor: Callable[[str], None]) -> None:
        self.checkpoint, self.state = folder / "checkpoint", folder / "state"
        self.be = be_executor
        self.epoch, self.batch = 1, 0
        self.history: dict[TaskId, History] = {}
        self.first, self.second = self._programs()

    @staticmethod
    def _programs() -> tuple[Program, Program]:
        join = TableJoin("planes", by={"tailnum": "string"}, columns={"seats": "int64"})
        totals = Aggregate("totals", by={"tailnum": "string"}, flights=count(), worst=max_("delay", "int64"))
        days = Count("days", by={"delay": "int64"})
        by_delay = {"topic": "by-delay", "key": ("delay",), "partitions": 3}
        repartition = Operator("to", "repartition", ("joined",), **by_delay)

        def stores(*processors: Any) -> dict[str, StoreSchema]:
            declared = {name: layout for p in processors for name, layout in p.layouts().items()}
            return {name: StoreSchema.of(name, layout) for name, layout in declared.items()}

        first = Program(
            0,
            (
                Operator("f", "source", topic="flights"),
                Operator("p", "source", topic="planes"),
                Operator("joined", "join", ("f", "p"), ("planes",), processor=join),
                Operator("totals", "processor", ("joined",), ("totals",), processor=totals),
                Operator("out", "sink", ("totals",)),
                repartition,
            ),
            stores(join, totals),
            external={"flights": 0, "planes": 1},
            repartitions={"by-delay": repartition},
        )
        second = Program(
            1,
            (
                Operator("d", "source", topic="by-delay"),
                Operator("days", "processor", ("d",), ("days",), processor=days),
                Operator("days-out", "sink", ("days",)),
            ),
            stores(days),
            internal=("by-delay",),
        )
        return first, second

    @staticmethod
    def boundaries(program: Program, reports: Sequence[Report]) -> dict[str, list[Boundary]]:
        return {t: [r.boundaries[t] for r in reports if t in r.boundaries] for t in program.internal}

    def setting(self, program: Program, reports: Sequence[Report] = (), **other: Any) -> Setting:
        of_the_stage: dict[str, Any] = {
            "checkpoint": str(self.checkpoint),
            "state_root": str(self.state),
            "spark_app": "app",
            "epoch": self.epoch,
            "batch": self.batch,
            "generation": 1,
            "schema": self.UNITED.serialize().to_pybytes() if program.external else None,
            "compression": "lz4",
            "bytes_per_task": 1 << 20,
        }
        setting = Setting(**(of_the_stage | other))
        if not program.internal:
            return setting
        read = self.boundaries(program, reports)
        file = f"batches/{self.batch:010d}/inputs/{uuid.uuid4().hex}.listing"
        return replace(setting, inputs=write_listing(self.checkpoint, file, read))

    def input(self, partition: int, flights: Sequence[tuple], planes: Sequence[tuple] = ()) -> list[bytes]:
        """Return the rows that Spark would deliver to a partition, in the same form."""
        rows = [{TAG: 0, "flights": dict(zip(self.FLIGHT.names, row, strict=True))} for row in flights]
        rows += [{TAG: 1, "planes": dict(zip(self.PLANE.names, row, strict=True))} for row in planes]
        keys = pa.array([(row.get("flights") or row["planes"])["tailnum"] for row in rows], pa.string())
        at = partition_of([keys], self.TASKS[0])
        mine = [{**r, PARTITION: int(p)} for r, p in zip(rows, at, strict=True) if p == partition]
        half = len(mine) // 2  # two Arrow batches, because Spark may split rows
        parts = [part for part in (mine[:half], mine[half:]) if part]
        batches = (pa.RecordBatch.from_pylist(part, schema=self.UNITED) for part in parts)
        return [batch.serialize().to_pybytes() for batch in batches]

    def attempt(
        self,
        task: TaskId,
        flights: Sequence[tuple] = (),
        planes: Sequence[tuple] = (),
        *,
        executor: str = "1",
        planned: str | None = None,
        reports: Sequence[Report] = (),
        program: Program | None = None,
        **setting: Any,
    ) -> Report:
        """Run one attempt on an executor, from the committed position."""
        self.be(executor)
        subtopology, partition = task
        program = program or (self.first, self.second)[subtopology]
        history = self.history.get(task, History())
        descriptor = AttemptDescriptor(task, planned or f"executor-{executor}", history)
        of_stage = self.setting(program, reports, **setting)
        rows = None
        if program.external:
            rows = ExternalRows(of_stage, subtopology, {partition}, self.input(partition, flights, planes))
        internal = InternalRows(of_stage, program.internal, {partition}) if program.internal else None
        with AttemptReports(of_stage) as reporting:
            read = {"external": rows, "internal": internal}
            context = BinContext(program=program, setting=of_stage, files=reporting.files, **read)
            reporting.add(run_attempt(context, descriptor))
            (report,) = ReportGroup.decode(reporting.report().encode()).reports
        return report

    def commit(self, *reports: Report) -> None:
        """Add the attempts of a batch to the history, and continue with the next batch."""
        for report in reports:
            if report.change is not None:
                old = self.history.get(report.task, History())
                self.history[report.task] = History((*old.changes, report.change), old.snapshots)
        self.batch += 1

    def run_batch(
        self, flights: Sequence[tuple], planes: Sequence[tuple] = (), executor: str = "1"
    ) -> list[Report]:
        """Run and commit a whole batch."""
        first = [self.attempt(TaskId(0, p), flights, planes, executor=executor) for p in range(self.TASKS[0])]
        second = [self.attempt(TaskId(1, p), reports=first, executor=executor) for p in range(self.TASKS[1])]
        self.commit(*first, *second)
        return [*first, *second]

    def follow(self, executor: str = "1", **what: Any) -> FollowReport:
        """Run a follow job on an executor. `what`: `follow` or `snapshot`, the histories of tasks."""
        self.be(executor)
        stores = {p.subtopology: tuple(sorted(p.databases)) for p in (self.first, self.second)}
        roots = str(self.checkpoint), str(self.state)
        return follow(FollowRequest(f"executor-{executor}", *roots, "app", stores, stores, **what))

    def copy(self, task: TaskId, executor: str = "1") -> Path:
        return self.state / f"app.{executor}" / str(task)

    def contents(self, task: TaskId, executor: str = "1") -> dict[str, list[dict[str, Any]]]:
        """Bring a task's copy to the end of the history, and return all its rows."""
        program = (self.first, self.second)[task.subtopology]
        with Copy(self.copy(task, executor), program.databases) as copy:
            copy.bring_to(self.history.get(task, History()), self.checkpoint)
            return {
                name: sorted((row for t in Store(schema, copy).scan() for row in t.to_pylist()), key=repr)
                for name, schema in program.stores.items()
            }

    def files(self, pattern: str = "*") -> list[str]:
        return sorted(
            str(f.relative_to(self.checkpoint)) for f in self.checkpoint.rglob(pattern) if f.is_file()
        )
