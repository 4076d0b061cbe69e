"""One JSON line for each event of a run, for programs: `taskplace run --output json`, or `report.progress: json`.

`report.events` writes the same lines into a file, and `taskplace report` makes a page of them
(`taskplace.record.json_lines` reads them).

**Idea.** Each kind of line is a type, so that its fields can be relied on. `docs/command_line.md` lists them from these
types, and `schema()` returns their JSON Schema. A field may be added in a later version; one that is removed or changes
its meaning makes another `SCHEMA`.

Properties: the first line is the `start`, the last one the `finish`, also after an error. Times are in UTC. Secrets are
hidden, and no line has rows or their keys. If the reader is gone, nothing more is written; the run goes on.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TextIO, Union

import msgspec
from msgspec import Meta

from taskplace import __version__
from taskplace.record.events import (
    BatchDone,
    BatchRecovery,
    Change,
    ExecutorLost,
    LateRows,
    Rebalanced,
    Summary,
    WarmupState,
    WorkProgress,
)
from taskplace.record.reporters import Seldom
from taskplace.redaction import scrubbed
from topology import BuiltTopology

SCHEMA = "taskplace.run/1"
_Time = Annotated[str, Meta(description="when it was written, in UTC: `2026-11-23T12:00:00.000Z`")]
_Batch = Annotated[int, Meta(description="the batch; the first one is 0")]
_Generation = Annotated[int, Meta(description="the number of the assignment in force")]


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """A line. `event` says which."""

    time: _Time


class Start(Line, frozen=True, kw_only=True, tag="start"):
    """The run starts; nothing of Spark runs yet. This is the first line."""

    schema: Annotated[str, Meta(description=f"`{SCHEMA}`: the form of all lines")] = SCHEMA
    version: Annotated[str, Meta(description="the version of taskplace")]
    application: Annotated[str, Meta(description="the application's id")]
    topology: Annotated[str, Meta(description="the name of the topology")]
    subtopologies: Annotated[int, Meta(description="their number")]
    tasks: Annotated[int, Meta(description="their number")]
    checkpoint: Annotated[str, Meta(description="the directory or URI of the checkpoint")]


class Note(Line, frozen=True, kw_only=True, tag="note"):
    """What the run is doing, or a warning, in words."""

    text: Annotated[str, Meta(description="one line")]


class Work(Line, frozen=True, kw_only=True, tag="work"):
    """How far long work has come, such as Spark's start or a restore: a line every 5 s at most, and at its end."""

    name: Annotated[str, Meta(description="the work, unique among those that run")]
    done: Annotated[float, Meta(description="how much is done, in `unit`")]
    total: Annotated[float | None, Meta(description="how much there is; null: unknown")]
    unit: Annotated[str, Meta(description='what is counted, such as "records"; empty: nothing')]
    seconds: Annotated[float, Meta(description="since the work began")]
    rate: Annotated[float | None, Meta(description="units per second, lately; null: unknown")]
    eta_seconds: Annotated[float | None, Meta(description="the time that is left; null: unknown")]
    detail: Annotated[str, Meta(description="a few words")]
    ended: Annotated[bool, Meta(description="whether the work is complete, or was given up")]


class Executor(msgspec.Struct, frozen=True, kw_only=True):
    """An executor after a batch."""

    id: str
    active: int
    standby: int
    warmup: int
    lag: int
    alive: bool


class Batch(Line, frozen=True, kw_only=True, tag="batch"):
    """A batch was committed and published."""

    batch: _Batch
    total: Annotated[int | None, Meta(description="the expected number of batches; null: unknown")]
    rows: Annotated[int, Meta(description="input rows of all sources")]
    seconds: Annotated[float, Meta(description="how long it took")]
    generation: _Generation
    phases: Annotated[Mapping[str, float], Meta(description="the seconds of each phase")]
    executors: Annotated[
        tuple[Executor, ...],
        Meta(
            description="by executor: `id`, the numbers of its `active`, `standby` and `warmup` tasks, the `lag` of "
            "its copies in records, and whether it is `alive`"
        ),
    ]
    lags: Annotated[
        Mapping[str, Mapping[str, int]],
        Meta(description="by executor and task, the lags above 0 of its standbys and warm-ups, in records"),
    ] = {}
    behind: Annotated[
        int | None, Meta(description="standbys and warm-ups that are not caught up; null: unknown")
    ] = None
    recovery: Annotated[
        BatchRecovery | None,
        Meta(
            description="what active tasks had to do first: records `replayed` from changelogs and `restored` from "
            "snapshots, tasks rebuilt from `scratch` or run `elsewhere` than planned; null: unknown"
        ),
    ] = None
    late: Annotated[
        LateRows | None,
        Meta(
            description="late rows that stores dropped: the `total` since the checkpoint was created, or since batch "
            "`since` if that is not 0, and those of them since this driver started (`here`); null: unknown"
        ),
    ] = None


class Rebalance(Line, frozen=True, kw_only=True, tag="rebalance"):
    """A new assignment is in force."""

    generation: _Generation
    batch: _Batch
    reason: Annotated[str, Meta(description="why")]
    moves: Annotated[tuple[str, ...], Meta(description="what moves and why, a line each")]
    promotions: Annotated[int, Meta(description="copies that became active because they were caught up")]
    warmups: Annotated[int, Meta(description="warm-ups of the new assignment")]
    followup: Annotated[bool, Meta(description="whether another rebalance will follow")]
    changes: Annotated[
        tuple[Change, ...],
        Meta(
            description="the moves as values: the `task`, its new `role`, where it comes from (`origin`) and goes "
            "`to`, and `why`"
        ),
    ] = ()
    assignment: Annotated[
        Mapping[str, Mapping[str, tuple[str, ...]]],
        Meta(description="by executor and role (`active`, `standby`, `warmup`), the tasks"),
    ] = {}
    to_go: Annotated[
        int | None, Meta(description="moves of active tasks that remain to the target; null: unknown")
    ] = None
    seconds: Annotated[float, Meta(description="how long planning took")] = 0.0
    imbalance: Annotated[
        float | None,
        Meta(description="the largest load of an executor divided by the mean; null: unknown"),
    ] = None


class WarmUp(Line, frozen=True, kw_only=True, tag="warm-up"):
    """A warm-up began or ended with a rebalance; its line follows that of the rebalance."""

    generation: _Generation
    batch: _Batch
    task: Annotated[str, Meta(description='the task, such as "0_3"')]
    executor: Annotated[str, Meta(description="where its copy warms up")]
    state: Annotated[
        WarmupState,
        Meta(
            description="`begun`; `active` or `standby`: it caught up, and the copy now has this role; `ended`: it is "
            "no longer needed, or its executor is gone"
        ),
    ]


class Loss(Line, frozen=True, kw_only=True, tag="loss"):
    """An executor was lost, or Spark decommissions it."""

    batch: _Batch
    executor: Annotated[str, Meta(description="which one")]
    active_tasks: Annotated[int, Meta(description="the number of its active tasks")]
    cancelled: Annotated[bool, Meta(description="whether a running stage was cancelled")]
    leaving: Annotated[bool, Meta(description="whether it still runs, but gets no more tasks")]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a run; see `taskplace.record.events.Summary`."""

    batches: int
    rows: int
    late_rows: int
    bad_records: Mapping[str, int]
    seconds: float
    rebalances: int
    promotions: int
    followed_records: int
    replayed_records: int
    snapshot_records: int
    scratch_restores: int
    elsewhere: int
    phases: Mapping[str, float]
    check: str | None
    ok: bool | None
    detail: tuple[str, ...]
    late: LateRows | None = None


class Finish(Line, frozen=True, kw_only=True, tag="finish"):
    """The run has ended. This is the last line."""

    exit_code: Annotated[int, Meta(description="as of the command")]
    error: Annotated[str | None, Meta(description="why it failed, in one line; null: it did not")]
    totals: Annotated[
        Totals | None,
        Meta(
            description="the counts of the run, and the result of the application's `check`; null after an error. "
            "`late_rows` are those since this driver started, `late` has the total as well"
        ),
    ]


LINES: tuple[type[Line], ...] = (Start, Note, Work, Batch, Rebalance, WarmUp, Loss, Finish)


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a line, as in `taskplace/model/schema`.

    >>> sorted(schema()["$defs"])[:3]
    ['Batch', 'BatchRecovery', 'Change']
    """
    (found,), parts = msgspec.json.schema_components([Union[LINES]])  # noqa: UP007  a tuple of types
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        "title": "A line of `taskplace run --output json`",
        **found,
        "$defs": parts,
    }


class JsonReporter:
    """Writes lines of JSON and flushes each. The command writes the first and the last one.

    >>> import sys
    >>> JsonReporter(sys.stdout, clock=lambda: 0.0).failure(ExecutorLost("executor-1", 10, 8))
    {"event":"loss","time":"1970-01-01T00:00:00.000Z","batch":10,"executor":"executor-1",\
"active_tasks":8,"cancelled":false,"leaving":false}
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.time) -> None:
        self._stream, self._clock, self._lock = stream, clock, threading.Lock()
        self._seldom = Seldom(in_pairs=True)
        self._summary: Summary | None = None

    # -- of the command

    def start(self, *, application: str, checkpoint: str, built: BuiltTopology) -> None:
        """Write the first line."""
        self._write(
            Start(
                time=self._now(),
                version=__version__,
                application=application,
                topology=built.name,
                subtopologies=len(built.subtopologies),
                tasks=len(built.tasks()),
                checkpoint=checkpoint,
            )
        )

    def finish(self, exit_code: int, error: str | None = None) -> None:
        """Write the last line."""
        totals = None if self._summary is None else _totals(self._summary)
        said = None if error is None else scrubbed(" ".join(error.split()))
        self._write(Finish(time=self._now(), exit_code=exit_code, error=said, totals=totals))

    # -- of the runtime

    def batch(self, event: BatchDone) -> None:
        """Write a committed batch."""
        executors = tuple(
            Executor(
                id=view.id,
                active=view.active,
                standby=view.standby,
                warmup=view.warmup,
                lag=view.lag,
                alive=view.alive,
            )
            for view in event.placement
        )
        self._write(
            Batch(
                time=self._now(),
                batch=event.batch_id,
                total=event.total,
                rows=event.rows,
                seconds=event.seconds,
                generation=event.generation,
                phases=dict(event.phases),
                executors=executors,
                lags=event.lags,
                behind=event.behind,
                recovery=event.recovery,
                late=event.late,
            )
        )

    def rebalance(self, event: Rebalanced) -> None:
        """Write a new assignment, and a line for each warm-up that began or ended with it."""
        at = self._now()
        change = Rebalance(
            time=at,
            generation=event.generation,
            batch=event.batch_id,
            reason=event.reason,
            moves=event.moves,
            promotions=event.promotions,
            warmups=event.warmups,
            followup=event.followup,
            changes=event.changes,
            assignment=event.assignment,
            to_go=event.to_go,
            seconds=event.seconds,
            imbalance=event.imbalance,
        )
        warmups = [
            WarmUp(
                time=at,
                generation=event.generation,
                batch=event.batch_id,
                task=one.task,
                executor=one.instance,
                state=one.state,
            )
            for one in event.warmup_changes
        ]
        self._write(change, *warmups)

    def failure(self, event: ExecutorLost) -> None:
        """Write the loss of an executor."""
        self._write(
            Loss(
                time=self._now(),
                batch=event.batch_id,
                executor=event.instance,
                active_tasks=event.tasks,
                cancelled=event.cancelled,
                leaving=event.leaving,
            )
        )

    def note(self, text: str) -> None:
        """Write what the run is doing, or a warning."""
        self._write(Note(time=self._now(), text=scrubbed(" ".join(text.split()))))

    def progress(self, event: WorkProgress) -> None:
        """Write a line now and then about work that takes long."""
        if not self._seldom.due(event):
            return
        self._write(
            Work(
                time=self._now(),
                name=event.name,
                done=event.done,
                total=event.total,
                unit=event.unit,
                seconds=event.seconds,
                rate=event.rate,
                eta_seconds=event.eta,
                detail=event.detail,
                ended=event.ended,
            )
        )

    def summary(self, summary: Summary) -> None:
        """Keep the summary for the last line."""
        self._summary = summary

    def close(self) -> None:
        """Nothing to give back."""

    def _now(self) -> str:
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        return at.replace("+00:00", "Z")

    def _write(self, *lines: Line) -> None:
        text = "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)
        # ValueError: the stream was closed in this process; OSError: its reader is gone.
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def _totals(summary: Summary) -> Totals:
    return Totals(**{name: getattr(summary, name) for name in Totals.__struct_fields__})
