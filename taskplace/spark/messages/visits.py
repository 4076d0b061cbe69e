"""What followers are asked and answer, and what readers of a store are."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from taskplace.spark.messages.base import Message, Tally, Task
from taskplace.spark.messages.histories import History, Position, Snapshot
from topology.ids import TaskId

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
