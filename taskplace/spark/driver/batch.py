"""The values that the steps of a batch share, from the first stage to the report; warnings of late rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from taskplace.logs import RepeatedWarnings
from taskplace.record.events import Totals
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.staging import Schemas
from taskplace.spark.driver.stats import Phases
from taskplace.spark.driver.watermarks import Watermarks
from taskplace.spark.messages import Change, Report, StagedFile, TopicRead
from taskplace.wording import count, counted_since
from topology import TaskId

log = logging.getLogger(__name__)


@dataclass
class Batch:
    """A batch under way.

    - `id`: Spark's number of the batch
    - `input`: the rows of all sources, united (`programs.unite`)
    - `watermarks`: computed stage by stage
    - `clock`: started with the batch; measures its phases
    - `reports`: by task, of the winning attempts; complete after the last stage
    - `read`: by topic that tasks read themselves, what was read up to this batch; complete after the last stage
    - `staged`: by sink, its files; set when the sinks are settled
    - `schemas`: by sink, its schema; set when the sinks are settled
    """

    id: int
    input: DataFrame
    session: SparkSession
    watermarks: Watermarks
    clock: Phases = field(default_factory=Phases)
    reports: dict[TaskId, Report] = field(default_factory=dict)
    read: dict[str, TopicRead] = field(default_factory=dict)
    staged: Mapping[str, Sequence[StagedFile]] = field(default_factory=dict)
    schemas: Schemas = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows from the sources."""
        return sum(report.rows for report in self.reports.values())

    @property
    def changes(self) -> dict[TaskId, Change]:
        """By task, the change of state to commit."""
        return {task: r.change for task, r in self.reports.items() if r.change is not None}

    @property
    def event_times(self) -> dict[str, int]:
        """By source with rows in this batch, their newest event time in microseconds.

        For a topic that tasks read themselves, a backlog holds it back (`TopicRead.event_time`).
        """
        newest: dict[str, int] = {}
        for report in self.reports.values():
            for topic, time in report.event_times.items():
                newest[topic] = max(time, newest.get(topic, time))
        held = {topic: read.event_time for topic, read in self.read.items()}
        return {topic: t for topic, t in {**newest, **held}.items() if t is not None}


class LateRows:
    """Warns of late rows: how many were dropped, why, and what to set. Lifetime: one for each driver."""

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
