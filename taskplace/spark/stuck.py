"""Finds why a copy that should catch up makes no progress, from a driver's status, and what to do about it.

The causes, in the order in which they are looked for: the copy cannot follow; follow jobs on its executor fail, or are
not answered; it reads nothing; it reads, but no faster than the stream writes. If no driver runs, that comes first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from taskplace.lag.ranking import Seen
from taskplace.spark.operator_messages import ExecutorStatus, Status, WarmupStatus
from taskplace.wording import count, lasting, noun
from topology import TaskId

#: A copy that has read nothing for so long makes no progress; and a pace is judged after so long. In seconds.
IDLE_SECONDS = 60.0
#: An executor that has answered no follow job for so long hangs, or is overloaded.
SILENT_SECONDS = 120.0
#: Stands in commands for a checkpoint whose path is not known.
UNKNOWN = "CHECKPOINT"
#: What to do if no driver runs, and what ends each remedy then.
START = "start the stream again"
#: The path of a checkpoint before the name of one of its files: executors may see it elsewhere.
_IN_CHECKPOINT = re.compile(r"(?<!\S)/\S*/(?=(?:changelog|snapshots|manifests|batches|epochs)/)")


def seen_of(
    status: Status, *, runs: bool, checkpoint: str | Path = UNKNOWN
) -> dict[tuple[str, TaskId], Seen]:
    """Return what a driver's status says of the copies that catch up or are parked.

    - `runs`: whether the driver still runs. If not, nothing catches up, and what was the matter before is named as well
    - `checkpoint`: the path that remedies name
    """
    found = _seen_then(status, runs=runs, checkpoint=checkpoint)
    if runs:
        return found
    return {copy: _ended(status, seen, status.executors[copy[0]], copy[1]) for copy, seen in found.items()}


def _seen_then(status: Status, *, runs: bool, checkpoint: str | Path) -> dict[tuple[str, TaskId], Seen]:
    """Return what was known when the status was written, with remedies for now."""
    at = shlex.quote(str(checkpoint))
    found: dict[tuple[str, TaskId], Seen] = {}
    for name, executor in status.executors.items():
        for task, warmup in executor.warmup.items():
            found[name, TaskId.parse(task)] = _warmup(status, name, task, warmup, at, runs=runs)
        for task, lag in executor.standby.items():
            seen = _stalled(status, name, task, executor, at, runs=runs) if lag else None
            if seen or (lag and not runs):
                found[name, TaskId.parse(task)] = seen or Seen()
        for task in executor.parked:
            cause = _brief(executor.errors.get(task, ""))
            why = f"{name} could not follow ({cause})" if cause else "the driver's log says more"
            release = f'release it: `placed.release("{name}")`, or restart the driver' if runs else START
            remedy = f"when the cause is gone, {release}"
            found[name, TaskId.parse(task)] = Seen(None, why, remedy)
    return found


def stuck(
    status: Status, checkpoint: str | Path = UNKNOWN, *, runs: bool = True
) -> Iterator[tuple[str, str, Seen]]:
    """Yield the copies that made no progress when the status was written: executor, task, and why.

    `runs`: whether the driver still runs; remedies depend on it.
    """
    for (name, task), seen in sorted(_seen_then(status, runs=runs, checkpoint=checkpoint).items()):
        if seen.stalled:
            yield name, str(task), seen


def _ended(status: Status, seen: Seen, executor: ExecutorStatus, task: TaskId) -> Seen:
    """Return what is known of a copy when no driver runs any more."""
    if seen.remaining == 0.0 or str(task) in executor.parked:
        return seen
    why, remedy = "no driver runs, so nothing catches up", seen.remedy or START
    if status.failed:
        why += f"; batch {status.failed.batch} failed ({_brief(status.failed.error)})"
        remedy = f"mend {'the cause of that' if seen.remedy else 'the cause'}, and {remedy}"
    if seen.stalled:
        return Seen(None, f"{why}; its last status says: {seen.stalled}", remedy)
    return Seen(None, why, remedy, no_driver=True)


def _warmup(status: Status, name: str, task: str, warmup: WarmupStatus, at: str, *, runs: bool) -> Seen:
    executor = status.executors[name]
    if warmup.caught_up:
        return Seen(0.0)
    if stalled := _stalled(status, name, task, executor, at, runs=runs):
        return stalled
    if warmup.eta_seconds is None and warmup.restoring:
        return Seen(unknown=f"{name} loads a snapshot, and its lag counts the whole changelog until then")
    if warmup.eta_seconds is not None or warmup.seconds < IDLE_SECONDS:
        return Seen(warmup.eta_seconds)
    if warmup.idle_seconds >= IDLE_SECONDS:
        others = len(executor.standby) + len(executor.warmup) - 1
        why = f"{name} has read no record of it for {lasting(warmup.idle_seconds)}"
        turns = f"{count(others, 'other copy', 'other copies')} there {noun(others, 'takes', 'take')} turns with it"
        why += f"; {turns}" if others else ""
        return Seen(
            None,
            why,
            "the driver's log says more; raise follower.share if batches leave no time for follow jobs",
        )
    why = f"{name} reads it no faster than the stream writes, so its lag of {warmup.lag:,} records does not shrink"
    return Seen(
        None, why, "raise follower.share, or acceptable.recovery.lag if a longer replay is acceptable"
    )


def _stalled(
    status: Status, name: str, task: str, executor: ExecutorStatus, at: str, *, runs: bool
) -> Seen | None:
    """Return what keeps any copy of an executor from following; None if nothing does."""
    if error := _brief(executor.errors.get(task, "")):
        return Seen(None, f"{name} cannot follow: {error}", _remedy(error, name, executor, at, runs=runs))
    if executor.error:
        error = _brief(executor.error)
        return Seen(
            None, f"follow jobs on {name} fail: {error}", _remedy(error, name, executor, at, runs=runs)
        )
    silent = None if executor.visited is None else status.written - executor.visited
    if silent is not None and silent > SILENT_SECONDS:
        why = f"{name} has not answered a follow job for {lasting(silent)}"
        hangs = f"look whether it hangs: its log, or its threads in Spark's page ({executor.host})"
        return Seen(None, why, hangs if runs else START)
    return None


def _brief(error: str) -> str:
    """Return the first sentence of an error: what it found, with files relative to the checkpoint.

    The remedies here are those for a copy.
    """
    first = error.partition(". ")[0]
    return _IN_CHECKPOINT.sub("", first) if first.startswith("CheckpointError:") else first


def _remedy(error: str, name: str, executor: ExecutorStatus, at: str, *, runs: bool) -> str:
    """Return what to do. Without a driver, that ends with the start of the stream, which all need."""
    kind = error.partition(":")[0]
    if kind == "DiskFull":
        need = "let the stream's user write to" if "not allowed to write" in error else "make room on"
        room = f"{need} the disk of {name} ({executor.host})"
        return f"{room}; the copy then goes on by itself" if runs else f"{room}, and {START}"
    if kind == "DamagedEntry":
        anew = f"the damage is in the copy on {name} ({executor.host}) alone, which is made anew"
        again = "if it happens again, check the disk and the memory of this host"
        return f"{'nothing needs to be done' if runs else START}: {anew}; {again}"
    if kind in ("CheckpointError", "NoWay"):
        named = f"`taskplace inspect {at} --verify` names damaged files and their tasks; restore them from a backup"
        if runs:
            return (
                f"{named}, or keep the executor that runs the task until its next snapshot, which makes damaged "
                "changes before it unneeded"
            )
        return (
            f"{named}, and {START}; without a backup, start it on the same hosts: their state directories may have "
            "whole copies"
        )
    more = f"the log of {name} says more"
    return (
        f"{more}; follow jobs go on, and the copy with them"
        if runs
        else f"{more}; mend the cause, and {START}"
    )
