"""Runs one subtopology of a batch: sends descriptors, collects reports, and continues after the loss of an executor.

The tasks run in bins (`taskplace.spark.driver.bins`), one Spark task per bin. A stage ends when every task has a
report. If an executor that a missing task was pinned to is lost, the round is cancelled: its bins end after the task
that they are at, and the reports of finished attempts are read from their files. Then the caller plans again, and a new
job runs only the missing tasks, pinned to their new executors. A report has the id of its run of the stage; reports of
other runs are ignored.

`StageRunner` prepares the input and the setting of a subtopology, and processes the reports; `run` runs its job.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import structs

from taskplace.errors import TaskplaceError
from taskplace.spark.checkpoint.files import private_directory
from taskplace.spark.cluster import ArrowInput, Cluster, Executor, JobLostError
from taskplace.spark.compile import programs
from taskplace.spark.compile.partition_columns import out_of_range
from taskplace.spark.driver import bins, read_topics
from taskplace.spark.driver.batch import Batch, Listeners
from taskplace.spark.driver.bins import Bin, Estimates, TaskCosts
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.driver.staging import SinkSchemas
from taskplace.spark.instances import instance_name
from taskplace.spark.messages import (
    OFFSETS,
    SPARK_CHECKPOINT,
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
from taskplace.spark.worker.external import PARTITION
from taskplace.spark.worker.guard import raising_disk_full
from taskplace.spark.worker.program import Program
from topology import TaskId

log = logging.getLogger(__name__)

MAX_LOSSES = 10
#: How many changes of its history a task gets if its copy is at the end. A copy one batch off needs more than the last.
TAIL = 2

#: Plans again without the lost executors, given their ids.
OnLost = Callable[[frozenset[str]], None]


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


def run(cluster: Cluster, stage: Stage, rebalancer: Rebalancer, on_lost: OnLost) -> dict[TaskId, Report]:
    """Run one batch of one subtopology and return a report per task that ran.

    The tasks follow the assignment in force, which may change after each loss.
    Errors: the errors of attempts; `TaskplaceError` after `MAX_LOSSES` losses within one stage.
    """
    stage = stage.begun()
    reports: dict[TaskId, Report] = {}
    for round_ in range(MAX_LOSSES):
        missing = stage.missing(reports)
        if not missing:
            return reports
        with rebalancer.lock:
            owners, behind = rebalancer.state.owners(), rebalancer.state.behind()
        stage = stage.with_setting(round=round_, generation=rebalancer.loop.generation)
        try:
            reports |= _run_bins(cluster, stage, stage.cut(missing, owners), behind)
            return stage.complete(reports)
        except JobLostError as loss:
            reports |= stage.finished(missing)
            log.warning(
                "batch %d, subtopology %d: lost %s; %d of %d tasks had finished, and do not run again",
                stage.setting.batch, stage.program.subtopology, ", ".join(map(instance_name, sorted(loss.lost))),
                len(reports), len(stage.tasks) - len(stage.idle),
            )  # fmt: skip
            on_lost(loss.lost)
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


@dataclass(eq=False)
class StageRunner:
    """Runs the stages of a stream's batches, one at a time. Lifetime: one for each driver."""

    definition: StreamDefinition
    rebalancer: Rebalancer
    schemas: SinkSchemas
    idle: IdleTasks
    listeners: Listeners
    costs: TaskCosts = field(default_factory=TaskCosts)

    def run(self, batch: Batch, subtopology: int, on_lost: OnLost) -> dict[TaskId, Report]:
        """Run a subtopology whose inputs are complete. Return the reports of the tasks that ran.

        Errors: as for `run`.
        """
        stage = self._stage(batch, subtopology)
        self.listeners.stage_starts(batch.id, subtopology)
        reports = run(self.rebalancer.bridge, stage, self.rebalancer, on_lost)
        batch.watermarks.passed(stage.program, len(stage.tasks), reports.values())
        if stage.program.stateful:
            self._move_copies(reports.values())
        self.rebalancer.stats.count(reports.values())
        self.costs.count(reports.values(), stage.expected)
        return reports

    def _stage(self, batch: Batch, subtopology: int) -> Stage:
        """Prepare the input and the setting of a subtopology, and find its idle tasks."""
        program, tasks = self.definition.programs[subtopology], self.definition.tasks[subtopology]
        with self.rebalancer.lock:
            hosts = self.rebalancer.state.hosts()
        arrow = self._external_rows(batch, program, [hosts.get(task, ()) for task in tasks])
        with self.rebalancer.lock:  # the shuffle may take long; a copy may be lost meanwhile
            behind = self.rebalancer.state.behind()
        setting = self._setting(batch, program, arrow)
        boundaries = {
            topic: [r.boundaries[topic] for _, r in sorted(batch.reports.items()) if topic in r.boundaries]
            for topic in program.internal
        }
        sizes = list(arrow.sizes) if arrow is not None else [0] * len(tasks)
        for boundary in chain.from_iterable(boundaries.values()):
            for partition, piece in boundary.slices.items():
                sizes[partition] += piece.length
        return Stage(
            program=program,
            setting=setting,
            boundaries=boundaries,
            arrow=arrow,
            tasks=tasks,
            idle=self.idle.tasks(program, tasks, sizes, setting.watermarks, behind),
            expected=self.costs.estimates(tasks, sizes, self._planned_records(batch, program)),
            histories=self.rebalancer.journal.history,
            held=partial(batch.watermarks.held_before, program),
        )

    def _external_rows(
        self, batch: Batch, program: Program, hosts: Sequence[Sequence[str]]
    ) -> ArrowInput | None:
        """Shuffle the rows of external topics; None for a subtopology that reads only internal topics.

        `hosts`: by partition, the instances that have its task.

        Errors: `InputError` for a partition column whose number is no partition.
        """
        if not program.external:
            return None
        rows = programs.stage_input(batch.input, program)
        try:
            return self.rebalancer.bridge.arrow_input(rows, bins.shuffle_order(hosts), PARTITION)
        except Exception as error:
            if (own := out_of_range(error, self.definition.built)) is not None:
                raise own from error
            raise

    def _planned_records(self, batch: Batch, program: Program) -> dict[int, int]:
        """Return by partition how many records its task will read itself, as far as Spark's checkpoint says it."""
        records: dict[int, int] = {}
        if program.reads:
            log = self.definition.checkpoint / SPARK_CHECKPOINT / OFFSETS
            planned = read_topics.planned_records(log, batch.id, self.rebalancer.journal.last)
            for topic in program.reads:
                for partition, number in planned.get(topic, {}).items():
                    records[partition] = records.get(partition, 0) + number
        return records

    def _setting(self, batch: Batch, program: Program, arrow: ArrowInput | None) -> Setting:
        journal = self.rebalancer.journal
        keys = journal.identity.get("keys") or {}
        return Setting(
            checkpoint=str(self.definition.checkpoint),
            state_root=str(self.definition.state_root),
            spark_app=self.rebalancer.bridge.app_id,
            epoch=journal.epoch,
            batch=batch.id,
            generation=self.rebalancer.loop.generation,
            schema=arrow.schema if arrow else None,
            compression=self.definition.options.compression,
            bytes_per_task=self.definition.options.bytes_per_task,
            watermarks=batch.watermarks.topics(program),
            late=batch.watermarks.late(program),
            keys={topic: tuple(keys[topic]) for topic in program.internal if topic in keys},
            sinks=self.schemas.of(program.sinks, journal.identity),
        )

    def _move_copies(self, reports: Iterable[Report]) -> None:
        """Record the position of each active copy: that of the attempt's change, else the end of the history."""
        with self.rebalancer.lock:
            for report in reports:
                if report.lacked:
                    log.warning(
                        "task %s goes on without the entries of its stores that are not logged: its copy on %s was "
                        "made of the checkpoint", report.task, report.instance,
                    )  # fmt: skip
                history = self.rebalancer.journal.history.get(report.task, History())
                end = report.change.position if report.change else history.end
                self.rebalancer.state.moved(report.instance, report.task, end)


class IdleTasks:
    """Finds the idle tasks of a batch, which do not run, and remembers which work of event time is left.

    A task without input rows changes no state and emits no rows. Not running it makes the cost of a batch depend on its
    rows, not on the size of the topology. A task without rows still runs if

    - one of its processors declares `every_batch`,
    - event time has work for it: the watermark has moved, or the last batch left expired entries to remove,
    - its active copy is behind the end of the changelog: it catches up now, before rows come,
    - no other task of its subtopology would run, and a repartition of it has readers: they need its columns.

    Lifetime: `_applied` and `_expiring` are of the last committed batch, empty at the start of a driver; `_pending` is
    of the running batch.
    """

    def __init__(self) -> None:
        self._applied: dict[int, Mapping[str, int | None]] = {}
        self._expiring: frozenset[TaskId] = frozenset()
        self._pending: dict[int, Mapping[str, int | None]] = {}

    def tasks(
        self,
        program: Program,
        tasks: Sequence[TaskId],
        sizes: Sequence[int],
        watermarks: Mapping[str, int | None],
        behind: Collection[TaskId],
    ) -> frozenset[TaskId]:
        """Return the idle tasks among a subtopology's `tasks`, which are in order of partition.

        `sizes`: by partition, the bytes of its rows. `watermarks` are those of the topics that the subtopology reads.
        `behind` are tasks whose active copy may be behind the end of the changelog.
        """
        moved = program.forgets and (
            program.subtopology not in self._applied or self._applied[program.subtopology] != watermarks
        )
        self._pending[program.subtopology] = watermarks
        if program.every_batch or moved:
            return frozenset()
        idle = [
            task
            for partition, task in enumerate(tasks)
            if not sizes[partition] and task not in self._expiring and task not in behind
        ]
        if program.repartitions and len(idle) == len(tasks):
            idle = idle[1:]
        return frozenset(idle)

    @property
    def expiring(self) -> bool:
        """Whether expired entries may be left: the last batch reported some, or this driver has not committed yet."""
        return bool(self._expiring) or not self._applied

    def committed(self, reports: Mapping[TaskId, Report]) -> None:
        """Note that the running batch is committed. An uncommitted batch will run again with the same input."""
        self._applied.update(self._pending)
        self._expiring = frozenset(task for task, report in reports.items() if report.expiring)
        self._pending = {}
