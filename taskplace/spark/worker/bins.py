"""Runs the tasks of one bin, one after the other, in one Spark task, and reports them in groups.

Each task of a bin is an attempt of its own. Short attempts are reported together, as a group, which ends with the first
attempt that ends a quarter of a second or more after the reports before. The group's rows for a sink are staged in one
file. A report says that the changes and the staged output of its attempt survive a crash of the host, so these are
synced first, all at once. Then one file has the reports of the group: they count together or not at all, because a part
of the rows in a staged file cannot count. Boundary files are not synced: only this batch needs them.

The reports are files beside Spark's result, so that they count although the job ends early:

- Spark may run a bin again, for example after a worker died. The new bin takes over the groups of the same run of the
  stage, and runs only the other tasks.
- The driver may cancel a round. A bin looks for the mark of that before each of its tasks. If there is one, the bin
  ends as if it had run them all: the driver reads the reports in their files. An error would make Spark end the
  workers of the other bins, and new workers take seconds to start.
- Until its report is written, a finished attempt is lost with its worker. Then its copy, which has committed, is rolled
  back by the next descriptor, as the copy of any attempt that did not win.

Memory: the input of the bin (`taskplace.spark.worker.external` and `boundary`), and what one task needs.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from taskplace.spark import faults
from taskplace.spark.checkpoint.files import Unsynced, file_name, write_file
from taskplace.spark.codec import checksum_of, read_file
from taskplace.spark.messages import (
    BinDescriptor,
    ReportGroup,
    Setting,
    StagedFile,
    batch_dir,
    report_file,
    reports_dir,
)
from taskplace.spark.state.catching_up import Superseded
from taskplace.spark.worker import identity, schemas
from taskplace.spark.worker.attempt import Attempted, run_attempt
from taskplace.spark.worker.bin_context import BinContext, BinFiles, cancellation_of
from taskplace.spark.worker.boundary import InternalRows
from taskplace.spark.worker.external import ExternalRows
from taskplace.spark.worker.guard import raising_disk_full
from taskplace.spark.worker.program import Program
from topology import TaskId

log = logging.getLogger(__name__)

#: After so many bytes of rows for sinks, or so long after the reports before, the attempts that have ended are reported
#: when the next one ends. The rows are in memory until then.
BYTES_LIMIT = 16 << 20
SECONDS_LIMIT = 0.25


class AttemptReports:
    """Finished attempts of one bin that are sealed and reported together. `files`: what the attempts write to.

    Use as a context manager. If an attempt fails or is cancelled, those before it are reported first.
    """

    def __init__(self, setting: Setting) -> None:
        self.files = BinFiles(setting)
        self._setting = setting
        self._attempts: list[Attempted] = []
        self._bytes = 0
        self._since = time.monotonic()

    def __enter__(self) -> AttemptReports:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, Exception) and self.pending:
            try:
                self.report()
            except Exception:  # the error of the attempt is the one to show
                log.warning("attempts that had finished are not reported, and run again", exc_info=True)

    def add(self, attempted: Attempted) -> None:
        """Add a finished attempt."""
        self._attempts.append(attempted)
        self._bytes += sum(rows.get_total_buffer_size() for rows in attempted.rows.values())

    @property
    def pending(self) -> bool:
        """Whether there are attempts to report."""
        return bool(self._attempts)

    def due(self) -> bool:
        """Return whether the attempts should be reported now."""
        return self._bytes >= BYTES_LIMIT or time.monotonic() - self._since > SECONDS_LIMIT

    def report(self) -> ReportGroup:
        """Stage the rows of the pending attempts, sync what they wrote, write their reports, and return them.

        Errors: `DiskFull`; `InputError` for rows that Parquet cannot store. Then the attempts do not count.
        """
        root = self.files.checkpoint
        attempts, self._attempts = self._attempts, []  # what cannot be synced is never reported
        self._bytes = 0
        with raising_disk_full(root, Path(self._setting.state_root)), Unsynced() as unsynced:
            group = self._staged(attempts, unsynced)
            unsynced.sync(self.files.to_sync())
            self.files.flush()
            file = root / report_file(self._setting, group)
            staging = file.with_suffix(".tmp")
            write_file(staging, group.encode(), sync=False)
            staging.rename(file)
        self._since = time.monotonic()
        faults.point("attempt.reported")
        return group

    def _staged(self, attempts: Sequence[Attempted], unsynced: Unsynced) -> ReportGroup:
        """Write the rows of all attempts, a file for each sink and schema; return the reports with these files."""
        tables: dict[tuple[str, pa.Schema], list[pa.Table]] = {}
        for attempted in attempts:
            for sink, rows in attempted.rows.items():
                tables.setdefault((sink, rows.schema), []).append(rows)
        staged = {
            key: self._staged_file(key[0], pa.concat_tables(of), unsynced) for key, of in tables.items()
        }
        reports = []
        for attempted in attempts:
            sinks = {sink: staged[sink, rows.schema] for sink, rows in attempted.rows.items()}
            reports.append(replace(attempted.report, sinks=sinks))
        return ReportGroup(tuple(reports))

    def _staged_file(self, sink: str, rows: pa.Table, unsynced: Unsynced) -> StagedFile:
        data = schemas.parquet(rows, sink)
        name = f"{batch_dir(self._setting.batch)}/sinks/{file_name(sink)}/{uuid.uuid4().hex}.parquet"
        # A sink may link the file, and its readers may be other users; the directory of the batch is private.
        unsynced.write(self.files.checkpoint / name, data, mode=0o666)
        return StagedFile(name, rows.num_rows, data.size, checksum_of(data))


def finished(root: Path, setting: Setting, subtopology: int, tasks: frozenset[TaskId]) -> list[ReportGroup]:
    """Return the groups of this run's finished attempts that are all of `tasks`; no task is in two of them.

    If attempts of one task have finished in two groups, either group may win; the first by name does. Attempts of
    earlier runs are ignored: they may report at any time, and may have had other rows from the subtopologies before.
    """
    groups: list[ReportGroup] = []
    free, prefix = set(tasks), f"{setting.run}-"
    for path in sorted((root / reports_dir(setting.batch, subtopology)).glob(f"{prefix}*.json")):
        if TaskId.parse(path.name.removeprefix(prefix).partition("-")[0]) not in free:
            continue  # its first task is of another bin, or is taken
        group = ReportGroup.decode(read_file(path))
        if group.tasks <= free:
            groups.append(group)
            free -= group.tasks
    return groups


def run_stage(program: Program, encoded: bytes, elements: Iterable[Any]) -> Iterator[bytes]:
    """Run the bins of one Spark partition and yield the reports of their tasks, in groups, encoded.

    - `encoded`: the setting of the stage
    - `elements`: bins with their Arrow batches, or only the bins if the stage has no external input
    """
    identity.begin()
    setting = Setting.decode(encoded)
    for element in elements:
        bin_, batches = (element, ()) if setting.schema is None else element
        del element  # the rows are held once
        for group in run_bin(program, setting, BinDescriptor.decode(bytes(bin_)), batches):
            yield group.encode()


def run_bin(
    program: Program, setting: Setting, bin_: BinDescriptor, batches: Iterable[bytes]
) -> Iterator[ReportGroup]:
    """Run the tasks of a bin in order, and yield their reports; only those of finished tasks if the round is cancelled.

    Errors: as `run_attempt`; `TaskplaceError` for rows of other tasks.
    """
    if cancellation_of(setting, program).exists():
        deque(batches, maxlen=0)  # Spark does not use a worker again that has left rows unread
        return
    tasks = frozenset(descriptor.task for descriptor in bin_.descriptors)
    external = None
    if program.external:
        partitions = {task.partition for task in tasks}
        external = ExternalRows(setting, program.subtopology, partitions, batches, skipped=bin_.skipped)
    del batches
    taken_over = finished(Path(setting.checkpoint), setting, program.subtopology, tasks)
    yield from taken_over
    done = {task for group in taken_over for task in group.tasks}
    left = [descriptor for descriptor in bin_.descriptors if descriptor.task not in done]
    unfinished = {descriptor.task.partition for descriptor in left}
    internal = InternalRows(setting, program.internal, unfinished) if program.internal else None
    with AttemptReports(setting) as reporting:
        context = BinContext(
            program=program, setting=setting, files=reporting.files, external=external, internal=internal
        )
        for number, descriptor in enumerate(left):
            if context.cancelled():
                break
            try:
                reporting.add(run_attempt(context, descriptor))
            except Superseded:
                if context.cancelled():
                    break
                raise
            if not number:
                context.check_size()
            if reporting.due():
                yield reporting.report()
        if reporting.pending:
            yield reporting.report()
