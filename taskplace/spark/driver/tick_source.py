"""Ticks: a source without rows that makes Spark run a batch when event time has work to do.

Idea: Spark runs a batch when a source has a new offset. The source of ticks never has rows. It gets a new offset when
the driver requests a batch: the number of the batch, in a file of the checkpoint.

    <checkpoint>/tick               "13": batch 13 has work to do even without rows

Properties:
- The driver requests after a commit. The next batch takes the tick together with any rows, so a busy stream runs no
  additional batches. If there are no rows, the batch runs at once, as Spark's own batches without data do.
- Requesting a batch twice has no further effect, also after a restart. A lost or half-written file means no request.
- There is one file of a few bytes, and the source has no log, so nothing grows. Spark's file source would record every
  file for ever.
- The source is planned on the driver and needs no tasks: the optimiser removes its branch from every batch.
- `availableNow` ends when nothing is due: this source may have new offsets while the query runs, the others may not.

Non-goals: deciding what is due (`Placed.due`); adding the source to a Spark checkpoint that was made without it, which
Spark does not allow (`carries_ticks`).
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know it by

from taskplace.spark.checkpoint.manifests import numbered
from taskplace.spark.cluster import Cluster
from taskplace.spark.codec import read_file
from taskplace.spark.versions import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SupportsTriggerAvailableNow,
)

FORMAT = "taskplace-ticks"
NAME = "taskplace_ticks"
OFFSET = "taskplace-tick"
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
END = "\n"  # a number without it is only half written


class TickSource:
    """The ticks of one checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._file = checkpoint / "tick"

    def ask(self, batch: int) -> None:
        """Request a batch even without rows; the batches before it must be committed."""
        with suppress(FileNotFoundError, ValueError):
            if int(read_file(self._file)) >= batch:
                return
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(f"{batch}{END}")

    def added_to(self, united: DataFrame, cluster: Cluster) -> DataFrame:
        """Return a united streaming frame with the source of ticks as one more branch, which has no rows."""
        spark = united.sparkSession
        cluster.register_source(spark, FORMAT, _source)
        reader = spark.readStream.format(FORMAT)
        if str(spark.conf.get(NAMED_SOURCES, "false")).lower() == "true":
            reader = reader.name(NAME)  # with this setting, each source must have a name
        ticks = reader.load(str(self._file))
        columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in united.schema.fields]
        return united.unionByName(ticks.where("false").select(*columns))


def carries_ticks(spark_checkpoint: Path) -> bool | None:
    """Return whether a Spark checkpoint was made with the source of ticks; None if it has no batch yet.

    Spark's offset log shows it: after the version and a line of metadata, a file has one line per source. In version 2
    the line begins with the source's name.
    """
    offsets = spark_checkpoint / "offsets"
    if not offsets.exists():
        return None
    for number in reversed(numbered(offsets)):
        version, *lines = (offsets / str(number)).read_text(errors="replace").splitlines() or [""]
        if lines[1:]:  # otherwise the file is half written, from a crash of the host
            return any(_is_tick(line if version == "v1" else line.partition(":")[2]) for line in lines[1:])
    return None


def _is_tick(text: str) -> bool:
    try:
        offset = json.loads(text)
    except ValueError:
        return False
    return isinstance(offset, dict) and list(offset) == [OFFSET] and isinstance(offset[OFFSET], int)


def _source() -> type[DataSource]:
    """Return the data source. Its classes are local, so that they are pickled by value and need no import by name."""

    class Ticking(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return "tick long"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return Reader(self.options["path"])

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, path: str) -> None:
            self.path, self._newest = path, 0

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {OFFSET: 0}

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
            start = start or {OFFSET: self._newest}  # before 4.2, Spark does not say where the batch begins
            try:
                with os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)) as file:
                    text = file.read()
            except FileNotFoundError:
                return start
            if not text.endswith(END) or not text.strip().isdecimal():
                return start
            self._newest = max(start[OFFSET], int(text))
            return {OFFSET: self._newest}

        def commit(self, end: dict[str, int]) -> None:
            self._newest = max(self._newest, end[OFFSET])

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """Do not fix an end offset: work that becomes due during the run is part of the run."""

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return []

        def read(self, partition: InputPartition) -> Any:
            return iter(())

    return Ticking
