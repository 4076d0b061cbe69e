"""`taskplace inspect`: what is in a checkpoint, the lags that its driver has written last, and whether it is whole."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from taskplace.cli import codes, documents
from taskplace.report import long_work
from taskplace.spark.inspection import checkpoint
from taskplace.spark.inspection.checkpoint import Inspection, TaskState
from taskplace.wording import ago, count, counted_since, listed
from topology import TaskId

#: How many lines of a list are shown.
SHOWN = 20
#: The roles in the order in which they are shown, with their words.
ROLES = {"active": "active", "standby": "standby", "warmup": "warm-up"}


def inspect(args: argparse.Namespace) -> int:
    """Print an inspection. Return 0 for a sound checkpoint, 1 for a damaged or incomplete one."""
    root = documents.checkpoint(args.checkpoint)
    with long_work() as show:
        found = checkpoint.inspect(root, verify=args.verify, progress=show)
    if args.output == "json":
        print(json.dumps(found.to_dict(), indent=1))
    else:
        print("\n".join(_lines(found)))
    return codes.DONE if found.sound else codes.FAILED


def _lines(found: Inspection) -> Iterator[str]:
    yield f"checkpoint  {found.path}"
    yield f"topology    {found.topology or 'unknown'}, checkpoint id {found.id or 'unknown'}"
    drivers = f"{found.epochs[-1]} was the last" if found.epochs else "none"
    yield f"drivers     {drivers}"
    if (last := found.last) is None:
        yield "manifests   no batch is known to be committed"
    else:
        shown = (
            f"batches {found.needed_from} to {last['batch']} are needed, {count(len(found.batches), 'file')}"
        )
        full = ", ".join(map(str, found.full)) or "none"
        yield f"manifests   {shown}; with whole histories: {full}"
        by = f"driver {last['epoch']}, generation {last['generation']}"
        yield f"last batch  {last['batch']}: {count(last['rows'], 'row')}, committed by {by}"
    if found.totals is not None:
        kept = found.totals
        counted = f"{count(kept.rows, 'row')} and {count(kept.late, 'late row')} {counted_since(kept.since)}"
        yield f"totals      {counted}"
    if found.generations:
        yield f"generations {_generations(found)}"
    yield from _assignment(found)
    yield from lag_lines(found)
    yield from _tasks(found)
    yield from _sizes(found)
    for line in found.unfinished[:SHOWN]:
        yield f"unfinished  {line}"
    yield from damage_lines(found)
    checked = "all bytes were read" if found.verified else "lengths were compared; --verify reads all bytes"
    yield f"result      {'sound' if found.sound else 'DAMAGED'} ({checked})"


def damage_lines(found: Inspection) -> Iterator[str]:
    """Yield a line for each damaged or missing file, up to `SHOWN`, and for damage that does not count."""
    for damage in found.damaged[:SHOWN]:
        tasks = ""
        if damage.lost:
            tasks = f"; the state of {_named(damage.lost)} cannot be made of this checkpoint"
        elif damage.tasks:
            tasks = f"; other files have the state of {_named(damage.tasks)}"
        yield f"damaged     {damage.kind} {damage.file}: {damage.what}{tasks}"
    if len(found.damaged) > SHOWN:
        yield f"damaged     and {len(found.damaged) - SHOWN} more; --output json has all"
    for damage in found.unneeded[:SHOWN]:
        yield (
            f"unneeded    {damage.kind} {damage.file}: {damage.what}; no copy needs it any more, because newer files "
            f"have the state of {_named(damage.tasks)}; nothing needs to be done"
        )
    if len(found.unneeded) > SHOWN:
        yield f"unneeded    and {len(found.unneeded) - SHOWN} more; --output json has all"


def _assignment(found: Inspection) -> Iterator[str]:
    if found.assignment:
        yield ""
        yield f"{'executor':<16}{'active':>8}{'standby':>9}{'warm-up':>9}   at the last commit"
    for name, roles in found.assignment.items():
        active, standby, warmup = (len(roles.get(role, ())) for role in ROLES)
        yield f"{name:<16}{active:>8}{standby:>9}{warmup:>9}"
        for role, word in ROLES.items():
            if tasks := roles.get(role):
                yield f"  {word:<9}{listed(tasks, most=SHOWN)}"


def _generations(found: Inspection) -> str:
    """Return the newest generations with their batches, in the order of the batches."""
    newest = found.generations[-SHOWN:]
    parts = [
        f"{one.generation} in {f'batch {one.first}' if one.first == one.last else f'batches {one.first} to {one.last}'}"
        for one in newest
    ]
    more = len(found.generations) - len(newest)
    return f"{f'{more} earlier ones, ' if more else ''}{', '.join(parts)}"


def lag_lines(found: Inspection) -> Iterator[str]:
    """Yield the lags of the copies by executor, from the last status file, and its age."""
    if found.status_error:
        yield from ("", f"no lags     {found.status_error}")
    if (status := found.status) is None:
        return
    yield ""
    ended = ", which has ended" if status.ended else ""
    said = f"status of driver {status.epoch}{ended}, {ago(status.age_seconds)}"
    yield f"lags        in records at batch {status.batch}, generation {status.generation}: {said}"
    yield f"{'executor':<16}{'active lag':>12}{'standby lag':>13}{'warm-up lag':>13}"
    for name, roles in status.lags.items():
        active, standby, warmup = (sum(roles[role].values()) for role in ROLES)
        yield f"{name:<16}{active:>12,}{standby:>13,}{warmup:>13,}"
        for role, lags in roles.items():
            behind = sorted((-lag, TaskId.parse(task)) for task, lag in lags.items() if lag)
            if behind:
                shown = listed((f"{task}: {-lag:,}" for lag, task in behind), most=SHOWN)
                yield f"  {ROLES[role]:<9}{shown}"


def _tasks(found: Inspection) -> Iterator[str]:
    if not found.tasks:
        return
    yield ""
    head = f"{'task':<16}{'records':>12}{'in snapshot':>13}{'to replay':>11}{'bytes':>14}"
    yield f"{head}   what a new copy replays behind the snapshot, and reads"
    longest = sorted(found.tasks.items(), key=lambda one: -one[1].replay)[:SHOWN]
    for name, task in longest:
        yield _task(name, task)
    if len(found.tasks) > SHOWN:
        yield f"and {count(len(found.tasks) - SHOWN, 'task')} with less to replay; --output json has all"


def _task(name: str, task: TaskState) -> str:
    snapshot = "none" if task.snapshot is None else f"{task.snapshot:,}"
    return f"{name:<16}{task.records:>12,}{snapshot:>13}{task.replay:>11,}{task.bytes:>14,}"


def _sizes(found: Inspection) -> Iterator[str]:
    yield ""
    yield f"{'kind':<16}{'files':>8}{'bytes':>16}{'needed':>16}"
    for name, kind in found.sizes.items():
        needed = "" if kind.needed is None else f"{kind.needed:,}"
        yield f"{name:<16}{kind.files:>8,}{kind.bytes:>16,}{needed:>16}".rstrip()
    yield ""


def _named(tasks: tuple[str, ...]) -> str:
    more = f" and {len(tasks) - 5} more" if len(tasks) > 5 else ""
    return ", ".join(tasks[:5]) + more
