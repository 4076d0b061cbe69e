"""The snapshots that followers are loading, piece by piece, over several visits.

Not thread-safe: callers hold the lock of the `Rebalancer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from taskplace.spark.messages import FollowReport, History
from topology import TaskId

Copy = tuple[str, TaskId]


class Load(NamedTuple):
    """The attempt of a snapshot, and the part of it that is loaded, from 0 to 1."""

    attempt: str
    part: float


class SnapshotLoads:
    """By copy, as (instance, task), the snapshot that it is loading."""

    def __init__(self) -> None:
        self._loads: dict[Copy, Load] = {}

    def __contains__(self, copy: Copy) -> bool:
        return copy in self._loads

    def __iter__(self) -> Iterator[Copy]:
        return iter(self._loads)

    def absorb(self, visit: FollowReport) -> None:
        """Take in the report of a visit: a copy that has a position loads nothing any more."""
        for task in visit.copies:
            self._loads.pop((visit.instance, task), None)
        for task, attempt in visit.restoring.items():
            self._loads[visit.instance, task] = Load(attempt, visit.loaded.get(task, 0.0))

    def keep(self, wanted: Callable[[str, TaskId], bool]) -> None:
        """Forget the copies that are not wanted any more."""
        self._loads = {copy: load for copy, load in self._loads.items() if wanted(*copy)}

    def snapshots(self) -> frozenset[tuple[TaskId, str]]:
        """Return the snapshots that are being loaded, as (task, attempt)."""
        return frozenset((task, load.attempt) for (_, task), load in self._loads.items())

    def left(self, copy: Copy, lag: int, history: Mapping[TaskId, History]) -> int:
        """Return a copy's lag without the records that it has loaded: the lag counts them until all are loaded."""
        load, task = self._loads.get(copy), copy[1]
        if load is None or task not in history:
            return lag
        whole = {snapshot.attempt: snapshot.offset for snapshot in history[task].snapshots}
        return max(0, lag - int(load.part * whole.get(load.attempt, 0)))
