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

Work is counted in bytes of input that take as long. `taskplace.spark.driver.bins` estimates it, from the seconds
of the last attempts as well. Sizes are in bytes of decoded input.
`shuffle_order` and `cut` are O(n log n) for n tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from taskplace.spark.cluster import Executor
from taskplace.spark.worker.bin_context import BIN_BYTES

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
    work = sizes if work is None else work
    weights = {
        partition: _Weight(work[partition] + PRICE_OF_A_TASK, sizes[partition] + PRICE_OF_A_TASK)
        for partition in running
    }
    of_owners: dict[Executor | None, list[_Weight]] = {}
    for partition, weight in weights.items():
        of_owners.setdefault(owners.get(partition), []).append(weight)
    target = {owner: sum(w.work for w in part) / _number(owner, part) for owner, part in of_owners.items()}
    bins = [
        bin_
        for owner, positions in _joined(_neighbours(order, owners, sizes, running), order, sizes)
        for bin_ in _cut_range(order, owner, positions, weights, sizes, target[owner])
    ]
    return sorted(bins, key=lambda bin_: -bin_.work)


@dataclass(frozen=True, slots=True)
class _Weight:
    """What a task counts for: its `work`, and the `space` of its input in a worker. Both with the price of a task."""

    work: int
    space: int


def _number(owner: Executor | None, weights: Sequence[_Weight]) -> int:
    """Return how many bins an owner gets."""
    worth = ceil(sum(weight.work for weight in weights) / WORTH_A_BIN)
    # A cut may make a bin larger than the average, by up to one task. So the average stays below the limit by one task.
    room = MAX_BYTES - min(max(weight.space for weight in weights), MAX_BYTES // 2)
    needed = ceil(sum(weight.space for weight in weights) / room)
    return min(len(weights), max(min(_most_bins(owner), worth), needed))


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


def _cut_range(
    order: Sequence[int],
    owner: Executor | None,
    positions: Sequence[int],
    weights: Mapping[int, _Weight],
    sizes: Sequence[int],
    target: float,
) -> list[Bin]:
    """Cut neighbours into bins of about `target` work; none with several partitions takes more than `MAX_BYTES`."""
    groups: list[list[int]] = []
    before, last, space = 0, -1, 0
    for position in positions:
        weight = weights[order[position]]
        # The bin in which the middle of this partition's work lies.
        number = int((before + weight.work / 2) / target)
        if number != last or space + weight.space > MAX_BYTES:
            groups.append([])
            last, space = number, 0
        groups[-1].append(position)
        before, space = before + weight.work, space + weight.space
    return [_bin(order, owner, group, weights, sizes) for group in groups]


def _bin(
    order: Sequence[int],
    owner: Executor | None,
    positions: Sequence[int],
    weights: Mapping[int, _Weight],
    sizes: Sequence[int],
) -> Bin:
    partitions = tuple(order[position] for position in positions)
    start, end = positions[0], positions[-1] + 1
    others = {partition for partition in order[start:end] if sizes[partition]} - {*partitions}
    work = sum(weights[partition].work for partition in partitions)
    return Bin(owner, partitions, start, end, work, tuple(sorted(others)))
