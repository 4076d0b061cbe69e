"""Groups the tasks of a stage into bins: each bin is one Spark task, which runs the bin's tasks one after the other.

**Idea.** A Spark task with Python costs tens of milliseconds, however little it does. So a stage runs a few bins per
executor, not one Spark task per placed task. Rows are still shuffled by task. `shuffle_order` makes the tasks of one
executor neighbours in the shuffle, so a bin reads one range of it. After a loss the remaining tasks are cut again, over
the same shuffle. Then tasks that have finished, or that another executor has, may lie between those of an executor and
cut its range into pieces. An executor with many pieces gets larger ones: where little lies in between, a bin names the
tasks whose rows it drops (`Bin.skipped`). A stage without external input has no shuffle, so a bin can have any tasks of
one executor (`owner_order`).

Properties:
- A bin has tasks of one owner only. Each task that runs is in exactly one bin.
- A bin has at most `MAX_BYTES` of input by the given sizes, which are estimates, unless a single task has more. A
  worker holds one bin's input at a time, and checks the limit of a task (`runtime.bytes.per.task`) while it reads.
- An owner gets as many bins as its work is worth, but at most `BINS_PER_SLOT` per slot if they fit into `MAX_BYTES`.
  So costly tasks use all slots, and many cheap tasks share a bin.
- However the tasks lie, an owner gets at most `BINS_PER_SLOT` more per slot, and one for each `WORTH_A_BIN` of rows
  between its tasks. A bin drops no more rows than what the bins that it replaces would cost.
- Work is balanced: a task is in the bin in which the middle of its work lies. Larger bins come first, so that they do
  not end last.

Work is counted in bytes of input that take as long (`TaskCosts`). Sizes are in bytes of decoded input.
`shuffle_order` and `cut` are O(n log n) for n tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from types import MappingProxyType

from taskplace.spark.cluster import Executor
from taskplace.spark.messages import Report
from taskplace.spark.worker.bin_context import BIN_BYTES
from topology import TaskId

#: The most input that a bin of several tasks has.
MAX_BYTES = BIN_BYTES
#: The most bins that an executor gets for each of its slots, if `MAX_BYTES` does not ask for more.
BINS_PER_SLOT = 2
#: The work from which a second bin pays: processing so much input takes about as long as starting a Spark task.
WORTH_A_BIN = 1 << 20
#: The price of one task, as input that takes as long to process.
PRICE_OF_A_TASK = 128 << 10
#: The number of slots to assume where Spark chooses the executor.
SLOTS_ANYWHERE = 2

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


@dataclass(frozen=True, slots=True)
class Bin:
    """Tasks that run in one Spark task.

    - `owner`: the executor that runs them; None leaves the choice to Spark
    - `partitions`: of the tasks, in the order of the shuffle
    - `start`, `end`: the range of the shuffle that has their rows, as positions in the order
    - `work`: in bytes of input that take as long
    - `skipped`: other partitions with rows in the range
    """

    owner: Executor | None
    partitions: tuple[int, ...]
    start: int
    end: int
    work: int
    skipped: tuple[int, ...] = ()


def shuffle_order(hosts: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Return all partitions, sorted by the instances that have their tasks: `hosts[p]` is the owner, then its standbys.

    If an owner is lost and its tasks go to their first standbys, the tasks of each standby are neighbours again.

    >>> shuffle_order([("b",), ("a", "c"), ("b",), ("a", "b")])
    (3, 1, 0, 2)
    """
    return tuple(sorted(range(len(hosts)), key=lambda partition: (tuple(hosts[partition]), partition)))


def owner_order(owners: Mapping[int, Executor | None]) -> tuple[int, ...]:
    """Return partitions sorted by owner, for a stage without a shuffle: its bins can have any partitions.

    >>> owner_order({0: Executor("b", "h", 1), 1: Executor("a", "h", 1), 2: Executor("b", "h", 1)})
    (1, 0, 2)
    """
    return tuple(sorted(owners, key=lambda partition: (_name(owners[partition]), partition)))


def _name(owner: Executor | None) -> str:
    return owner.id if owner is not None else ""


def cut(
    order: Sequence[int],
    owners: Mapping[int, Executor | None],
    sizes: Sequence[int],
    *,
    running: Collection[int],
    work: Sequence[int] | None = None,
) -> list[Bin]:
    """Return the bins of the `running` partitions, those with the most work first.

    - `order`: all partitions, by position in the shuffle; without a shuffle, the running ones in any order
    - `owners`: by running partition
    - `sizes`: by partition, the bytes of input
    - `work`: by partition, what its task has to do, in bytes of input; None: as its size says
    """
    running = frozenset(running)
    # What a task counts for: its work, and the space of its input in a worker, both with the price of a task.
    load = {p: (sizes if work is None else work)[p] + PRICE_OF_A_TASK for p in running}
    space = {p: sizes[p] + PRICE_OF_A_TASK for p in running}
    of_owners: dict[Executor | None, list[int]] = {}
    for partition in load:
        of_owners.setdefault(owners.get(partition), []).append(partition)
    target = {
        owner: sum(load[p] for p in part) / _number(owner, [load[p] for p in part], [space[p] for p in part])
        for owner, part in of_owners.items()
    }
    bins = []
    for owner, positions in _joined(_neighbours(order, owners, sizes, running), order, sizes):
        for group in _groups(order, positions, load, space, target[owner]):
            partitions, start, end = tuple(order[at] for at in group), group[0], group[-1] + 1
            others = {partition for partition in order[start:end] if sizes[partition]} - {*partitions}
            total = sum(load[partition] for partition in partitions)
            bins.append(Bin(owner, partitions, start, end, total, tuple(sorted(others))))
    return sorted(bins, key=lambda bin_: -bin_.work)


def _number(owner: Executor | None, work: Sequence[int], space: Sequence[int]) -> int:
    """Return how many bins an owner gets."""
    # A cut may make a bin larger than the average, by up to one task. So the average stays below the limit by one task.
    room = MAX_BYTES - min(max(space), MAX_BYTES // 2)
    worth, needed = ceil(sum(work) / WORTH_A_BIN), ceil(sum(space) / room)
    return min(len(work), max(min(_most_bins(owner), worth), needed))


def _most_bins(owner: Executor | None) -> int:
    """Return how many bins an owner gets at most, unless memory asks for more."""
    return BINS_PER_SLOT * (max(owner.cores, 1) if owner is not None else SLOTS_ANYWHERE)


def _neighbours(
    order: Sequence[int],
    owners: Mapping[int, Executor | None],
    sizes: Sequence[int],
    running: Collection[int],
) -> list[tuple[Executor | None, list[int]]]:
    """Return the positions of running partitions, split where the owner changes or rows of another partition lie."""
    ranges: list[tuple[Executor | None, list[int]]] = []
    open_ = False
    for position, partition in enumerate(order):
        if partition not in running:
            open_ = open_ and not sizes[partition]
            continue
        owner = owners.get(partition)
        if not open_ or ranges[-1][0] != owner:
            ranges.append((owner, []))
        ranges[-1][1].append(position)
        open_ = True
    return ranges


def _joined(
    ranges: Iterable[tuple[Executor | None, list[int]]], order: Sequence[int], sizes: Sequence[int]
) -> Iterator[tuple[Executor | None, list[int]]]:
    """Yield the ranges; of an owner that has more than it should have bins, those with few rows in between as one."""
    of_owners: dict[Executor | None, list[list[int]]] = {}
    for owner, positions in ranges:
        of_owners.setdefault(owner, []).append(positions)
    before = [0, *accumulate(sizes[partition] for partition in order)]
    for owner, parts in of_owners.items():
        joined = parts[:1]
        for part in parts[1:]:
            between = before[part[0]] - before[joined[-1][-1] + 1]
            if len(parts) > _most_bins(owner) and between <= WORTH_A_BIN:
                joined[-1] += part
            else:
                joined.append(part)
        yield from ((owner, positions) for positions in joined)


def _groups(
    order: Sequence[int],
    positions: Sequence[int],
    load: Mapping[int, int],
    space: Mapping[int, int],
    target: float,
) -> list[list[int]]:
    """Cut neighbours into groups of about `target` work; none of several takes more than `MAX_BYTES`."""
    groups: list[list[int]] = []
    before, last, taken = 0, -1, 0
    for position in positions:
        partition = order[position]
        # The bin in which the middle of this partition's work lies.
        number = int((before + load[partition] / 2) / target)
        if number != last or taken + space[partition] > MAX_BYTES:
            groups.append([])
            last, taken = number, 0
        groups[-1].append(position)
        before, taken = before + load[partition], taken + space[partition]
    return groups


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
    """Estimates the work of each task of a stage, from what its last attempts cost. Lifetime: one for each driver.

    **Idea.** Bytes alone say little about a task's work. A processor may take a second for a few rows, and a task that
    reads ranges of offsets itself gets only a few bytes from Spark. So the driver keeps the seconds of each task's
    attempts, and the load that they had.

    Properties:
    - Estimates only decide how tasks share bins (`taskplace.spark.driver.bins`). A wrong one costs time, never a
      result.
    - An attempt with less input than the last ones is expected to be faster in proportion. One with more is not
      expected to
      be slower than they were, unless its bytes alone say so.
    - A task without input counts apart from the same task with input: batches with and without rows often take turns.
    - A faster attempt with as much input counts at once. The first ones are slow, because workers start.
    - Bringing a copy to its base position is not counted, because a copy is seldom behind.
    - How much larger than estimated a task's rows were counts until the task brings enough again, at most for
      `EXPANSION_BATCHES`. A single odd batch of a task that is small otherwise does not make bins small for ever.
    - The tasks of a driver never change. So it keeps three entries for each at most, and they go with the driver.

    All sizes are in bytes.
    """

    def __init__(self) -> None:
        self._costs: dict[tuple[TaskId, bool], _Cost] = {}  # by task, and whether it had input
        # How many times as large as estimated the last input was, and the number of the stage that showed it.
        self._expansion: dict[TaskId, tuple[float, int]] = {}
        self._stages: Counter[int] = Counter()  # that were counted, by subtopology
        self._bytes_per_record: dict[int, float] = {}  # by subtopology

    def estimates(
        self, tasks: Sequence[TaskId], sizes: Sequence[int], records: Mapping[int, int] = MappingProxyType({})
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
