"""Makes the report of a checkpoint: its assignment, sizes and damage, and what its driver says or has said last.

The driver's status has the last rebalances, losses and batches. The whole history of a run is in its event lines
(`report.events`), and in the page that it writes (`report.html`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from taskplace.record.events import BatchDone, InstanceView, Line
from taskplace.record.html.of_plan import reasons_of
from taskplace.record.html.of_run import RunRecorder
from taskplace.record.html.values import (
    Figure,
    InstanceRow,
    Placements,
    Reason,
    Report,
    State,
    Tone,
)
from taskplace.spark.inspection.checkpoint import Inspection, inspect
from taskplace.spark.inspection.driver import DriverState, driver_of
from taskplace.spark.inspection.now import input_figures, input_rows, now_of, state_of, undone_text
from taskplace.spark.inspection.situation import status_explainer
from taskplace.spark.operator_messages import Status
from taskplace.wording import count, counted_since, listed, size

#: The most files of each kind of finding that are named.
MOST_NAMED = 20
EARLIER = "everything before the last rebalances, losses and batches of this driver"


def report_of_checkpoint(root: Path) -> Report:
    """Return the report of a checkpoint. Reads only; safe while a stream runs.

    Errors: `CheckpointError` for a status that cannot be read.
    """
    found, driver = inspect(root), driver_of(root)
    status, placements = driver.status, _placements(found, driver.status)
    now = None if status is None else now_of(status, checkpoint=root)
    return replace(
        _last_events(status),
        kind="checkpoint",
        title=found.topology or root.name,
        state=_state(found, driver),
        made=time.time(),
        figures=tuple(_figures(found, driver)),
        tasks=placements.tasks,
        instances=placements.instances,
        steps=tuple(placements.steps),
        copies=() if now is None else now.copies,
        inputs=input_rows(found.input),
        now=now.rows if now is not None and now.rows else tuple(_rows(found)),
        reasons=_reasons(found, driver),
        warnings=tuple(_warnings(found)),
        facts=tuple(_facts(found)),
        left_out=(EARLIER,) if status else (),
    )


def _last_events(status: Status | None) -> Report:
    """Return the report of the events that the driver's status remembers. The first one is the zero of its times."""
    if status is None:
        return replace(RunRecorder("").report(), began=None)
    told: list[Line] = [*status.rebalances, *status.losses, *status.batches]
    events = sorted(told, key=lambda one: one.time)
    begins = [one.at - (one.seconds if isinstance(one, BatchDone) else 0.0) for one in events]
    recorder = RunRecorder("", began=min(begins, default=status.driver.started))
    for event in events:
        recorder.add(event)
    return recorder.report()


def _state(found: Inspection, driver: DriverState) -> State:
    status = driver.status
    if not found.sound:
        return State("damaged", f"{count(len(found.damaged), 'finding')}; {driver.why}", "bad")
    if status is None or not driver.runs:
        text = "; ".join(filter(None, (driver.why, undone_text(status) if status else "")))
        return State("no driver runs", text, "bad" if status and status.failed else "")
    state = state_of(status)
    return State(state.word, f"{state.text}; {driver.why}", state.tone)


def _placements(found: Inspection, status: Status | None) -> Placements:
    placements = Placements()
    if found.assignment and found.last is not None:
        text = f"generation {found.last.generation}, at the last commit"
        placements.add(f"batch {found.last.batch}", found.assignment, text=text)
    if status is not None and status.executors:
        now = {
            name: {"active": [*one.active], "standby": [*one.standby], "warmup": [*one.warmup]}
            for name, one in status.executors.items()
        }
        placements.add("now", now, text=f"generation {status.generation}, as the driver says")
    return placements


def _figures(found: Inspection, driver: DriverState) -> Iterator[Figure]:
    last, status, totals = found.last, driver.status, found.totals
    yield Figure("last batch", f"{last.batch:,}" if last else "none", f"{last.rows:,} rows" if last else "")
    drivers = count(found.epochs[-1], "driver") if found.epochs else "no driver"
    generation = status.generation if status else last.generation if last else 0
    yield Figure("generation", f"{generation:,}", f"{drivers} so far")
    executors = len(status.executors) if status else len(found.assignment)
    yield Figure("executors", f"{executors:,}", "" if driver.runs else "at the end")
    records = sum(task.records for task in found.tasks.values())
    yield Figure("records", f"{records:,}", f"changes of {count(len(found.tasks), 'task')}")
    if totals is not None:
        since = f"{counted_since(totals.since)}, of {count(totals.rows, 'row')}"
        yield Figure("late rows", f"{totals.late:,}", since)
        yield from input_figures(totals.bad, last.watermark if last else None, found.input)
    if status is not None:
        lag = sum(one.lag for one in status.executors.values())
        yield Figure("lag", f"{lag:,}", "records, of all standbys and warm-ups")
    bytes_, files = (sum(getattr(kind, of) for kind in found.sizes.values()) for of in ("bytes", "files"))
    yield Figure("size", size(bytes_), f"{count(bytes_, 'byte')} in {count(files, 'file')}")
    tone: Tone = "" if found.sound else "bad"
    yield Figure("damaged", f"{len(found.damaged):,}", "damaged or missing files", tone)


def _reasons(found: Inspection, driver: DriverState) -> tuple[Reason, ...]:
    """Return why each task is where it is, as `taskplace explain CHECKPOINT` says it; nothing without executors."""
    if driver.status is None or not driver.status.executors:
        return ()
    ends = {name: task.records for name, task in found.tasks.items()}
    explainer = status_explainer(driver.status, ends, runs=driver.runs, checkpoint=driver.root)
    return reasons_of(explainer)[0]


def _rows(found: Inspection) -> Iterator[InstanceRow]:
    for name, roles in found.assignment.items():
        view = InstanceView.of(name, roles)
        yield InstanceRow(name, view.active, view.standby, view.warmup, note="at the last commit")


def _warnings(found: Inspection) -> Iterator[str]:
    for damage in found.damaged[:MOST_NAMED]:
        lost = f"; lost: the state of {listed(damage.lost, 5)}" if damage.lost else ""
        yield f"{damage.kind} {damage.file}: {damage.what}{lost}"
    yield from found.unfinished[:MOST_NAMED]


def _facts(found: Inspection) -> Iterator[tuple[str, str]]:
    yield "checkpoint id", found.id or "unknown"
    if found.needed_from is not None:
        yield "manifests needed from batch", f"{found.needed_from:,}"
    for name, kind in found.sizes.items():
        needed = "" if kind.needed is None else f", {size(kind.needed)} of them needed"
        yield name, f"{size(kind.bytes)} in {count(kind.files, 'file')}{needed}"
