"""Learns from batches: the weight of each task, and the cost of a task and of a reload of its state.

Weights make a hot partition count more. Measurements of load are noisy (a busy machine, a garbage collection, a
reload), and a weight that follows the noise would cause needless moves. So a weight is the median of a task's last
`SAMPLES` measurements divided by the usual measurement of its subtopology: the median of its tasks, or the mean where
most tasks have no load at all. The weight is 1 while that ratio is within a factor of `SAME` of 1. It changes only when
the ratio has left it by that factor, and never before there are `FEWEST` measurements. Steering works without
measurements of load: all weights are then equal. Properties: weights are positive; equal measurements give equal
weights. Units: a measurement is any number (seconds, rows, bytes); a weight is a multiple of the usual measurement.

Seconds of a task per batch: the median over the last batches in which tasks were timed. Before the first of
these, and if tasks are never timed: the time that all operators spent on updates, removals and commit, divided by
the number of tasks.

Seconds of a reload: RocksDB reports how long loading took in a batch. Every task spends a little on that, moved or
not. So the difference between batches with moves and batches without moves is the cost of the moves. A batch counts
only if it is known which tasks loaded their state in it. Until both kinds of batches have been measured, and with
providers that do not report loading, the cost of a reload is the memory of the state divided by an assumed rate.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from taskplace.spark.steering.config import LoadBy, SteeringConfig
from taskplace.spark.steering.layout import QueryLayout
from topology.tasks import TaskId

if TYPE_CHECKING:
    from taskplace.spark.steering.bridge import StateBridge
log = logging.getLogger(__name__)

SAMPLES = 5
FEWEST = 5
SAME = 1.5
LONGEST = 10
"""Changed weights never wait longer than 2^10 measurements."""
HEAVIEST = 64.0
"""The largest weight. A larger one would make no difference, because all other tasks are light in comparison."""
EARLY_BATCHES = (2, 3, 4, 5, 6)
"""Batches in which load is always measured, so that weights are known early. The first batch is left out: it warms up.
"""
MIN_TASK_SECONDS = 0.001
MIN_RELOAD_SECONDS = 0.02
"""The time to open a store, even an empty one."""
Load = Mapping[TaskId, float]
_TIMES = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")


@dataclass(frozen=True)
class WeightBackoff:
    """Delays changed weights before they may change a target: twice as long after each time that they did.

    A measurement depends on the executor: on a slow or busy one all tasks take longer. So a move changes the
    measurements, which may move the task back. The back-off stops such cycles: after n changed targets, the next change
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
        """Count a measurement (`changed`: of weights); return whether the target may change, and the back-off."""
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
        medians: dict[int, list[float]] = defaultdict(list)
        for task, own in samples.items():
            medians[task.subtopology].append(median(own))
        usual = {number: median(values) or fmean(values) for number, values in medians.items()}
        weights = {task: self._weight(task, own, usual) for task, own in samples.items()}
        return TaskWeights(samples, {task: weight for task, weight in weights.items() if weight != 1.0})

    def only(self, tasks: Iterable[TaskId]) -> TaskWeights:
        """Return the weights without those of all other tasks."""
        kept = set(tasks)
        return TaskWeights(
            {task: own for task, own in self.samples.items() if task in kept},
            {task: weight for task, weight in self.unusual.items() if task in kept},
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


@dataclass(frozen=True)
class LoadSampling:
    """The progress of measuring load. Immutable.

    `batches`: the number of observed batches. `sizes_due`: the sizes of states must be listed. That takes long, so it
    is done after the moves of a batch were sent, and `sizes` count as the load of the next batch. `note`: how tasks
    were weighed last, for the status.
    """

    batches: int = 0
    sizes_due: bool = False
    sizes: Load | None = None
    note: str = ""

    def after_batch(
        self, bridge: StateBridge, layout: QueryLayout, config: SteeringConfig
    ) -> tuple[Load | None, LoadSampling]:
        """Return the load of each task in the batch that has just ended, None if no measurement was due."""
        batches = self.batches + 1
        due = batches in EARLY_BATCHES or batches % config.load_every_batches == 0
        if config.load_by == LoadBy.STATE_SIZE:
            return self.sizes, replace(self, batches=batches, sizes_due=due, sizes=None)
        if not due:
            return None, replace(self, batches=batches)
        load, note = measure_load(bridge, layout, config.load_by)
        return load, replace(self, batches=batches, note=note)


def measure_load(bridge: StateBridge, layout: QueryLayout, by: LoadBy) -> tuple[Load | None, str]:
    """Return the load of each task by `load.by`, None if all tasks weigh the same, and a note for the status.

    Never raises: Spark's records of stages and tasks are private, and Spark may drop some of them.
    """
    equal = "all tasks weigh the same"
    try:
        if by == LoadBy.EVEN:
            return None, f"{equal}, as configured"
        if by == LoadBy.STATE_SIZE:
            return bridge.state_sizes(layout) or None, f"by {by}"
        if not layout.chained and len(layout.subtopologies) > 1:
            return None, f"{equal}: stages side by side cannot be told apart"
        load = bridge.task_load(layout, by)
        return load or None, f"by {by}" if load else f"{equal}: no batch is on record"
    except Exception as error:
        log.debug("cannot measure the load of tasks", exc_info=True)
        return None, f"{equal}: {type(error).__name__}"


@dataclass(frozen=True)
class Costs:
    """Seconds that a task of weight 1 takes per batch, and seconds that a reload takes; 0 until measured."""

    task: float = 0.0
    reload: float = 0.0


@dataclass(frozen=True)
class MeasuredCosts:
    """The costs of one query, with the last `SAMPLES` samples of each kind. Immutable.

    `rows`, `bytes`: the size of the state. Seconds per task: `operators`, by the operators' own times; `timed`, of
    timed tasks; `quiet`, of loading in batches without moves. `reloads`: seconds of one reload.

    >>> progress = {"allUpdatesTimeMs": 300, "commitTimeMs": 700, "memoryUsedBytes": 8000}
    >>> MeasuredCosts(bytes_per_second=1000).after_batch([progress], tasks=4, loaded=0).costs
    Costs(task=0.25, reload=2.0)
    """

    bytes_per_second: float
    rows: int = 0
    bytes: int = 0
    costs: Costs = field(default_factory=Costs)
    operators: tuple[float, ...] = ()
    timed: tuple[float, ...] = ()
    quiet: tuple[float, ...] = ()
    reloads: tuple[float, ...] = ()

    def after_batch(
        self,
        operators: Sequence[Mapping[str, Any]],
        *,
        tasks: int,
        loaded: int | None,
        seconds: Sequence[float] = (),
    ) -> MeasuredCosts:
        """Return the costs after a batch.

        `operators`: `stateOperators` of the progress. `loaded`: how many of the `tasks` tasks loaded their state,
        None if unknown. `seconds`: of each task, if tasks were timed.
        """
        if not tasks or not operators:
            return replace(self, costs=Costs())
        metrics = [{**operator, **(operator.get("customMetrics") or {})} for operator in operators]
        own_times = sum(_number(operator, name) for operator in metrics for name in _TIMES)
        loading = (
            sum(_number(operator, name) for operator in metrics for name in operator if _loads(name)) / 1000
        )
        size = sum(_number(operator, "memoryUsedBytes") for operator in metrics)
        quiet, reloads = self.quiet, self.reloads
        if loaded == 0:
            quiet = _append(quiet, loading / tasks)
        elif loaded and loading and quiet:
            reloads = _append(reloads, max(0.0, loading - median(quiet) * tasks) / loaded)
        by_operators = _append(self.operators, own_times / 1000 / tasks)
        timed = _append(self.timed, median(seconds)) if seconds else self.timed
        reload = median(reloads) if reloads else size / tasks / self.bytes_per_second
        costs = Costs(max(median(timed or by_operators), MIN_TASK_SECONDS), max(reload, MIN_RELOAD_SECONDS))
        rows = sum(_number(operator, "numRowsTotal") for operator in metrics)
        sizes: dict[str, Any] = {"rows": rows, "bytes": size, "operators": by_operators, "timed": timed}
        return replace(self, **sizes, costs=costs, quiet=quiet, reloads=reloads)


def _append(samples: tuple[float, ...], value: float) -> tuple[float, ...]:
    return (*samples, value)[-SAMPLES:]


def _loads(name: str) -> bool:
    """Return whether a metric is the time that RocksDB spent on loading state."""
    lower = name.lower()
    return lower.startswith("rocksdbload") and "latency" in lower and "snapshot" not in lower


def _number(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return int(value) if isinstance(value, int | float) else 0
