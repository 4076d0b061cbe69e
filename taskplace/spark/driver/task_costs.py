"""Estimates the work of each task of a stage, from what its last attempts cost.

**Idea.** Bytes alone say little about a task's work. A processor may take a second for a few rows, and a task that
reads ranges of offsets itself gets only a few bytes from Spark. So the driver keeps the seconds of each task's
attempts, and the load that they had.

Properties:
- Estimates only decide how tasks share bins (`taskplace.spark.driver.bins`). A wrong one costs time, never a result.
- An attempt with less input than the last ones is expected to be faster in proportion. One with more is not expected to
  be slower than they were, unless its bytes alone say so.
- A task without input counts apart from the same task with input: batches with and without rows often take turns.
- A faster attempt with as much input counts at once. The first ones are slow, because workers start.
- Bringing a copy to its base position is not counted, because a copy is seldom behind.
- How much larger than estimated a task's rows were counts until the task brings enough again, at most for
  `EXPANSION_BATCHES`. A single odd batch of a task that is small otherwise does not make bins small for ever.
- The tasks of a driver never change. So it keeps three entries for each at most, and they go with the driver.

All sizes are in bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType

from taskplace.spark.driver.bins import WORTH_A_BIN
from taskplace.spark.messages import Report
from topology import TaskId

#: The seconds that a bin should have at least: ten times the price of a small Spark task.
SECONDS_WORTH_A_BIN = 0.1
#: The size of a record before any was read.
BYTES_PER_RECORD = 200.0
#: How much the last attempt counts against those before it.
SHARE_OF_THE_LAST = 0.5
#: Less input says nothing about how large rows are in memory.
ENOUGH_BYTES = 256 << 10
#: In so many batches of its subtopology an expansion counts, unless its task shows another one.
EXPANSION_BATCHES = 50
#: The step of an attempt that brings its copy to the base position.
_POSITION = "position"


@dataclass(frozen=True)
class Estimates:
    """What is expected of the tasks of a stage, by partition.

    - `sizes`: the rows that Spark and boundary files bring, as Spark and the boundaries say
    - `loads`: the same, with the records that tasks read themselves
    - `space`: what the rows that are brought may take in a worker
    - `work`: in bytes of input that take as long
    """

    sizes: Sequence[int]
    loads: Sequence[float]
    space: Sequence[int]
    work: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Cost:
    """The seconds of a task's attempts and their loads: moving averages."""

    seconds: float
    load: float

    def and_then(self, seconds: float, load: float) -> _Cost:
        """Return the averages with one more attempt."""
        if seconds < self.seconds and load >= self.load / 2:
            return _Cost(seconds, load)
        part = SHARE_OF_THE_LAST
        return _Cost(self.seconds + part * (seconds - self.seconds), self.load + part * (load - self.load))

    def expected(self, load: float) -> float:
        """Return the seconds that an attempt with this load will probably take."""
        return self.seconds * min(1.0, load / self.load) if self.load else self.seconds


class TaskCosts:
    """What the attempts that won have cost. Lifetime: one for each driver."""

    def __init__(self) -> None:
        self._costs: dict[tuple[TaskId, bool], _Cost] = {}  # by task, and whether it had input
        # How many times as large as estimated the last input was, and the number of the stage that showed it.
        self._expansion: dict[TaskId, tuple[float, int]] = {}
        self._stages: Counter[int] = Counter()  # that were counted, by subtopology
        self._bytes_per_record: dict[int, float] = {}  # by subtopology

    def estimates(
        self,
        tasks: Sequence[TaskId],
        sizes: Sequence[int],
        records: Mapping[int, int] = MappingProxyType({}),
    ) -> Estimates:
        """Return what is expected of the tasks of a stage, which are sorted by partition. O(tasks).

        - `sizes`: by partition, the bytes that Spark and boundary files say they bring
        - `records`: by partition, the number of records that its task will read itself, as far as it is known
        """
        record = self._bytes_per_record.get(tasks[0].subtopology, BYTES_PER_RECORD) if tasks else 0.0
        loads = [
            size + records.get(partition, 0) * record if size else 0.0 for partition, size in enumerate(sizes)
        ]
        larger = self._worst_expansion(tasks)
        work = [max(ceil(load), self._by_time(task, load)) for task, load in zip(tasks, loads, strict=True)]
        return Estimates(sizes, loads, [ceil(size * larger) for size in sizes], work)

    def count(self, reports: Iterable[Report], expected: Estimates) -> None:
        """Count the attempts that won a stage, for which this had been expected."""
        reports = list(reports)
        self._stages.update({report.task.subtopology for report in reports})
        for report in reports:
            task, partition = report.task, report.task.partition
            seconds = sum(took for step, took in report.seconds.items() if step != _POSITION)
            load, key = expected.loads[partition], (task, expected.loads[partition] > 0)
            known = self._costs.get(key)
            self._costs[key] = known.and_then(seconds, load) if known is not None else _Cost(seconds, load)
            if records := sum(read.rows for read in report.read.values()):
                self._bytes_per_record[task.subtopology] = report.fetched / records
            if expected.sizes[partition] and report.brought >= ENOUGH_BYTES:
                factor = report.brought / expected.sizes[partition]
                self._expansion[task] = factor, self._stages[task.subtopology]

    def _by_time(self, task: TaskId, load: float) -> int:
        """Return the work of a task by the seconds of its last attempts; 0 before the first one."""
        known = self._costs.get((task, load > 0))
        return int(known.expected(load) / SECONDS_WORTH_A_BIN * WORTH_A_BIN) if known is not None else 0

    def _worst_expansion(self, tasks: Sequence[TaskId]) -> float:
        """Return how many times as large as estimated the input of a task may be, at least 1.

        Spark knows the compressed size of each partition, and of all together how large their rows are. A partition
        that compresses better than others is larger than that says.
        """
        now = self._stages[tasks[0].subtopology] if tasks else 0
        known = (self._expansion[task] for task in tasks if task in self._expansion)
        return max([1.0, *(factor for factor, stage in known if now - stage < EXPANSION_BATCHES)])
