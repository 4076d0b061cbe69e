"""Warns of late rows: how many were dropped, why, and what to set."""

from __future__ import annotations

import logging

from taskplace.logs import RepeatedWarnings
from taskplace.record.events import Totals
from taskplace.spark.driver.batch import Batch
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.wording import count, counted_since

log = logging.getLogger(__name__)


class LateRows:
    """The warnings of one stream. Lifetime: one for each driver."""

    def __init__(self, definition: StreamDefinition) -> None:
        self._definition, self._repeated = definition, RepeatedWarnings()

    def batch_done(self, batch: Batch, totals: Totals) -> None:
        """Warn if a committed batch has dropped rows. `totals`: those up to this batch."""
        if late := sum(report.late for report in batch.reports.values()):
            dropped = f"batch {batch.id} dropped {count(late, 'late row')}, which the watermark had passed"
            so_far = f"{totals.late:,} {counted_since(totals.since)}"
            checkpoint = self._definition.checkpoint
            self._repeated.warn(log, "%s: %s; %s. %s", checkpoint, dropped, so_far, self._remedy())

    def _remedy(self) -> str:
        delays = ", ".join(f"sources.{topic}.delay" for topic in sorted(self._definition.event_times))
        foreign = sorted(set(self._definition.event_times) - set(self._definition.readers))
        if not foreign:
            return f"They came later than {delays} allows: raise it, or a window's `grace`"
        return (
            f"What Spark has not read yet of {', '.join(map(repr, foreign))} is not known here. So rows of files or "
            f"partitions that it reads later than others are late: raise {delays}, or let tasks read the topic "
            "(`kafka` below `input`, or KafkaRecords), which holds the watermark at partitions with a backlog"
        )
