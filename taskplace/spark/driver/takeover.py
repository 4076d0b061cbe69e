"""Takes over a checkpoint with the driver's first batch, after all checks.

A refused start must not stop a running stream. So a driver first reads, compares and checks everything. It takes the
next epoch last; that fences the driver with the previous epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.checkpoint.spark_checkpoint import check_offsets, check_spark_checkpoint
from taskplace.spark.driver.publishing import Publisher
from taskplace.spark.driver.read_topics import check_planned
from taskplace.spark.messages import OFFSETS, SPARK_CHECKPOINT, Declaration


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

    def take(self, batch_id: int, query: str | None, check: Callable[[], object]) -> None:
        """Take the checkpoint over, unless this driver has done so. `check` first checks the batch's data frame.

        Errors: `CheckpointError` if the checkpoint belongs to another query, if Spark's checkpoint is at another batch,
        if the batch has output for a sink that is gone, or if another driver has changed the declaration since this
        driver started; any error of `check`.
        """
        self._journal.bind("query", query)
        if self.taken:
            return

        def compare(declaration: Declaration) -> None:
            if declaration != self._compared:
                raise CheckpointError(
                    f"{self._journal.root}: another driver has changed the checkpoint since this Placed was created; "
                    "create a new Placed"
                )
            self.check_batch(batch_id)
            self._check_pending(batch_id)
            self._publisher.check_outputs(declaration.id, self._journal.last, batch_id)

        if not self._journal.epoch:
            check()
            self._journal.take_over(compare)
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
