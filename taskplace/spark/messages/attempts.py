"""What an attempt is given, and what it answers; where in a checkpoint a stage's files lie."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from taskplace.spark.messages.base import Columns, Message, Tally, Watermark
from taskplace.spark.messages.checkpoint import SinkSchema, StagedFile
from taskplace.spark.messages.histories import Change, History
from topology.ids import TaskId


class Slice(Message, frozen=True, array_like=True):
    """One partition's rows within a file: `length` bytes of an Arrow stream from `offset`, and their CRC-32."""

    offset: int
    length: int
    rows: int
    crc: int


class Boundary(Message, frozen=True):
    """One attempt's rows for one internal topic. `slices` has the partitions that got rows; `schema` is Arrow's,
    serialised; `key` says as what the key's columns were hashed, if there were rows."""

    file: str
    schema: bytes
    slices: Mapping[int, Slice]
    key: tuple[str, ...] = ()


class Listing(Message, frozen=True):
    """Names the file that lists the boundaries which a stage reads, by internal topic, with its size and checksum."""

    file: str
    size: int
    checksum: str


class Setting(Message, frozen=True):
    """What all attempts of a stage share. It travels pickled, with the function that a stage runs.

    `schema`: of the external input, serialised, united if there are several sources; None without any. `inputs`: where
    the boundaries of internal topics are listed; None without any. `run`: the id
    of this run of the stage, as a query that is started again runs a batch again, with the same epoch. `round`: how
    often executors were lost within the run so far. `watermarks`: of the topics that the stage reads, in microseconds
    since 1970 (UTC), None: unknown yet; `late`: what each store that forgets went by in the batch before.
    `sinks`: the schemas of the sinks that have one already.
    """

    checkpoint: str
    state_root: str
    spark_app: str
    epoch: int
    batch: int
    generation: int
    schema: bytes | None
    compression: str | None
    bytes_per_task: int
    inputs: Listing | None = None
    run: str = ""
    sinks: Mapping[str, SinkSchema] = {}
    round: int = 0
    watermarks: Mapping[str, Watermark] = {}
    late: Mapping[str, Watermark] = {}


class Descriptor(Message, frozen=True):
    """What one attempt must start from: the task, where it was planned to run, and its committed history.

    `held`: what stores of this task went by in the batch before, where that is not what the stage says, as windows of
    this task that were due had not all been sent.
    """

    task: TaskId
    instance: str
    history: History
    held: Mapping[str, Watermark] = {}


class Recovery(Tally):
    """What it took to bring a copy to its base.

    `unfinished` when a follower was stopped on the way, `restoring` a snapshot (its attempt) or not; `damaged` files of
    the checkpoint were done without.
    """

    replayed: int = 0
    restored: int = 0
    rolled_back: bool = False
    scratch: bool = False
    unfinished: bool = False
    restoring: str = ""
    damaged: list[str] = field(default_factory=list)


class Report(Message, frozen=True):
    """What an attempt did. `change` is None when the state did not change; `seconds` itemises its time.

    `rows`: how many came from outside the topology; `event_times`: the newest event time of each topic; `late`: rows
    that stores did not take, having expired already; `expiring`: whether what has expired is not all removed yet;
    `watermarks`: what each store that forgets went by; `behind`: the watermark of each internal topic that it wrote to.
    `staged_as`: the columns of what was staged, by sink.
    """

    task: TaskId
    attempt: str
    instance: str
    planned: str
    change: Change | None
    sinks: Mapping[str, StagedFile]
    boundaries: Mapping[str, Boundary]
    rows: int
    recovery: Recovery
    seconds: Mapping[str, float]
    staged_as: Mapping[str, Columns] = {}
    event_times: Mapping[str, int] = {}
    late: int = 0
    expiring: bool = False
    watermarks: Mapping[str, Watermark] = {}
    behind: Mapping[str, Watermark] = {}


# -- names of files, relative to the checkpoint


def batch_dir(batch: int) -> str:
    """Return the folder of what a batch needs until it is published."""
    return f"batches/{batch:010d}"


def reports_dir(batch: int, subtopology: int) -> str:
    """Return the folder of a stage's finished attempts."""
    return f"{batch_dir(batch)}/attempts/{subtopology}"


def report_file(setting: Setting, task: TaskId, attempt: str) -> str:
    """Return the file of a finished attempt's report."""
    return f"{reports_dir(setting.batch, task.subtopology)}/{task}-{setting.run}-{attempt}.json"


def inputs_file(setting: Setting, subtopology: int) -> str:
    """Return the file that lists the boundaries which a run of a stage reads."""
    return f"{batch_dir(setting.batch)}/inputs/{subtopology}-{setting.run}.json"


def called_off(setting: Setting, subtopology: int) -> str:
    """Return the file by which a driver calls a round of a stage off."""
    return f"{reports_dir(setting.batch, subtopology)}/called-off-{setting.run}-{setting.round}"


def change_file(task: TaskId, version: int, attempt: str) -> str:
    """Return the file of an attempt's changes."""
    return f"changelog/{task}/{version:010d}-{attempt}.arrow"


def snapshot_file(task: TaskId, version: int, attempt: str) -> str:
    """Return the file of a snapshot, the first that is made of an attempt."""
    return f"snapshots/{task}/{version:010d}-{attempt}.arrow"


def task_of(name: str) -> TaskId:
    """Return the task whose attempt wrote a file of a batch: its name begins with it.

    >>> task_of("1_12-4f2a-3-9bc1.json")
    TaskId(subtopology=1, partition=12)
    """
    return TaskId.parse(name.partition("-")[0])
