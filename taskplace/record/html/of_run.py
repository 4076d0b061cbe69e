"""Makes the report of a run: a fold over its events.

`RunRecorder` is a reporter. The same fold serves a run that goes on (the live page), a run that has ended
(`report.html`), the lines of an earlier run, and the last events of a driver's status, so all show the same.

Properties:
- bounded, however long a stream runs: of old batches, every second one is dropped again and again; old rebalances are
  merged, and old moves dropped. Totals count everything
- thread-safe: events come from the driver, and reports are asked for by other threads
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as replace_fields
from typing_extensions import assert_never

from taskplace.record import events
from taskplace.record.html import values
from taskplace.record.words import loss_line, move_text, phase_rows, summary_rows
from taskplace.wording import count, counted_since, duration

#: The most batches with a sample of their own.
MOST_BATCHES = 4_000
#: The most rows of the timeline, and moves.
MOST_ROWS, MOST_MOVES = 2_000, 10_000
#: The copies of a batch whose lags are remembered; those that lack most.
MOST_LAGS = 20
#: The exit code of a run that was interrupted.
INTERRUPTED = 130


@dataclass(frozen=True)
class _Sample:
    """A batch: when it was committed, the event, its lag in all, the copies that lack most, and the imbalance."""

    at: float
    event: events.BatchDone
    lag: int
    lags: values.LagsNow
    imbalance: float | None


class RunRecorder:
    """Remembers the events of one run.

    - `began`: when the run began, in seconds since 1970; None: now, by the `clock`
    - `unit`: batch, or the round of a simulation
    - `version` counts the events; `end` is the state after the end of the run, None before

    >>> recorder = RunRecorder("flights", clock=lambda: 100.0)
    >>> recorder.batch(events.BatchDone(0, 2, 1_000, 4.0, {}, (), 1))
    >>> recorder.report().figures[0].value
    '1 of 2'
    """

    def __init__(
        self,
        title: str,
        *,
        clock: Callable[[], float] = time.time,
        began: float | None = None,
        unit: str = "batch",
    ) -> None:
        self.title, self.clock, self._unit = title, clock, unit
        self.began = clock() if began is None else began
        self.version = 0
        self.end: values.State | None = None
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()  # by field of a `Summary`
        self._losses, self._until = 0, 0.0
        self._placements = values.Placements()
        self._samples: list[_Sample] = []
        self._timeline: deque[values.TimelineRow] = deque(maxlen=MOST_ROWS)
        self._moves: deque[values.MoveRow] = deque(maxlen=MOST_MOVES)
        self._recoveries: deque[values.Recovery] = deque(maxlen=MOST_ROWS)
        self._lost_tasks: dict[str, set[str]] = {}
        self._rebalanced: events.Rebalanced | None = None
        self._summary: events.Summary | None = None
        self._last: events.BatchDone | None = None
        self._gone: dict[str, str] = {}

    def begin_with(self, event: events.Rebalanced, label: str = "") -> None:
        """Begin with an assignment that was in force before; it counts as no rebalance."""
        with self._lock:
            self._rebalanced = event
            self._place(0.0, event, label or self._label(event), "in force when this page began")

    # -- events

    def add(self, event: events.Line) -> None:
        """Remember an event. What a page shows of work is the lags of copies, and of warm-ups their rebalances."""
        with self._lock:
            self.version += 1
            at = max(0.0, event.at - self.began)
            match event:
                case events.BatchDone():
                    self._batch(at, event)
                case events.Rebalanced():
                    self._rebalance(at, event)
                case events.ExecutorLost():
                    self._loss(at, event)
                case events.Note():
                    self._timeline.append(values.TimelineRow(at, "note", event.text))
                case events.Finish():
                    self._finish(at, event)
                case events.Start() | events.WorkProgress() | events.WarmupChange():
                    return
                case _:
                    assert_never(event)
            self._until = at

    batch = rebalance = failure = progress = add

    def note(self, text: str) -> None:
        """Remember a line of text."""
        self.add(events.Note(text))

    def summary(self, summary: events.Summary) -> None:
        """Remember the summary; the run has ended."""
        with self._lock:
            self.version += 1
            self._end_with(summary)

    def close(self) -> None:
        """Nothing to give back."""

    def _batch(self, at: float, event: events.BatchDone) -> None:
        self._last = event
        self._counts.update(batches=1, rows=event.rows)
        if (done := event.recovery) is not None:
            self._counts.update(replayed_records=done.replayed, snapshot_records=done.restored)
            self._counts.update(scratch_restores=done.scratch)
        imbalance = self._rebalanced.imbalance if self._rebalanced else None
        lag = sum(view.lag for view in event.placement)
        self._samples.append(_Sample(at, event, lag, self._lags(event), imbalance))
        if len(self._samples) > MOST_BATCHES:
            half = MOST_BATCHES // 2
            self._samples[:half] = self._samples[:half:2]
        self._recover(at, event)

    def _rebalance(self, at: float, event: events.Rebalanced) -> None:
        self._counts.update(rebalances=1, promotions=event.promotions)
        self._rebalanced, step = event, self._label(event)
        if event.assignment:
            self._place(at, event, step, event.reason)
        text = f"{step}: {event.reason}; {move_text(event)}"
        self._timeline.append(values.TimelineRow(at, "rebalance", text, step if event.assignment else ""))
        self._moves.extend(values.move_rows(event.changes, step))
        for k, one in enumerate(self._recoveries):  # the tasks of each loss have new places
            if one.planned is None:
                lost = self._lost_tasks.pop(one.instance, None)
                promoted = sum(c.role == "promotion" and c.task in (lost or ()) for c in event.changes)
                known = None if lost is None else promoted
                self._recoveries[k] = replace(one, planned=at - one.at, promoted=known)

    def _loss(self, at: float, event: events.ExecutorLost) -> None:
        self._losses += not event.leaving
        text = loss_line(event, self._unit)
        self._timeline.append(values.TimelineRow(at, "leaving" if event.leaving else "loss", text))
        self._recoveries.append(
            values.Recovery(at, event.instance, event.batch_id, event.tasks, event.leaving)
        )
        if self._rebalanced is not None and self._rebalanced.assignment:
            roles = self._rebalanced.assignment.get(event.instance, {})
            self._lost_tasks[event.instance] = set(roles.get("active", ()))
        self._gone[event.instance] = "leaving" if event.leaving else "lost"

    def _finish(self, at: float, event: events.Finish) -> None:
        if event.totals is not None:
            self._end_with(event.totals)
        if event.exit_code == INTERRUPTED:
            self.end = values.State("interrupted", "it goes on after its last committed batch", "busy")
        elif event.error is not None:
            self._timeline.append(values.TimelineRow(at, "failure", event.error))
            self.end = values.State("failed", event.error, "bad")
        elif self.end is None:
            self.end = values.State("ended", "", "good")

    def _end_with(self, summary: events.Summary) -> None:
        self._summary = summary
        self.end = values.State("ended", "", "good")
        if summary.ok is not None:
            self.end = values.State("checked", summary.check or "", "good")
            self.end = self.end if summary.ok else replace(self.end, word="check failed", tone="bad")

    def _label(self, event: events.Rebalanced) -> str:
        """Return the name of an assignment."""
        return f"{'generation' if self._unit == 'batch' else self._unit} {event.generation}"

    def _place(self, at: float, event: events.Rebalanced, label: str, text: str) -> None:
        placements, even = self._placements, event.imbalance
        placements.add(label, event.assignment, at=at, text=text, imbalance=even, to_go=event.to_go)

    def _recover(self, at: float, event: events.BatchDone) -> None:
        """Note for each loss that its batch was committed, and that every standby has caught up again."""
        whole = event.behind == 0 and not (self._rebalanced and self._rebalanced.followup)
        for k, one in enumerate(self._recoveries):
            if one.committed is None and event.batch_id >= one.batch:
                replayed, scratch = (
                    (done.replayed, done.scratch) if (done := event.recovery) else (None, None)
                )
                one = replace(one, committed=at - one.at, replayed=replayed, scratch=scratch)
            if one.whole is None and one.committed is not None and whole:
                one = replace(one, whole=at - one.at)
            self._recoveries[k] = one

    # -- the report

    def report(self, reasons: tuple[values.Reason, ...] = ()) -> values.Report:
        """Return the report of what has happened so far. `reasons`: why each task is where it is."""
        with self._lock:
            copies, more = values.copy_lags([sample.lags for sample in self._samples])
            left_out = [f"{count(more, 'copy', 'copies')} with smaller lags"] if more else []
            if unseen := self._counts["batches"] - len(self._samples):
                left_out.append(f"samples of {count(unseen, self._unit, 'batches')}")
            if self._placements.merged:
                left_out.append(count(self._placements.merged, "earlier assignment"))
            return values.Report(
                kind="run",
                title=self.title,
                state=self.state(),
                made=self.clock(),
                began=self.began,
                unit=self._unit,
                figures=tuple(self._figures()),
                tasks=self._placements.tasks,
                instances=self._placements.instances,
                steps=tuple(self._placements.steps),
                timeline=tuple(self._timeline),
                samples=self._columns(),
                copies=copies,
                recoveries=tuple(self._recoveries),
                now=tuple(self._rows()),
                moves=tuple(self._moves),
                reasons=reasons,
                facts=_facts(self._summary) if self._summary else (),
                left_out=tuple(left_out),
            )

    def state(self) -> values.State:
        """Return the state of the run in words."""
        if self.end is not None:
            return self.end
        if self._rebalanced is not None and self._rebalanced.followup:
            return values.State("running", "the assignment is not yet the target", "busy", live=True)
        return values.State("running", "", "good", live=True)

    def _figures(self) -> Iterator[values.Figure]:
        """Yield the headline figures: of the summary if there is one, else of what was counted so far."""
        last, rebalanced, losses = self._last, self._rebalanced, self._losses
        counted = self._summary or replace_fields(events.Summary(seconds=self._until), **self._counts)
        of = ""
        if last and last.total and last.batch_id + 1 == self._counts["batches"]:  # no earlier run did a part
            of = f" of {last.total:,}"
        rate = f"{last.rows_per_second:,.0f} rows/s in batch {last.batch_id}" if last else ""
        yield values.Figure("batches", f"{counted.batches:,}{of}", rate)
        bad = sum(counted.bad_records.values())
        yield values.Figure("rows", f"{counted.rows:,}", f"{bad:,} bad" if bad else "")
        if late := counted.late or (last and last.late):
            text = f"{counted_since(late.since)}; {late.here:,} since this driver started"
            yield values.Figure("late rows", f"{late.total:,}", text)
        yield values.Figure("time", duration(counted.seconds or self._until), "since the start")
        generation = f"generation {rebalanced.generation}" if rebalanced else ""
        yield values.Figure("rebalances", f"{counted.rebalances:,}", generation)
        yield values.Figure("executors lost", f"{losses:,}", "", "bad" if losses else "")
        yield values.Figure("promotions", f"{counted.promotions:,}", "caught-up copies took over at once")
        text = f"by active tasks in all batches; {counted.snapshot_records:,} more out of snapshots"
        yield values.Figure("records replayed", f"{counted.replayed_records:,}", text)
        scratch, without = counted.scratch_restores, "active tasks without a local copy"
        tone: values.Tone = "bad" if scratch and losses else ""
        yield values.Figure("restored from scratch", f"{scratch:,}", without, tone)
        lag = sum(view.lag for view in last.placement) if last else 0
        yield values.Figure("lag", f"{lag:,}", "records, of all standbys and warm-ups")
        if rebalanced is not None and rebalanced.imbalance is not None:
            yield values.Figure("imbalance", f"{rebalanced.imbalance:.2f}", "largest load / mean")
        if counted.ok is not None:
            check = values.Figure("check", "right", counted.check or "", "good")
            yield check if counted.ok else replace(check, value="wrong", tone="bad")

    def _columns(self) -> values.Samples:
        samples = self._samples
        names = list(dict.fromkeys(name for sample in samples for name in sample.event.phases))
        return values.Samples(
            at=tuple(sample.at for sample in samples),
            number=tuple(sample.event.batch_id for sample in samples),
            rows=tuple(sample.event.rows for sample in samples),
            seconds=tuple(sample.event.seconds for sample in samples),
            phases={name: tuple(sample.event.phases.get(name, 0.0) for sample in samples) for name in names},
            lag=tuple(sample.lag for sample in samples),
            imbalance=tuple(sample.imbalance for sample in samples),
        )

    def _lags(self, event: events.BatchDone) -> values.LagsNow:
        assignment = self._rebalanced.assignment if self._rebalanced else {}
        flat = [(lag, name, task) for name, lags in event.lags.items() for task, lag in lags.items()]

        def role(name: str, task: str) -> str:
            return "warm-up" if task in assignment.get(name, {}).get("warmup", ()) else "standby"

        most = sorted(flat, reverse=True)[:MOST_LAGS]
        return {(name, task): (lag, role(name, task)) for lag, name, task in most}

    def _rows(self) -> Iterator[values.InstanceRow]:
        views = self._last.placement if self._last else ()
        for view in views:
            yield values.InstanceRow(view.id, view.active, view.standby, view.warmup, view.lag)
        there = {view.id for view in views}
        for name, word in self._gone.items():
            if name not in there:
                yield values.InstanceRow(name, 0, 0, 0, None, word)


def report_of_lines(lines: Sequence[events.Line]) -> values.Report:
    """Return the report of a run from its events, of which the first is its `Start` (`read_run_lines`)."""
    start = lines[0]
    title = start.application if isinstance(start, events.Start) else ""
    recorder = RunRecorder(title, began=start.at)
    for event in lines[1:]:
        recorder.add(event)
    made = recorder.report()
    if made.state.live:
        text = "the lines have no end: the run goes on, or was killed"
        made = replace(made, state=values.State("cut off", text, "busy"))
    return made


def _facts(summary: events.Summary) -> tuple[tuple[str, str], ...]:
    """Return all counts of a summary, and the median seconds of each phase of a batch."""
    rows = (
        (name, f"{took} ({share})".removesuffix(" ()")) for name, took, share in phase_rows(summary.phases)
    )
    return (*summary_rows(summary), *((f"median of a batch: {name}", took) for name, took in rows))
