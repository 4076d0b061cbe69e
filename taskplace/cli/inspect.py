"""`taskplace inspect`: what is in a checkpoint, the lags that its driver has written last, and whether it is whole.

`taskplace verify CHECKPOINT`: whether all bytes of a checkpoint are whole, and its placement is right.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence

from taskplace.cli import codes, documents
from taskplace.cli.status import input_table
from taskplace.cli.terminal import columns, show
from taskplace.errors import InputError
from taskplace.record import long_work
from taskplace.spark.inspection import checkpoint
from taskplace.spark.inspection.checkpoint import (
    CheckpointVerification,
    Inspection,
    TaskState,
    verify_checkpoint,
)
from taskplace.spark.inspection.now import input_figures
from taskplace.wording import Column, ago, count, counted_since, fit, listed, wrapped
from topology import TaskId

#: How many lines of a list are shown.
SHOWN = 20
#: How many tasks are named in a line about damage.
NAMED = 5
#: The first column of the tables of executors.
EXECUTOR = Column("executor", text=True, least=12)
#: The roles in the order in which they are shown, with their words.
ROLES = {"active": "active", "standby": "standby", "warmup": "warm-up"}


def inspect(args: argparse.Namespace) -> int:
    """Print an inspection. Return 0 for a sound checkpoint, 1 for a damaged or incomplete one."""
    root = documents.checkpoint(args.checkpoint)
    with long_work() as progress:
        found = checkpoint.inspect(root, verify=args.verify, progress=progress)
    if args.output == "json":
        print(json.dumps(found.to_dict(), indent=1))
    else:
        show(_lines(found, columns()))
    return codes.DONE if found.sound else codes.FAILED


def _lines(found: Inspection, width: int) -> Iterator[str]:
    """Yield an inspection as lines. Only its tables are fitted to `width`."""
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
        for figure in input_figures(kept.bad, found.last["watermark"] if found.last else None, found.input):
            yield f"{figure.name:<11} {figure.value} ({figure.note})"
    if found.generations:
        yield f"generations {_generations(found)}"
    yield from _assignment(found, width)
    yield from lag_lines(found, width)
    yield from _input(found, width)
    yield from _tasks(found, width)
    yield from _sizes(found, width)
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
    if any(damage.lost for damage in found.damaged):
        yield (
            "remedy      restore these files from a backup; without one, state goes on from whole copies in the state "
            "directories of executors: let a stream that runs go on, or start it on the same hosts"
        )
    elif any(damage.kind in ("manifest", "declaration") for damage in found.damaged):
        yield "remedy      restore these files from a backup"
    for damage in found.unneeded[:SHOWN]:
        yield (
            f"unneeded    {damage.kind} {damage.file}: {damage.what}; no copy needs it any more, because newer files "
            f"have the state of {_named(damage.tasks)}; nothing needs to be done"
        )
    if len(found.unneeded) > SHOWN:
        yield f"unneeded    and {len(found.unneeded) - SHOWN} more; --output json has all"


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, note: str = ""
) -> tuple[list[str], list[str]]:
    """Return the lines of a heading and of the rows. A note that has no room behind the heading stands above it."""
    heading, lines = fit(columns, rows, width).lines()
    if not note:
        return [heading], lines
    noted = f"{heading}   {note}"
    return ([noted] if len(noted) <= width else [*wrapped(note, width), heading]), lines


def _assignment(found: Inspection, width: int) -> Iterator[str]:
    if not found.assignment:
        return
    yield ""
    shown = (EXECUTOR, Column("active", goes=2), Column("standby", goes=1), Column("warm-up", goes=3))
    rows = [
        (name, *(f"{len(roles.get(role, ())):,}" for role in ROLES))
        for name, roles in found.assignment.items()
    ]
    heading, lines = _table(shown, rows, width, "at the last commit")
    yield from heading
    for line, roles in zip(lines, found.assignment.values(), strict=True):
        yield line
        for role, word in ROLES.items():
            if tasks := roles.get(role):
                yield f"  {word:<10}{listed(tasks, most=SHOWN)}"


def _generations(found: Inspection) -> str:
    """Return the newest generations with their batches, in the order of the batches."""
    newest = found.generations[-SHOWN:]
    parts = [
        f"{one.generation} in {f'batch {one.first}' if one.first == one.last else f'batches {one.first} to {one.last}'}"
        for one in newest
    ]
    more = len(found.generations) - len(newest)
    return f"{f'{more} earlier ones, ' if more else ''}{', '.join(parts)}"


def lag_lines(found: Inspection, width: int = sys.maxsize) -> Iterator[str]:
    """Yield the lags of the copies by executor, from the last status file, and its age."""
    if found.status_error:
        yield from ("", f"no lags     {found.status_error}")
    if (status := found.status) is None:
        return
    yield ""
    ended = ", which has ended" if status.ended else ""
    said = f"status of driver {status.epoch}{ended}, {ago(status.age_seconds)}"
    yield f"lags        in records at batch {status.batch}, generation {status.generation}: {said}"
    shown = (
        EXECUTOR,
        Column("active lag", goes=1),
        Column("standby lag", goes=3),
        Column("warm-up lag", goes=2),
    )
    rows = [
        (name, *(f"{sum(roles[role].values()):,}" for role in ROLES)) for name, roles in status.lags.items()
    ]
    heading, lines = _table(shown, rows, width)
    yield from heading
    for line, roles in zip(lines, status.lags.values(), strict=True):
        yield line
        for role, lags in roles.items():
            behind = sorted((-lag, TaskId.parse(task)) for task, lag in lags.items() if lag)
            if behind:
                named = listed((f"{task}: {-lag:,}" for lag, task in behind), most=SHOWN)
                yield f"  {ROLES[role]:<10}{named}"


def _input(found: Inspection, width: int) -> Iterator[str]:
    if not (input := found.input):
        return
    asked = max((one.asked for one in input.values() if one.asked is not None), default=None)
    said = "ends are not known: no driver has written where its brokers said that the topics end"
    if asked is not None:
        said = f"ends as the brokers said {ago(time.time() - asked)}; only a driver asks them"
    yield from ("", f"input       positions of the last commit; {said}")
    yield from input_table(input, width)


def _tasks(found: Inspection, width: int) -> Iterator[str]:
    if not found.tasks:
        return
    yield ""
    shown = (
        Column("task", text=True, least=12),
        Column("records", goes=2),
        Column("in snapshot", goes=1),
        Column("to replay", goes=4),
        Column("bytes", goes=3),
    )
    longest = sorted(found.tasks.items(), key=lambda one: -one[1].replay)[:SHOWN]
    rows = [(name, *_cells(task)) for name, task in longest]
    note = "what a new copy replays behind the snapshot, and reads"
    for part in _table(shown, rows, width, note):
        yield from part
    if len(found.tasks) > SHOWN:
        yield f"and {count(len(found.tasks) - SHOWN, 'task')} with less to replay; --output json has all"


def _cells(task: TaskState) -> tuple[str, ...]:
    snapshot = "none" if task.snapshot is None else f"{task.snapshot:,}"
    return f"{task.records:,}", snapshot, f"{task.replay:,}", f"{task.bytes:,}"


def _sizes(found: Inspection, width: int) -> Iterator[str]:
    yield ""
    shown = (
        Column("kind", text=True, least=12),
        Column("files", goes=1),
        Column("bytes", goes=3),
        Column("needed", goes=2),
    )
    rows = [
        (name, f"{kind.files:,}", f"{kind.bytes:,}", "" if kind.needed is None else f"{kind.needed:,}")
        for name, kind in found.sizes.items()
    ]
    for part in _table(shown, rows, width):
        yield from part
    yield ""


def _named(tasks: tuple[str, ...]) -> str:
    return listed(tasks, most=NAMED)


#: What holds for a placement that keeps the invariants.
RULES = "each task is active exactly once, and no executor has two copies of it"


def verify(args: argparse.Namespace) -> int:
    """Print a verification. Return 0 for a valid checkpoint, 1 for damage or a placement that breaks an invariant."""
    if args.plan:
        raise InputError("--plan", found=args.plan, expected="a problem.json as FILE, not a checkpoint")
    root = documents.checkpoint(args.file)
    with long_work() as progress:
        found = verify_checkpoint(root, progress)
    if args.output == "json":
        print(json.dumps(found.to_dict(), indent=1))
    else:
        show(lines(found))
    return codes.DONE if found.valid else codes.FAILED


def lines(found: CheckpointVerification) -> Iterator[str]:
    """Yield a verification as text."""
    seen = found.inspection
    yield f"checkpoint  {seen.path}"
    if seen.last is None:
        yield "manifests   no batch is known to be committed"
    else:
        yield f"manifests   batches {seen.needed_from} to {seen.last['batch']} are needed, and were read"
    needed = sum(kind.needed or 0 for kind in seen.sizes.values())
    yield f"files       {count(needed, 'byte')} that manifests name were read, and compared with their checksums"
    if found.tasks is None:
        yield "placement   not checked: no manifest with an assignment, or no topology, can be read"
    else:
        executors = count(len(seen.assignment), "executor")
        checked = RULES if not found.violations else count(len(found.violations), "violation")
        yield f"placement   {count(found.tasks, 'task')} on {executors}: {checked}"
    yield from (f"unfinished  {line}" for line in seen.unfinished)
    yield from damage_lines(seen)
    yield from (f"violation   {violation}" for violation in found.violations)
    yield f"result      {'valid' if found.valid else 'NOT VALID'}"
