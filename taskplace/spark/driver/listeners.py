"""Calls the listeners of a stream: the reporter, and a function before each stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taskplace.record.events import BatchDone, Reporter
from taskplace.spark.driver.batch import Batch
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.driver.stats import recovery_of


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

    def batch_done(self, batch: Batch, rebalancer: Rebalancer) -> None:
        """Report that a batch was committed and published. The driver is asked only if somebody listens."""
        if not self.reporter:
            return
        lags, behind = rebalancer.following()
        self.reporter.batch(
            BatchDone(
                batch_id=batch.id,
                total=self.total_batches,
                rows=batch.rows,
                seconds=batch.clock.total(),
                phases=batch.clock.seconds,
                placement=rebalancer.placement(),
                generation=rebalancer.loop.generation,
                lags=lags,
                behind=behind,
                recovery=recovery_of(batch.reports.values()),
                late=rebalancer.stats.late_rows,
            )
        )
