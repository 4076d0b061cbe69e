"""`taskplace verify CHECKPOINT`: whether all bytes of a checkpoint are whole, and its placement is right."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from taskplace.cli import codes, documents
from taskplace.cli.inspect import damage_lines
from taskplace.cli.terminal import show
from taskplace.errors import InputError
from taskplace.record import long_work
from taskplace.spark.inspection.checkpoint import CheckpointVerification, verify_checkpoint
from taskplace.wording import count

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
