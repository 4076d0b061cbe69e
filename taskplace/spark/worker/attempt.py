"""Runs one attempt of one task at one batch: bring the copy to its base, process, seal, commit locally.

The order of the last steps matters. First the attempt writes changelog, boundary and staged output into the checkpoint.
Then the copy commits, with an undo record. Last comes the report (`taskplace.spark.worker.attempt_reports`), once the
changelog and the staged output are synced. An attempt counts only when a manifest names it. An attempt that lost, or
whose driver died, leaves files that no manifest names, and a copy that the next descriptor rolls back.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from taskplace.spark import faults
from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import (
    EMPTY,
    AttemptDescriptor,
    Boundary,
    Change,
    Fence,
    Position,
    Recovery,
    Report,
    Setting,
    StagedFile,
    batch_dir,
    cancellation_mark,
    change_file,
)
from taskplace.spark.state.copy import Copy, Superseded
from taskplace.spark.state.files import Changes, Unsynced, encode_changes, file_name
from taskplace.spark.state.store import Store
from taskplace.spark.worker import boundary, identity, schemas
from taskplace.spark.worker.external import ExternalRows, by_topic, check_size
from taskplace.spark.worker.guard import guarded, raising_disk_full, seen
from taskplace.spark.worker.internal import InternalRows
from taskplace.spark.worker.program import Outputs, Program
from topology import TaskId

#: How long an attempt on an unplanned executor without a copy waits for the driver to cancel the round.
ELSEWHERE_SECONDS = 1.5


class Patience:
    """How long the attempts of one bin still wait, all together, for the driver to cancel their round."""

    def __init__(self) -> None:
        self._deadline: float | None = None

    def left(self) -> bool:
        """Return whether an attempt may wait longer. The first call starts the clock."""
        if self._deadline is None:
            self._deadline = time.monotonic() + ELSEWHERE_SECONDS
        return time.monotonic() < self._deadline


def run_attempt(
    program: Program,
    setting: Setting,
    descriptor: AttemptDescriptor,
    files: Unsynced,
    external: ExternalRows | None = None,
    internal: InternalRows | None = None,
    patience: Patience | None = None,
) -> Report:
    """Run one attempt and return its report, which counts once `files` are synced.

    - `files`: gets the sealed files, which are not synced yet
    - `external`, `internal`: the rows of external and of internal topics; None if the subtopology reads none
    - `patience`: shared by the attempts of one bin

    Errors: `Fenced` if the copy has seen a newer driver or batch; `Superseded` if the round was cancelled or the task
    planned again; `CheckpointError` for damaged files; `DiskFull`; the exception of a processor.
    """
    clock = _Clock()
    subtopology, partition = descriptor.task
    root = Path(setting.checkpoint)
    executor_id, jvm = identity.executor()
    instance = f"executor-{executor_id}"
    faults.worker_of(jvm.pid)
    inputs = _inputs(program, setting, partition, external, internal)
    late = {**setting.late, **descriptor.held}
    rows_in = sum(inputs[topic].num_rows for topic in program.external)
    clock.lap("read")

    def process(copy: Copy | None, recovery: Recovery) -> Report:
        clock.lap("position")
        faults.point("attempt.positioned")
        attempt = f"{setting.epoch}-{uuid.uuid4().hex}"  # a new id also for a second run after a full map
        stores = (
            {name: Store(schema, copy, late.get(schema.database)) for name, schema in program.stores.items()}
            if copy is not None
            else {}
        )
        outputs = program.run(
            descriptor.task, setting.batch, inputs, stores, setting.watermarks, setting.keys
        )
        clock.lap("process")
        faults.point("attempt.processed")
        outputs = replace(outputs, sinks=_fitted(setting, outputs.sinks))
        boundaries, sinks = _sealed_outputs(program, setting, files, descriptor.task, attempt, outputs)
        change = None
        writes: Changes = {}
        for store in stores.values():
            writes |= store.changes()
        if writes:
            logged = {name: entries for name, entries in writes.items() if name in program.logged}
            change = _sealed_change(setting, files, descriptor, attempt, logged)
        clock.lap("seal")
        faults.point("attempt.sealed")
        if copy is not None:
            if change is not None:
                copy.commit(writes, change.position)
            else:
                copy.commit_unchanged()
        clock.lap("store")
        faults.point("attempt.stored")
        return Report(
            task=descriptor.task,
            attempt=attempt,
            instance=instance,
            planned=descriptor.instance,
            change=change,
            sinks=sinks,
            boundaries=boundaries,
            rows=rows_in,
            recovery=recovery,
            seconds=clock.laps,
            staged_as={sink: schemas.columns_of(rows.schema) for sink, rows in outputs.sinks.items()},
            event_times=program.newest(inputs),
            late=sum(store.late for store in stores.values()),
            expiring=any(store.expiring for store in stores.values()),
            watermarks=outputs.watermarks,
            behind=outputs.behind,
        )

    with raising_disk_full(root, Path(setting.state_root)):
        if program.stateful:
            _let_the_driver_decide(setting, subtopology, descriptor, instance, patience or Patience())
            path = identity.home(Path(setting.state_root), setting.spark_app) / str(descriptor.task)
            fence = Fence(setting.epoch, setting.batch, setting.generation)
            with (
                guarded(path, identity.executor()[1], root / cancellation_mark(setting, subtopology)),
                Copy(path, program.databases, fence=fence) as copy,
            ):
                recovery = Recovery()  # one for all runs, so that work before a full map is counted
                return copy.growing(lambda: process(copy, copy.bring_to(descriptor.history, root, recovery)))
        return process(None, Recovery())


def _let_the_driver_decide(
    setting: Setting, subtopology: int, descriptor: AttemptDescriptor, instance: str, patience: Patience
) -> None:
    """Wait a moment before restoring a whole copy on an executor that was not planned for the task.

    When an executor dies, Spark at once restarts its tasks anywhere. The driver will cancel the round and promote
    standbys. Without the wait, an attempt that restores a whole copy could win instead of a standby. If the driver
    does not cancel the round, Spark had another reason to move the task, and the attempt continues.
    Errors: `Superseded` if the driver has cancelled the round.
    """
    if descriptor.instance in ("", instance) or descriptor.history.end == EMPTY:
        return
    home = identity.home(Path(setting.state_root), setting.spark_app)
    if seen(home / str(descriptor.task), identity.executor()[1]) is not None:
        return
    mark = Path(setting.checkpoint) / cancellation_mark(setting, subtopology)
    while patience.left():
        if mark.exists():
            raise Superseded(
                f"{descriptor.task}: round {setting.round} of batch {setting.batch} was cancelled"
            )
        time.sleep(0.05)


class _Clock:
    """Times the phases of an attempt."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(self.laps.get(name, 0.0) + now - self._last, 6)
        self._last = now


def _inputs(
    program: Program,
    setting: Setting,
    partition: int,
    external: ExternalRows | None,
    internal: InternalRows | None,
) -> dict[str, pa.Table]:
    inputs = internal.of(partition) if internal is not None else {}
    if external is not None:
        rows = external.of(partition)
        check_size(rows, f"{program.subtopology}_{partition}", setting.bytes_per_task)
        inputs |= by_topic(rows, program.external)
    program.check_keys(inputs)
    return inputs


def _fitted(setting: Setting, sinks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the rows to stage, for each sink with rows. Errors: `InputError` for rows that do not fit the schema."""
    return {
        sink: schemas.fitted(rows, sink, setting.sinks.get(sink))
        for sink, rows in sinks.items()
        if rows.num_rows
    }


def _sealed_outputs(
    program: Program, setting: Setting, files: Unsynced, task: TaskId, attempt: str, outputs: Outputs
) -> tuple[dict[str, Boundary], dict[str, StagedFile]]:
    root, folder = Path(setting.checkpoint), batch_dir(setting.batch)
    boundaries = {}
    for topic, rows in outputs.topics.items():
        to = program.repartitions[topic]
        file = f"{folder}/topics/{file_name(topic)}/{task}-{attempt}.arrow"
        seed = zlib.crc32(f"{topic} {task} {setting.batch}".encode())
        boundaries[topic] = boundary.write(root, file, rows, to.key, to.partitions, seed, topic)
    sinks = {}
    for sink, rows in outputs.sinks.items():
        data = schemas.parquet(rows, sink)
        file = f"{folder}/sinks/{file_name(sink)}/{task}-{attempt}.parquet"
        files.write(root / file, data, mode=0o666)  # a sink may link it; its directory is private
        sinks[sink] = StagedFile(file, rows.num_rows, data.size, checksum_of(data))
    return boundaries, sinks


def _sealed_change(
    setting: Setting, files: Unsynced, descriptor: AttemptDescriptor, attempt: str, logged: Changes
) -> Change:
    base = descriptor.history.end
    records = sum(map(len, logged.values()))
    to = Position(setting.batch, attempt, base.offset + records)
    if not records:
        return Change(to.version, attempt, base.attempt, to.offset, 0)
    metadata = {
        "task": str(descriptor.task),
        "version": str(setting.batch),
        "attempt": attempt,
        "base": base.attempt,
    }
    data = encode_changes(logged, metadata, setting.compression)
    file = change_file(descriptor.task, setting.batch, attempt)
    files.write(Path(setting.checkpoint) / file, data)
    return Change(to.version, attempt, base.attempt, to.offset, records, file, data.size, checksum_of(data))
