"""Runs the job of one subtopology: sends descriptors, collects reports, and continues after the loss of an executor.

The tasks run in bins (`taskplace.spark.driver.bins`), one Spark task per bin. A stage ends when every task has a
report. If an executor that a missing task was pinned to is lost, the round is cancelled: its bins end after the task
that they are at, and the reports of finished attempts are read from their files. Then the caller plans again, and a new
job runs only the missing tasks, pinned to their new executors. A report has the id of its run of the stage; reports of
other runs are ignored.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from taskplace.errors import TaskplaceError
from taskplace.spark.checkpoint.files import private_directory
from taskplace.spark.cluster import ArrowInput, Cluster, Executor, JobLostError
from taskplace.spark.driver import bins
from taskplace.spark.driver.bins import Bin, Estimates
from taskplace.spark.instances import instance_name
from taskplace.spark.messages import (
    AttemptDescriptor,
    BinDescriptor,
    Boundary,
    History,
    Report,
    ReportGroup,
    Setting,
    cancellation_mark,
    inputs_file,
)
from taskplace.spark.worker.bins import finished, run_stage
from taskplace.spark.worker.boundary import write_listing
from taskplace.spark.worker.guard import raising_disk_full
from taskplace.spark.worker.program import Program
from topology import TaskId

log = logging.getLogger(__name__)

MAX_LOSSES = 10
#: How many changes of its history a task gets if its copy is at the end. A copy one batch off needs more than the last.
TAIL = 2


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One subtopology of a batch, with all that its attempts need.

    - `boundaries`: by internal topic that the stage reads; sent in a file, because there may be many
    - `arrow`: the rows of external topics; None for a stage that reads only internal topics
    - `tasks`: all tasks of the subtopology, sorted by partition
    - `idle`: the tasks that do not run
    - `expected`: what is expected of its tasks
    - `held`: returns the watermarks of a task's stores in the previous batch that differ from `setting`
    """

    program: Program
    setting: Setting
    boundaries: Mapping[str, Sequence[Boundary]]
    arrow: ArrowInput | None
    tasks: Sequence[TaskId]
    idle: frozenset[TaskId]
    expected: Estimates
    histories: Mapping[TaskId, History]
    held: Callable[[TaskId], Mapping[str, int | None]] = lambda task: {}

    def begun(self) -> Stage:
        """Return the stage with the id of a new run, and with the file that lists its boundaries, if it reads any."""
        stage = self.with_setting(run=uuid.uuid4().hex)
        if self.boundaries and len(self.idle) < len(self.tasks):
            root = Path(self.setting.checkpoint)
            with raising_disk_full(root):
                file = inputs_file(stage.setting, self.program.subtopology)
                stage = stage.with_setting(inputs=write_listing(root, file, self.boundaries))
        return stage

    def with_setting(self, **changes: Any) -> Stage:
        """Return the stage with other values in its setting."""
        return replace(self, setting=structs.replace(self.setting, **changes))

    def missing(self, reports: Mapping[TaskId, Report]) -> list[int]:
        """Return the partitions of the tasks that have to run and have no report."""
        return [p for p, task in enumerate(self.tasks) if task not in reports and task not in self.idle]

    def complete(self, reports: dict[TaskId, Report]) -> dict[TaskId, Report]:
        """Return the reports. Errors: `TaskplaceError` if a task that has to run has none."""
        if missing := self.missing(reports):
            raise TaskplaceError(
                f"batch {self.setting.batch}: the job of subtopology {self.program.subtopology} has ended without "
                f"a report of {len(missing)} of its tasks, such as {self.tasks[missing[0]]}; the batch is not retried"
            )
        return reports

    def cut(self, partitions: Sequence[int], owners: Mapping[TaskId, Executor | None]) -> list[Bin]:
        """Return bins of these partitions; `owners` has the executor of each task."""
        of = {partition: owners.get(self.tasks[partition]) for partition in partitions}
        order = self.arrow.order if self.arrow is not None else bins.owner_order(of)
        return bins.cut(order, of, self.expected.space, running=partitions, work=self.expected.work)

    def finished(self, partitions: Sequence[int]) -> dict[TaskId, Report]:
        """Return the reports that attempts of this run have written, of the tasks of these partitions."""
        tasks = frozenset(self.tasks[partition] for partition in partitions)
        groups = finished(Path(self.setting.checkpoint), self.setting, self.program.subtopology, tasks)
        return {report.task: report for group in groups for report in group.reports}

    def descriptor(self, bin_: Bin, behind: Collection[TaskId] = ()) -> BinDescriptor:
        """Return what is sent to a bin's Spark task.

        `behind`: the tasks whose owner's copy may not be at the end. They get their whole histories, the others the
        last changes, which a copy at the end needs.
        """
        instance = bin_.owner.instance if bin_.owner else ""
        descriptors = []
        for task in (self.tasks[partition] for partition in bin_.partitions):
            history, tail = self.histories.get(task, History()), False
            if task not in behind and len(history.changes) > TAIL:
                history, tail = History(history.changes[-TAIL:]), True
            descriptors.append(AttemptDescriptor(task, instance, history, self.held(task), tail))
        return BinDescriptor(tuple(descriptors), bin_.skipped)


@dataclass(frozen=True, kw_only=True)
class AssignmentInForce:
    """The assignment that a stage follows; it may change after each loss.

    - `owners`: returns the executor that each task belongs to now; None leaves the choice to Spark
    - `generation`: returns the assignment's generation; copies refuse attempts of older generations
    - `behind`: returns the tasks whose owner's copy is not known to be at the end of its history
    - `on_lost`: gets the ids of lost executors, and plans again before it returns
    """

    owners: Callable[[], Mapping[TaskId, Executor | None]]
    generation: Callable[[], int]
    behind: Callable[[], Collection[TaskId]]
    on_lost: Callable[[frozenset[str]], None]


def run(cluster: Cluster, stage: Stage, assignment: AssignmentInForce) -> dict[TaskId, Report]:
    """Run one batch of one subtopology and return a report per task that ran.

    Errors: the errors of attempts; `TaskplaceError` after `MAX_LOSSES` losses within one stage.
    """
    stage = stage.begun()
    reports: dict[TaskId, Report] = {}
    for round_ in range(MAX_LOSSES):
        missing = stage.missing(reports)
        if not missing:
            return reports
        cut = stage.cut(missing, assignment.owners())
        stage = stage.with_setting(round=round_, generation=assignment.generation())
        try:
            reports |= _run_bins(cluster, stage, cut, assignment.behind())
            return stage.complete(reports)
        except JobLostError as loss:
            reports |= stage.finished(missing)
            log.warning(
                "batch %d, subtopology %d: lost %s; %d of %d tasks had finished, and do not run again",
                stage.setting.batch, stage.program.subtopology, ", ".join(map(instance_name, sorted(loss.lost))),
                len(reports), len(stage.tasks) - len(stage.idle),
            )  # fmt: skip
            assignment.on_lost(loss.lost)
    raise TaskplaceError(
        f"batch {stage.setting.batch}: executors were lost {MAX_LOSSES} times within one stage; "
        "the batch is not retried"
    )


def _run_bins(
    cluster: Cluster, stage: Stage, cut: Sequence[Bin], behind: Collection[TaskId]
) -> dict[TaskId, Report]:
    """Run one round: a job with a Spark task per bin, pinned to the bin's owner. Return the reports of its tasks.

    Errors: `JobLostError` if an owner is lost, and the errors of attempts.
    """
    setting, subtopology = stage.setting, stage.program.subtopology
    attempts = cluster.keep(f"program {subtopology}", stage.program).to(run_stage)
    job = cluster.pinned(
        [stage.descriptor(bin_, behind).encode() for bin_ in cut],
        [bin_.owner.location if bin_.owner and not cluster.local else None for bin_ in cut],
        partial(attempts, setting.encode()),
        stage.arrow,
        [(bin_.start, bin_.end) for bin_ in cut],
    )
    answers = cluster.run(
        job,
        range(len(cut)),
        tag=f"taskplace-{setting.epoch}-{setting.batch}-{subtopology}-{setting.round}",
        watch=frozenset(bin_.owner.id for bin_ in cut if bin_.owner is not None),
        on_lost=partial(mark_cancelled, setting, subtopology),
    )
    reports = [report for answer in answers for report in ReportGroup.decode(answer).reports]
    for report in reports:
        for damaged in report.recovery.damaged:
            log.warning("task %s recovered without a damaged file: %s", report.task, damaged)
    return {report.task: report for report in reports}


def mark_cancelled(setting: Setting, subtopology: int) -> None:
    """Write the mark that cancels a round's attempts. Spark itself takes seconds to end a Python worker."""
    mark = Path(setting.checkpoint) / cancellation_mark(setting, subtopology)
    private_directory(mark.parent)
    mark.touch(mode=0o600)
