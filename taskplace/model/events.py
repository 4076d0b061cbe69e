"""The events of a running stream, as plain values for a reporter.

The runtime creates events and does not depend on how they are shown. A `Reporter` shows them and does not depend on the
runtime. So the same values serve a terminal, a log file and a test.

Properties:
- events are frozen values of plain types, and equal if their fields are equal;
- batch ids count from 0, as Spark's do. Seconds are wall-clock seconds. Lags and counts are in records;
- this module imports neither Spark nor a terminal library.

Non-goals: metrics for machines, see `taskplace.record`; measuring how far work has come, see `taskplace.model.work`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from taskplace.wording import count, counted_since

WHOLE = "whole batch"
OF_TASKS = "tasks: "


@dataclass(frozen=True)
class InstanceView:
    """The state of one instance after a batch.

    - `active`, `standby`, `warmup`: numbers of tasks
    - `lag`: the records that all its copies together have yet to apply
    - `alive`: false for a lost instance

    >>> InstanceView("executor-1", active=8, standby=8, warmup=0, lag=0).copies
    16
    """

    id: str
    active: int
    standby: int
    warmup: int
    lag: int
    alive: bool = True

    @property
    def copies(self) -> int:
        """The number of copies on this instance, in any role."""
        return self.active + self.standby + self.warmup


@dataclass(frozen=True)
class BatchRecovery:
    """What active tasks had to do before they could begin a batch.

    - `replayed`, `restored`: records that they applied from changelogs, and from snapshots
    - `scratch`: tasks that were rebuilt without a local copy
    - `elsewhere`: tasks that Spark ran on another instance than planned
    """

    replayed: int = 0
    restored: int = 0
    scratch: int = 0
    elsewhere: int = 0


@dataclass(frozen=True)
class LateRows:
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


@dataclass(frozen=True)
class BatchDone:
    """A batch was committed and published.

    - `total`: the expected number of batches, or None if unknown
    - `rows`: the number of input rows of all sources together
    - `phases`: the seconds of each phase, in order
    - `placement`: the instances after the batch
    - `lags`: by instance and task, the lags above 0 of standbys and warm-ups
    - `behind`: the number of standbys and warm-ups that are not caught up; None: unknown
    - `recovery`: of the tasks of this batch; None: unknown
    - `late`: the late rows so far; None: unknown

    >>> BatchDone(3, 27, 13_000, 5.5, {"state": 3.0, "commit": 0.5}, (), 2).rows_per_second
    2363.6363636363635
    """

    batch_id: int
    total: int | None
    rows: int
    seconds: float
    phases: Mapping[str, float]
    placement: tuple[InstanceView, ...]
    generation: int
    lags: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    behind: int | None = None
    recovery: BatchRecovery | None = None
    late: LateRows | None = None

    @property
    def rows_per_second(self) -> float:
        """The input rows per wall-clock second; 0 for a batch that took no time."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


WarmupState = Literal["begun", "active", "standby", "ended"]


@dataclass(frozen=True)
class WarmupChange:
    """A warm-up that began or ended with a rebalance.

    `state`: "begun"; "active" or "standby", the role that the copy has now; or "ended", if it has none.

    >>> WarmupChange("0_3", "executor-2", "begun").state
    'begun'
    """

    task: str
    instance: str
    state: WarmupState


@dataclass(frozen=True)
class Change:
    """One change of a rebalance: a task's new role, on which instance, from which, and why; as `taskplace.Move`."""

    task: str
    role: str
    origin: str | None
    to: str
    why: str


@dataclass(frozen=True)
class Rebalanced:
    """A new assignment is in force.

    - `reason`: the triggers
    - `moves`: one line per move, for people; `changes`: the same, as values
    - `warmups`: their number in the new assignment; `warmup_changes`: those that began or ended with it
    - `followup`: whether another rebalance will follow, because the step is not yet the target
    - `assignment`: by instance and role, the tasks; roles as in a plan: active, standby, warmup
    - `to_go`: the moves of active tasks that remain to the target; None: unknown
    - `seconds`: how long planning took
    - `imbalance`: the largest load of an instance divided by the mean; None: unknown
    """

    generation: int
    batch_id: int
    reason: str
    moves: tuple[str, ...] = ()
    promotions: int = 0
    warmups: int = 0
    followup: bool = False
    warmup_changes: tuple[WarmupChange, ...] = ()
    changes: tuple[Change, ...] = ()
    assignment: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    to_go: int | None = None
    seconds: float = 0.0
    imbalance: float | None = None


@dataclass(frozen=True)
class ExecutorLost:
    """An instance is lost.

    - `tasks`: the number of its active tasks
    - `cancelled`: whether a stage was cancelled because of the loss
    - `leaving`: whether it still runs, but gets no more tasks because Spark is decommissioning it
    """

    instance: str
    batch_id: int
    tasks: int
    cancelled: bool = False
    leaving: bool = False


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


@dataclass(frozen=True)
class Summary:
    """The whole run.

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

    batches: int
    rows: int
    rebalances: int
    promotions: int
    replayed_records: int
    snapshot_records: int
    scratch_restores: int
    elsewhere: int
    phases: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    check: str | None = None
    ok: bool | None = None
    detail: tuple[str, ...] = ()
    followed_records: int = 0
    bad_records: Mapping[str, int] = field(default_factory=dict)
    late_rows: int = 0
    late: LateRows | None = None
    skipped_offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkProgress:
    """How far a long piece of work has come, such as a restore or a verification.

    - `name`: the work, unique among those that run: "verifying"
    - `done`, `total`: in `unit`, a plural such as "records"; "bytes" are shown as kB, MB or GB. If the `total` is None,
      the end is unknown; without a `unit`, nothing is counted
    - `seconds`: since the work began
    - `rate`: units per second, lately; `eta`: the seconds that are left. None: unknown
    - `detail`: what is being done just now, a few words
    - `ended`: this is the last event of the work, which is complete, or was given up

    >>> WorkProgress("verifying", 250, 1000, "bytes", seconds=2.0, rate=125.0, eta=6.0).fraction
    0.25
    """

    name: str
    done: float = 0
    total: float | None = None
    unit: str = ""
    seconds: float = 0.0
    rate: float | None = None
    eta: float | None = None
    detail: str = ""
    ended: bool = False

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; None if the total is unknown."""
        if self.total is None:
            return None
        return min(1.0, self.done / self.total) if self.total > 0 else 1.0


class Reporter(Protocol):
    """Shows events, in their order. `note` and `progress` may be called from any thread at any time; `rebalance` and
    `failure` from another thread than `batch`, while no batch runs.

    A reporter never raises an exception for an event that it cannot show, and never delays a batch. `close()` is called
    at the end of every run, also after an error, and may be called more than once.
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
