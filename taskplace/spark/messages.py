"""All that crosses between the driver and executors, or lies in a file: typed, frozen, checked when it is read.

| message | written by | read by | where it lies | version |
|---|---|---|---|---|
| `Manifest` | driver, at commit | later drivers | `manifests/<batch>.json`, sealed | `SCHEMA` (`driver/versions.py`) |
| `Declaration` | driver, taking over | later drivers | `epochs/<epoch>`, sealed | the manifest's |
| `Setting` | driver | attempts | in the task, pickled | none: one run |
| `Descriptor` | driver | one attempt | in the job | none: one run |
| `Report` | attempt | driver, same run | `batches/*/attempts/`, the job's result | none: one run |
| `Boundary`, by topic | driver | attempts | `batches/*/inputs/`, sealed by `Setting.inputs` | none: one run |
| `Orders` | driver | one visit | in the job | none: one run |
| `Visit` | visit | driver | the job's result | none: one run |
| `Question`, `Answer` | driver, executor | executor, driver | in the job, its result | none: one run |
| `Meta` | whoever changes a copy | whoever opens it | in the copy | `FORMAT` |
| `Owner`, `Orphaned`, `Opened` | workers | workers of the host | in `state.dir` | none: unreadable is missing |

Programs, with the user's processors in them, travel pickled: `worker/program.py`.

Properties: executors import this, so it imports neither Spark nor Arrow. Task ids are `TaskId`, and text only in JSON
and in names. What names a file names it relative to the checkpoint.

How they are encoded: `taskplace.spark.codec`. Errors: `ValueError` with the path of the field; whoever reads a file
names that as well (`damaged`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import field

from taskplace.spark.codec import Message, Tally, Task
from topology.ids import TaskId

#: Microseconds since 1970 (UTC); None: unknown yet.
Watermark = int | None
#: The columns of a table: name and type, as text.
Columns = tuple[tuple[str, str], ...]

# -- a task's committed state: changes, snapshots, positions


class Position(Message, frozen=True, array_like=True):
    """A point of a task's history: the batch that made it, the attempt that did, records applied in all."""

    version: int = -1
    attempt: str = ""
    offset: int = 0


#: Where every task begins, before its first change.
EMPTY = Position()


class Change(Message, frozen=True):
    """One committed step: the records that lead from `base` (an attempt) to this position.

    `file` is relative to the checkpoint; empty when a batch changed only stores that are not logged.
    """

    version: int
    attempt: str
    base: str
    offset: int
    records: int
    file: str = ""
    size: int = 0
    checksum: str = ""

    @property
    def position(self) -> Position:
        """The point that this change leads to."""
        return Position(self.version, self.attempt, self.offset)


class Snapshot(Message, frozen=True):
    """The whole state at one committed position, in one file."""

    version: int
    attempt: str
    offset: int
    records: int
    file: str
    size: int
    checksum: str

    @property
    def position(self) -> Position:
        """The point that this snapshot holds."""
        return Position(self.version, self.attempt, self.offset)


class History(Message, frozen=True):
    """The committed changes of one task, oldest first, and its snapshots; `changes` may begin at a snapshot."""

    changes: tuple[Change, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()

    @property
    def end(self) -> Position:
        """The last committed position."""
        if self.changes:
            return self.changes[-1].position
        return self.snapshots[-1].position if self.snapshots else EMPTY


# -- what lies in a checkpoint: sealed, and read by later drivers


#: A new version needs a step in `driver/versions.py`, and golden checkpoints of the one before.
SCHEMA = "taskplace.manifest/6"


class StagedFile(Message, frozen=True):
    """A sink's rows of one attempt, in the checkpoint, waiting for the commit."""

    file: str
    rows: int
    size: int
    checksum: str


class SinkSchema(Message, frozen=True):
    """The columns of a sink, in order, and whether the user declared them. A manifest's identity has the columns."""

    columns: Columns
    declared: bool = False

    @property
    def written(self) -> str:
        """How it is declared: {'k': 'string', 'n': 'int64'}."""
        return str(dict(self.columns))


class Manifest(Message, frozen=True, tag_field="schema", tag=SCHEMA):
    """One committed batch.

    `snapshots` are all that are kept then, by task; `identity` binds the checkpoint. Every so many batches a manifest
    is *full*: it has all `histories`, so that those before it are no longer needed. `event_times`: the newest of each
    source so far, in microseconds; the next batch's watermark comes from them. `needs`: the first batch whose manifest
    is still needed beside this one. `rows`: how many of the sources' rows are in the batch. `watermark`: of the
    sources, in this batch; `expired`: the time up to which each store that forgets has expired, None in manifests of
    older versions, whose stores went by `watermark`; `held`: by task, where that was another one
    (`driver/watermarks.py`). `assignment`: by instance, for whoever looks: nothing goes by it.
    """

    batch: int
    epoch: int
    generation: int
    identity: Mapping[str, Any]
    changes: Mapping[Task, Change] = {}
    snapshots: Mapping[Task, tuple[Snapshot, ...]] = {}
    sinks: Mapping[str, tuple[StagedFile, ...]] = {}
    assignment: Mapping[str, Any] = {}
    histories: Mapping[Task, History] | None = None
    event_times: Mapping[str, int] = {}
    needs: int = 0
    rows: int = 0
    watermark: Watermark = None
    expired: Mapping[str, Watermark] | None = None
    held: Mapping[Task, Mapping[str, Watermark]] = {}


class Layout(Message, frozen=True, omit_defaults=True):
    """How a store is laid out: its columns, the time that its entries are forgotten by, and what its numbers mean."""

    key: Columns
    value: Columns
    time: str | None = None
    meaning: Mapping[str, Any] = {}

    @property
    def columns(self) -> str:
        """What its entries look like, for an error."""
        time = f", forgotten by {self.time!r}" if self.time else ""
        return f"key {list(self.key)}, value {list(self.value)}{time}"


class Declaration(Message, frozen=True, forbid_unknown_fields=False):
    """What a driver's manifests are made with (`driver/structure.py`).

    `id`: the checkpoint's, the same in all; `topology` as `BuiltTopology.to_dict` has it; `sources`: in the order in
    which Spark reads them, None if it was declared before that was kept.
    """

    id: str
    topology: Mapping[str, Any]
    stores: Mapping[str, Layout]
    incarnations: Mapping[str, int]
    sources: tuple[str, ...] | None = None


# -- what an attempt is given, and what it answers


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


# -- what followers are asked and answer, and what readers of a store are


BUDGET_SECONDS = 0.5
"""A batch that begins while an executor is visited waits for one of its slots for about this, if copies are small."""


class Orders(Message, frozen=True):
    """What one executor is asked to do. Histories by task, stores by subtopology; `logged` have a changelog.

    `orphans_after`: seconds, None: orphaned directories are not looked for; `budget`: seconds.
    """

    instance: str
    checkpoint: str
    state_root: str
    spark_app: str
    stores: Mapping[int, tuple[str, ...]]
    logged: Mapping[int, tuple[str, ...]]
    follow: Mapping[Task, History] = {}
    snapshot: Mapping[Task, History] = {}
    remove: tuple[TaskId, ...] = ()
    orphans_after: float | None = None
    compression: str | None = "lz4"
    budget: float = BUDGET_SECONDS


class Visit(Tally):
    """What an executor answers: every copy it has, where each is, and what was done.

    `here` is False when Spark ran the visit on another executor; `pid` is the executor's JVM; `restoring`: by task, the
    attempt of the snapshot that the next visit goes on with; `orphans`: dead executors' directories that were removed.
    """

    instance: str
    here: bool
    pid: int = 0
    copies: dict[Task, Position] = field(default_factory=dict)
    replayed: int = 0
    restored: int = 0
    snapshots: dict[Task, Snapshot] = field(default_factory=dict)
    unfinished: bool = False
    restoring: dict[Task, str] = field(default_factory=dict)
    errors: dict[Task, str] = field(default_factory=dict)
    removed: list[TaskId] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Question(Message, frozen=True):
    """What to read of one task's copy: `keys` (encoded), or all of the store into a file whose name begins with `file`.

    What has expired at `watermark` (microseconds) is not there any more.
    """

    task: TaskId
    history: History
    state_root: str
    spark_app: str
    keys: tuple[bytes, ...] | None = None
    file: str = ""
    watermark: int | None = None


class Answer(Message, frozen=True):
    """What was found: values in the order of the keys, or a file of all rows; else no position, and why."""

    task: TaskId
    position: Position | None
    values: tuple[bytes | None, ...] = ()
    file: str = ""
    error: str = ""


# -- what lies on an executor's own disk


#: Of `Meta`: a copy of another one is made anew.
FORMAT = 3


class Fence(Message, frozen=True, order=True, array_like=True):
    """Whose work this is: the driver's epoch, the batch, the generation. A copy takes no older one than it has seen."""

    epoch: int = 0
    batch: int = -1
    generation: int = 0


class Meta(Message, frozen=True):
    """Where a copy is, and how it got there.

    - `at`: its position, its last attempt included; `undo`: where its undo record leads, None without one
    - `skipped`: stores whose records were passed over, because the topology did not have them
    - `restoring`: which snapshot (attempt and checksum), and how many pieces of it have been loaded; `at` is EMPTY then
    - `boot`: of the host, in which it was written: no copy is used after another one
    """

    at: Position = EMPTY
    undo: Position | None = None
    fence: Fence = Fence()
    skipped: tuple[str, ...] = ()
    restoring: tuple[str, int] | None = None
    boot: str = ""
    format: int = FORMAT

    @property
    def certain(self) -> Position:
        """The position without an uncommitted last batch: of what is sure is where its undo record leads."""
        return self.undo if self.undo is not None else self.at


class Owner(Message, frozen=True):
    """A process that cannot be mistaken for a later one with the same id (`worker/identity.py`).

    `started` is counted from the boot where the system says it so: by the wall clock, a process would seem to
    be another one after the clock was set.
    """

    pid: int
    started: float
    boot: str
    namespace: str


class Orphaned(Message, frozen=True):
    """Since when a directory is known to have no owner: seconds of the boot's own clock."""

    boot: str
    since: float


class Opened(Message, frozen=True):
    """Who has a copy open, and how many before it have died of that; it is gone when the copy is closed.

    `called_off`: the file that says that Spark has ended the worker, and not the copy.
    """

    worker: Owner
    executor: Owner
    deaths: int = 0
    called_off: str = ""
