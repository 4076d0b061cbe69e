"""Runs the job of one subtopology: sends descriptors, collects reports, and continues after the loss of an executor.

The tasks run in bins (`taskplace.spark.driver.bins`), one Spark task per bin. A stage ends when every task has a
report. If an executor that a missing task was pinned to is lost, the job is cancelled, and the reports of finished
attempts are read from their files. Then the caller plans again, and a new job runs only the missing tasks, pinned to
their new executors. A report has the id of its run of the stage; reports of other runs are ignored.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from taskplace.errors import TaskplaceError
from taskplace.spark.cluster import ArrowInput, Cluster, Executor, JobLostError
from taskplace.spark.driver import bins
from taskplace.spark.messages import (
    AttemptDescriptor,
    Bin,
    Boundary,
    History,
    Report,
    Setting,
    cancellation_mark,
    inputs_file,
)
from taskplace.spark.state.files import private_directory
from taskplace.spark.worker.attempt_reports import finished
from taskplace.spark.worker.bins import run_stage
from taskplace.spark.worker.guard import raising_disk_full
from taskplace.spark.worker.listing import write_listing
from taskplace.spark.worker.program import Program
from topology import TaskId

log = logging.getLogger(__name__)

MAX_LOSSES = 10

#: Returns the executor that each task belongs to now; None leaves the choice to Spark.
Where = Callable[[], Mapping[TaskId, Executor | None]]


def run(
    bridge: Cluster,
    program: Program,
    setting: Setting,
    boundaries: Mapping[str, Sequence[Boundary]],
    arrow: ArrowInput | None,
    tasks: Sequence[TaskId],
    idle: frozenset[TaskId],
    sizes: Sequence[int],
    histories: Mapping[TaskId, History],
    where: Where,
    generation: Callable[[], int],
    on_lost: Callable[[frozenset[str]], None],
    held: Callable[[TaskId], Mapping[str, int | None]] = lambda task: {},
) -> dict[TaskId, Report]:
    """Run one batch of one subtopology and return a report per task.

    - `boundaries`: by internal topic that the stage reads; sent in a file, because there may be many
    - `tasks`: all tasks of the subtopology, sorted by partition
    - `idle`: the tasks that do not run
    - `sizes`: by partition, the bytes of input
    - `where`: returns the executor of each task
    - `generation`: returns the generation of that assignment; copies refuse attempts of older generations
    - `held`: returns the watermarks of a task's stores in the previous batch that differ from `setting`
    - `on_lost`: gets the ids of lost executors, and plans again before it returns

    Errors: the errors of attempts; `TaskplaceError` after `MAX_LOSSES` losses within one stage.
    """
    reports: dict[TaskId, Report] = {}

    def descriptor(task: TaskId, owner: Executor | None) -> AttemptDescriptor:
        return AttemptDescriptor(task, _instance(owner), histories.get(task, History()), held(task))

    setting = replace(setting, run=uuid.uuid4().hex)
    root = Path(setting.checkpoint)
    if boundaries and len(idle) < len(tasks):
        with raising_disk_full(root):
            file = inputs_file(setting, program.subtopology)
            setting = replace(setting, inputs=write_listing(root, file, boundaries))
    for round_ in range(MAX_LOSSES):
        missing = [p for p, task in enumerate(tasks) if task not in reports and task not in idle]
        if not missing:
            return reports
        owners = where()
        of = {p: owners.get(tasks[p]) for p in missing}
        order = arrow.order if arrow is not None else bins.owner_order(of)
        cut = bins.cut(order, of, sizes, running=missing)
        sent = [Bin(tuple(descriptor(tasks[p], bin_.owner) for p in bin_.partitions)) for bin_ in cut]
        setting = replace(setting, round=round_, generation=generation())
        try:
            return reports | _run_bins(bridge, program, setting, cut=cut, sent=sent, arrow=arrow)
        except JobLostError as loss:
            reports |= finished(root, setting, program.subtopology, {tasks[i] for i in missing})
            log.warning(
                "batch %d, subtopology %d: lost executor %s; %d of %d tasks had finished",
                setting.batch, program.subtopology, loss, len(reports), len(tasks) - len(idle),
            )  # fmt: skip
            on_lost(loss.lost)
    raise TaskplaceError(
        f"batch {setting.batch}: executors were lost {MAX_LOSSES} times within one stage; the batch is not retried"
    )


def _run_bins(
    bridge: Cluster,
    program: Program,
    setting: Setting,
    *,
    cut: Sequence[bins.Bin],
    sent: Sequence[Bin],
    arrow: ArrowInput | None,
) -> dict[TaskId, Report]:
    """Run one job with a Spark task per bin, pinned to the bin's owner, and return the reports of its tasks.

    `sent`: what each bin's Spark task gets. Errors: `JobLostError` if an owner is lost, and the errors of attempts.
    """
    locations = [bin_.owner.location if bin_.owner and not bridge.local else None for bin_ in cut]
    ranges = [(bin_.start, bin_.end) for bin_ in cut]
    attempts = bridge.keep(f"program {program.subtopology}", program).to(run_stage)
    job = bridge.pinned(
        [bin_.encode() for bin_ in sent], locations, partial(attempts, setting), arrow, ranges
    )
    answers = bridge.run(
        job,
        range(len(cut)),
        tag=f"taskplace-{setting.epoch}-{setting.batch}-{program.subtopology}-{setting.round}",
        watch=frozenset(bin_.owner.id for bin_ in cut if bin_.owner is not None),
        on_lost=partial(mark_cancelled, setting, program.subtopology),
    )
    reports = [Report.decode(answer) for answer in answers]
    for report in reports:
        for damaged in report.recovery.damaged:
            log.warning("task %s recovered without a damaged file: %s", report.task, damaged)
    return {report.task: report for report in reports}


def mark_cancelled(setting: Setting, subtopology: int) -> None:
    """Write the mark that cancels a round's attempts. Spark itself takes seconds to end a Python worker."""
    mark = Path(setting.checkpoint) / cancellation_mark(setting, subtopology)
    private_directory(mark.parent)
    mark.touch(mode=0o600)


def _instance(owner: Executor | None) -> str:
    return owner.instance if owner else ""
