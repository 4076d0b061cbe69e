"""Runs one attempt of one task at one batch: bring the copy to its base, process, seal, commit locally.

The order of the last steps matters. First the attempt writes changelog and boundary into the checkpoint
(`taskplace.spark.worker.attempt`). Then the copy commits, with an undo record. Last come the staged output and the
report (`taskplace.spark.worker.bins`), together with those of other attempts, and with a sync before the
report. An attempt counts only when a manifest names it. An attempt that lost, or whose driver died, leaves sections and
files that no manifest names, and a copy that the next descriptor rolls back.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa
from msgspec import structs

from taskplace.spark import faults
from taskplace.spark.checkpoint.files import Changes
from taskplace.spark.checkpoint.manifests import history_before
from taskplace.spark.messages import EMPTY, AttemptDescriptor, Change, Fence, Recovery, Report
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.store import Store
from taskplace.spark.worker import identity
from taskplace.spark.worker.attempt import Sealed, Sealer
from taskplace.spark.worker.bin_context import BinContext
from taskplace.spark.worker.external import bad_records
from taskplace.spark.worker.guard import guarded, raising_disk_full, seen
from taskplace.spark.worker.program import Outputs


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
        if seen(self._copy, self._executor) is not None:
            return
        while self._context.patience.left():
            self._context.check_cancelled(self._descriptor.task)
            time.sleep(0.05)

    def run_on_copy(self) -> Attempted:
        """Open the task's copy, bring it to the attempt's base, and run; again on a larger map if the map is full."""
        context, history = self._context, self._descriptor.history
        fence = Fence(context.setting.epoch, context.setting.batch, context.setting.generation)
        recovery = Recovery()  # one for all runs, so that work before a full map is counted
        with (
            guarded(self._copy, self._executor, context.cancellation),
            Copy(self._copy, context.program.databases, fence=fence) as copy,
        ):
            whole = partial(history_before, context.checkpoint, context.setting.batch, self._descriptor.task)
            more = whole if self._descriptor.tail else None
            return copy.growing(
                lambda: self.run(copy, copy.bring_to(history, context.checkpoint, recovery, more))
            )

    def run(self, copy: Copy | None, recovery: Recovery) -> Attempted:
        """Run the operators from the base, seal their output, and commit the copy; None for a stateless task."""
        self._clock.lap("position")
        faults.point("attempt.positioned")
        unlogged = {*self._context.program.databases} - self._context.program.logged
        lacked = copy is not None and bool(unlogged) and copy.lacks(unlogged)
        stores = self._stores(copy) if copy is not None else {}
        outputs = self._process(stores)
        self._clock.lap("process")
        faults.point("attempt.processed")
        writes = {name: entries for store in stores.values() for name, entries in store.changes().items()}
        attempt = f"{self._context.setting.epoch}-{uuid.uuid4().hex}"  # a new id for each run
        sealed = Sealer(self._context, self._descriptor, attempt).seal(outputs, writes)
        self._clock.lap("seal")
        faults.point("attempt.sealed")
        if copy is not None:
            _commit(copy, writes, sealed.change)
        self._clock.lap("store")
        faults.point("attempt.stored")
        report = self._report(attempt, outputs, sealed, stores=stores, recovery=recovery)
        return Attempted(structs.replace(report, lacked=lacked), sealed.rows)

    def _stores(self, copy: Copy) -> dict[str, Store]:
        late = {**self._context.setting.late, **self._descriptor.held}
        return {
            name: Store(schema, copy, late.get(schema.database))
            for name, schema in self._context.program.stores.items()
        }

    def _process(self, stores: Mapping[str, Store]) -> Outputs:
        setting = self._context.setting
        return self._context.program.run(
            self._descriptor.task, setting.batch, self._input.rows, stores, setting.watermarks, setting.keys
        )

    def _report(
        self,
        attempt: str,
        outputs: Outputs,
        sealed: Sealed,
        *,
        stores: Mapping[str, Store],
        recovery: Recovery,
    ) -> Report:
        program = self._context.program
        return Report(
            task=self._descriptor.task,
            attempt=attempt,
            instance=self._instance,
            planned=self._descriptor.instance,
            change=sealed.change,
            sinks={},
            boundaries=sealed.boundaries,
            rows=sum(self._input.rows[topic].num_rows for topic in program.external),
            recovery=recovery,
            seconds=self._clock.laps,
            staged_as=sealed.staged_as,
            event_times=program.newest(self._input.rows),
            late=sum(store.late for store in stores.values()),
            expiring=any(store.expiring for store in stores.values()),
            watermarks=outputs.watermarks,
            behind=outputs.behind,
            bad=bad_records({topic: self._input.rows[topic] for topic in program.external}),
            read=self._input.read,
            brought=self._input.brought,
            fetched=self._input.fetched,
        )


def _commit(copy: Copy, writes: Changes, change: Change | None) -> None:
    """Commit the attempt in its copy. A copy whose state did not change keeps its position."""
    if change is not None:
        copy.commit(writes, change.position)
    else:
        copy.commit_unchanged()


class _Clock:
    """Times the phases of an attempt."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(self.laps.get(name, 0.0) + now - self._last, 6)
        self._last = now
