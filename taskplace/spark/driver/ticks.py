"""Ticks: batches that run although no source brings rows, because time has something to do.

Idea: Spark runs a batch when a source has a new offset. One more source, which never has rows, gets a new offset when
the driver asks for a batch: the batch's number, in a file of the checkpoint.

    <checkpoint>/tick               "13": batch 13 has something to do even without rows

Properties:
- The driver asks after a commit. The next batch takes the tick and whatever rows there are: a busy stream runs no batch
  more. If there are no rows, the batch runs at once, as Spark's own batches without data do.
- Asking twice for a batch is asking once, also after a restart. A file that is lost or half written is no news.
- There is one file of a few bytes, and the source has no log: nothing grows. Spark's file source notes every file down
  for ever.
- The source is planned on the driver and read nowhere: the optimiser removes its branch from every batch.
- `availableNow` ends when nothing is due: this source may have new offsets while the query runs, the others may not.

Non-goals: to say what is due (`Placed.due`); to get into a Spark checkpoint that was made without the source, which
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
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from taskplace.spark.bridge import register

FORMAT = "taskplace-ticks"
NAME = "taskplace_ticks"
OFFSET = "taskplace-tick"
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
END = "\n"  # a number without it is half written


class Ticks:
    """The ticks of one checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._file = checkpoint / "tick"

    def ask(self, batch: int) -> None:
        """Have a batch run even without rows; the batches before it have to be committed."""
        with suppress(FileNotFoundError, ValueError):
            if int(self._file.read_text()) >= batch:
                return
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(f"{batch}{END}")

    def added_to(self, united: DataFrame) -> DataFrame:
        """Return a united streaming frame with the source of ticks as one more branch, which has no rows."""
        spark = united.sparkSession
        register(spark, FORMAT, _source)
        reader = spark.readStream.format(FORMAT)
        if str(spark.conf.get(NAMED_SOURCES, "false")).lower() == "true":
            reader = reader.name(NAME)  # each source has to have one then
        ticks = reader.load(str(self._file))
        columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in united.schema.fields]
        return united.unionByName(ticks.where("false").select(*columns))


def carries_ticks(spark_checkpoint: Path) -> bool | None:
    """Return whether a Spark checkpoint was made with the source of ticks; None: no batch of it was ever begun.

    Spark's offset log says so: after its version and a line of metadata, a file has one line per source, which begins
    with the source's name in version 2.
    """
    offsets = spark_checkpoint / "offsets"
    if not offsets.exists():
        return None
    numbers = [int(path.name) for path in offsets.iterdir() if path.name.isdigit()]
    for number in sorted(numbers, reverse=True):
        version, *lines = (offsets / str(number)).read_text(errors="replace").splitlines() or [""]
        if lines[1:]:  # else half written, when the host crashed
            return any(_is_tick(line if version == "v1" else line.partition(":")[2]) for line in lines[1:])
    return None


def _is_tick(text: str) -> bool:
    try:
        offset = json.loads(text)
    except ValueError:
        return False
    return isinstance(offset, dict) and list(offset) == [OFFSET] and isinstance(offset[OFFSET], int)


def _source() -> type[DataSource]:
    """Return the source; its classes travel to Spark by value, so that they need not be found there by name."""

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
            self.path = path

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {OFFSET: 0}

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
            try:
                with open(self.path) as file:  # noqa: PTH123
                    text = file.read()
            except FileNotFoundError:
                return start
            if not text.endswith(END) or not text.strip().isdigit():
                return start
            return {OFFSET: max(start[OFFSET], int(text))}

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """Fix nothing: what becomes due within the run is to run as well."""

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return []

        def read(self, partition: InputPartition) -> Any:
            return iter(())

    return Ticking
