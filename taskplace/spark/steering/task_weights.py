"""Computes the weight of each task from measurements of its load, so that a hot partition has a larger weight.

Measurements are noisy (a busy machine, a garbage collection, a reload), and a weight that follows the noise would
cause needless moves. So a weight is the median of a task's last `SAMPLES` measurements divided by the usual measurement
of its subtopology: the median of its tasks, or the mean where most tasks have no load at all. The weight is 1 while
that ratio is within a factor of `SAME` of 1. It changes only when the ratio has left it by that factor, and never
before there are `FEWEST` measurements.

Properties: weights are positive; a task without measurements weighs 1; equal measurements give equal weights; all
values are immutable.
Units: a measurement is any number (seconds, rows, bytes); a weight is a multiple of the usual measurement.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from topology.tasks import TaskId

SAMPLES = 5
FEWEST = 5
SAME = 1.5
LONGEST = 10
"""Changed weights never wait longer than 2^10 measurements."""
HEAVIEST = 64.0
"""The largest weight. A larger one would make no difference, because all other tasks are light in comparison."""


@dataclass(frozen=True)
class WeightBackoff:
    """Delays changed weights before they may change a goal: twice as long after each time that they did.

    A measurement depends on the executor: on a slow or busy one all tasks take longer. So a move changes the
    measurements, which may move the task back. The back-off stops such cycles: after n changed goals, the next change
    waits 2^n measurements. After twice as many measurements without a change, n decreases by one.

    `wait`: measurements until the next change may count. `changes`: the n above. `quiet`: measurements since the last
    change. `pending`: weights have changed and do not count yet.

    >>> backoff, counted = WeightBackoff(), []
    >>> for _ in range(12):  # weights that change all the time
    ...     counts, backoff = backoff.tick(changed=True)
    ...     counted.append(int(counts))
    >>> counted
    [1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    """

    wait: int = 0
    changes: int = 0
    quiet: int = 0
    pending: bool = False

    def tick(self, *, changed: bool) -> tuple[bool, WeightBackoff]:
        """Count a measurement, which may have changed weights; return whether the goal may change, and the back-off."""
        wait, pending = max(0, self.wait - 1), self.pending or changed
        if pending and not wait:
            changes = min(self.changes + 1, LONGEST)
            return True, WeightBackoff(wait=2**changes, changes=changes)
        quiet, changes = self.quiet + 1, self.changes
        if changes and quiet >= 2 * 2**changes:
            quiet, changes = 0, changes - 1
        return False, WeightBackoff(wait=wait, changes=changes, quiet=quiet, pending=pending)


@dataclass(frozen=True)
class TaskWeights:
    """The measurements of each task, and the weights that differ from 1.

    >>> weights, (a, b, c) = TaskWeights(), (TaskId(0, p) for p in range(3))
    >>> for _ in range(FEWEST):
    ...     weights = weights.measured({a: 1.0, b: 1.2, c: 8.0})
    >>> weights.of(a), weights.of(b), round(weights.of(c), 1)
    (1.0, 1.0, 6.7)
    """

    samples: Mapping[TaskId, tuple[float, ...]] = field(default_factory=dict)
    unusual: Mapping[TaskId, float] = field(default_factory=dict)

    def of(self, task: TaskId) -> float:
        """Return the weight of `task`; 1.0 is usual."""
        return self.unusual.get(task, 1.0)

    def measured(self, load: Mapping[TaskId, float]) -> TaskWeights:
        """Return the weights after one measurement per task. O(tasks)."""
        samples = dict(self.samples)
        for task, value in load.items():
            if value >= 0 and math.isfinite(value):
                samples[task] = (*samples.get(task, ()), value)[-SAMPLES:]
        usual = _usual(samples)
        weights = {task: self._weight(task, own, usual) for task, own in samples.items()}
        return TaskWeights(samples, {task: weight for task, weight in weights.items() if weight != 1.0})

    def only(self, tasks: Iterable[TaskId]) -> TaskWeights:
        """Return the weights without those of all other tasks."""
        kept = set(tasks)
        if self.samples.keys() <= kept and self.unusual.keys() <= kept:
            return self
        return replace(
            self,
            samples={task: own for task, own in self.samples.items() if task in kept},
            unusual={task: weight for task, weight in self.unusual.items() if task in kept},
        )

    def _weight(self, task: TaskId, samples: tuple[float, ...], usual: Mapping[int, float]) -> float:
        """Return the weight of a task by its samples: its weight so far, unless the samples clearly differ from it."""
        before, base = self.of(task), usual[task.subtopology]
        if len(samples) < FEWEST:
            return before
        ratio = median(samples) / base if base > 0 else 1.0
        ratio = min(max(ratio, 1 / HEAVIEST), HEAVIEST)
        if _same(ratio, before):
            return before
        return 1.0 if _same(ratio, 1.0) else ratio


def _same(one: float, other: float) -> bool:
    return 1 / SAME < one / other < SAME


def _usual(samples: Mapping[TaskId, tuple[float, ...]]) -> dict[int, float]:
    """Return the usual measurement of each subtopology."""
    by_subtopology: dict[int, list[float]] = defaultdict(list)
    for task, own in samples.items():
        by_subtopology[task.subtopology].append(median(own))
    return {number: median(values) or fmean(values) for number, values in by_subtopology.items()}
