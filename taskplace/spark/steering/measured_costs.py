"""Measures the cost of a task per batch, and of a reload of its state, from the progress that Spark reports.

Seconds of a task per batch: the median over the last five batches in which tasks were timed. Before the first of
these, and if tasks are never timed: the time that all operators spent on updates, removals and commit, divided by
the number of tasks.

Seconds of a reload: RocksDB reports how long loading took in a batch. Every task spends a little on that, moved or
not. So the difference between batches with moves and batches without moves is the cost of the moves. A batch counts
only if it is known which tasks loaded their state in it. Until both kinds of batches have been measured, and with
providers that do not report loading, the cost of a reload is the memory of the state divided by an assumed rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

MIN_TASK_SECONDS = 0.001
MIN_RELOAD_SECONDS = 0.02
"""The time to open a store, even an empty one."""
SAMPLES = 5
_TIMES = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")


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
        loading = sum(_number(operator, name) for operator in metrics for name in operator if _loads(name))
        return replace(
            self,
            rows=sum(_number(operator, "numRowsTotal") for operator in metrics),
            bytes=sum(_number(operator, "memoryUsedBytes") for operator in metrics),
            operators=_append(self.operators, own_times / 1000 / tasks),
            timed=_append(self.timed, median(seconds)) if seconds else self.timed,
        )._after_loading(loading / 1000, tasks=tasks, loaded=loaded)

    def _after_loading(self, seconds: float, *, tasks: int, loaded: int | None) -> MeasuredCosts:
        """Return the costs after a batch that loaded state for so many seconds."""
        quiet, reloads = self.quiet, self.reloads
        if loaded == 0:
            quiet = _append(quiet, seconds / tasks)
        elif loaded and seconds and quiet:
            reloads = _append(reloads, max(0.0, seconds - median(quiet) * tasks) / loaded)
        reload = median(reloads) if reloads else self.bytes / tasks / self.bytes_per_second
        task = median(self.timed or self.operators)
        costs = Costs(max(task, MIN_TASK_SECONDS), max(reload, MIN_RELOAD_SECONDS))
        return replace(self, costs=costs, quiet=quiet, reloads=reloads)


def _append(samples: tuple[float, ...], value: float) -> tuple[float, ...]:
    return (*samples, value)[-SAMPLES:]


def _loads(name: str) -> bool:
    """Return whether a metric is the time that RocksDB spent on loading state."""
    lower = name.lower()
    return lower.startswith("rocksdbload") and "latency" in lower and "snapshot" not in lower


def _number(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return int(value) if isinstance(value, int | float) else 0
