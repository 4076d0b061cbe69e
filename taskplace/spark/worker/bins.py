"""Runs the tasks of one bin, one after the other, in one Spark task.

**Idea.** Each task of a bin is an attempt of its own, with its own report. Several short attempts are sealed and
reported together, as a group (`taskplace.spark.worker.bins`). So a bin that ends early leaves the reports of
most tasks that had finished:

- Spark may run a bin again, for example after a worker died. The new bin takes over the groups of the same run of the
  stage, and runs only the other tasks.
- The driver may cancel a round. A bin looks for the mark of that before each of its tasks. If there is one, the bin
  ends as if it had run them all: the driver reads the reports in their files. An error would make Spark end the
  workers of the other bins, and new workers take seconds to start.

Memory: the input of the bin (`taskplace.spark.worker.external` and `internal`), and what one task needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from taskplace.spark.messages import BinDescriptor, ReportGroup, Setting
from taskplace.spark.state.catching_up import Superseded
from taskplace.spark.worker import identity as worker_process
from taskplace.spark.worker.attempt import run_attempt
from taskplace.spark.worker.bin_context import BinContext, cancellation_of
from taskplace.spark.worker.bins import AttemptReports, finished
from taskplace.spark.worker.boundary import InternalRows
from taskplace.spark.worker.external import ExternalRows
from taskplace.spark.worker.program import Program


def run_stage(program: Program, encoded: bytes, elements: Iterable[Any]) -> Iterator[bytes]:
    """Run the bins of one Spark partition and yield the reports of their tasks, in groups, encoded.

    - `encoded`: the setting of the stage
    - `elements`: bins with their Arrow batches, or only the bins if the stage has no external input
    """
    worker_process.begin()
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
        for _ in batches:  # Spark does not use a worker again that has left rows unread
            pass
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
