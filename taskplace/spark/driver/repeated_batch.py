"""Compares a repeated batch of Spark with the committed batch.

Spark repeats the last batch if it could not record its end. But if Spark's checkpoint was lost or set back, the batch
may be a new one with the same number. Its additional rows are then lost, because a committed batch is not run again.

Of a topic whose records tasks read themselves, Spark brings ranges. Their records are read on the driver and counted,
one range after the other.

Non-goal: refusing such a batch. More rows can be harmless: the other side of a join may have grown. Fewer rows are
ignored: the source may have deleted them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql import DataFrame

from taskplace.spark.driver import programs
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.messages import Manifest
from taskplace.spark.worker.program import Program

log = logging.getLogger(__name__)


def warn_if_grown(
    definition: StreamDefinition, committed: Manifest, read_input: Callable[[], DataFrame]
) -> None:
    """Log a warning if Spark brings more rows than were committed, or if the rows cannot be counted. Never raises.

    `read_input`: returns the united rows of the repeated batch.
    """
    try:
        df = read_input()
        most = definition.options.bytes_per_task
        rows = sum(_rows(df, program, most) for program in definition.programs if program.external)
    except Exception as error:
        log.warning(
            "%s: batch %d is committed and published, but its rows cannot be counted again: %s",
            definition.checkpoint, committed.batch, error,
        )  # fmt: skip
        return
    if rows > committed.rows:
        log.warning(
            "%s: batch %d was committed with %d rows, found %d rows for it now; if Spark's checkpoint was lost or "
            "reset, the additional rows are lost: restore Spark's checkpoint, or start a new checkpoint for both",
            definition.checkpoint, committed.batch, committed.rows, rows,
        )  # fmt: skip


def _rows(df: DataFrame, program: Program, most: int) -> int:
    """Return the number of rows that the tasks of a program get. `most`: the bytes of one range."""
    part = programs.stage_input(df, program)
    if not program.reads:
        return part.count()
    ranges = {topic: programs.topic_rows(part, program, topic) for topic in program.reads}
    others = part.count() - sum(table.num_rows for table in ranges.values())
    return others + sum(
        program.reads[topic].read(table.slice(at, 1), most).num_rows
        for topic, table in ranges.items()
        for at in range(table.num_rows)
    )
