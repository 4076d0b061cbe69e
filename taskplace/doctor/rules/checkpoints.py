"""The start, and the checkpoint that it would continue."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Found, Severity, rename, rule, set_key
from taskplace.doctor.rules.directories import fresh
from taskplace.spec.paths import local_path

_DIR = "checkpoint.dir"
_INSTALL = re.compile(r"pip install '[^']+'")
_NEAR = re.compile(r"did you mean '([^']+)'")


@rule("start-refused", Severity.ERROR, "what `taskplace run --check` refuses")
def start_refused(facts: Facts) -> Iterator[Found]:
    """Pass on the first error of a start that needs no Spark."""
    if facts.refused:
        path, _, text = facts.refused.partition(": ")
        yield Found(
            path,
            text.removeprefix("found "),
            "The start is refused before anything runs.",
            _correction(path, text),
        )


def _correction(path: str, text: str) -> str:
    """Return what a person does about a refusal: what it expects, or a command that it names."""
    if command := _INSTALL.search(text):
        return command[0]
    if path.endswith("servers_env") and (
        variable := re.match(r"found '(\w+)', expected an environment", text)
    ):
        return f"export {variable[1]}=host:9092"
    if (near := _NEAR.search(text)) and text.startswith("found an unknown"):
        return rename(path, near[1])
    expected = text.partition("expected ")[2]
    return f"# correct {path}" + (f": expected {expected}" if expected else "")


@rule("driver-runs", Severity.WARNING, "a checkpoint that a driver runs now", needs=("checkpoint",))
def driver_runs(facts: Facts) -> Iterator[Found]:
    """Find a running driver, which a start would fence."""
    if facts.checkpoint is not None and facts.checkpoint.driver:
        yield Found(
            _DIR,
            facts.checkpoint.driver,
            "A start takes the checkpoint over with its first batch. The driver that runs it now then stops with "
            "`Fenced`.",
            "# stop that driver first, or start with another checkpoint.dir",
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
            "# restore the files from a backup of the same run: "
            f"taskplace inspect {shlex.quote(str(facts.checkpoint.path))} --verify names them",
        )


@rule(
    "checkpoint-of-another-application",
    Severity.ERROR,
    "a checkpoint that this file cannot continue: partitions, stores, sources, types of keys",
    needs=("checkpoint", "stores"),
)
def checkpoint_of_another_application(facts: Facts) -> Iterator[Found]:
    """Pass on why a start would refuse the checkpoint."""
    if facts.checkpoint is not None and facts.checkpoint.refused:
        yield Found(
            _DIR,
            "; ".join(facts.checkpoint.refused),
            "The start refuses to continue: keys would belong to other tasks, or values would mean something else.",
            f"# leave {_DIR} as it is: {_own(facts)}" if _elsewhere(facts) else set_key(_DIR, fresh(facts)),
        )


@rule(
    "checkpoint-elsewhere", Severity.ADVICE, "another checkpoint than that of the file", needs=("checkpoint",)
)
def checkpoint_elsewhere(facts: Facts) -> Iterator[Found]:
    """Compare the checkpoint that was looked at with the one that a start would use."""
    checkpoint = facts.checkpoint
    if checkpoint is not None and not checkpoint.refused and _elsewhere(facts):
        yield Found(
            _DIR,
            f"{_own(facts)}, and --checkpoint is {checkpoint.path}",
            "A start with this file continues the first of the two.",
            set_key(_DIR, checkpoint.path),
        )


def _own(facts: Facts) -> Path:
    return local_path(facts.settings.checkpoint_dir, _DIR)


def _elsewhere(facts: Facts) -> bool:
    """Return whether the checkpoint that was looked at is another one than that of the file."""
    return facts.checkpoint is not None and facts.checkpoint.path.resolve() != _own(facts).resolve()


RULES = (
    start_refused,
    driver_runs,
    checkpoint_damaged,
    checkpoint_of_another_application,
    checkpoint_elsewhere,
)
