"""The values that the steps of a batch share, from the first stage to the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from taskplace.spark.driver.staging import Schemas
from taskplace.spark.driver.stats import Phases
from taskplace.spark.driver.watermarks import Watermarks
from taskplace.spark.messages import Change, Report, StagedFile, TopicRead
from topology import TaskId


@dataclass(kw_only=True)
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
