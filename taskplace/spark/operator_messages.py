"""What operators and a running driver exchange through files of the checkpoint: its status, requests, and answers.

    <checkpoint>/status.json              the driver's `Status`; replaced as a whole
    <checkpoint>/waiting.json             the `WaitingDriver` that was started and had no batch yet
    <checkpoint>/requests/<id>.json       an operator's `Request`, until the driver takes it (<id>.taken)
    <checkpoint>/answers/<id>.json        the driver's `OperatorAnswer`, until the operator has read it

None of them is needed to continue a checkpoint; they may be deleted at any time. Manifests have neither lags nor
warm-ups, so the status has them. Each file is sealed, and its `schema` has the version of its message. How they are
encoded: `taskplace.spark.codec`.

Properties: imports neither Spark nor Arrow. Times are seconds since 1970 (UTC) by the clock of the writer's host. Lags
are in records. Tasks are text ("0_3").
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from taskplace.errors import CheckpointError
from taskplace.explanation.removal import Removal, Stuck, Wait
from taskplace.record.events import BatchDone, ExecutorLost, Rebalanced, Totals
from taskplace.spark.codec import Message, decoded, read_file, sealed, unsealed
from taskplace.spec.paths import why_not

STATUS_FILE = "status.json"
WAITING_FILE = "waiting.json"
REQUESTS = "requests"
ANSWERS = "answers"
#: The suffix of a request that a driver has taken: it can no longer be withdrawn.
TAKEN = ".taken"

ANSWER_SCHEMA = "taskplace.answer/1"


class Exchanged(Message, frozen=True, forbid_unknown_fields=False):
    """A part of what a driver tells operators. Its reader leaves out fields that it does not know.

    So a driver of a newer version can say more, without another schema. A request is read strictly: to leave out a part
    of it would do something else than was asked for.
    """


# -- the status of a driver


class DriverIdentity(Exchanged, frozen=True):
    """The process that drives the stream, for people: its host, process id, Spark application and start time."""

    host: str
    pid: int
    app: str
    started: float

    def __str__(self) -> str:
        return f"{self.app}, process {self.pid} on {self.host}"


class WaitingDriver(Exchanged, frozen=True, tag_field="schema", tag="taskplace.waiting_driver/1"):
    """A driver whose query was started, and that takes the checkpoint over with its first batch.

    `written`: it writes this again every two seconds
    """

    driver: DriverIdentity
    written: float


class WarmupStatus(Exchanged, frozen=True):
    """A warm-up: a copy that a task is about to move to.

    - `seconds`: how long it has been a warm-up, as far as this driver has seen
    - `idle_seconds`: how long it has read no record
    - `restoring`: whether it loads a snapshot; its lag counts the whole changelog until then
    - `eta_seconds`: the seconds until it has caught up, from its progress; None: unknown
    """

    lag: int
    caught_up: bool
    restoring: bool = False
    seconds: float = 0.0
    eta_seconds: float | None = None
    idle_seconds: float = 0.0


class ExecutorStatus(Exchanged, frozen=True):
    """An executor and its copies: `active` and `standby` have the lag of each task.

    - `restore_rate`: records per second while its copies caught up; None: not measured yet. `follow_rate`: what its
      standbys and warm-ups get of it now, beside the batches
    - `left`: the lags of its copies without a role
    - `empty`: the tasks of its roles that have no copy yet; their lags count the whole changelog
    - `parked`: the tasks whose copies here made no progress; they are planned elsewhere
    - `keeps`: the tasks that stay here because of entries of stores that are not logged
    - `errors`: by task, why its copy cannot follow; `error`: why the last follow job failed; empty if it did not
    - `visited`: when it last answered a follow job; None: it has not
    """

    host: str
    cores: int
    active: Mapping[str, int] = {}
    standby: Mapping[str, int] = {}
    warmup: Mapping[str, WarmupStatus] = {}
    draining: bool = False
    restore_rate: float | None = None
    follow_rate: float | None = None
    tags: Mapping[str, str] = {}
    left: Mapping[str, int] = {}
    empty: tuple[str, ...] = ()
    parked: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    errors: Mapping[str, str] = {}
    error: str = ""
    visited: float | None = None

    @property
    def lag(self) -> int:
        """The lag of all standbys and warm-ups together."""
        return sum(self.standby.values()) + sum(warmup.lag for warmup in self.warmup.values())


class PartitionStatus(Exchanged, frozen=True):
    """How far a partition was read. None: not known.

    - `position`: the offset that comes next; `end`: that behind the last committed record
    - `seconds`: the age of the first unread record, by its timestamp; 0 if there is none
    """

    position: int | None = None
    end: int | None = None
    seconds: float | None = None

    @property
    def lag(self) -> int | None:
        """The offsets from `position` to `end`."""
        return None if self.position is None or self.end is None else self.end - self.position


class TopicStatus(Exchanged, frozen=True):
    """How far a topic was read that tasks read themselves.

    - `rate`: records per second, of the last minute
    - `asked`: when the brokers last said where it ends; None: they have not
    - `error`: why they did not the last time, or why the positions were not committed to the consumer group
    """

    partitions: Mapping[int, PartitionStatus] = {}
    rate: float = 0.0
    asked: float | None = None
    error: str = ""

    @property
    def lag(self) -> int:
        """The lag of all partitions together, as far as it is known."""
        return sum(one.lag or 0 for one in self.partitions.values())

    @property
    def seconds(self) -> float | None:
        """The seconds of the partition that is farthest behind."""
        return max((one.seconds for one in self.partitions.values() if one.seconds is not None), default=None)


class RunningBatch(Exchanged, frozen=True):
    """The batch that runs, since when."""

    batch: int
    since: float


class FailedBatch(Exchanged, frozen=True):
    """The last batch, if it failed: the type of the error, and the message of an error of taskplace."""

    at: float
    batch: int
    error: str


class StoppedBatch(Exchanged, frozen=True):
    """The batch during which the query was stopped. It is not a failure: the next start runs the batch again."""

    at: float
    batch: int


class Status(Exchanged, frozen=True, tag_field="schema", tag="taskplace.status/1"):
    """The state of a stream as its driver sees it.

    - `checkpoint`: the checkpoint's id; `epoch`: of the driver
    - `number`: counts the statuses of this driver; `interval`: the longest time between two of them, in seconds
    - `ended`: whether the driver has ended; this is its last status
    - `batch`: the last committed one; -1 before the first
    - `followup`: whether the assignment is not yet the target; `next_probing`: seconds until the next probing rebalance
    - `failed`, `stopped`: how the last batch ended, if it is not done
    - `homeless`: the tasks that no executor runs until the next rebalance
    - `rebalances`, `losses`, `batches`: the last events, oldest first, as the lines of a run have them; rebalances have
      their first moves, and no assignment
    - `config`: the keys of the placement; `weights`: of tasks, if not 1
    - `stateless`, `unlogged`: the tasks that need no copy
    - `totals`: what the checkpoint has counted over restarts; `late_here`: the late rows since this driver started
    - `input`: by topic that tasks read themselves, how far it was read
    - `watermark`: the sources' watermark in the next batch, in microseconds since 1970 (UTC); None: not yet known
    """

    checkpoint: str
    topology: str
    epoch: int
    driver: DriverIdentity
    written: float
    number: int
    interval: float
    batch: int = -1
    generation: int = 0
    ended: bool = False
    running: RunningBatch | None = None
    failed: FailedBatch | None = None
    followup: bool = False
    next_probing: float | None = None
    executors: Mapping[str, ExecutorStatus] = {}
    homeless: tuple[str, ...] = ()
    rebalances: tuple[Rebalanced, ...] = ()
    losses: tuple[ExecutorLost, ...] = ()
    batches: tuple[BatchDone, ...] = ()
    config: Mapping[str, Any] = {}
    weights: Mapping[str, float] = {}
    stateless: tuple[str, ...] = ()
    unlogged: tuple[str, ...] = ()
    totals: Totals | None = None
    late_here: int = 0
    stopped: StoppedBatch | None = None
    input: Mapping[str, TopicStatus] = {}
    watermark: int | None = None


# -- requests of operators, and their answers

#: What an operator may ask for. "preview" is the dry run of "drain".
Kind = Literal["can-remove", "preview", "drain", "undrain"]


class Request(Message, frozen=True, tag_field="schema", tag="taskplace.request/1", omit_defaults=True):
    """A request to the driver with this `epoch` of the checkpoint with this id; other drivers do not follow it.

    `lose_unlogged`: whether a drain may lose the entries of stores that are not logged
    """

    id: str
    checkpoint: str
    epoch: int
    kind: Kind
    executors: tuple[str, ...]
    asked: float
    lose_unlogged: bool = False


class RemovalAnswer(Exchanged, frozen=True):
    """Whether an executor can be removed now, without a stall and without a task on it: a `Removal` as a message.

    `active`, `standby`, `warmup`: the numbers of its tasks
    """

    executor: str
    can_remove: bool
    text: str
    gone: bool = False
    draining: bool = False
    active: int = 0
    standby: int = 0
    warmup: int = 0
    waits: tuple[Wait, ...] = ()
    seconds: float | None = None
    stuck: tuple[Stuck, ...] = ()

    @classmethod
    def of(cls, removal: Removal) -> RemovalAnswer:
        """Return the message of an answer."""
        return cls(
            removal.instance,
            removal.can_remove,
            removal.text,
            gone=removal.gone,
            draining=removal.draining,
            **removal.held._asdict(),
            waits=removal.waits,
            seconds=removal.seconds,
            stuck=removal.stuck,
        )


class PlannedMove(Exchanged, frozen=True):
    """A role that leaves or changes its executor on the way to the target; `records`: what the new copy has to read."""

    task: str
    role: str
    from_: str | None
    to: str | None
    records: int


class OperatorAnswer(Exchanged, frozen=True, tag_field="schema", tag=ANSWER_SCHEMA):
    """The driver's answer to the request with this id.

    - `error`: why the request was refused; then nothing was done
    - `draining`: the executors that drain now
    - `moves`: to a preview, what would move; `warnings`: what the plan could not meet
    """

    id: str
    epoch: int
    answered: float
    error: str = ""
    draining: tuple[str, ...] = ()
    removals: tuple[RemovalAnswer, ...] = ()
    moves: tuple[PlannedMove, ...] = ()
    warnings: tuple[str, ...] = ()


# -- the files

_MessageT = TypeVar("_MessageT", Status, WaitingDriver, Request, OperatorAnswer)


class _Versioned(msgspec.Struct):
    schema: Any


def write(path: Path, message: Status | WaitingDriver | Request | OperatorAnswer) -> int:
    """Write a message as a whole, so that a reader finds the old file or the new one. Return the number of its bytes.

    The file survives a killed process, but not always a crash of the host. Errors: `OSError`.
    """
    data = sealed(message)
    staging = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        handle = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        staging.replace(path)
    except BaseException:
        with suppress(OSError):
            staging.unlink()
        raise
    return len(data)


def read(path: Path, kind: type[_MessageT]) -> _MessageT:
    """Return the message in a file.

    Fields that this version does not know are left out: a newer version may have added them.
    Errors: `FileNotFoundError`; `CheckpointError` naming the file if it cannot be read, is damaged, or has another
    schema.
    """
    own = kind.__struct_config__.tag
    try:
        body = unsealed(read_file(path))
        schema = decoded(_Versioned, body).schema
        if schema != own:
            raise CheckpointError(
                f"{path}: found a file with the schema {schema!r}, expected {own!r}; another version of taskplace "
                "wrote it: use the version that runs the stream"
            )
        return kind.decode(body)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path}: it cannot be read ({why_not(error)})") from None
    except ValueError as error:
        raise CheckpointError(
            f"{path}: damaged ({error}), expected a file with the schema {own!r}; it may be deleted: no state depends "
            "on it, and the running driver writes its status again"
        ) from None
