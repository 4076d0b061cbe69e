"""Makes Spark run batches without rows when work is due by event time: windows to close, state to expire.

Spark calls such a batch a no-data batch. There are two reasons for one. Either the last batch moved the watermark or
could not remove all expired entries (`due`), or no source has had rows for the duration `idle_closing`
(`NoDataBatches`). Spark runs one only for a stream with the source of ticks (`TickSource`).
Without that source the work waits for the next rows, and one warning is logged.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know it by

from taskplace.durations import milliseconds
from taskplace.errors import CheckpointError, InputError
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.checkpoint.manifests import numbered
from taskplace.spark.cluster import Cluster
from taskplace.spark.codec import read_file
from taskplace.spark.driver.batch import Batch
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.stages import IdleTasks
from taskplace.spark.versions import (
    DATA_SOURCES,
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SupportsTriggerAvailableNow,
)
from taskplace.spark.worker.guard import raising_disk_full

DAY = 86_400_000_000  # microseconds
FORMAT = "taskplace-ticks"
NAME = "taskplace_ticks"
OFFSET = "taskplace-tick"
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
END = "\n"  # a number without it is only half written

log = logging.getLogger(__name__)


class NoDataBatches:
    """Requests the batches without rows of one stream, when work is due by event time.

    **Idle sources.** After `idle_closing` without rows, event time follows the clock: a batch without rows is committed
    with the clock's time as the newest event time of every source. The next batch's watermark comes from that manifest,
    as always. So replays, attempts and copies agree, and the watermark never goes back. With it, the time at which a
    window closes depends on when batches ran, not only on the rows.

    - The watermark goes at most to the clock's time less a source's `delay`.
    - It stops when all entries must have expired, so silence does not run batches for ever. Event times more than a day
      in the future do not extend this.
    - Rows that come after a silence are late if their event time is before the watermark, like any other rows.
    - A single silent source among active ones holds the watermark back as before.

    Lifetime: one for each driver. `ticks` is None as long as the stream reads no source of ticks. `_since` is the time
    of the last rows, or of the last batch that moved event time by the clock; `_newest` is the newest event time of
    rows.
    Errors: `InputError` for `idle_closing` in a topology that does nothing by event time.
    """

    def __init__(
        self, definition: StreamDefinition, cluster: Cluster, journal: Journal, idle: IdleTasks
    ) -> None:
        self.ticks: TickSource | None = None
        self._definition, self._cluster, self._journal, self._idle = definition, cluster, journal, idle
        check_idle_closing(definition)
        after = definition.options.idle_closing
        self._silence = None if after is None else milliseconds(after, "idle_closing") / 1000
        self._since = time.monotonic()
        self._newest: int | None = None
        self._timer: threading.Timer | None = None
        self._warned_without_ticks = False

    @property
    def watermark(self) -> int | None:
        """The sources' watermark in the next batch, microseconds since 1970 (UTC); None: not yet known."""
        return self._definition.watermark_after(self._journal.last)

    def due(self) -> bool:
        """Return whether the next batch has work even without rows."""
        last, watermark = self._journal.last, self.watermark
        if last is None or watermark is None or not self._definition.driven_by_time:
            return False
        return watermark != last.watermark or self._idle.expiring

    # -- between batches

    def request_batch(self) -> None:
        """Request a batch from Spark if one is due; otherwise start waiting for a silence of all sources.

        Errors: `DiskFull` when the request cannot be written.
        """
        if self.ticks is None:
            if self.due():
                self._warn_without_ticks()
        elif self.due():
            with raising_disk_full(self._definition.checkpoint):
                self.ticks.ask(self._journal.last_batch + 1)
        elif (last := self._journal.last) is not None:
            self.stop_waiting()
            if self._clock_may_close(self.watermark):
                left = self._since + (self._silence or 0.0) - time.monotonic()
                self._timer = threading.Timer(max(0.0, left), self.ticks.ask, (last.batch + 1,))
                self._timer.name, self._timer.daemon = "taskplace-idle-sources", True
                self._timer.start()

    def stop_waiting(self) -> None:
        """Stop waiting for a silence: a batch has begun, or the stream has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def event_times(self, batch: Batch) -> Mapping[str, int]:
        """Return the newest event times to commit with a batch; the clock's, after a long enough silence."""
        now = time.monotonic()
        if batch.rows or any(read.backlog for read in batch.read.values()):  # a backlog is no silence
            self._since, self._newest = now, None
            return batch.event_times
        if not self._clock_may_close(batch.watermarks.now) or now - self._since < (self._silence or 0.0):
            return batch.event_times
        self._since = now
        return dict.fromkeys(self._definition.event_times, time.time_ns() // 1000)

    def _clock_may_close(self, watermark: int | None) -> bool:
        """Return whether the clock may move event time, and entries or windows may be left that it can close."""
        known = self._journal.last.event_times if self._journal.last else {}
        if self._silence is None or not known:
            return False
        if self._newest is None:
            self._newest = min(max(known.values()), time.time_ns() // 1000 + DAY)
        return watermark is None or watermark < self._newest + self._definition.longest_retention

    # -- the source of ticks

    def wants_ticks(self, spark_checkpoint: Path) -> bool:
        """Return whether a query reads the source of ticks: as its checkpoint did before or, if it is new, if it is
        useful.

        Logs a warning if the source would be useful, but the checkpoint was made without it.
        """
        carried, useful = carries_ticks(spark_checkpoint), self._definition.driven_by_time
        if carried and not DATA_SOURCES:
            raise CheckpointError(
                f"{spark_checkpoint}: was created with the source of ticks, which needs PySpark 4.0 or newer; go on "
                "with a newer PySpark, or start a new checkpoint in another directory"
            )
        if carried or not useful or (carried is None and DATA_SOURCES):
            return useful if carried is None else carried
        why = "this PySpark has no data sources in Python, so there are no ticks (PySpark 4.0 has them)"
        if carried is False:
            why = "it was created without the source of ticks, and Spark cannot add a source to a checkpoint"
            why += ", so only a new checkpoint has ticks" if DATA_SOURCES else ""
        log.warning(
            "%s: %s; while all sources are silent, windows do not close and state does not expire until the next rows "
            "arrive", self._definition.checkpoint, why,
        )  # fmt: skip
        self._warned_without_ticks = True
        return False

    def add_ticks(self, united: DataFrame) -> DataFrame:
        """Add the source of ticks to a united streaming frame. From now on, batches can be requested."""
        self.ticks = TickSource(self._definition.checkpoint)
        self.request_batch()
        return self.ticks.added_to(united, self._cluster)

    def _warn_without_ticks(self) -> None:
        if self._warned_without_ticks:
            return
        self._warned_without_ticks = True
        log.warning(
            "%s: windows are due to close, or state is due to expire, but Spark runs no batch while all sources are "
            "silent; use `start`, or `unite(sources, ticks=True)` on a new Spark checkpoint, to run batches then",
            self._definition.checkpoint,
        )


def check_idle_closing(definition: StreamDefinition, path: str = "idle_closing") -> None:
    """Refuse `idle_closing` for a topology that does nothing by event time. Errors: `InputError` with `path`."""
    idle_closing = definition.options.idle_closing
    if idle_closing is not None and not definition.driven_by_time:
        raise InputError(
            path,
            found=idle_closing,
            expected="a topology with windows, or with state that expires by event time",
        )


class TickSource:
    """The ticks of one checkpoint: a source without rows that makes Spark run a batch when event time has work to do.

    Idea: Spark runs a batch when a source has a new offset. The source of ticks never has rows. It gets a new offset
    when the driver requests a batch: the number of the batch, in a file of the checkpoint.

        <checkpoint>/tick               "13": batch 13 has work to do even without rows

    Properties:
    - The driver requests after a commit. The next batch takes the tick together with any rows, so a busy stream runs no
      additional batches. If there are no rows, the batch runs at once, as Spark's own batches without data do.
    - Requesting a batch twice has no further effect, also after a restart. A lost or half-written file means no
      request.
    - There is one file of a few bytes, and the source has no log, so nothing grows. Spark's file source would record
      every file for ever.
    - The source is planned on the driver and needs no tasks: the optimiser removes its branch from every batch.
    - `availableNow` ends when nothing is due: this source may have new offsets while the query runs, the others may
      not.

    Non-goals: deciding what is due (`NoDataBatches.due`); adding the source to a Spark checkpoint that was made without
    it, which Spark does not allow (`carries_ticks`).
    """

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
