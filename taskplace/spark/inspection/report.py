"""Makes the report of a checkpoint: its assignment, sizes and damage, and what its driver says or has said last.

The driver's status has the last rebalances, losses and batches. The whole history of a run is in its event lines
(`report.events`), and in the page that it writes (`report.html`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from taskplace.record.events import Line
from taskplace.record.html.of_plan import reasons_of
from taskplace.record.html.of_run import RunRecorder
from taskplace.record.html.values import (
    CopyLag,
    Figure,
    InstanceRow,
    Placements,
    Reason,
    Report,
    State,
)
from taskplace.spark.inspection.checkpoint import Inspection, inspect
from taskplace.spark.inspection.driver_seen import DriverSeen, look
from taskplace.spark.inspection.now import input_figures, input_rows, now_of, undone_text
from taskplace.spark.inspection.situation import situation
from taskplace.spark.operator_messages import Status
from taskplace.wording import count, counted_since, size

#: The most files of each kind of finding that are named.
MOST_NAMED = 20


def report_of_checkpoint(root: Path) -> Report:
    """Return the report of a checkpoint. Reads only; safe while a stream runs.

    Errors: `CheckpointError` for a status that cannot be read.
    """
    found, seen = inspect(root), look(root)
    status = seen.status
    placements = _placements(found, status)
    now = now_of(status, checkpoint=root) if status is not None else None
    return replace(
        _last_events(status),
        kind="checkpoint",
        title=found.topology or root.name,
        state=_state(found, seen),
        made=time.time(),
        began=_began(status),
        figures=tuple(_figures(found, seen)),
        tasks=placements.tasks,
        instances=placements.instances,
        steps=tuple(placements.steps),
        copies=now.copies if now is not None else _replays(found),
        inputs=input_rows(found.input),
        now=now.rows if now is not None and now.rows else tuple(_rows(found)),
        reasons=_reasons(found, seen),
        warnings=tuple(_warnings(found)),
        facts=tuple(_facts(found)),
        left_out=("everything before the last rebalances, losses and batches of this driver",)
        if status
        else (),
    )


def _last_events(status: Status | None) -> Report:
    """Return the report of the events that the driver's status remembers."""
    recorder = RunRecorder("", began=_began(status))
    if status is not None:
        events: list[Line] = [*status.rebalances, *status.losses, *status.batches]
        for event in sorted(events, key=lambda one: one.time):
            recorder.add(event)
    return recorder.report()


def _began(status: Status | None) -> float | None:
    """Return the zero of the page's times: the first thing that the status remembers."""
    if status is None:
        return None
    ats = [*(one.at - one.seconds for one in status.batches)]
    ats += [*(one.at for one in status.rebalances), *(one.at for one in status.losses)]
    return min(ats, default=status.driver.started)


def _state(found: Inspection, seen: DriverSeen) -> State:
    if not found.sound:
        return State("damaged", f"{count(len(found.damaged), 'finding')}; {seen.why}", "bad")
    if seen.status is None:
        return State("driver runs" if seen.runs else "no driver runs", seen.why, "good" if seen.runs else "")
    if not seen.runs:
        text = "; ".join(filter(None, (seen.why, undone_text(seen.status))))
        return State("no driver runs", text, "bad" if seen.status.failed is not None else "")
    state = now_of(seen.status).state
    return State(state.word, f"{state.text}; {seen.why}", state.tone)


def _placements(found: Inspection, status: Status | None) -> Placements:
    placements = Placements()
    if found.assignment and found.last is not None:
        label = f"batch {found.last['batch']}"
        text = f"generation {found.last['generation']}, at the last commit"
        placements.add(label, found.assignment, text=text)
    if status is not None and status.executors:
        held = {
            name: {"active": [*one.active], "standby": [*one.standby], "warmup": [*one.warmup]}
            for name, one in status.executors.items()
        }
        placements.add("now", held, text=f"generation {status.generation}, as the driver says")
    return placements


def _figures(found: Inspection, seen: DriverSeen) -> Iterator[Figure]:
    last, status = found.last, seen.status
    yield Figure(
        "last batch", f"{last['batch']:,}" if last else "none", f"{last['rows']:,} rows" if last else ""
    )
    drivers = count(found.epochs[-1], "driver") if found.epochs else "no driver"
    generation = status.generation if status else last["generation"] if last else 0
    yield Figure("generation", f"{generation:,}", f"{drivers} so far")
    executors = len(status.executors) if status else len(found.assignment)
    yield Figure("executors", f"{executors:,}", "" if seen.runs else "at the end")
    records = sum(task.records for task in found.tasks.values())
    yield Figure("records", f"{records:,}", f"changes of {count(len(found.tasks), 'task')}")
    if found.totals is not None:
        since = counted_since(found.totals.since)
        yield Figure("late rows", f"{found.totals.late:,}", f"{since}, of {count(found.totals.rows, 'row')}")
        yield from input_figures(
            found.totals.bad, found.last["watermark"] if found.last else None, found.input
        )
    if status is not None:
        lag = sum(one.lag for one in status.executors.values())
        yield Figure("lag", f"{lag:,}", "records, of all standbys and warm-ups")
    else:
        replay = sum(task.replay for task in found.tasks.values())
        yield Figure("to replay", f"{replay:,}", "records behind the newest snapshots")
    kinds = found.sizes.values()
    held, files = sum(kind.bytes for kind in kinds), sum(kind.files for kind in kinds)
    yield Figure("size", size(held), f"{count(held, 'byte')} in {count(files, 'file')}")
    yield Figure(
        "damaged", f"{len(found.damaged):,}", "damaged or missing files", "" if found.sound else "bad"
    )


def _reasons(found: Inspection, seen: DriverSeen) -> tuple[Reason, ...]:
    """Return why each task is where it is, as `taskplace explain CHECKPOINT` says it; nothing without executors."""
    status = seen.status
    if status is None or not status.executors:
        return ()
    ends = {name: task.records for name, task in found.tasks.items()}
    explainer = situation(status, ends, runs=seen.runs, checkpoint=seen.root).explainer()
    return reasons_of(explainer)[0]


def _replays(found: Inspection) -> tuple[CopyLag, ...]:
    """Return what a new copy of each task would have to replay, the most first."""
    waiting = [(task.replay, name) for name, task in found.tasks.items() if task.replay]
    return tuple(
        CopyLag(name, "a new copy", "standby", lag, lag, note="behind the newest snapshot")
        for lag, name in sorted(waiting, reverse=True)
    )


def _rows(found: Inspection) -> Iterator[InstanceRow]:
    for name, roles in found.assignment.items():
        active, standby, warmup = (len(roles.get(role, ())) for role in ("active", "standby", "warmup"))
        yield InstanceRow(name, active, standby, warmup, note="at the last commit")


def _warnings(found: Inspection) -> Iterator[str]:
    for damage in found.damaged[:MOST_NAMED]:
        lost = (
            f"; the state of {', '.join(damage.lost[:5])} cannot be made of this checkpoint"
            if damage.lost
            else ""
        )
        yield f"{damage.kind} {damage.file}: {damage.what}{lost}"
    yield from found.unfinished[:MOST_NAMED]


def _facts(found: Inspection) -> Iterator[tuple[str, str]]:
    yield "checkpoint id", found.id or "unknown"
    if found.needed_from is not None:
        yield "manifests needed from batch", f"{found.needed_from:,}"
    for name, kind in found.sizes.items():
        yield f"{name}: files", f"{kind.files:,}"
        yield f"{name}: bytes", f"{kind.bytes:,}"
        if kind.needed is not None:
            yield f"{name}: bytes needed", f"{kind.needed:,}"
