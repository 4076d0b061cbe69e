"""The reports of finished attempts: files beside Spark's result, so that they count although the job ends early.

A report says that the changelog and the staged output of its attempt survive a crash of the host. So these files are
synced first. Several short attempts share one sync, because its price hardly depends on their number. Boundary files
are not synced: only this batch needs them.

Until its report is written, a finished attempt is lost with its worker. Then its copy, which has committed, is rolled
back by the next descriptor, as the copy of any attempt that did not win.
"""

from __future__ import annotations

import time
from pathlib import Path

from taskplace.spark import faults
from taskplace.spark.messages import Report, Setting, report_file, reports_dir, task_of
from taskplace.spark.state.files import Unsynced, write_file
from taskplace.spark.worker.guard import raising_disk_full
from topology import TaskId

#: After so many files, or so long after the reports before, the next attempt to end is reported at once. So only short
#: attempts wait for others, and a loss costs little. The files are open until then.
FILES_LIMIT = 64
SECONDS_LIMIT = 0.25


class AttemptReports:
    """Finished attempts of one bin whose files are synced, and whose reports are written, together.

    Use as a context manager. If an attempt fails or is cancelled, those before it are reported first.
    """

    def __init__(self, setting: Setting) -> None:
        self.files = Unsynced()
        self._setting = setting
        self._reports: list[Report] = []
        self._since = time.monotonic()

    def __enter__(self) -> AttemptReports:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self.files:
            if kind is not None and issubclass(kind, Exception):
                self.report()

    def add(self, report: Report) -> None:
        """Add a finished attempt, whose sealed files are in `files`."""
        self._reports.append(report)

    def due(self) -> bool:
        """Return whether the attempts should be reported now."""
        return len(self.files) >= FILES_LIMIT or time.monotonic() - self._since > SECONDS_LIMIT

    def report(self) -> list[Report]:
        """Sync the files, write the reports, and return them. Errors: `DiskFull`."""
        root = Path(self._setting.checkpoint)
        reports, self._reports = self._reports, []  # what cannot be synced is never reported
        with raising_disk_full(root, Path(self._setting.state_root)):
            self.files.sync()
            for report in reports:
                file = root / report_file(self._setting, report.task, report.attempt)
                staging = file.with_suffix(".tmp")
                write_file(staging, report.encode(), sync=False)
                staging.rename(file)
        self._since = time.monotonic()
        faults.point("attempt.reported")
        return reports


def finished(root: Path, setting: Setting, subtopology: int, tasks: set[TaskId]) -> dict[TaskId, Report]:
    """Return the reports of this run's finished attempts, one per task.

    If two attempts of one task have finished, either may win; the first by name does. Attempts of earlier runs are
    ignored: they may report at any time, and may have had other rows from the subtopologies before.
    """
    reports: dict[TaskId, Report] = {}
    for path in sorted((root / reports_dir(setting.batch, subtopology)).glob(f"*-{setting.run}-*.json")):
        task = task_of(path.name)
        if task in tasks and task not in reports:
            reports[task] = Report.decode(path.read_bytes())
    return reports
