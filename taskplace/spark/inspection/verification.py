"""Verifies a checkpoint: all its bytes, and the placement of its last commit.

**Idea.** An inspection that reads all bytes says whether the files are whole. The last manifest has the assignment, and
the declaration of its driver the topology. So the assignment can be checked like any plan, by `taskplace.verify`. A
manifest has no lags and no configuration; the invariants that need them are not checked.

Properties: read-only, safe while a driver runs, and without Spark. Reads everything that manifests name: O(bytes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskplace.errors import InputError
from taskplace.model.plan import Plan
from taskplace.model.problem import Instance, Problem, Task
from taskplace.model.work import Show
from taskplace.spark.codec import read_file, unsealed
from taskplace.spark.inspection.checkpoint import Inspection, inspect
from taskplace.spark.messages import Declaration, epoch_file
from taskplace.verify import Violation, verify
from topology import TaskId

SCHEMA = "taskplace.checkpoint_verification/1"
#: The invariants of `taskplace.verify` that an assignment can break by itself.
CHECKED = ("known", "once", "disjoint", "stateful")


@dataclass(frozen=True)
class CheckpointVerification:
    """What was found.

    - `inspection`: of all bytes
    - `violations`: of the assignment at the last commit
    - `tasks`: how many tasks the assignment was checked for; None if there is none, or no topology to compare it with
    """

    inspection: Inspection
    violations: tuple[Violation, ...]
    tasks: int | None

    @property
    def valid(self) -> bool:
        """Whether all files are whole, and the assignment keeps the invariants."""
        return self.inspection.sound and not self.violations

    def to_dict(self) -> dict[str, Any]:
        """Return the verification as a "taskplace.checkpoint_verification/1" dict."""
        found = self.inspection.to_dict()
        return {
            "schema": SCHEMA,
            "valid": self.valid,
            "path": found["path"],
            "damaged": found["damaged"],
            "unneeded": found["unneeded"],
            "unfinished": found["unfinished"],
            "sizes": found["sizes"],
            "tasks": self.tasks,
            "checked": list(CHECKED) if self.tasks is not None else [],
            "violations": [{"invariant": v.invariant, "text": v.text} for v in self.violations],
        }


def verify_checkpoint(root: Path, progress: Show = lambda event: None) -> CheckpointVerification:
    """Verify a checkpoint. `progress` gets how many bytes have been verified."""
    found = inspect(root, verify=True, progress=progress)
    tasks = _declared_tasks(root, found)
    if not tasks or not found.assignment:
        return CheckpointVerification(found, (), None)
    return CheckpointVerification(found, tuple(_violations(found, tasks)), len(tasks))


def _declared_tasks(root: Path, found: Inspection) -> list[Task]:
    """Return the tasks of the topology that the driver of the last manifest declared; none if it cannot be read."""
    if found.last is None:
        return []
    try:
        file = root / epoch_file(found.last["epoch"])
        topology = Declaration.decode(unsealed(read_file(file))).topology
        return [
            Task(TaskId(sub["id"], partition), stateful=bool(sub["stores"]))
            for sub in topology["subtopologies"]
            for partition in range(sub["partitions"] or 0)
        ]
    except (ValueError, OSError, KeyError, TypeError):  # the inspection has it among the damage
        return []


def _violations(found: Inspection, tasks: list[Task]) -> Iterator[Violation]:
    try:
        plan = Plan.from_dict({"assignment": found.assignment})
    except InputError as error:
        yield Violation("known", str(error))
        return
    problem = Problem(tasks, [Instance(name) for name in plan.assignment])
    yield from (broken for broken in verify(problem, plan, level="quick") if broken.invariant in CHECKED)
    yield from _of_histories(found.tasks, {str(task.id) for task in tasks})


def _of_histories(histories: Mapping[str, object], known: set[str]) -> Iterator[Violation]:
    if unknown := sorted(histories.keys() - known):
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        text = f"there is state of {', '.join(unknown[:3])}{more}, which the topology does not have"
        yield Violation("known", text)
