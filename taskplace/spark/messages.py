"""All that crosses between the driver and executors, or lies in a file: typed, and checked when it is read.

"What crosses" in docs/architecture.md has the table: each message, who writes it, who reads it, where it lies, and its
version. The version of a checkpoint is `SCHEMA`; manifests of other versions are refused (`checkpoint/manifests.py`).

Properties: executors import this, so it imports neither Spark nor Arrow. Task ids are `TaskId`, and text only in JSON
and in names. What names a file names it relative to the checkpoint.

How they are encoded: `taskplace.spark.codec`. Errors: `ValueError` with the path of the field; whoever reads a file
names that as well (`damaged`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import field

from taskplace.spark.codec import Message, Tally, TaskKey, decoded, encoded
from topology.tasks import TaskId

#: Microseconds since 1970 (UTC); None: unknown yet.
Watermark = int | None
#: The columns of a table: name and type, as text.
TypedColumns = tuple[tuple[str, str], ...]

#: The key in an identity of what was read. The value has the number of the batch, because versions that do not know the
#: key pass the identity on as it is.
READ = "read"

# -- a task's committed state: changes, snapshots, positions


class Position(Message, frozen=True, array_like=True):
    """A point in a task's history.

    - `version`: the batch that led to it
    - `attempt`: the attempt that led to it
    - `offset`: the number of changelog records up to it
    """

    version: int = -1
    attempt: str = ""
    offset: int = 0


#: Where every task begins, before its first change.
EMPTY = Position()


class Change(Message, frozen=True):
    """One committed step: the records that lead from `base` (an attempt) to this position.

    - `file`: has the records, in `size` bytes from `start`; relative to the checkpoint. Empty when a batch changed only
      stores that are not logged
    - `checksum`: of these bytes
    """

    version: int
    attempt: str
    base: str
    offset: int
    records: int
    file: str = ""
    size: int = 0
    checksum: str = ""
    start: int = 0

    @property
    def position(self) -> Position:
        """The point that this change leads to."""
        return Position(self.version, self.attempt, self.offset)


class Snapshot(Message, frozen=True):
    """The complete state of a task at one committed position, in one file."""

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


# -- sealed files of the checkpoint, read by later drivers


#: A new version needs golden checkpoints of the one before (`tests/golden/make.py`), and a step from it.
SCHEMA = "taskplace.manifest/8"


class StagedFile(Message, frozen=True):
    """A sink's rows in the checkpoint, waiting for the commit: those of all attempts of a `ReportGroup`."""

    file: str
    rows: int
    size: int
    checksum: str


class SinkSchema(Message, frozen=True):
    """The columns of a sink, in order, and whether the user declared them. The manifest's identity contains them."""

    columns: TypedColumns
    declared: bool = False

    @property
    def written(self) -> str:
        """The columns as a user would declare them: {'k': 'string', 'n': 'int64'}."""
        return str(dict(self.columns))


class Manifest(Message, frozen=True, tag_field="schema", tag=SCHEMA):
    """One committed batch.

    At regular intervals a manifest is *full*: it contains all `histories`, so earlier manifests are no longer needed.

    - `identity`: binds the manifest to its checkpoint. It also has what drivers continue: the schemas of sinks, and the
      totals since the checkpoint was created (`driver/totals.py`)
    - `snapshots`: by task, all snapshots that are kept after this batch
    - `event_times`: by source, the newest event time so far, in microseconds; the next watermark is computed from them
    - `needs`: the first batch whose manifest is still needed beside this one
    - `rows`: the number of source rows in the batch
    - `watermark`: of the sources, in this batch
    - `expired`: by store, the time up to which its entries have expired
    - `held`: by task and store, the same time where the task's differs from `expired` (`driver/watermarks.py`)
    - `assignment`: by instance; for debugging, never read back
    - `nonce`: drawn by each driver, so that output says whose it is
    - `offsets`: with which Spark has planned the batch, the text of each source; None if its log was not found
    """

    batch: int
    epoch: int
    generation: int
    identity: Mapping[str, Any]
    changes: Mapping[TaskKey, Change] = {}
    snapshots: Mapping[TaskKey, tuple[Snapshot, ...]] = {}
    sinks: Mapping[str, tuple[StagedFile, ...]] = {}
    assignment: Mapping[str, Any] = {}
    histories: Mapping[TaskKey, History] | None = None
    event_times: Mapping[str, int] = {}
    needs: int = 0
    rows: int = 0
    watermark: Watermark = None
    expired: Mapping[str, Watermark] = {}
    held: Mapping[TaskKey, Mapping[str, Watermark]] = {}
    nonce: str = ""
    offsets: tuple[str, ...] | None = None


class StoreLayout(Message, frozen=True, omit_defaults=True):
    """The layout of a store: its columns, the column by which entries expire, and what its numbers mean.

    `meaning` is empty if the processor declares none; None in declarations that are older than this rule.
    """

    key: TypedColumns
    value: TypedColumns
    time: str | None = None
    meaning: Mapping[str, Any] | None = None


class Declaration(Message, frozen=True, forbid_unknown_fields=False):
    """The structure under which a driver commits its manifests (`driver/structure.py`).

    - `id`: the checkpoint's id, the same in all declarations
    - `topology`: as `BuiltTopology.to_dict` returns it
    - `sources`: in the order in which Spark reads them; None if the declaration is older than this field
    - `split`: by store, the columns of its key that decide a key's task, in the order of the topic's key. No entry for
      a store in one task, and in declarations that are older than this field
    """

    id: str
    topology: Mapping[str, Any]
    stores: Mapping[str, StoreLayout]
    incarnations: Mapping[str, int]
    sources: tuple[str, ...] | None = None
    split: Mapping[str, tuple[str, ...]] = {}


# -- input and result of an attempt


class Slice(Message, frozen=True, array_like=True, gc=False):
    """One partition's rows in a boundary file: an attempt writes them, and the task of that partition reads them.

    They are `length` bytes from `offset`, with their CRC-32: an Arrow stream without its schema, which is in the
    `Boundary`.
    """

    offset: int
    length: int
    rows: int
    crc: int


class Boundary(Message, frozen=True):
    """One attempt's rows for one internal topic: the attempt writes it into its `Report`, and the driver reads it.

    The driver lists the boundaries of a topic, so that a stage need not read them one by one.

    - `file`: has the rows, beside those of other attempts; empty without rows
    - `slices`: by partition, for the partitions that got rows
    - `schema`: the serialised Arrow schema
    - `key`: the types under which the key columns were hashed; empty without rows
    - `task`: the task of the attempt
    """

    file: str
    schema: bytes
    slices: Mapping[int, Slice]
    key: tuple[str, ...] = ()
    task: str = ""


class ListingHead(Message, frozen=True):
    """The writers of one internal topic: the driver writes it, and the bins of a stage read it.

    It stands at the head of a listing, and the writers' slices stand behind it (`worker/boundary.py`).

    - `writers`: the tasks with rows, in the order in which their rows are read
    - `files`: the boundary files, each once
    - `schemas`: the serialised Arrow schemas, each once
    - `written_to`, `written_as`: by writer, the positions of its file and of its schema
    - `slices`: the number of slices
    """

    writers: tuple[str, ...]
    files: tuple[str, ...]
    schemas: tuple[bytes, ...]
    written_to: tuple[int, ...]
    written_as: tuple[int, ...]
    slices: int


class ListingFile(Message, frozen=True):
    """The file with a stage's listing: the driver writes it into the `Setting`, and the bins read the file by it."""

    file: str
    size: int
    checksum: str


class Setting(Message, frozen=True):
    """The values that all attempts of a stage share. The driver writes it, and each Spark task of the stage reads it.

    - `schema`: the serialised schema of the external input, united if there are several sources, with the partition of
      each row; None without any
    - `inputs`: lists the boundaries of internal topics; None without any
    - `run`: the id of this run of the stage. A restarted query repeats a batch with the same epoch, so batch and epoch
      alone do not identify a run
    - `round`: how often executors have been lost within this run
    - `watermarks`: by topic that the stage reads, in microseconds since 1970 (UTC); None: not yet known
    - `late`: by store with expiry, its watermark in the previous batch; older rows are late
    - `keys`: by internal topic that the stage reads, the key types that the checkpoint is bound to
    - `sinks`: the schemas of the sinks that already have one
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
    inputs: ListingFile | None = None
    run: str = ""
    sinks: Mapping[str, SinkSchema] = {}
    round: int = 0
    watermarks: Mapping[str, Watermark] = {}
    late: Mapping[str, Watermark] = {}
    keys: Mapping[str, tuple[str, ...]] = {}


class AttemptDescriptor(Message, frozen=True):
    """The starting point of one attempt: the task, the instance it was planned for, and its committed history.

    `tail`: whether `history` has only its last changes, which are enough for a copy that is at the end, or one or two
    batches off. The manifests have the whole one (`taskplace.spark.checkpoint.manifests`).
    `held`: the watermarks of this task's stores in the previous batch, where they differ from `Setting.late` because
    some due windows were not yet emitted.
    """

    task: TaskId
    instance: str
    history: History
    held: Mapping[str, Watermark] = {}
    tail: bool = False


class BinDescriptor(Message, frozen=True):
    """The input of one Spark task: the attempts that it runs, one after the other, all planned for one instance.

    `skipped`: partitions of other tasks whose rows Spark brings as well, and which are dropped
    """

    descriptors: tuple[AttemptDescriptor, ...]
    skipped: tuple[int, ...] = ()


class Recovery(Tally):
    """The work that brought a copy to its base position.

    - `unfinished`: a follower was stopped before the end
    - `restoring`: the snapshot (its attempt) that it was loading then; empty otherwise
    - `loaded`: the part of that snapshot that is loaded, from 0 to 1
    - `damaged`: damaged files of the checkpoint that were skipped
    """

    replayed: int = 0
    restored: int = 0
    rolled_back: bool = False
    scratch: bool = False
    unfinished: bool = False
    restoring: str = ""
    loaded: float = 0.0
    damaged: list[str] = field(default_factory=list)


class TopicRead(Message, frozen=True, omit_defaults=True):
    """What was read of a topic whose records tasks read themselves, by one attempt or in one batch.

    The manifest's identity has that of its batch (`driver/read_topics.py`).

    - `topic_id`: the broker's id of the topic
    - `starts`: by partition, the offset at which its range begins; only partitions that were read
    - `ends`: by partition, the offset behind its last range; in a manifest, of all partitions that were ever read
    - `rows`: the number of records
    - `skipped`: by partition, the offsets before its range that were not read, because the records are gone; only in a
      manifest
    - `newest`: by partition, the newest event time so far; only in a manifest
    - `backlog`: the partitions that had more records than were read
    - `times`: by partition, the timestamp of the last record in milliseconds, if it has one; in a manifest, as `ends`
    """

    topic_id: str
    starts: Mapping[int, int] = {}
    ends: Mapping[int, int] = {}
    rows: int = 0
    times: Mapping[int, int] = {}
    skipped: Mapping[int, int] = {}
    newest: Mapping[int, int] = {}
    backlog: tuple[int, ...] = ()

    @property
    def event_time(self) -> int | None:
        """The event time up to which the topic was read: of its slowest partition with a backlog; without one, the
        newest. None: not known.

        >>> read = TopicRead("x", newest={0: 70, 1: 20, 2: 30}, backlog=(0, 2))
        >>> read.event_time, TopicRead("x", newest=read.newest).event_time
        (30, 70)
        """
        if not self.backlog:
            return max(self.newest.values(), default=None)
        known = [self.newest[partition] for partition in self.backlog if partition in self.newest]
        return min(known) if len(known) == len(self.backlog) else None


def kept(manifest: Manifest | None) -> dict[str, TopicRead]:
    """Return by topic what a manifest says was read; empty if it says nothing."""
    entry = manifest.identity.get(READ) if manifest is not None else None
    if manifest is None or entry is None or entry["batch"] != manifest.batch:
        return {}
    topics: dict[str, TopicRead] = decoded(dict[str, TopicRead], encoded(entry["topics"]))
    return topics


class Report(Message, frozen=True):
    """The result of an attempt.

    - `change`: None when the state did not change
    - `seconds`: the attempt's time, by step
    - `rows`: the number of rows from outside the topology
    - `event_times`: by topic, the newest event time
    - `late`: the number of rows that stores rejected because they had already expired
    - `expiring`: whether expired entries remain to be removed
    - `watermarks`: by store with expiry, the watermark that it used
    - `behind`: by internal topic that the attempt wrote to, the watermark of its rows
    - `sinks`: by sink, the file with the staged rows, which may have rows of other attempts of its group
    - `staged_as`: by sink, the columns of the staged rows
    - `bad`: by external topic, the number of records that could not be decoded, and became dead letters
    - `read`: by topic whose records the task reads itself, what it has read
    - `lacked`: whether its copy lacked the entries of stores that are not logged
    - `brought`, `fetched`: the bytes of its input in memory: the rows that Spark and boundary files brought, and those
      that it has read itself
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
    staged_as: Mapping[str, TypedColumns] = {}
    event_times: Mapping[str, int] = {}
    late: int = 0
    expiring: bool = False
    watermarks: Mapping[str, Watermark] = {}
    behind: Mapping[str, Watermark] = {}
    bad: Mapping[str, int] = {}
    read: Mapping[str, TopicRead] = {}
    brought: int = 0
    fetched: int = 0
    lacked: bool = False


class ReportGroup(Message, frozen=True):
    """The reports of attempts of one bin that were sealed together. They count together or not at all.

    One attempt of a group may not win without the others, because they share the files with their staged rows.
    """

    reports: tuple[Report, ...]

    @property
    def tasks(self) -> frozenset[TaskId]:
        """The tasks of the attempts."""
        return frozenset(report.task for report in self.reports)


# -- names of files, relative to the checkpoint

#: Spark's own checkpoint of the query, if taskplace starts the query, and in it the log of offsets.
SPARK_CHECKPOINT, OFFSETS = "spark", "offsets"


def epoch_file(epoch: int) -> str:
    """Return the file with the declaration of a driver."""
    return f"epochs/{epoch:010d}"


def batch_dir(batch: int) -> str:
    """Return the directory with the files that a batch needs until it is published."""
    return f"batches/{batch:010d}"


def reports_dir(batch: int, subtopology: int) -> str:
    """Return the directory with the reports of a stage's finished attempts, a file for each group."""
    return f"{batch_dir(batch)}/attempts/{subtopology}"


def report_file(setting: Setting, group: ReportGroup) -> str:
    """Return the file with the reports of a group. Errors: `IndexError` for an empty group."""
    first = group.reports[0]
    name = f"{setting.run}-{first.task}-{first.attempt}.json"
    return f"{reports_dir(setting.batch, first.task.subtopology)}/{name}"


def inputs_file(setting: Setting, subtopology: int) -> str:
    """Return the file that lists the boundaries that a run of a stage reads."""
    return f"{batch_dir(setting.batch)}/inputs/{subtopology}-{setting.run}.listing"


def cancellation_mark(setting: Setting, subtopology: int) -> str:
    """Return the file with which a driver cancels a round of a stage."""
    return f"{reports_dir(setting.batch, subtopology)}/called-off-{setting.run}-{setting.round}"


def segment_file(last: int, epoch: int, unique: str) -> str:
    """Return a file with changes of several tasks and batches: those up to the batch `last`, under one driver."""
    return f"changelog/{last:010d}-{epoch}-{unique}.segment"


def snapshot_file(task: TaskId, version: int, attempt: str) -> str:
    """Return the file for the first snapshot of an attempt's state."""
    return f"snapshots/{task}/{version:010d}-{attempt}.arrow"


# -- requests to followers and store readers, and their answers


class FollowRequest(Message, frozen=True):
    """The work of one follow job on an executor.

    - `follow`, `snapshot`: by task, the history to apply, or to make a snapshot of
    - `stores`, `logged`: by subtopology; `logged` are the stores with a changelog
    - `orphans_after`: seconds after which orphaned directories are removed; None: they are not looked for
    - `budget`: about how many seconds of work; None: no limit
    """

    instance: str
    checkpoint: str
    state_root: str
    spark_app: str
    stores: Mapping[int, tuple[str, ...]]
    logged: Mapping[int, tuple[str, ...]]
    follow: Mapping[TaskKey, History] = {}
    snapshot: Mapping[TaskKey, History] = {}
    remove: tuple[TaskId, ...] = ()
    orphans_after: float | None = None
    compression: str | None = "lz4"
    budget: float | None = None


class FollowReport(Tally):
    """An executor's answer to `FollowRequest`: all its copies with their positions, and the work that was done.

    - `here`: False when Spark ran the job on another executor
    - `pid`: of the executor's JVM
    - `copies`: by task, the position of its copy that is certainly committed
    - `attempted`: by task, the position of its copy after the last attempt, which may be committed; only copies that
      can roll it back
    - `restoring`: by task, the snapshot (its attempt) that the next job continues to load
    - `loaded`: by task, the part of that snapshot that is loaded, from 0 to 1
    - `orphans`: the directories of dead executors that were removed
    - `followed`: `Meta.followed` of the copies of tasks with stores that are not logged
    """

    instance: str
    here: bool
    pid: int = 0
    copies: dict[TaskKey, Position] = field(default_factory=dict)
    attempted: dict[TaskKey, Position] = field(default_factory=dict)
    replayed: int = 0
    restored: int = 0
    snapshots: dict[TaskKey, Snapshot] = field(default_factory=dict)
    unfinished: bool = False
    restoring: dict[TaskKey, str] = field(default_factory=dict)
    loaded: dict[TaskKey, float] = field(default_factory=dict)
    errors: dict[TaskKey, str] = field(default_factory=dict)
    removed: list[TaskId] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    seconds: float = 0.0
    followed: dict[TaskKey, str] = field(default_factory=dict)


class Question(Message, frozen=True):
    """A read of one task's copy: the values of `keys` (encoded), or the whole store.

    The whole store goes to a file whose name begins with `file`. Entries that have expired at `watermark`
    (microseconds) are left out.
    """

    task: TaskId
    history: History
    state_root: str
    spark_app: str
    keys: tuple[bytes, ...] | None = None
    file: str = ""
    watermark: int | None = None


class Answer(Message, frozen=True):
    """The result of a `Question`: values in the order of the keys, or a file with all rows.

    If the copy could not be read, `position` is None and `error` has the reason.
    """

    task: TaskId
    position: Position | None
    values: tuple[bytes | None, ...] = ()
    file: str = ""
    error: str = ""


# -- files on an executor's local disk


#: Format of `Meta` and of the copy. A copy with another format is discarded and restored.
FORMAT = 3


class Fence(Message, frozen=True, order=True, array_like=True):
    """Fencing token: epoch, batch, generation. A copy rejects a lower token than the highest it has seen."""

    epoch: int = 0
    batch: int = -1
    generation: int = 0


class Meta(Message, frozen=True):
    """The position of a copy, and how it got there.

    - `at`: its position, including an attempt that may not be committed
    - `undo`: the position that its undo record leads back to; None without one
    - `skipped`: stores whose records were ignored, because the topology did not contain them
    - `restoring`: the snapshot that is being loaded (attempt and checksum) and the number of its loaded pieces; `at` is
      EMPTY meanwhile
    - `boot`: the host's boot in which the copy was written; after another boot the copy is discarded
    - `followed`: the last attempt up to which it was made of changes and snapshots. They lack the entries of stores
      that are not logged, so a copy that is at this attempt lacks them as well
    """

    at: Position = EMPTY
    undo: Position | None = None
    fence: Fence = Fence()
    skipped: tuple[str, ...] = ()
    restoring: tuple[str, int] | None = None
    boot: str = ""
    format: int = FORMAT
    followed: str = ""

    @property
    def certain(self) -> Position:
        """The last position that is certainly committed: where the undo record leads; without one, `at`."""
        return self.undo if self.undo is not None else self.at


class Owner(Message, frozen=True):
    """Identifies a process; a later process with the same process id is not equal (`worker/identity.py`).

    `started` is counted from the boot where the system offers that. By the wall clock, a process would seem to be
    another one after the clock was set.
    """

    pid: int
    started: float
    boot: str
    namespace: str


class Orphaned(Message, frozen=True):
    """The time since which a directory is known to have no owner, in seconds of the boot's clock."""

    boot: str
    since: float


class Opened(Message, frozen=True):
    """Names the worker that has a copy open. The record is cleared when the copy is closed.

    - `deaths`: how many earlier workers died while they had the copy open
    - `called_off`: the file that exists if Spark ended the worker, so the copy is not to blame
    """

    worker: Owner
    executor: Owner
    deaths: int = 0
    called_off: str = ""
