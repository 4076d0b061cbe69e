"""Runs one attempt of one task at one batch: bring the copy to its base, process, seal, commit locally.

The order of the last steps matters. First the attempt writes changelog and boundary into the checkpoint. Then the copy
commits, with an undo record. Last come the staged output and the report (`taskplace.spark.worker.bins`), together with
those of other attempts, and with a sync of the changelog before the report. Boundaries are not synced: only this batch
needs them. An attempt counts only when a manifest names it. An attempt that lost, or whose driver died, leaves sections
and files that no manifest names, and a copy that the next descriptor rolls back.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from taskplace.spark import faults
from taskplace.spark.checkpoint.files import Changes, encode_changes
from taskplace.spark.checkpoint.manifests import history_before
from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import EMPTY, AttemptDescriptor, Boundary, Change, Fence, Recovery, Report
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.store import Store
from taskplace.spark.worker import boundary, identity, schemas
from taskplace.spark.worker.bin_context import BinContext
from taskplace.spark.worker.external import bad_records
from taskplace.spark.worker.guard import guarded, position_of, raising_disk_full


@dataclass(frozen=True)
class Attempted:
    """A finished attempt: its report, and its rows by sink, which are not staged yet."""

    report: Report
    rows: Mapping[str, pa.Table]


def run_attempt(context: BinContext, descriptor: AttemptDescriptor) -> Attempted:
    """Run one attempt. Its report counts once its rows are staged and `context.files` are synced.

    Errors: `Fenced` if the copy has seen a newer driver or batch; `Superseded` if the round was cancelled or the task
    planned again; `CheckpointError` for damaged files; `DiskFull`; the exception of a processor.
    """
    attempt = _Attempt(context, descriptor)
    with raising_disk_full(context.checkpoint, context.state_root):
        if not context.program.stateful:
            return attempt.run(None, Recovery())
        attempt.let_the_driver_decide()
        return attempt.run_on_copy()


class _Attempt:
    """An attempt whose input is read. It runs once more after each time that its copy's map was full."""

    def __init__(self, context: BinContext, descriptor: AttemptDescriptor) -> None:
        self._clock = _Clock()
        self._context, self._descriptor = context, descriptor
        executor_id, self._executor = identity.executor()
        self._instance = f"executor-{executor_id}"
        faults.worker_of(self._executor.pid)
        self._input = context.input(descriptor.task)
        self._clock.lap("read")

    @cached_property
    def _copy(self) -> Path:
        home = identity.home(self._context.state_root, self._context.setting.spark_app)
        return home / str(self._descriptor.task)

    def let_the_driver_decide(self) -> None:
        """Wait a moment before restoring a whole copy on an executor that was not planned for the task.

        When an executor dies, Spark at once restarts its tasks anywhere. The driver will cancel the round and promote
        standbys. Without the wait, an attempt that restores a whole copy could win instead of a standby. If the driver
        does not cancel the round, Spark had another reason to move the task, and the attempt continues.
        Errors: `Superseded` if the driver has cancelled the round.
        """
        planned, history = self._descriptor.instance, self._descriptor.history
        if planned in ("", self._instance) or history.end == EMPTY:
            return
        if position_of(self._copy, self._executor) is not None:
            return
        while time.monotonic() < self._context.waits_until:
            self._context.check_cancelled(self._descriptor.task)
            time.sleep(0.05)

    def run_on_copy(self) -> Attempted:
        """Open the task's copy, bring it to the attempt's base, and run; again on a larger map if the map is full."""
        context, setting, descriptor = self._context, self._context.setting, self._descriptor
        fence = Fence(setting.epoch, setting.batch, setting.generation)
        recovery = Recovery()  # one for all runs, so that work before a full map is counted
        whole = partial(history_before, context.checkpoint, setting.batch, descriptor.task)
        more = whole if descriptor.tail else None
        with (
            guarded(self._copy, self._executor, context.cancellation),
            Copy(self._copy, context.program.databases, fence=fence) as copy,
        ):
            return copy.growing(
                lambda: self.run(copy, copy.bring_to(descriptor.history, context.checkpoint, recovery, more))
            )

    def run(self, copy: Copy | None, recovery: Recovery) -> Attempted:
        """Run the operators from the base, seal their output, and commit the copy; None for a stateless task.

        Errors: `InputError` for rows that do not fit their sink's schema.
        """
        self._clock.lap("position")
        faults.point("attempt.positioned")
        program, setting, task = self._context.program, self._context.setting, self._descriptor.task
        external = {topic: self._input.rows[topic] for topic in program.external}
        lacked, stores = False, dict[str, Store]()
        if copy is not None:
            unlogged = {*program.databases} - program.logged
            lacked = bool(unlogged) and copy.lacks(unlogged)
            late = {**setting.late, **self._descriptor.held}
            for name, schema in program.stores.items():
                stores[name] = Store(schema, copy, late.get(schema.database))
        outputs = program.run(task, setting.batch, self._input.rows, stores, setting.watermarks, setting.keys)
        self._clock.lap("process")
        faults.point("attempt.processed")
        writes = {name: entries for store in stores.values() for name, entries in store.changes().items()}
        attempt = f"{setting.epoch}-{uuid.uuid4().hex}"  # a new id for each run
        rows = self._fitted(outputs.sinks)  # first: it may refuse them, and then nothing was written
        boundaries = self._boundaries(outputs.topics)
        change = self._change(attempt, writes) if writes else None
        self._clock.lap("seal")
        faults.point("attempt.sealed")
        if copy is not None:
            # A copy whose state did not change keeps its position.
            copy.commit(writes, change.position) if change is not None else copy.commit_unchanged()
        self._clock.lap("store")
        faults.point("attempt.stored")
        report = Report(
            task=task,
            attempt=attempt,
            instance=self._instance,
            planned=self._descriptor.instance,
            change=change,
            sinks={},
            boundaries=boundaries,
            rows=sum(rows.num_rows for rows in external.values()),
            recovery=recovery,
            seconds=self._clock.laps,
            staged_as={sink: schemas.columns_of(staged.schema) for sink, staged in rows.items()},
            event_times=program.newest(self._input.rows),
            late=sum(store.late for store in stores.values()),
            expiring=any(store.expiring for store in stores.values()),
            watermarks=outputs.watermarks,
            behind=outputs.behind,
            bad=bad_records(external),
            read=self._input.read,
            brought=self._input.brought,
            fetched=self._input.fetched,
            lacked=lacked,
        )
        return Attempted(report, rows)

    def _fitted(self, sinks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return the rows to stage, for each sink with rows. Errors: also those of the targets' checks."""
        known, checks = self._context.setting.sinks, self._context.program.row_checks
        fitted = {
            sink: schemas.fitted(rows, sink, known.get(sink)) for sink, rows in sinks.items() if rows.num_rows
        }
        for sink, rows in fitted.items():
            if (check := checks.get(sink)) is not None:
                check.check_rows(sink, rows)
        return fitted

    def _boundaries(self, topics: Mapping[str, pa.Table]) -> dict[str, Boundary]:
        """Write the rows for internal topics."""
        task, written = str(self._descriptor.task), {}
        for topic, rows in topics.items():
            to = self._context.program.repartitions[topic]
            seed = zlib.crc32(f"{topic} {task} {self._context.setting.batch}".encode())
            written[topic] = boundary.write(
                self._context.files.boundary(topic),
                rows,
                to.key,
                to.partitions,
                seed=seed,
                topic=topic,
                task=task,
            )
        return written

    def _change(self, attempt: str, writes: Changes) -> Change:
        """Write the records of the stores with a changelog; nothing if there is no record."""
        logged = {name: entries for name, entries in writes.items() if name in self._context.program.logged}
        base, records = self._descriptor.history.end, sum(map(len, logged.values()))
        version, offset = self._context.setting.batch, base.offset + records
        change = Change(version, attempt, base.attempt, offset, records)
        if not records:
            return change
        metadata = {
            "task": str(self._descriptor.task),
            "version": str(version),
            "attempt": attempt,
            "base": base.attempt,
        }
        data = encode_changes(logged, metadata, self._context.setting.compression)
        segment = self._context.files.segment
        start = segment.append(data)
        return replace(change, file=segment.name, size=data.size, checksum=checksum_of(data), start=start)


class _Clock:
    """Times the phases of an attempt."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(self.laps.get(name, 0.0) + now - self._last, 6)
        self._last = now
