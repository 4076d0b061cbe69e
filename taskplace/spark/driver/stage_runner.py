"""Runs one subtopology of a batch: prepares its input and setting, runs its job, and processes the reports.

`taskplace.spark.driver.stages` runs the job itself, and repeats it after the loss of an executor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from taskplace.spark.cluster import ArrowInput
from taskplace.spark.compile import programs
from taskplace.spark.compile.partition_columns import out_of_range
from taskplace.spark.driver import bins, read_topics, stages
from taskplace.spark.driver.batch import Batch
from taskplace.spark.driver.bins import TaskCosts
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.idle_tasks import IdleTasks, bytes_by_partition
from taskplace.spark.driver.listeners import Listeners
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.driver.staging import SinkSchemas
from taskplace.spark.messages import OFFSETS, SPARK_CHECKPOINT, Boundary, History, Report, Setting
from taskplace.spark.worker.external import PARTITION
from taskplace.spark.worker.program import Program
from topology import TaskId

log = logging.getLogger(__name__)

#: Plans again without the lost executors, given their ids.
OnLost = Callable[[frozenset[str]], None]


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

        Errors: as for `stages.run`.
        """
        stage = self._stage(batch, subtopology)
        assignment = stages.AssignmentInForce(
            owners=self.rebalancer.owners,
            generation=lambda: self.rebalancer.loop.generation,
            behind=self.rebalancer.behind,
            on_lost=on_lost,
        )
        self.listeners.stage_starts(batch.id, subtopology)
        reports = stages.run(self.rebalancer.bridge, stage, assignment)
        batch.watermarks.passed(stage.program, len(stage.tasks), reports.values())
        if stage.program.stateful:
            self._move_copies(reports.values())
        self.rebalancer.stats.count(reports.values())
        self.costs.count(reports.values(), stage.expected)
        return reports

    def _stage(self, batch: Batch, subtopology: int) -> stages.Stage:
        """Prepare the input and the setting of a subtopology, and find its idle tasks."""
        program, tasks = self.definition.programs[subtopology], self.definition.tasks[subtopology]
        arrow = self._external_rows(batch, program)
        setting = self._setting(batch, program, arrow)
        sizes = _sizes(batch, program, len(tasks), arrow)
        return stages.Stage(
            program=program,
            setting=setting,
            boundaries={topic: list(_boundaries(batch, topic)) for topic in program.internal},
            arrow=arrow,
            tasks=tasks,
            idle=self._idle_tasks(setting, program, sizes),
            expected=self.costs.estimates(tasks, sizes, self._planned_records(batch, program)),
            histories=self.rebalancer.journal.history,
            held=partial(batch.watermarks.held_before, program),
        )

    def _external_rows(self, batch: Batch, program: Program) -> ArrowInput | None:
        """Shuffle the rows of external topics; None for a subtopology that reads only internal topics.

        Errors: `InputError` for a partition column whose number is no partition.
        """
        if not program.external:
            return None
        rows = programs.stage_input(batch.input, program)
        hosts = self.rebalancer.hosts()
        order = bins.shuffle_order(
            [hosts.get(task, ()) for task in self.definition.tasks[program.subtopology]]
        )
        try:
            return self.rebalancer.bridge.arrow_input(rows, order, PARTITION)
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
        return Setting(
            checkpoint=str(self.definition.checkpoint),
            state_root=str(self.definition.state_root),
            spark_app=self.rebalancer.bridge.app_id,
            epoch=self.rebalancer.journal.epoch,
            batch=batch.id,
            generation=self.rebalancer.loop.generation,
            schema=arrow.schema if arrow else None,
            compression=self.definition.options.compression,
            bytes_per_task=self.definition.options.bytes_per_task,
            watermarks=batch.watermarks.topics(program),
            late=batch.watermarks.late(program),
            keys={topic: tuple(kinds) for topic, kinds in self._bound().items() if topic in program.internal},
            sinks=self.schemas.of(program.sinks, self.rebalancer.journal.identity),
        )

    def _bound(self) -> Mapping[str, Sequence[str]]:
        return self.rebalancer.journal.identity.get("keys") or {}

    def _idle_tasks(self, setting: Setting, program: Program, sizes: Sequence[int]) -> frozenset[TaskId]:
        """Return the tasks without work in this batch."""
        return self.idle.tasks(
            program,
            self.definition.tasks[program.subtopology],
            rows=lambda partition: sizes[partition] > 0,
            watermarks=setting.watermarks,
            behind=self.rebalancer.behind(),
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
                end = (
                    report.change.position
                    if report.change
                    else self.rebalancer.journal.history.get(report.task, History()).end
                )
                self.rebalancer.state.moved(report.instance, report.task, end)


def _sizes(batch: Batch, program: Program, partitions: int, arrow: ArrowInput | None) -> list[int]:
    """Return the bytes of input of each partition."""
    sizes = list(arrow.sizes) if arrow is not None else [0] * partitions
    for partition, size in bytes_by_partition(batch.reports.values(), program.internal).items():
        sizes[partition] += size
    return sizes


def _boundaries(batch: Batch, topic: str) -> Iterable[Boundary]:
    """Yield the boundaries that earlier stages of a batch wrote to an internal topic, sorted by task."""
    for _, report in sorted(batch.reports.items()):
        if topic in report.boundaries:
            yield report.boundaries[topic]
