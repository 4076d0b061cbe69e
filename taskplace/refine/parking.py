"""Parking: a copy that makes no progress is taken out of the plans, instead of being waited for for ever.

The planner is a pure function and remembers nothing, so whoever runs it in a loop keeps one `ProgressWatch` and
shows it every problem before it is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from taskplace.errors import InputError
from taskplace.model.columns import ACTIVE, NONE
from taskplace.model.problem import Problem
from topology.ids import TaskId

Copy = tuple[str, TaskId]


@dataclass(slots=True)
class _Seen:
    applied: int
    rounds: int = 0


@dataclass
class ProgressWatch:
    """Remembers how far standbys and warm-ups have come, and parks those that stand still.

    A copy that is not caught up and has applied no further record in `patience` observations in a row is parked: its
    task is planned elsewhere, and the plan names it in its warnings. It stays parked until its instance is gone, or
    `release` is called.

    Lifetime: one watch for each loop that plans; it holds one entry per copy that is catching up.

    >>> from taskplace.model.problem import Instance, Task
    >>> task = TaskId(0, 0)
    >>> problem = Problem([Task(task, end_offset=50_000)], [Instance("a", warmup=[task], lags={task: 50_000})])
    >>> watch = ProgressWatch(patience=2)
    >>> [watch.observe(problem).instances[0].parked for _ in range(3)]
    [(), (), (TaskId(subtopology=0, partition=0),)]
    """

    patience: int = 3
    parked: set[Copy] = field(default_factory=set)
    _seen: dict[Copy, _Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise InputError("patience", found=self.patience, expected="an integer of at least 1")

    def observe(self, problem: Problem) -> Problem:
        """Return `problem` with what is parked filled in; O(copies) in numpy, and O(copies that catch up)."""
        c = problem.columns
        waiting = c.stateful[c.task] & ~c.caught & (c.role != NONE) & (c.role != ACTIVE)
        seen: dict[Copy, _Seen] = {}
        for k in waiting.nonzero()[0].tolist():
            copy = (c.names[int(c.inst[k])], c.ids[int(c.task[k])])
            lag = int(c.lag[k])
            # What was applied, not the lag: a stream that grows faster than a copy reads is no standstill.
            applied = -1 if lag < 0 else max(int(c.end[int(c.task[k])]), 0) - lag
            before = self._seen.get(copy)
            if before is None or applied > before.applied:
                seen[copy] = _Seen(applied)
            else:
                seen[copy] = _Seen(before.applied, before.rounds + 1)
                if seen[copy].rounds >= self.patience:
                    self.parked.add(copy)
        self._seen = seen
        names = set(c.names)
        self.parked = {copy for copy in self.parked if copy[0] in names}
        return with_parked(problem, self.by_instance())

    def by_instance(self) -> dict[str, tuple[TaskId, ...]]:
        """Return what is parked, per instance."""
        out: dict[str, list[TaskId]] = {}
        for name, task in sorted(self.parked):
            out.setdefault(name, []).append(task)
        return {name: tuple(tasks) for name, tasks in out.items()}

    def release(self, instance: str | None = None) -> None:
        """Let what is parked try again: on one instance, or everywhere."""
        self.parked = {copy for copy in self.parked if instance is not None and copy[0] != instance}
        self._seen = {copy: s for copy, s in self._seen.items() if copy in self.parked}


def with_parked(problem: Problem, parked: Mapping[str, tuple[TaskId, ...]]) -> Problem:
    """Return `problem` with these tasks parked, in addition to those it already has; itself if there are none."""
    if not parked:
        return problem
    instances = tuple(
        replace(i, parked=tuple({*i.parked, *parked[i.id]})) if i.id in parked else i
        for i in problem.instances
    )
    return Problem(problem.tasks, instances, problem.config)
