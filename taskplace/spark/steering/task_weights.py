"""What a task weighs, from what was observed of it: a hot partition counts as what it costs.

Observations are noisy (a busy machine, a garbage collection, a reload), and a weight that wobbles would move state
for nothing. So a weight is the median of a task's last `SAMPLES` observations over the usual one of its subtopology:
the median of its tasks, or where most of them have nothing at all, such as rows, the mean. It is 1 while that is within
a factor of `SAME`, and it changes only when the observation has left it by that factor; and not before there are
`FEWEST` observations.

Properties: weights are positive; what was not observed weighs 1; equal observations give equal weights.
Units: an observation is a number of your choice (seconds, rows, bytes); a weight is a multiple of the usual one.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from statistics import fmean, median

from topology.ids import TaskId

SAMPLES = 5
FEWEST = 5
SAME = 1.5
LONGEST = 10
"""Changed weights never wait longer than 2^10 observations."""
HEAVIEST = 64.0
"""A weight beyond this says no more: whatever else there is, is light beside it."""


class Calm:
    """How long changed weights wait before they may change a goal: twice as long after each that did.

    What is observed of a task is partly its place: on a slow or busy instance all take longer. Handing tasks over then
    changes weights, which may hand them back. So that this dies down, n changed goals take 2^n observations; as long
    without a change lets one of them be forgotten.

    >>> calm = Calm()
    >>> [calm.tick(True) for _ in range(12)]  # weights that change all the time
    [True, False, True, False, False, False, True, False, False, False, False, False]
    """

    def __init__(self) -> None:
        self._waits = 0  # observations until the next change may count
        self._changes = 0
        self._quiet = 0
        self._pending = False

    def tick(self, changed: bool) -> bool:
        """Take note of an observation, and of whether it changed weights; return whether the goal may change."""
        self._waits = max(0, self._waits - 1)
        self._pending = self._pending or changed
        if self._pending and not self._waits:
            self._changes, self._quiet, self._pending = min(self._changes + 1, LONGEST), 0, False
            self._waits = 2**self._changes
            return True
        self._quiet += 1
        if self._changes and self._quiet >= 2 * 2**self._changes:
            self._changes, self._quiet = self._changes - 1, 0
        return False


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
        return {subtopology: median(values) or fmean(values) for subtopology, values in by.items()}
