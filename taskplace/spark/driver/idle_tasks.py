"""Finds the idle tasks of a batch: tasks that have nothing to do and do not run.

A task without input rows changes no state and emits no rows. Not running it makes the cost of a batch depend on its
rows, not on the size of the topology. A task without rows still runs if

- one of its processors declares `every_batch`,
- event time has work for it: the watermark has moved, or the last batch left expired entries to remove,
- its active copy is behind the end of the changelog: it catches up now, before rows come,
- no other task of its subtopology would run, and a repartition of it has readers: they need its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from taskplace.spark.messages import Report
from taskplace.spark.worker.program import Program
from topology import TaskId


class IdleTasks:
    """Finds idle tasks, and remembers from batch to batch which work of event time is left.

    Lifetime: `_applied` and `_expiring` are of the last committed batch, empty at the start of a driver; `_pending` is
    of the running batch.
    """

    def __init__(self) -> None:
        self._applied: dict[int, Mapping[str, int | None]] = {}
        self._expiring: frozenset[TaskId] = frozenset()
        self._pending: dict[int, Mapping[str, int | None]] = {}

    def tasks(
        self,
        program: Program,
        tasks: Sequence[TaskId],
        rows: Callable[[int], bool],
        watermarks: Mapping[str, int | None],
        behind: Collection[TaskId],
    ) -> frozenset[TaskId]:
        """Return the idle tasks among a subtopology's `tasks`, which are in order of partition.

        `rows` returns whether a partition has rows. `watermarks` are those of the topics that the subtopology reads.
        `behind` are tasks whose active copy may be behind the end of the changelog.
        """
        moved = program.forgets and (
            program.subtopology not in self._applied or self._applied[program.subtopology] != watermarks
        )
        self._pending[program.subtopology] = watermarks
        if program.every_batch or moved:
            return frozenset()
        idle = [
            task
            for partition, task in enumerate(tasks)
            if not rows(partition) and task not in self._expiring and task not in behind
        ]
        if program.repartitions and len(idle) == len(tasks):
            idle = idle[1:]
        return frozenset(idle)

    @property
    def expiring(self) -> bool:
        """Whether expired entries may be left: the last batch reported some, or this driver has not committed yet."""
        return bool(self._expiring) or not self._applied

    def committed(self, reports: Mapping[TaskId, Report]) -> None:
        """Note that the running batch is committed. An uncommitted batch will run again with the same input."""
        self._applied.update(self._pending)
        self._expiring = frozenset(task for task, report in reports.items() if report.expiring)
        self._pending = {}


def bytes_by_partition(reports: Iterable[Report], topics: Iterable[str]) -> dict[int, int]:
    """Return the bytes that the internal `topics` bring to each partition, without partitions that get no rows."""
    sizes: dict[int, int] = {}
    for report in reports:
        for topic in topics:
            boundary = report.boundaries.get(topic)
            for partition, piece in boundary.slices.items() if boundary is not None else ():
                sizes[partition] = sizes.get(partition, 0) + piece.length
    return sizes
