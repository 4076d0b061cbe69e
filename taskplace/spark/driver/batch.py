"""A batch: its input, the values that its steps share, and who is told about it.

The input is one data frame with the rows of all sources. Every frame is checked against the topology, and against what
earlier batches have fixed. The checkpoint is bound to the key types of its sources. A batch that Spark repeats is
compared with what was committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs
from pyspark.sql import DataFrame, SparkSession

from taskplace.errors import InputError
from taskplace.logs import RepeatedWarnings
from taskplace.record.events import BatchDone, Totals
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.compile import programs
from taskplace.spark.compile.partition_columns import partition_columns, row_schemas
from taskplace.spark.compile.sources import Fixed, key_types
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.logged_errors import log_failure
from taskplace.spark.driver.read_topics import check_ranges
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.driver.staging import Schemas, SinkSchemas
from taskplace.spark.driver.stats import Phases, recovery_of
from taskplace.spark.driver.watermarks import Watermarks
from taskplace.spark.messages import Change, Manifest, Report, StagedFile, TopicRead, kept
from taskplace.spark.worker.external import PARTITION, TAG
from taskplace.spark.worker.program import Program
from taskplace.spark.worker.topic_reader import read_of
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
        own = {topic: read.event_time for topic, read in self.read.items()}
        return {topic: t for topic, t in {**newest, **own}.items() if t is not None}


@dataclass
class Listeners:
    """Tells about the batches of one stream: the log of events, the reporter, and a function before each stage.

    Also warns of late rows: how many were dropped, why, and what to set. Lifetime: one for each driver.

    - `total_batches`: the expected number of batches, for the reporter; None: unknown
    - `on_stage`: called with the batch and the subtopology before its job runs
    """

    definition: StreamDefinition
    rebalancer: Rebalancer
    total_batches: int | None = None
    on_stage: Callable[[int, int], None] | None = None
    _repeated: RepeatedWarnings = field(default_factory=RepeatedWarnings)

    def stage_starts(self, batch: int, subtopology: int) -> None:
        """Report that the job of a subtopology is about to run."""
        if self.on_stage is not None:
            self.on_stage(batch, subtopology)

    def batch_done(self, batch: Batch) -> None:
        """Record that a batch was committed and published. The driver is asked for lags only if somebody listens."""
        rebalancer = self.rebalancer
        self.warn_of_late_rows(batch, rebalancer.stats.totals)
        event = BatchDone(
            batch_id=batch.id,
            total=self.total_batches,
            rows=batch.rows,
            seconds=batch.clock.total(),
            phases=dict(batch.clock.seconds),
            placement=(),
            generation=rebalancer.loop.generation,
            recovery=recovery_of(batch.reports.values()),
            late=rebalancer.stats.late_rows,
        )
        rebalancer.events.add(event)
        if reporter := rebalancer.reporter:
            with rebalancer.lock:
                placement, (lags, behind) = rebalancer.placement(), rebalancer.state.following_lags()
            reporter.batch(structs.replace(event, placement=placement, lags=lags, behind=behind))

    def warn_of_late_rows(self, batch: Batch, totals: Totals) -> None:
        """Warn if a committed batch has dropped rows. `totals`: those up to this batch."""
        if not (late := sum(report.late for report in batch.reports.values())):
            return
        times, own = self.definition.event_times, self.definition.readers
        delays = ", ".join(f"sources.{topic}.delay" for topic in sorted(times))
        remedy = f"They came later than {delays} allows: raise it, or a window's `grace`"
        if foreign := sorted(set(times) - set(own)):
            remedy = (
                f"What Spark has not read yet of {', '.join(map(repr, foreign))} is not known here. So rows of files "
                f"or partitions that it reads later than others are late: raise {delays}, or let tasks read the topic "
                "(`kafka` below `input`, or KafkaRecords), which holds the watermark at partitions with a backlog"
            )
        dropped = f"batch {batch.id} dropped {count(late, 'late row')}, which the watermark had passed"
        so_far = f"{totals.late:,} {counted_since(totals.since)}"
        self._repeated.warn(log, "%s: %s; %s. %s", self.definition.checkpoint, dropped, so_far, remedy)


@dataclass(frozen=True, eq=False)
class BatchInput:
    """Unites the sources of one stream. Lifetime: one for each driver."""

    definition: StreamDefinition
    journal: Journal
    schemas: SinkSchemas

    def unite(self, sources: Mapping[str, DataFrame]) -> DataFrame:
        """Return one data frame of all sources, given by topic. Errors: as for `programs.unite`."""
        built = self.definition.built
        united = programs.unite(built, sources, self._fixed())
        self.journal.bind_splits(sources, partition_columns(built))
        schemas = row_schemas(built, {topic: df.schema for topic, df in sources.items()})
        self.journal.bind_keys(key_types(built, schemas))
        return united

    def of_batch(self, df: DataFrame) -> DataFrame:
        """Return the united rows of a batch; `df` has them, or the rows of the single source. Errors: `InputError`."""
        topics = programs.external_topics(self.definition.built)
        columns = list(getattr(df, "columns", ()))  # those of pandas are no list
        if columns[:2] == [TAG, PARTITION] and set(columns[2:]) == set(topics):
            return df
        if not hasattr(df, "schema") or not hasattr(df, "isStreaming"):
            raise InputError("process_batch: df", found=df, expected="the data frame of the batch")
        if len(topics) != 1:
            raise InputError(
                "process_batch", found=columns, expected=f"the data frame that unite({sorted(topics)}) gives"
            )
        return self.unite(dict.fromkeys(topics, df))

    def check_repeated(self, df: DataFrame, committed: Manifest) -> None:
        """Compare a batch that Spark repeats with what was committed.

        Spark repeats the last batch if it could not record its end. But if Spark's checkpoint was lost or set back, the
        batch may be a new one with the same number. Its additional rows are then lost, because a committed batch is not
        run again. Of a topic whose records tasks read themselves, Spark brings ranges of offsets. The same ranges have
        the same records, so other ranges are an error, and no record has to be read. More rows of other sources are a
        warning: they can be harmless, because the other side of a join may have grown. Fewer rows are ignored: the
        source may have deleted them.

        Logs a warning for more rows than were committed, and if they cannot be read. Errors: `CheckpointError` for
        other ranges, as for `read_topics.check_ranges`.
        """
        try:
            united = self.of_batch(df)
            ranges: dict[str, TopicRead] = {}
            rows = 0
            for program in self.definition.programs:
                if program.external:
                    rows += _rows(united, program, ranges)
        except Exception as error:
            log_failure(
                log, "%s: batch %d is committed and published, but its rows cannot be counted again",
                self.definition.checkpoint, committed.batch, error=error,
            )  # fmt: skip
            return
        check_ranges(self.definition.checkpoint, committed, ranges, self.definition.readers)
        before = committed.rows - sum(read.rows for read in kept(committed).values())
        if rows > before:
            log.warning(
                "%s: batch %d was committed with %d rows, found %d rows for it now; if Spark's checkpoint was lost or "
                "reset, the additional rows are lost: restore Spark's checkpoint, or start a new checkpoint for both",
                self.definition.checkpoint, committed.batch, before, rows,
            )  # fmt: skip

    def _fixed(self) -> Fixed:
        """Return what the checkpoint, or a declaration, has fixed: the schemas of sinks and the types of keys."""
        sinks = [node.name for node in self.definition.built.nodes if node.kind == "sink"]
        identity = self.journal.identity
        return Fixed(self.schemas.of(sinks, identity), identity.get("keys") or {})


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
