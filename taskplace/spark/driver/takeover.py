"""Takes over a checkpoint with the driver's first batch, after all checks; compares a batch that Spark repeats.

A refused start must not stop a running stream. So a driver first reads, compares and checks everything. It takes the
next epoch last; that fences the driver with the previous epoch.

Spark repeats the last batch if it could not record its end. But if Spark's checkpoint was lost or set back, the batch
may be a new one with the same number. Its additional rows are then lost, because a committed batch is not run again.
Of a topic whose records tasks read themselves, Spark brings ranges of offsets. The same ranges have the same records,
so other ranges are an error, and no record has to be read. More rows of other sources are a warning: they can be
harmless, because the other side of a join may have grown. Fewer rows are ignored: the source may have deleted them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.checkpoint.spark_checkpoint import check_offsets, check_spark_checkpoint
from taskplace.spark.compile import programs
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.logged_errors import log_failure
from taskplace.spark.driver.publishing import Publisher
from taskplace.spark.driver.read_topics import check_planned, check_ranges
from taskplace.spark.messages import OFFSETS, SPARK_CHECKPOINT, Declaration, Manifest, TopicRead, kept
from taskplace.spark.worker.program import Program
from taskplace.spark.worker.topic_reader import read_of


class Takeover:
    """The takeover of a checkpoint by one driver. Another driver may take over later (`Journal.check_epoch`)."""

    def __init__(
        self, journal: Journal, publisher: Publisher, offsets: Callable[[], Path | None] = lambda: None
    ) -> None:
        """`offsets`: returns the directory in which the running query has its offsets, if that is known."""
        self._journal, self._publisher, self._offsets = journal, publisher, offsets
        self._compared = journal.declaration
        self.taken = False

    def check_start(self) -> None:
        """Check, before Spark's query starts, that its checkpoint fits the placed one, and so do the sinks.

        Errors: `CheckpointError`, as for `check_spark_checkpoint`, `check_planned` and `Publisher.check_pending`; those
        of `Publisher.check_outputs`.
        """
        root = self._journal.root
        upcoming = check_spark_checkpoint(root, self._journal)
        log = root / SPARK_CHECKPOINT / OFFSETS
        check_planned(root, log, self._journal.last)
        check_offsets(root, log, self._journal.last)
        self._check_pending(upcoming)
        self._publisher.check_outputs(self._journal.declaration.id, self._journal.last, upcoming)

    def take(self, batch_id: int, query: str | None, look: Callable[[], object]) -> None:
        """Take the checkpoint over, unless this driver has done so. `look` first checks the batch's data frame.

        Errors: `CheckpointError` if the checkpoint belongs to another query, if Spark's checkpoint is at another batch,
        if the batch has output for a sink that is gone, or if another driver has changed the declaration since this
        driver started; any error of `look`.
        """
        self._journal.bind("query", query)
        if self.taken:
            return

        def check(declaration: Declaration) -> None:
            if declaration != self._compared:
                raise CheckpointError(
                    f"{self._journal.root}: another driver has changed the checkpoint since this Placed was created; "
                    "create a new Placed"
                )
            self.check_batch(batch_id)
            self._check_pending(batch_id)
            self._publisher.check_outputs(declaration.id, self._journal.last, batch_id)

        if not self._journal.epoch:
            look()
            self._journal.take_over(check)
        self._publisher.bind(self._journal.declaration.id)
        self._publisher.open(self._journal.last, batch_id, self._journal.check_epoch)
        self.taken = True

    def check_batch(self, batch_id: int) -> None:
        """Raise `CheckpointError` unless the batch is the last committed one, which is published again, or the next.

        An earlier batch is refused because Spark may form it from other rows than those that were committed. For the
        same reason, the offsets of the last committed batch must not have changed.
        """
        if batch_id not in (last := self._journal.last_batch, last + 1):
            raise CheckpointError(
                f"{self._journal.root}: Spark's checkpoint is at batch {batch_id}, the placed state at batch {last}; "
                "both must come from the same run: keep both, or start a new checkpoint for both"
            )
        check_offsets(self._journal.root, self._offsets(), self._journal.last)

    def _check_pending(self, batch_id: int) -> None:
        """Check that a batch can be published again, if it is the last committed one."""
        last = self._journal.last
        if last is not None and batch_id == last.batch:
            self._publisher.check_pending(last)


log = logging.getLogger(__name__)


def check_repeated(
    definition: StreamDefinition, committed: Manifest, read_input: Callable[[], DataFrame]
) -> None:
    """Compare a repeated batch. Logs a warning for more rows than were committed, and if they cannot be read.

    `read_input`: returns the united rows of the repeated batch.
    Errors: `CheckpointError` for other ranges, as for `read_topics.check_ranges`.
    """
    try:
        df = read_input()
        ranges: dict[str, TopicRead] = {}
        rows = 0
        for program in definition.programs:
            if program.external:
                rows += _rows(df, program, ranges)
    except Exception as error:
        log_failure(
            log, "%s: batch %d is committed and published, but its rows cannot be counted again",
            definition.checkpoint, committed.batch, error=error,
        )  # fmt: skip
        return
    check_ranges(definition.checkpoint, committed, ranges, definition.readers)
    before = committed.rows - sum(read.rows for read in kept(committed).values())
    if rows > before:
        log.warning(
            "%s: batch %d was committed with %d rows, found %d rows for it now; if Spark's checkpoint was lost or "
            "reset, the additional rows are lost: restore Spark's checkpoint, or start a new checkpoint for both",
            definition.checkpoint, committed.batch, before, rows,
        )  # fmt: skip


def _rows(df: DataFrame, program: Program, ranges: dict[str, TopicRead]) -> int:
    """Return the number of rows that Spark brings to the tasks of a program, and add the ranges to `ranges`."""
    part = programs.stage_input(df, program)
    if not program.reads:
        return part.count()
    brought = {topic: programs.topic_rows(part, program, topic) for topic in program.reads}
    for topic, table in brought.items():
        ranges |= read_of(topic, table, 0)
    if set(program.external) == set(program.reads):
        return 0
    return part.count() - sum(table.num_rows for table in brought.values())
