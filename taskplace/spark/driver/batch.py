"""One batch: what its steps share, from the first stage to the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from taskplace.spark.driver.staging import Schemas
from taskplace.spark.driver.stats import Phases
from taskplace.spark.driver.watermarks import Watermarks
from taskplace.spark.messages import Change, Report, StagedFile
from topology import TaskId


@dataclass(kw_only=True)
class Batch:
    """A batch under way.

    - `id`: Spark's number of the batch; `input`: the rows of all sources, united (`programs.unite`)
    - `watermarks`: by stage; `clock`: began with the batch, times its phases
    - `reports`: of the attempts that won, by task; complete when all stages have ended
    - `staged`: the files of each sink, and `schemas` those of all sinks; set when the sinks are settled
    """

    id: int
    input: DataFrame
    session: SparkSession
    watermarks: Watermarks
    clock: Phases = field(default_factory=Phases)
    reports: dict[TaskId, Report] = field(default_factory=dict)
    staged: Mapping[str, Sequence[StagedFile]] = field(default_factory=dict)
    schemas: Schemas = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows the sources brought."""
        return sum(report.rows for report in self.reports.values())

    @property
    def changes(self) -> dict[TaskId, Change]:
        """The changes of state to commit, by task."""
        return {task: r.change for task, r in self.reports.items() if r.change is not None}

    @property
    def event_times(self) -> dict[str, int]:
        """The newest event time of the batch's rows, microseconds, by source; only of sources that brought rows."""
        newest: dict[str, int] = {}
        for report in self.reports.values():
            for topic, time in report.event_times.items():
                newest[topic] = max(time, newest.get(topic, time))
        return newest
