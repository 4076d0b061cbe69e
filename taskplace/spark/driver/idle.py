"""Which tasks a batch has nothing for, so that they need not run.

A task whose inputs have no rows changes no state and gives no rows, so that a batch costs what it brings, not what the
topology has. It runs all the same when

- one of its processors says `every_batch`,
- time has something to do: the watermark has moved, or the last batch had not removed all that had expired,
- its active copy is not where the changelog ends: then it is brought there now, rather than when rows come,
- nobody else of its subtopology would run, and others read what it repartitions: they need to know the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from taskplace.spark.messages import Report
from taskplace.spark.worker.program import Program
from topology import TaskId


class Idle:
    """Remembers from batch to batch what time has still to do.

    Lifetime: `_applied` and `_expiring` are of the last committed batch, empty at the start of a driver; `_pending` is
    of the batch under way.
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
        """Return those of a subtopology's tasks, which are in order of partition, that have nothing to do in a batch.

        `rows` tells whether a partition has any, `watermarks` are those of the topics that are read, `behind` are
        tasks whose active copy may not be where its changelog ends.
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
        """Whether time may have more to remove: the last batch said so, or this driver has committed none yet."""
        return bool(self._expiring) or not self._applied

    def committed(self, reports: Mapping[TaskId, Report]) -> None:
        """Take note that the batch under way is committed; without that, it will be run again as it was."""
        self._applied.update(self._pending)
        self._expiring = frozenset(task for task, report in reports.items() if report.expiring)
        self._pending = {}


def rows_by_partition(reports: Iterable[Report], topics: Iterable[str]) -> dict[int, int]:
    """Return how many rows the internal `topics` bring to each partition that gets any."""
    found: dict[int, int] = {}
    for report in reports:
        for topic in topics:
            boundary = report.boundaries.get(topic)
            for partition, piece in boundary.slices.items() if boundary is not None else ():
                found[partition] = found.get(partition, 0) + piece.rows
    return found
