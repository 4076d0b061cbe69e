"""Parks stalled copies: a copy without progress leaves the plan, which would otherwise wait for it for ever.

The planner has no memory. So a planning loop keeps one `ProgressWatch`, and passes problems through `observe` before it
plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from taskplace.errors import InputError
from taskplace.lag.ranking import Copy
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import ACTIVE, NONE
from topology.tasks import TaskId


@dataclass(slots=True)
class _Progress:
    """The progress of one copy: the most records it has applied, -1 if unknown, and observations without progress."""

    applied: int
    stalled: int = 0


@dataclass
class ProgressWatch:
    """Remembers the progress of standbys and warm-ups, and parks those that make none.

    A copy is parked if it is not caught up and has applied no further record in `patience` observations in a row. Its
    task is then planned elsewhere, and the plan names the copy in its warnings. It stays parked until its instance is
    gone, or `release` is called.

    Lifetime: one watch for each loop that plans. It holds one entry for each copy that is catching up.

    >>> from taskplace.model.problem import Instance, Task
    >>> task = TaskId(0, 0)
    >>> problem = Problem([Task(task, end_offset=50_000)], [Instance("a", warmup=[task], lags={task: 50_000})])
    >>> watch = ProgressWatch(patience=2)
    >>> [watch.observe(problem).instances[0].parked for _ in range(3)]
    [(), (), (TaskId(subtopology=0, partition=0),)]
    """

    patience: int = 3
    parked: set[Copy] = field(default_factory=set)
    _progress: dict[Copy, _Progress] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise InputError("patience", found=self.patience, expected="an integer of at least 1")

    def observe(self, problem: Problem) -> Problem:
        """Return `problem` with the parked copies; O(copies) in numpy, and O(copies that catch up) in Python."""
        c = problem.columns
        waiting = c.stateful[c.task] & ~c.caught & (c.role != NONE) & (c.role != ACTIVE)
        progress: dict[Copy, _Progress] = {}
        for k in waiting.nonzero()[0].tolist():
            copy = (c.names[int(c.inst[k])], c.ids[int(c.task[k])])
            lag = int(c.lag[k])
            # Count applied records, not the lag: a copy that reads more slowly than its changelog grows is not stalled.
            applied = -1 if lag < 0 else max(int(c.end[int(c.task[k])]), 0) - lag
            before = self._progress.get(copy)
            if before is None or applied > before.applied:
                progress[copy] = _Progress(applied)
            else:
                progress[copy] = _Progress(before.applied, before.stalled + 1)
                if progress[copy].stalled >= self.patience:
                    self.parked.add(copy)
        self._progress = progress
        names = set(c.names)
        self.parked = {copy for copy in self.parked if copy[0] in names}
        return with_parked(problem, self.by_instance())

    def by_instance(self) -> dict[str, tuple[TaskId, ...]]:
        """Return the tasks that are parked on each instance."""
        out: dict[str, list[TaskId]] = {}
        for name, task in sorted(self.parked):
            out.setdefault(name, []).append(task)
        return {name: tuple(tasks) for name, tasks in out.items()}

    def release(self, instance: str | None = None) -> None:
        """Unpark copies: those of one instance, or all."""
        self.parked = {copy for copy in self.parked if instance is not None and copy[0] != instance}
        self._progress = {copy: p for copy, p in self._progress.items() if copy in self.parked}


def with_parked(problem: Problem, parked: Mapping[str, tuple[TaskId, ...]]) -> Problem:
    """Return `problem` with these tasks parked too, per instance. Without such tasks, return `problem` itself."""
    if not parked:
        return problem
    instances = tuple(
        replace(i, parked=tuple({*i.parked, *parked[i.id]})) if i.id in parked else i
        for i in problem.instances
    )
    return Problem(problem.tasks, instances, problem.config)
