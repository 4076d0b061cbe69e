"""The events of a stream: one struct for each, from the moment it happens to every place that shows it.

**Idea.** The driver makes an event once. A reporter shows it, the status keeps the last ones, and the page of a run is
a fold over them. The JSON of an event is its line in `report.events` and of `taskplace run --output json`
(`taskplace.record.json_lines`), and the lists of its fields below are the documentation of the line.

Properties: frozen values of plain types. Batches count from 0, as Spark's do. Seconds are of the wall clock. Lags and
counts are in records. No rows, keys or values of a stream.

Non-goals: metrics for machines (`taskplace.record.metrics`), and how far work has come (`taskplace.model.work`).
"""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct, field

from taskplace import __version__
from taskplace.model.plan import Move
from taskplace.model.work import Event as Event
from taskplace.model.work import WorkProgress as WorkProgress
from taskplace.wording import count, counted_since
from topology.tasks import TaskId

SCHEMA = "taskplace.run/1"
#: Of the phases of a batch: the batch itself, and the start of the names that are sums over its tasks.
WHOLE, OF_TASKS = "whole batch", "tasks: "


# -- parts of events


class InstanceView(Struct, frozen=True):
    """An instance after a batch: the numbers of its tasks by role, and the lag of all its copies in records."""

    id: str
    active: int
    standby: int
    warmup: int
    lag: int
    alive: bool = True

    @classmethod
    def of(cls, id: str, roles: Mapping[str, Sized], lag: int = 0) -> InstanceView:
        """Return a view of an instance with these tasks by role."""
        active, standby, warmup = (len(roles.get(role, ())) for role in ("active", "standby", "warmup"))
        return cls(id, active, standby, warmup, lag)


class BatchRecovery(Struct, frozen=True):
    """What active tasks had to do before they could begin a batch.

    - `replayed`, `restored`: records that they applied from changelogs, and from snapshots
    - `scratch`: tasks that were rebuilt without a local copy
    - `elsewhere`: tasks that Spark ran on another instance than planned
    """

    replayed: int = 0
    restored: int = 0
    scratch: int = 0
    elsewhere: int = 0


class LateRows(Struct, frozen=True):
    """How many rows stores dropped because they were late.

    - `total`: over restarts, since the checkpoint was created, or since batch `since` if that is not 0
    - `here`: those of them since this driver started

    >>> LateRows(1_200, 3).text
    '1,200 since the checkpoint was created, 3 of them since this driver started'
    """

    total: int
    here: int
    since: int = 0

    @property
    def text(self) -> str:
        """Both numbers, and which is which."""
        return f"{self.total:,} {counted_since(self.since)}, {self.here:,} of them since this driver started"

    def text_of(self, rows: int) -> str:
        """Return the same beside the number of rows; short if no row was late.

        >>> LateRows(0, 0).text_of(32), LateRows(1, 1).text_of(32)
        ('0 of 32', '1 since the checkpoint was created, 1 of them since this driver started; 32 rows in all')
        """
        return f"{self.text}; {count(rows, 'row')} in all" if self.total else f"0 of {rows:,}"


class Change(Struct, frozen=True):
    """One move of a plan: a task's new role, on which instance, from which, and why; the values of `taskplace.Move`."""

    task: str
    role: str
    origin: str | None
    to: str
    why: str

    @classmethod
    def of(cls, move: Move) -> Change:
        """Return a move of a plan."""
        return cls(str(move.task), move.role, move.from_, move.to, move.why)

    def __str__(self) -> str:
        return str(Move(TaskId.parse(self.task), self.role, self.origin, self.to, self.why))


@dataclass(frozen=True)
class CheckResult:
    """The result of an application's own check.

    `text`: one line for the summary. `detail`: further lines, with counts and the first differing rows.

    >>> CheckResult(True, "result equals the batch query").ok
    True
    """

    ok: bool
    text: str
    detail: tuple[str, ...] = ()


class Summary(Struct, frozen=True):
    """The counts of a run.

    - `promotions`: copies that became active because they were caught up, after a loss or a warm-up;
    - `replayed_records`: changelog records that active tasks had to apply before they could begin a batch;
      `snapshot_records`: those that came out of snapshots instead; `followed_records`: what standbys and warm-ups
      applied, beside the batches;
    - `scratch_restores`: active tasks rebuilt without a local copy; 0 is what standbys are for;
    - `elsewhere`: tasks that Spark ran on another instance than planned;
    - `bad_records`: by source, the records that could not be decoded, and became dead letters; they are among the rows;
    - `skipped_offsets`: by source, the offsets that were not read because their records are gone (`changed_topics`);
    - `late_rows`: rows that stores dropped because they were late, since the driver started; `late`: the same and the
      total over restarts, None: unknown;
    - `phases`: the median seconds of each phase of a batch. `WHOLE` among them is what their shares are
      taken of; names that start with `OF_TASKS` are sums over a batch's tasks, within the phases, not beside;
    - `check`: the answer of the application's own check, None if there was none; `ok`: whether it was right;
      `detail`: its further lines.
    """

    batches: int = 0
    rows: int = 0
    rebalances: int = 0
    promotions: int = 0
    replayed_records: int = 0
    snapshot_records: int = 0
    scratch_restores: int = 0
    elsewhere: int = 0
    phases: Mapping[str, float] = {}
    seconds: float = 0.0
    check: str | None = None
    ok: bool | None = None
    detail: tuple[str, ...] = ()
    followed_records: int = 0
    bad_records: Mapping[str, int] = {}
    late_rows: int = 0
    late: LateRows | None = None
    skipped_offsets: Mapping[str, int] = {}


class Totals(Struct, frozen=True):
    """What a checkpoint has counted over restarts.

    Each manifest has the totals up to its batch in its `identity`, so a batch counts exactly once, whatever fails and
    however often it is run.

    - `since`: the first batch that is counted; 0 is all of them
    - `rows`: from all sources
    - `late`: rows that stores dropped because they were late
    - `bad`: by source, records that became dead letters

    >>> Totals(since=0, rows=5, late=1).with_batch([]) == Totals(since=0, rows=5, late=1)
    True
    """

    since: int = 0
    rows: int = 0
    late: int = 0
    bad: Mapping[str, int] = {}

    @classmethod
    def of(cls, last: Any) -> Totals:
        """Return the totals of a manifest; zero for None. Those of one without totals begin with the next batch."""
        if last is None:
            return cls()
        return msgspec.convert({"since": last.batch + 1, **(last.identity.get(TOTALS) or {})}, cls)

    def with_batch(self, reports: Iterable[Any]) -> Totals:
        """Return the totals with one more batch. `reports`: those of all its attempts that count."""
        rows, late, bad = self.rows, self.late, Counter(self.bad)
        for report in reports:
            rows, late = rows + report.rows, late + report.late
            bad.update(report.bad)
        return Totals(self.since, rows, late, dict(bad))

    def to_dict(self) -> dict[str, Any]:
        """Return the totals as JSON data, for a manifest."""
        return msgspec.structs.asdict(self)


#: The key of the totals in the `identity` of a manifest.
TOTALS = "totals"


# -- events


class Start(Event, frozen=True, kw_only=True, tag="start"):
    """The run starts; nothing of Spark runs yet. This is the first line.

    - `schema`: `taskplace.run/1`, the form of all lines
    - `version`: the version of taskplace
    - `application`: the application's id
    - `topology`: the name of the topology
    - `subtopologies`: their number
    - `tasks`: their number
    - `checkpoint`: the directory or URI of the checkpoint
    """

    schema: str = SCHEMA
    version: str = __version__
    application: str
    topology: str
    subtopologies: int
    tasks: int
    checkpoint: str


class Note(Event, frozen=True, tag="note"):
    """What the run is doing, or a warning, in words.

    - `text`: one line
    """

    text: str


class BatchDone(Event, frozen=True, tag="batch"):
    """A batch was committed and published.

    - `batch_id`: the batch; the first one is 0
    - `total`: the expected number of batches; null: unknown
    - `rows`: input rows of all sources
    - `seconds`: how long it took
    - `phases`: the seconds of each phase, in order
    - `placement`: by executor: `id`, the numbers of its `active`, `standby` and `warmup` tasks, the `lag` of its copies
      in records, and whether it is `alive`
    - `generation`: the number of the assignment in force
    - `lags`: by executor and task, the lags above 0 of its standbys and warm-ups, in records
    - `behind`: standbys and warm-ups that are not caught up; null: unknown
    - `recovery`: what active tasks had to do first: records `replayed` from changelogs and `restored` from snapshots,
      tasks rebuilt from `scratch` or run `elsewhere` than planned; null: unknown
    - `late`: late rows that stores dropped: the `total` since the checkpoint was created, or since batch `since` if
      that is not 0, and those of them since this driver started (`here`); null: unknown

    >>> BatchDone(3, 27, 13_000, 5.5, {"state": 3.0, "commit": 0.5}, (), 2).rows_per_second
    2363.6363636363635
    """

    batch_id: int = field(name="batch")
    total: int | None
    rows: int
    seconds: float
    phases: Mapping[str, float]
    placement: tuple[InstanceView, ...] = field(name="executors")
    generation: int
    lags: Mapping[str, Mapping[str, int]] = {}
    behind: int | None = None
    recovery: BatchRecovery | None = None
    late: LateRows | None = None

    @property
    def rows_per_second(self) -> float:
        """The input rows per wall-clock second; 0 for a batch that took no time."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


class Rebalanced(Event, frozen=True, tag="rebalance"):
    """A new assignment is in force.

    - `generation`: the number of the assignment
    - `batch_id`: the batch; the first one is 0
    - `reason`: why: the triggers
    - `changes`: what moves: the `task`, its new `role`, where it comes from (`origin`) and goes `to`, and `why`
    - `promotions`: copies that became active because they were caught up
    - `warmups`: warm-ups of the new assignment
    - `followup`: whether another rebalance will follow, because this is not yet the target
    - `assignment`: by executor and role (`active`, `standby`, `warmup`), the tasks
    - `to_go`: moves of active tasks that remain to the target; null: unknown
    - `seconds`: how long planning took
    - `imbalance`: the largest load of an executor divided by the mean; null: unknown
    - `more`: changes that are left out here: a status has the first ones only

    >>> change = Change("0_3", "promotion", None, "executor-2", "the owner is gone")
    >>> Rebalanced(5, 10, "executor 1 lost", (change,)).moves
    ('0_3: executor-2 takes over (the owner is gone)',)
    """

    generation: int
    batch_id: int = field(name="batch")
    reason: str
    changes: tuple[Change, ...] = ()
    promotions: int = 0
    warmups: int = 0
    followup: bool = False
    assignment: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
    to_go: int | None = None
    seconds: float = 0.0
    imbalance: float | None = None
    more: int = 0

    @property
    def moves(self) -> tuple[str, ...]:
        """What moves and why, a line each."""
        return tuple(map(str, self.changes))

    @property
    def planned(self) -> int:
        """How many active tasks move as planned."""
        return sum(one.role == "active" and one.origin is not None for one in self.changes)

    @property
    def moved(self) -> int:
        """How many changes there were."""
        return len(self.changes) + self.more

    def shortened(self, most: int) -> Rebalanced:
        """Return the event without its assignment, and with so many changes at most: for a status."""
        kept = self.changes[:most]
        return msgspec.structs.replace(self, changes=kept, assignment={}, more=self.moved - len(kept))


WarmupState = Literal["begun", "active", "standby", "ended"]


class WarmupChange(Event, frozen=True, tag="warm-up"):
    """A warm-up began or ended with a rebalance; its line follows that of the rebalance.

    - `task`: the task, such as "0_3"
    - `instance`: where its copy warms up
    - `state`: `begun`; `active` or `standby`: it caught up, and the copy now has this role; `ended`: it is no longer
      needed, or its executor is gone
    - `generation`: the number of the assignment in force
    - `batch_id`: the batch; the first one is 0
    """

    task: str
    instance: str = field(name="executor")
    state: WarmupState
    generation: int
    batch_id: int = field(name="batch")


class ExecutorLost(Event, frozen=True, tag="loss"):
    """An executor was lost, or Spark decommissions it.

    - `instance`: which one
    - `batch_id`: the batch; the first one is 0
    - `tasks`: the number of its active tasks
    - `cancelled`: whether a running stage was cancelled
    - `leaving`: whether it still runs, but gets no more tasks because Spark decommissions it
    """

    instance: str = field(name="executor")
    batch_id: int = field(name="batch")
    tasks: int = field(name="active_tasks")
    cancelled: bool = False
    leaving: bool = False


class Finish(Event, frozen=True, kw_only=True, tag="finish"):
    """The run has ended. This is the last line.

    - `exit_code`: as of the command
    - `error`: why it failed, in one line; null: it did not
    - `totals`: the counts of the run, and the result of the application's `check`; null after an error. `late_rows` are
      those since this driver started, `late` has the total as well
    """

    exit_code: int
    error: str | None = None
    totals: Summary | None = None


#: The lines of a run, in the order of the documentation.
Line = Start | Note | WorkProgress | BatchDone | Rebalanced | WarmupChange | ExecutorLost | Finish
LINES: tuple[type[Event], ...] = typing.get_args(Line)


# -- who gets them


class Reporter(Protocol):
    """Shows events, in their order. `note` and `progress` may be called from any thread at any time; `rebalance` and
    `failure` from another thread than `batch`, while no batch runs.

    A reporter never raises an exception for an event that it cannot show, and never delays a batch. `close()` is called
    at the end of every run, also after an error, and may be called more than once. A reporter may also have a method
    `warmup`, which gets each `WarmupChange`.
    """

    def batch(self, event: BatchDone) -> None:
        """Show a committed batch."""

    def rebalance(self, event: Rebalanced) -> None:
        """Show a new assignment and its reason."""

    def failure(self, event: ExecutorLost) -> None:
        """Show the loss of an instance."""

    def note(self, text: str) -> None:
        """Show one line about the current activity, such as "starting Spark"."""

    def progress(self, event: WorkProgress) -> None:
        """Show how far a long piece of work has come; several may run at a time."""

    def summary(self, summary: Summary) -> None:
        """Show the summary of the run. It is the last event."""

    def close(self) -> None:
        """Release the terminal."""


def tell(
    reporter: Reporter, event: BatchDone | Rebalanced | WarmupChange | ExecutorLost | WorkProgress
) -> None:
    """Pass an event to the method of a reporter that shows it. One of a user's own may lack `progress` or `warmup`."""
    if (method := getattr(reporter, _METHODS[type(event)], None)) is not None:
        method(event)


_METHODS: Mapping[type[Event], str] = {
    BatchDone: "batch",
    Rebalanced: "rebalance",
    WarmupChange: "warmup",
    ExecutorLost: "failure",
    WorkProgress: "progress",
}
