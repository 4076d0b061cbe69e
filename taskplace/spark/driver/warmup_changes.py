"""Compares two assignments: which warm-ups began, and what became of those that ended."""

from __future__ import annotations

from collections.abc import Mapping

from taskplace.model.plan import Roles
from taskplace.record.events import WarmupChange, WarmupState
from topology import TaskId


def warmup_changes(before: Mapping[str, Roles], after: Mapping[str, Roles]) -> tuple[WarmupChange, ...]:
    """Return the warm-ups that began or ended from one assignment to the next, by executor and task.

    >>> task = TaskId(0, 3)
    >>> warming, moved = Roles(warmup=(task,)), Roles(active=(task,))
    >>> [change.state for change in warmup_changes({}, {"executor-2": warming})]
    ['begun']
    >>> [change.state for change in warmup_changes({"executor-2": warming}, {"executor-2": moved})]
    ['active']
    """
    changes = []
    for name in sorted({*before, *after}):
        was, now = before.get(name, Roles()), after.get(name, Roles())
        changes += [WarmupChange(str(task), name, "begun") for task in now.warmup if task not in was.warmup]
        changes += [
            WarmupChange(str(task), name, _role(task, now)) for task in was.warmup if task not in now.warmup
        ]
    return tuple(changes)


def _role(task: TaskId, roles: Roles) -> WarmupState:
    return "active" if task in roles.active else "standby" if task in roles.standby else "ended"
