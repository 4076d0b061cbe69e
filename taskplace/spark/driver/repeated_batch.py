"""Compares a repeated batch of Spark with the committed batch.

Spark repeats the last batch if it could not record its end. But if Spark's checkpoint was lost or set back, the batch
may be a new one with the same number. Its additional rows are then lost, because a committed batch is not run again.

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

log = logging.getLogger(__name__)


def warn_if_grown(
    definition: StreamDefinition, committed: Manifest, read_input: Callable[[], DataFrame]
) -> None:
    """Log a warning if Spark brings more rows than were committed, or if the rows cannot be counted. Never raises.

    `read_input`: returns the united rows of the repeated batch.
    """
    try:
        df = read_input()
        rows = sum(
            programs.stage_input(df, program).count() for program in definition.programs if program.external
        )
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
