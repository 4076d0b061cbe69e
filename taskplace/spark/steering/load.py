"""What a task weighs, from what was observed of it: a hot partition counts as what it costs.

Observations are noisy (a busy machine, a garbage collection, a reload), and a weight that wobbles would move state
for nothing. So a weight is the median of a task's last `SAMPLES` observations over the median of its subtopology,
it is 1 while that is within a factor of `SAME`, and it changes only when the observation has left it by that factor;
and not before there are `FEWEST` observations.

Properties: weights are positive; what was not observed weighs 1; equal observations give equal weights.
Units: an observation is a number of your choice (seconds, rows, bytes); a weight is a multiple of the usual one.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from statistics import median

from topology.ids import TaskId

SAMPLES = 5
FEWEST = 5
SAME = 1.5
HEAVIEST = 64.0
"""A weight beyond this says no more: whatever else there is, is light beside it."""


class LoadHistory:
    """Remembers observations, and turns them into weights.

    Lifetime: a task's samples are kept until it is forgotten by `keep`.

    >>> loads = LoadHistory()
    >>> a, b, c = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)
    >>> [loads.observe({a: 1.0, b: 1.2, c: 8.0}) for _ in range(FEWEST)]
    [False, False, False, False, True]
    >>> loads.weight(a), loads.weight(b), round(loads.weight(c), 1)
    (1.0, 1.0, 6.7)
    """

    def __init__(self) -> None:
        self._samples: dict[TaskId, deque[float]] = defaultdict(lambda: deque(maxlen=SAMPLES))
        self._weights: dict[TaskId, float] = {}

    def observe(self, found: Mapping[TaskId, float]) -> bool:
        """Take note of one observation per task; return whether a weight has changed by it. O(tasks)."""
        for task, value in found.items():
            if value >= 0 and math.isfinite(value):
                self._samples[task].append(value)
        usual = self._usual()
        changed = False
        for task, samples in self._samples.items():
            if len(samples) < FEWEST:
                continue
            base = usual[task.subtopology]
            ratio = median(samples) / base if base > 0 else 1.0
            ratio = min(max(ratio, 1 / HEAVIEST), HEAVIEST)
            now = self._weights.get(task, 1.0)
            if not 1 / SAME < ratio / now < SAME:
                self._weights[task] = 1.0 if 1 / SAME < ratio < SAME else ratio
                changed = changed or self._weights[task] != now
        return changed

    def weight(self, task: TaskId) -> float:
        """Return what `task` weighs; 1.0 is usual."""
        return self._weights.get(task, 1.0)

    def keep(self, tasks: Iterable[TaskId]) -> None:
        """Forget all tasks but these."""
        kept = set(tasks)
        for known in (self._samples, self._weights):
            for task in [t for t in known if t not in kept]:
                del known[task]

    def _usual(self) -> dict[int, float]:
        by: dict[int, list[float]] = defaultdict(list)
        for task, samples in self._samples.items():
            by[task.subtopology].append(median(samples))
        return {subtopology: median(values) for subtopology, values in by.items()}
