"""The start, and the checkpoint that it would continue."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Found, Severity, rule, set_key
from taskplace.paths import local_path

_DIR = "checkpoint.dir"


@rule("start-refused", Severity.ERROR, "what `taskplace run --check` refuses")
def start_refused(facts: Facts) -> Iterator[Found]:
    """Pass on the first error of a start that needs no Spark."""
    if facts.refused:
        path, _, text = facts.refused.partition(": ")
        yield Found(
            path,
            text.removeprefix("found "),
            "The start is refused before anything runs.",
            f"taskplace run {shlex.quote(facts.file)} --check",
        )


@rule("driver-runs", Severity.WARNING, "a checkpoint that a driver runs now", needs=("checkpoint",))
def driver_runs(facts: Facts) -> Iterator[Found]:
    """Find a running driver, which a start would fence."""
    if facts.checkpoint is not None and facts.checkpoint.driver:
        yield Found(
            _DIR,
            facts.checkpoint.driver,
            "A start takes the checkpoint over with its first batch. The driver that runs it now then stops with "
            "`Fenced`.",
            f"taskplace status {shlex.quote(str(facts.checkpoint.path))}",
        )


@rule(
    "checkpoint-damaged", Severity.ERROR, "damaged and missing files of the checkpoint", needs=("checkpoint",)
)
def checkpoint_damaged(facts: Facts) -> Iterator[Found]:
    """Pass on what an inspection has found. Lengths are compared, bytes are not read."""
    if facts.checkpoint is not None and facts.checkpoint.damaged:
        first, *more = facts.checkpoint.damaged
        yield Found(
            str(facts.checkpoint.path),
            first + (f", and {len(more)} more files" if more else ""),
            "State that is in no other file is lost, once no executor has it.",
            f"taskplace verify {shlex.quote(str(facts.checkpoint.path))}",
        )


@rule(
    "checkpoint-of-another-application",
    Severity.ERROR,
    "a checkpoint that this file cannot continue: partitions, stores, sources, types of keys",
    needs=("checkpoint", "stores"),
)
def checkpoint_of_another_application(facts: Facts) -> Iterator[Found]:
    """Pass on why a start would refuse the checkpoint."""
    for reason in facts.checkpoint.refused if facts.checkpoint is not None else ():
        yield Found(
            _DIR,
            reason,
            "The start refuses to continue: keys would belong to other tasks, or values would mean something else.",
            set_key(_DIR, f"{facts.settings.checkpoint_dir}-2"),
        )


@rule(
    "checkpoint-elsewhere", Severity.ADVICE, "another checkpoint than that of the file", needs=("checkpoint",)
)
def checkpoint_elsewhere(facts: Facts) -> Iterator[Found]:
    """Compare the checkpoint that was looked at with the one that a start would use."""
    checkpoint = facts.checkpoint
    own = local_path(facts.settings.checkpoint_dir, _DIR)
    if checkpoint is not None and checkpoint.path.resolve() != own.resolve():
        yield Found(
            _DIR,
            f"{own}, and --checkpoint is {checkpoint.path}",
            "A start with this file continues the first of the two.",
            set_key(_DIR, checkpoint.path),
        )


RULES = (
    start_refused,
    driver_runs,
    checkpoint_damaged,
    checkpoint_of_another_application,
    checkpoint_elsewhere,
)
