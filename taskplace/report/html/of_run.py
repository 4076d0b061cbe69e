"""Makes the report of a run from its events: `RunRecorder` is a reporter that remembers what the page shows.

The same recorder serves a run that goes on (the live page), a run that has ended (`report.html`), and the lines of
an earlier run, so all three show the same.

Properties:
- bounded, however long a stream runs: of old batches, every second one is dropped again and again; old rebalances are
  merged, and old moves dropped. Totals count everything
- thread-safe: events come from the driver, and reports are asked for by other threads
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from taskplace.record.events import BatchDone, ExecutorLost, Rebalanced, Summary, WorkProgress
from taskplace.record.html.of_run import figures, summary_facts
from taskplace.record.html.values import (
    Happening,
    InstanceRow,
    LagsNow,
    MoveRow,
    Placements,
    Reason,
    Recovery,
    Report,
    Samples,
    State,
    copy_lags,
)
from taskplace.record.json_lines import Ended, RunLines, retell
from taskplace.record.words import move_text
from taskplace.wording import count

#: The most batches with a sample of their own.
MOST_BATCHES = 4_000
#: The most happenings, and moves.
MOST_HAPPENINGS, MOST_MOVES = 2_000, 10_000
#: The copies of a batch whose lags are remembered; those that lack most.
MOST_LAGS = 20
#: The end of a run in the words of the page.
ENDS: Mapping[str, State] = {
    "ended": State("ended", "", "good"),
    "failed": State("failed", "", "bad"),
    "interrupted": State("interrupted", "", "busy"),
}


@dataclass(frozen=True)
class _Sample:
    """A batch: when it was committed, the event, its lag in all, the copies that lack most, and the imbalance."""

    at: float
    event: BatchDone
    lag: int
    lags: LagsNow
    imbalance: float | None


@dataclass
class Totals:
    """What a run has counted so far."""

    batches: int = 0
    rows: int = 0
    rebalances: int = 0
    promotions: int = 0
    losses: int = 0
    replayed: int = 0
    restored: int = 0
    scratch: int = 0
    expected: int | None = None


class RunRecorder:
    """Remembers the events of one run.

    - `clock`: seconds since 1970; `began`: when the run began, None: now
    - `version` counts the events; `end` is the state after the end of the run, None before

    >>> recorder = RunRecorder("flights", clock=lambda: 100.0)
    >>> recorder.batch(BatchDone(0, 2, 1_000, 4.0, {}, (), 1))
    >>> recorder.report().figures[0].value
    '1 of 2'
    """

    def __init__(
        self, title: str, *, clock: Callable[[], float] = time.time, began: float | None = None
    ) -> None:
        self.title, self.clock = title, clock
        self.began = clock() if began is None else began
        self.version = 0
        self.totals = Totals()
        self.end: State | None = None
        self._lock = threading.Lock()
        self._placements = Placements()
        self._samples: list[_Sample] = []
        self._happenings: deque[Happening] = deque(maxlen=MOST_HAPPENINGS)
        self._moves: deque[MoveRow] = deque(maxlen=MOST_MOVES)
        self._recoveries: deque[Recovery] = deque(maxlen=MOST_HAPPENINGS)
        self._lost_tasks: dict[str, set[str]] = {}
        self._rebalanced: Rebalanced | None = None
        self._summary: Summary | None = None
        self._last: BatchDone | None = None
        self._gone: dict[str, str] = {}

    def begin_with(self, event: Rebalanced) -> None:
        """Begin with an assignment that was in force before; it counts as no rebalance."""
        with self._lock:
            self._rebalanced = event
            self._placements.add(
                label(event.generation),
                event.assignment,
                at=0.0,
                text="in force when this page began",
                imbalance=event.imbalance,
                to_go=event.to_go,
            )

    # -- events

    def batch(self, event: BatchDone) -> None:
        """Remember a committed batch."""
        with self._lock:
            at = self._now()
            self._last = event
            self.totals.batches += 1
            self.totals.rows += event.rows
            self.totals.expected = event.total
            if (recovery := event.recovery) is not None:
                self.totals.replayed += recovery.replayed
                self.totals.restored += recovery.restored
                self.totals.scratch += recovery.scratch
            imbalance = self._rebalanced.imbalance if self._rebalanced else None
            lag = sum(view.lag for view in event.placement)
            self._samples.append(_Sample(at, event, lag, self._lags(event), imbalance))
            if len(self._samples) > MOST_BATCHES:
                half = MOST_BATCHES // 2
                self._samples[:half] = self._samples[:half:2]
            self._recover(at, event)

    def rebalance(self, event: Rebalanced) -> None:
        """Remember a new assignment."""
        with self._lock:
            at, step = self._now(), label(event.generation)
            self.totals.rebalances += 1
            self.totals.promotions += event.promotions
            self._rebalanced = event
            if event.assignment:
                self._placements.add(
                    step,
                    event.assignment,
                    at=at,
                    text=event.reason,
                    imbalance=event.imbalance,
                    to_go=event.to_go,
                )
            text = f"{step}: {event.reason}; {move_text(event)}"
            self._happenings.append(Happening(at, "rebalance", text, step))
            for change in event.changes:
                role = "warm-up" if change.role == "warmup" else change.role
                self._moves.append(
                    MoveRow(step, change.task, role, change.origin or "", change.to, change.why)
                )
            self._take_over(at, event)

    def failure(self, event: ExecutorLost) -> None:
        """Remember the loss of an instance."""
        with self._lock:
            at = self._now()
            self.totals.losses += not event.leaving
            word = "leaves" if event.leaving else "lost"
            tasks = count(event.tasks, "active task")
            text = f"{event.instance} {word} in batch {event.batch_id} with {tasks}"
            text += "; the running stage was stopped, and what had finished counts" if event.cancelled else ""
            self._happenings.append(Happening(at, "leaving" if event.leaving else "loss", text))
            self._recoveries.append(Recovery(at, event.instance, event.batch_id, event.tasks, event.leaving))
            roles = self._rebalanced.assignment.get(event.instance, {}) if self._rebalanced else {}
            self._lost_tasks[event.instance] = set(roles.get("active", ()))
            self._gone[event.instance] = "leaving" if event.leaving else "lost"

    def note(self, text: str) -> None:
        """Remember a line of text."""
        with self._lock:
            self._happenings.append(Happening(self._now(), "note", text))

    def progress(self, event: WorkProgress) -> None:
        """Show nothing: what a page shows of work is the lags of copies."""

    def summary(self, summary: Summary) -> None:
        """Remember the summary; the run has ended."""
        with self._lock:
            self._now()
            self._summary = summary
            self.end = ENDS["ended"]
            if summary.ok is not None:
                text = summary.check or ""
                self.end = State(
                    "checked" if summary.ok else "check failed", text, "good" if summary.ok else "bad"
                )

    def ended(self, event: Ended) -> None:
        """Remember how the run has ended, unless its summary says it already."""
        with self._lock:
            at = self._now()
            if event.word == "failed":
                self._happenings.append(Happening(at, "failure", event.text))
            if self.end is None or event.word != "ended":
                self.end = replace(ENDS.get(event.word, ENDS["ended"]), text=event.text)

    def close(self) -> None:
        """Nothing to give back."""

    # -- the report

    def report(self, reasons: tuple[Reason, ...] = ()) -> Report:
        """Return the report of what has happened so far. `reasons`: why each task is where it is."""
        with self._lock:
            copies, more = copy_lags([sample.lags for sample in self._samples])
            left_out = [f"{count(more, 'copy', 'copies')} with smaller lags"] if more else []
            if self.totals.batches > len(self._samples):
                left_out.append(
                    count(self.totals.batches - len(self._samples), "earlier batch", "earlier batches")
                )
            if self._placements.merged:
                left_out.append(count(self._placements.merged, "earlier assignment"))
            return Report(
                kind="run",
                title=self.title,
                state=self.state(),
                made=self.clock(),
                began=self.began,
                figures=figures(self.totals, self._last, self._rebalanced, self._summary, self._seconds()),
                tasks=self._placements.tasks,
                instances=self._placements.instances,
                steps=tuple(self._placements.steps),
                happenings=tuple(self._happenings),
                samples=_columns(self._samples),
                copies=copies,
                recoveries=tuple(self._recoveries),
                now=tuple(self._rows()),
                moves=tuple(self._moves),
                reasons=reasons,
                facts=summary_facts(self._summary) if self._summary else (),
                left_out=tuple(left_out),
            )

    def _now(self) -> float:
        """Return the time since the start, for an event; counts it. The caller holds the lock."""
        self.version += 1
        return max(0.0, self.clock() - self.began)

    def _seconds(self) -> float:
        if self._summary is not None and self._summary.seconds:
            return self._summary.seconds
        ats = [*(s.at for s in self._samples[-1:]), *(h.at for h in list(self._happenings)[-1:])]
        return max(ats, default=0.0)

    def state(self) -> State:
        """Return the state of the run in words."""
        if self.end is not None:
            return self.end
        if self._rebalanced is not None and self._rebalanced.followup:
            return State("running", "the assignment is not yet the target", "busy", live=True)
        return State("running", "", "good", live=True)

    def _lags(self, event: BatchDone) -> LagsNow:
        assignment = self._rebalanced.assignment if self._rebalanced else {}
        flat = [(lag, name, task) for name, lags in event.lags.items() for task, lag in lags.items()]
        return {
            (name, task): (
                lag,
                "warm-up" if task in assignment.get(name, {}).get("warmup", ()) else "standby",
            )
            for lag, name, task in sorted(flat, reverse=True)[:MOST_LAGS]
        }

    def _rows(self) -> Iterator[InstanceRow]:
        views = self._last.placement if self._last else ()
        for view in views:
            yield InstanceRow(view.id, view.active, view.standby, view.warmup, view.lag)
        there = {view.id for view in views}
        for name, word in self._gone.items():
            if name not in there:
                yield InstanceRow(name, 0, 0, 0, None, word)

    def _take_over(self, at: float, event: Rebalanced) -> None:
        """Note for each loss that its tasks have new places."""
        for k, one in enumerate(self._recoveries):
            if one.planned is None:
                lost = self._lost_tasks.pop(one.instance, set())
                promoted = sum(c.role == "promotion" and c.task in lost for c in event.changes)
                self._recoveries[k] = replace(one, planned=at - one.at, promoted=promoted)

    def _recover(self, at: float, event: BatchDone) -> None:
        """Note for each loss that its batch was committed, and that every standby has caught up again."""
        whole = event.behind == 0 and not (self._rebalanced and self._rebalanced.followup)
        for k, one in enumerate(self._recoveries):
            if one.committed is None and event.batch_id >= one.batch:
                done = event.recovery
                one = replace(
                    one,
                    committed=at - one.at,
                    replayed=done.replayed if done else None,
                    scratch=done.scratch if done else None,
                )
            if one.whole is None and one.committed is not None and whole:
                one = replace(one, whole=at - one.at)
            self._recoveries[k] = one


def label(generation: int) -> str:
    """Return the name of an assignment."""
    return f"generation {generation}"


def report_of_lines(run: RunLines) -> Report:
    """Return the report of a run from its lines (`taskplace.record.json_lines`)."""
    now = run.began

    def at(moment: float) -> None:
        nonlocal now
        now = moment

    recorder = RunRecorder(run.title, clock=lambda: now, began=run.began)
    retell(run, recorder, at)
    made = recorder.report()
    if made.state.live:
        text = "the lines have no end: the run goes on, or was killed"
        made = replace(made, state=State("cut off", text, "busy"))
    return replace(made, made=time.time())


def _columns(samples: list[_Sample]) -> Samples:
    names = list(dict.fromkeys(name for sample in samples for name in sample.event.phases))
    return Samples(
        at=tuple(sample.at for sample in samples),
        number=tuple(sample.event.batch_id for sample in samples),
        rows=tuple(sample.event.rows for sample in samples),
        seconds=tuple(sample.event.seconds for sample in samples),
        phases={name: tuple(sample.event.phases.get(name, 0.0) for sample in samples) for name in names},
        lag=tuple(sample.lag for sample in samples),
        imbalance=tuple(sample.imbalance for sample in samples),
    )
