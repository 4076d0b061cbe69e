"""What a task takes and what its reload costs, from the progress that Spark reports of its state operators.

A task's seconds per batch: the median of what was observed of tasks, in the last batches in which they were; before
that, and where they never are, the time of updates, removals and commit of all operators, over the tasks. A reload's
seconds: RocksDB says how long loading took in a batch. That is a little for every task, moved or not, so the batches in
which tasks moved show what one of them costs beyond what batches without moves show. A batch in which others may have
loaded their state too, such as the first one that is seen, shows neither, nor does one that may have begun before the
tasks were sent. Until both were seen, and with other providers, which do not say, the memory of the state over an
assumed rate stands in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from taskplace.spark.steering.move_benefit import Prices

LEAST_TASK = 0.001
LEAST_RELOAD = 0.02
"""Opening a store takes this long, however little is in it."""
_TIMES = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")


class MeasuredCosts:
    """Keeps the prices of one query up to date.

    >>> book = MeasuredCosts(bytes_per_second=1000)
    >>> progress = {"allUpdatesTimeMs": 300, "commitTimeMs": 700, "memoryUsedBytes": 8000}
    >>> book.observe([progress], tasks=4, loaded=0)
    Prices(task=0.25, reload=2.0)
    """

    def __init__(self, bytes_per_second: float) -> None:
        self.rows = 0
        self.bytes = 0
        self._rate = bytes_per_second
        self._spent: deque[float] = deque(maxlen=5)  # seconds of a task, by the operators' own times
        self._observed: deque[float] = deque(maxlen=5)  # the same, as tasks were observed now and then
        self._quiet: deque[float] = deque(maxlen=5)  # seconds of loading in batches without moves, a task
        self._loads: deque[float] = deque(maxlen=5)  # seconds of a reload

    def observe(
        self,
        operators: Sequence[Mapping[str, Any]],
        tasks: int,
        loaded: int | None,
        seconds: Sequence[float] | None = None,
    ) -> Prices:
        """Return the prices after a batch in which `loaded` of `tasks` tasks loaded their state; None: nobody knows.

        `operators`: `stateOperators` of the progress. `seconds`: of each task, where they were observed.
        """
        if not tasks or not operators:
            return Prices()
        said = [{**operator, **(operator.get("customMetrics") or {})} for operator in operators]
        self.rows = sum(_number(operator, "numRowsTotal") for operator in said)
        self.bytes = sum(_number(operator, "memoryUsedBytes") for operator in said)
        spent = sum(_number(operator, name) for operator in said for name in _TIMES) / 1000 / tasks
        self._spent.append(spent)
        if seconds:
            self._observed.append(median(seconds))
        loading = sum(
            _number(operator, name) / 1000 for operator in said for name in operator if _is_load_time(name)
        )
        if loaded == 0:
            self._quiet.append(loading / tasks)
        elif loaded and loading and self._quiet:
            self._loads.append(max(0.0, loading - median(self._quiet) * tasks) / loaded)
        reload = median(self._loads) if self._loads else self.bytes / tasks / self._rate
        return Prices(max(median(self._observed or self._spent), LEAST_TASK), max(reload, LEAST_RELOAD))


def _is_load_time(name: str) -> bool:
    lower = name.lower()
    return lower.startswith("rocksdbload") and "latency" in lower and "snapshot" not in lower


def _number(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return int(value) if isinstance(value, int | float) else 0
