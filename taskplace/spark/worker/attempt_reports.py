"""The reports of finished attempts: files beside Spark's result, so that they count although the job ends early.

Short attempts are reported together, as a group. A group ends with the first attempt that ends a quarter of a second or
more after the reports before. The group's rows for a sink are staged in one file. A report says that the changes and
the staged output of its attempt survive a crash of the host, so these are synced first, all at once. Then one file has
the reports of the group: they count together or not at all, because a part of the rows in a staged file cannot count.
Boundary files are not synced: only this batch needs them.

Until its report is written, a finished attempt is lost with its worker. Then its copy, which has committed, is rolled
back by the next descriptor, as the copy of any attempt that did not win.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from taskplace.spark import faults
from taskplace.spark.checkpoint.files import Unsynced, file_name, write_file
from taskplace.spark.codec import checksum_of, read_file
from taskplace.spark.messages import ReportGroup, Setting, StagedFile, batch_dir, report_file, reports_dir
from taskplace.spark.worker import schemas
from taskplace.spark.worker.attempt import Attempted
from taskplace.spark.worker.bin_context import BinFiles
from taskplace.spark.worker.guard import raising_disk_full
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
            (sink, schema): self._staged_file(sink, pa.concat_tables(parts), unsynced)
            for (sink, schema), parts in tables.items()
        }
        return ReportGroup(
            tuple(
                replace(
                    attempted.report,
                    sinks={sink: staged[sink, rows.schema] for sink, rows in attempted.rows.items()},
                )
                for attempted in attempts
            )
        )

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
