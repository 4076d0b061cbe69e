"""Calls the listeners of a stream: the reporter, and a function before each stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taskplace.model.events import BatchDone, InstanceView, Reporter
from taskplace.spark.driver.batch import Batch


@dataclass
class Listeners:
    """The listeners of one stream.

    - `total_batches`: the expected number of batches, for the reporter; None: unknown
    - `on_stage`: called with the batch and the subtopology before its job runs
    """

    reporter: Reporter | None = None
    total_batches: int | None = None
    on_stage: Callable[[int, int], None] | None = None

    def stage_starts(self, batch: int, subtopology: int) -> None:
        """Report that the job of a subtopology is about to run."""
        if self.on_stage is not None:
            self.on_stage(batch, subtopology)

    def batch_done(
        self, batch: Batch, placement: Callable[[], tuple[InstanceView, ...]], generation: int
    ) -> None:
        """Report that a batch was committed and published. `placement` is called only if there is a reporter."""
        if self.reporter is None:
            return
        self.reporter.batch(
            BatchDone(
                batch_id=batch.id,
                total=self.total_batches,
                rows=batch.rows,
                seconds=batch.clock.total(),
                phases=batch.clock.seconds,
                placement=placement(),
                generation=generation,
            )
        )
