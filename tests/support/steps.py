"""Small problems for the step, and the copies that it grants."""

from __future__ import annotations

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Task, TaskId

END = 50_000
A, B, C, D = (TaskId(0, p) for p in range(4))


def place(*instances: Instance, tasks: tuple[TaskId, ...] = (A, B), end: int = END, **config: int) -> Plan:
    problem = Problem(tuple(Task(t, end_offset=end) for t in tasks), instances, PlacementConfig(**config))
    return taskplace.check(problem, taskplace.plan(problem))


def holds(name: str, **roles: object) -> Instance:
    """Return an instance whose copies are caught up, except for those in `lags`."""
    lags = dict(roles.pop("lags", {}))  # type: ignore[call-overload]
    for role in ("active", "standby", "warmup"):
        for t in roles.get(role, ()):  # type: ignore[attr-defined]
            lags.setdefault(t, 0)
    return Instance(name, lags=lags, **roles)  # type: ignore[arg-type]
