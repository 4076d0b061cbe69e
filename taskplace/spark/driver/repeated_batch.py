"""Compares a repeated batch of Spark with the committed batch.

Spark repeats the last batch if it could not record its end. But if Spark's checkpoint was lost or set back, the batch
may be a new one with the same number. Its additional rows are then lost, because a committed batch is not run again.

Of a topic whose records tasks read themselves, Spark brings ranges of offsets. The same ranges have the same records,
so other ranges are an error, and no record has to be read.

Non-goal: refusing more rows of other sources. They can be harmless: the other side of a join may have grown. Fewer rows
are ignored: the source may have deleted them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql import DataFrame

from taskplace.spark.compile import programs
from taskplace.spark.driver import read_topics
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.logged_errors import log_failure
from taskplace.spark.messages import Manifest, TopicRead
from taskplace.spark.worker.program import Program
from taskplace.spark.worker.topic_reader import read_of

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
    read_topics.check_ranges(definition.checkpoint, committed, ranges, definition.readers)
    before = committed.rows - sum(read.rows for read in read_topics.kept(committed).values())
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
