"""What the attempts of one bin share: the program, the setting of the stage, the bin's rows, and the files they write.

The files are the changelog segment, and a boundary file for each topic. A segment is as Kafka has it: the number of
files depends on the number of workers, and not on the tasks and batches. A worker process appends the changes of all
its attempts to one segment, for some neighbouring batches under one driver: for `BATCHES` of them, or for as many as
probably take no more than `BYTES_LIMIT`. Its name begins with the last of them. So the driver knows that nothing more
comes into a segment once that batch is committed, and may then remove it (`checkpoint/pruning.py`). A segment that is
full, that failed, or whose file has gone, is not used any more.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from taskplace.spark.checkpoint.files import SectionFile, file_name
from taskplace.spark.messages import Setting, TopicRead, batch_dir, cancellation_mark, segment_file
from taskplace.spark.state.catching_up import Superseded
from taskplace.spark.worker.boundary import InternalRows
from taskplace.spark.worker.external import ExternalRows, by_topic, check_size
from taskplace.spark.worker.guard import raising_disk_full
from taskplace.spark.worker.program import Program
from taskplace.spark.worker.topic_reader import ReadSetting, read_of
from topology import TaskId

BATCHES = 16
#: A segment with so many bytes is full. Small segments are removed earlier, as none of their sections is needed.
BYTES_LIMIT = 64 << 20
#: How many checkpoints a process writes to at a time; a Spark application seldom has more than a few streams.
CHECKPOINTS = 16

_lock = threading.Lock()

log = logging.getLogger(__name__)
#: The most input that a bin of several tasks should have in memory. The driver cuts bins by estimates.
BIN_BYTES = 64 << 20
#: From how many times as much on a bin is logged.
LOGGED_FROM = 1.25
#: How long an attempt on an unplanned executor without a copy waits for the driver to cancel the round.
ELSEWHERE_SECONDS = 1.5


@dataclass
class Segment:
    """A segment, the driver and process that it is for, and its batches: `used` is the last one that has used it."""

    file: SectionFile
    purpose: tuple[int, int]
    first: int
    last: int
    used: int

    def takes(self, batch: int, purpose: tuple[int, int]) -> bool:
        """Return whether it takes the changes of a batch."""
        fits = self.purpose == purpose and self.first <= batch <= self.last
        return fits and self.file.size < BYTES_LIMIT and self.file.usable()

    def batches_that_fit(self) -> int:
        """Return for how many batches the next segment will do, if they are like those of this one."""
        return max(1, BYTES_LIMIT * (self.used - self.first + 1) // max(1, self.file.size))


#: By checkpoint.
OPEN: dict[Path, Segment] = {}


def segment(checkpoint: Path, batch: int, epoch: int) -> SectionFile:
    """Return the file for the changes of a batch: that of the batch before, if it takes those of this one."""
    purpose = (os.getpid(), epoch)
    with _lock:
        open_ = OPEN.pop(checkpoint, None)
        if open_ is None or not open_.takes(batch, purpose):
            last = batch // BATCHES * BATCHES + BATCHES - 1
            if open_ is not None:
                last = min(last, batch + open_.batches_that_fit() - 1)
            file = SectionFile(checkpoint, segment_file(last, epoch, uuid.uuid4().hex))
            open_ = Segment(file, purpose, first=batch, last=last, used=batch)
        open_.used = max(open_.used, batch)
        OPEN[checkpoint] = open_  # the last one used is the last one to be forgotten
        if len(OPEN) > CHECKPOINTS:
            del OPEN[next(iter(OPEN))]
        return open_.file


class BinFiles:
    """The shared files of one bin, in `checkpoint`. They are made when the first attempt writes to them."""

    def __init__(self, setting: Setting) -> None:
        self._setting, self.checkpoint = setting, Path(setting.checkpoint)
        self._boundaries: dict[str, SectionFile] = {}

    @cached_property
    def segment(self) -> SectionFile:
        """The file for changes. It is synced before they are reported."""
        return segment(self.checkpoint, self._setting.batch, self._setting.epoch)

    def boundary(self, topic: str) -> SectionFile:
        """Return the file for rows to an internal topic. It needs no sync: only this batch reads it."""
        if topic not in self._boundaries:
            name = f"{batch_dir(self._setting.batch)}/topics/{file_name(topic)}/{uuid.uuid4().hex}.arrow"
            self._boundaries[topic] = SectionFile(self.checkpoint, name)
        return self._boundaries[topic]

    def flush(self) -> None:
        """Make the boundary files visible to other hosts, before reports name their sections."""
        for file in self._boundaries.values():
            file.flush()

    def to_sync(self) -> list[SectionFile]:
        """Return the files to which attempts have written what must survive a crash of the host."""
        return [self.segment] if "segment" in self.__dict__ else []


def cancellation_of(setting: Setting, program: Program) -> Path:
    """Return the file that exists once the driver has cancelled a round."""
    return Path(setting.checkpoint) / cancellation_mark(setting, program.subtopology)


@dataclass(frozen=True)
class TaskInput:
    """A task's rows by topic, and what it has read of the topics whose records it reads itself.

    - `brought`, `fetched`: the bytes of the rows that were brought to it, and of those that it has read itself
    """

    rows: Mapping[str, pa.Table]
    read: Mapping[str, TopicRead]
    brought: int
    fetched: int


@dataclass(frozen=True, kw_only=True)
class BinContext:
    """The values that the attempts of one bin share.

    - `files`: the attempts append their changes and boundaries to them; a report counts once they are synced
    - `external`, `internal`: the rows of external and of internal topics; None if the subtopology reads none
    """

    program: Program
    setting: Setting
    files: BinFiles
    external: ExternalRows | None = None
    internal: InternalRows | None = None

    @cached_property
    def checkpoint(self) -> Path:
        """The directory of the checkpoint."""
        return Path(self.setting.checkpoint)

    @cached_property
    def state_root(self) -> Path:
        """The directory of the copies of all executors of this host."""
        return Path(self.setting.state_root)

    @cached_property
    def cancellation(self) -> Path:
        """The file that exists once the driver has cancelled the round."""
        return cancellation_of(self.setting, self.program)

    @cached_property
    def waits_until(self) -> float:
        """The time until which attempts wait, all together, for the driver to cancel the round."""
        return time.monotonic() + ELSEWHERE_SECONDS

    def cancelled(self) -> bool:
        """Return whether the driver has cancelled the round."""
        return os.path.exists(self.cancellation)  # noqa: PTH110 - asked before each task; `Path.exists` takes longer

    def check_cancelled(self, task: TaskId) -> None:
        """Raise `Superseded` if the driver has cancelled the round."""
        if self.cancelled():
            raise Superseded(
                f"{task}: round {self.setting.round} of batch {self.setting.batch} was cancelled"
            )

    def input(self, task: TaskId) -> TaskInput:
        """Return a task's rows. Reads the records of the topics that tasks read themselves.

        Of what it reads, all topics together, at most `bytes_per_task` bytes are in memory; the rest is in a file.
        Errors: `InputError` for more bytes from Spark and from boundary files together, also for another task of the
        bin; `DiskFull`; as for the reader of a topic, `Program.check_keys` and `Program.check_samples`.
        """
        inputs: dict[str, pa.Table] = {}
        read: dict[str, TopicRead] = {}
        brought, fetched, most = 0, 0, self.setting.bytes_per_task
        if self.internal is not None:
            check_size(self.internal.size_of(task.partition), str(task), most)
            inputs = self.internal.of(task.partition)
            brought = sum(rows.nbytes for rows in inputs.values())
        if self.external is not None:
            rows = self.external.of(task.partition, beside=brought)
            brought += rows.nbytes
            check_size(brought, str(task), most)
            inputs |= by_topic(rows, self.program.external)
            for topic, reader in self.program.reads.items():
                ranges, times = inputs[topic], dict[int, int]()
                split = self.program.partitioned.get(topic)
                setting = ReadSetting(
                    most=max(most - brought - fetched, 0),
                    folder=self.state_root,
                    check=split.of_records if split is not None and split.checks_records else None,
                    times=times,
                    needs_key=split is not None and bool(split.key),
                )
                with raising_disk_full(self.state_root):
                    inputs[topic] = reader.read(ranges, setting)
                read |= read_of(topic, ranges, inputs[topic].num_rows, times)
                fetched += inputs[topic].nbytes
        self.program.check_keys(inputs)
        self.program.check_samples(inputs, task.partition)
        return TaskInput(inputs, read, brought, fetched)

    def check_size(self) -> None:
        """Log a warning if the rows of the bin's tasks, once read, take much more than `BIN_BYTES`.

        A single task may have more. `Report.brought` tells the driver, which makes the next bins smaller.
        """
        parts = [rows for rows in (self.external, self.internal) if rows is not None]
        size = sum(rows.nbytes for rows in parts)
        tasks = max((len(rows.partitions) for rows in parts), default=0)
        if tasks > 1 and size > LOGGED_FROM * BIN_BYTES:
            log.warning(
                "subtopology %d, batch %d: the input of a bin of %d tasks takes %.1f MiB, expected at most %g MiB; "
                "bins get smaller from the next batch on",
                self.program.subtopology, self.setting.batch, tasks, size / 2**20, BIN_BYTES / 2**20,
            )  # fmt: skip
