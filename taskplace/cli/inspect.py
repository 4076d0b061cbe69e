"""`taskplace inspect`: what is in a checkpoint, and whether it is whole.

`taskplace verify CHECKPOINT`: whether all bytes of a checkpoint are whole, and its placement is right.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from taskplace.cli import codes, documents
from taskplace.cli.status import input_table
from taskplace.cli.terminal import answer, columns
from taskplace.errors import InputError
from taskplace.record import long_work
from taskplace.record.words import EXECUTOR
from taskplace.spark.inspection import checkpoint
from taskplace.spark.inspection.checkpoint import CheckpointVerification, Inspection, verify_checkpoint
from taskplace.spark.inspection.now import input_figures
from taskplace.wording import Column, ago, count, counted_since, fit, listed

#: How many lines of a list are shown.
SHOWN = 20
#: How many tasks are named in a line about damage.
NAMED = 5
#: The roles in the order in which they are shown, with their words.
ROLES = {"active": "active", "standby": "standby", "warmup": "warm-up"}

#: The columns of numbers, with the order in which they are left out.
TASK_NUMBERS = {"records": 2, "in snapshot": 1, "to replay": 4, "bytes": 3}
SIZE_NUMBERS = {"files": 1, "bytes": 3, "needed": 2}
TASKS = (Column("task", text=True, least=12), *(Column(name, goes=k) for name, k in TASK_NUMBERS.items()))
SIZES = (Column("kind", text=True, least=12), *(Column(name, goes=k) for name, k in SIZE_NUMBERS.items()))
NO_BATCH = "manifests   no batch is known to be committed"

#: What holds for a placement that keeps the invariants.
RULES = "each task is active exactly once, and no executor has two copies of it"


def inspect(args: argparse.Namespace) -> int:
    """Print an inspection. Return 0 for a sound checkpoint, 1 for a damaged or incomplete one."""
    root = documents.checkpoint(args.checkpoint)
    with long_work() as progress:
        found = checkpoint.inspect(root, verify=args.verify, progress=progress)
    answer(args.output, found.to_dict(), _lines(found, columns()))
    return codes.DONE if found.sound else codes.FAILED


def _lines(found: Inspection, width: int) -> Iterator[str]:
    """Yield an inspection as lines. Only its tables are fitted to `width`."""
    yield f"checkpoint  {found.path}"
    yield f"topology    {found.topology or 'unknown'}, checkpoint id {found.id or 'unknown'}"
    yield f"drivers     {f'{found.epochs[-1]} was the last' if found.epochs else 'none'}"
    last = found.last
    if last is None:
        yield NO_BATCH
    else:
        shown = f"batches {found.needed_from} to {last.batch} are needed, {count(len(found.batches), 'file')}"
        yield f"manifests   {shown}; with whole histories: {', '.join(map(str, found.full)) or 'none'}"
        by = f"driver {last.epoch}, generation {last.generation}"
        yield f"last batch  {last.batch}: {count(last.rows, 'row')}, committed by {by}"
    if (totals := found.totals) is not None:
        counted = f"{count(totals.rows, 'row')} and {count(totals.late, 'late row')}"
        yield f"totals      {counted} {counted_since(totals.since)}"
        for figure in input_figures(totals.bad, last.watermark if last else None, found.input):
            yield f"{figure.name:<11} {figure.value} ({figure.note})"
    if found.status_error:
        yield f"status      {found.status_error}"
    if found.assignment:
        yield from ("", "placement   at the last commit", *_executors(found, width))
    yield from _input(found, width)
    yield from _tasks(found, width)
    sizes = [
        (name, f"{kind.files:,}", f"{kind.bytes:,}", "" if kind.needed is None else f"{kind.needed:,}")
        for name, kind in found.sizes.items()
    ]
    yield from ("", *fit(SIZES, sizes, width).lines(), "")
    yield from (f"unfinished  {line}" for line in found.unfinished[:SHOWN])
    yield from damage_lines(found)
    checked = "all bytes were read" if found.verified else "lengths were compared; --verify reads all bytes"
    yield f"result      {'sound' if found.sound else 'DAMAGED'} ({checked})"


def damage_lines(found: Inspection) -> Iterator[str]:
    """Yield a line for each damaged or missing file, up to `SHOWN`, and for damage that does not count."""
    for damage in found.damaged[:SHOWN]:
        tasks = f"; other files have the state of {_named(damage.tasks)}" if damage.tasks else ""
        if damage.lost:
            tasks = f"; the state of {_named(damage.lost)} cannot be made of this checkpoint"
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


def _executors(found: Inspection, width: int) -> Iterator[str]:
    """Yield the table of the tasks of executors by role, and below each executor their names."""
    columns = (
        EXECUTOR,
        *(Column(word, goes=when) for word, when in zip(ROLES.values(), (2, 1, 3), strict=True)),
    )
    cells = [
        (name, *(f"{len(roles.get(role, ())):,}" for role in ROLES))
        for name, roles in found.assignment.items()
    ]
    heading, *lines = fit(columns, cells, width).lines()
    yield heading
    for line, roles in zip(lines, found.assignment.values(), strict=True):
        yield line
        texts = {word: listed(roles.get(role, ()), most=SHOWN) for role, word in ROLES.items()}
        yield from (f"  {word:<10}{text}" for word, text in texts.items() if text)


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
    yield from (
        "",
        "state       with what a new copy replays behind the snapshot, and the bytes that it reads",
    )
    longest = sorted(found.tasks.items(), key=lambda one: -one[1].replay)[:SHOWN]
    numbers = [(name, (task.records, task.snapshot, task.replay, task.bytes)) for name, task in longest]
    cells = [(name, *("none" if n is None else f"{n:,}" for n in those)) for name, those in numbers]
    yield from fit(TASKS, cells, width).lines()
    if len(found.tasks) > SHOWN:
        yield f"and {count(len(found.tasks) - SHOWN, 'task')} with less to replay; --output json has all"


def _named(tasks: tuple[str, ...]) -> str:
    return listed(tasks, most=NAMED)


def verify(args: argparse.Namespace) -> int:
    """Print a verification. Return 0 for a valid checkpoint, 1 for damage or a placement that breaks an invariant."""
    if args.plan:
        raise InputError("--plan", found=args.plan, expected="a problem.json as FILE, not a checkpoint")
    root = documents.checkpoint(args.file)
    with long_work() as progress:
        found = verify_checkpoint(root, progress)
    answer(args.output, found.to_dict(), _verification(found))
    return codes.DONE if found.valid else codes.FAILED


def _verification(found: CheckpointVerification) -> Iterator[str]:
    """Yield a verification as text."""
    inspection = found.inspection
    yield f"checkpoint  {inspection.path}"
    if inspection.last is None:
        yield NO_BATCH
    else:
        yield f"manifests   batches {inspection.needed_from} to {inspection.last.batch} are needed, and were read"
    needed = sum(kind.needed or 0 for kind in inspection.sizes.values())
    yield f"files       {count(needed, 'byte')} that manifests name were read, and compared with their checksums"
    if found.tasks is None:
        yield "placement   not checked: no manifest with an assignment, or no topology, can be read"
    else:
        executors = count(len(inspection.assignment), "executor")
        checked = RULES if not found.violations else count(len(found.violations), "violation")
        yield f"placement   {count(found.tasks, 'task')} on {executors}: {checked}"
    yield from (f"unfinished  {line}" for line in inspection.unfinished)
    yield from damage_lines(inspection)
    yield from (f"violation   {violation}" for violation in found.violations)
    yield f"result      {'valid' if found.valid else 'NOT VALID'}"
