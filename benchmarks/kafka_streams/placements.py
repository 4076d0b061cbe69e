"""Who had which tasks when, as instances say it: the moves, and whether the placement is balanced and settled.

All instances report their tasks with the time. Tasks have the numbers of their partitions: the application has one
subtopology.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """The tasks of one instance from a time on. `followed`: standbys and warm-ups."""

    at: float
    instance: str
    active: frozenset[int]
    followed: frozenset[int]


class Placements:
    """The reports of all instances, and which instances are there. Thread-safe.

    >>> placements = Placements(partitions=2, standbys=0)
    >>> placements.take(1.0, "a", [0, 1])
    >>> placements.take(2.0, "b", [])
    >>> placements.balanced({"a", "b"})
    False
    >>> placements.take(3.0, "a", [0])
    >>> placements.take(3.5, "b", [1])
    >>> placements.balanced({"a", "b"}), placements.settled({"a", "b"}), placements.moves(since=2.0)
    (True, True, 1)
    """

    def __init__(self, partitions: int, standbys: int) -> None:
        self._partitions, self._standbys = partitions, standbys
        self._reports: list[Report] = []
        self._now: dict[str, Report] = {}
        self._lock = threading.Lock()

    def take(self, at: float, instance: str, active: Collection[int], followed: Collection[int] = ()) -> None:
        """Take a report in."""
        report = Report(at, instance, frozenset(active), frozenset(followed))
        with self._lock:
            self._reports.append(report)
            self._now[instance] = report

    def active(self, instance: str) -> frozenset[int]:
        """Return the active tasks of an instance by its last report."""
        with self._lock:
            report = self._now.get(instance)
        return frozenset() if report is None else report.active

    def told(self, instances: Collection[str]) -> str:
        """Return the last reports of these instances, for an error."""
        with self._lock:
            found = {name: self._now.get(name) for name in sorted(instances)}
        return "; ".join(
            f"{name}: no report"
            if report is None
            else f"{name}: active {sorted(report.active)}, followed {sorted(report.followed)}"
            for name, report in found.items()
        )

    def balanced(self, instances: Collection[str]) -> bool:
        """Return whether each task is active on one of these instances, whose counts differ by at most one."""
        with self._lock:
            active = [self._now[name].active if name in self._now else frozenset() for name in instances]
        counts = [len(tasks) for tasks in active]
        return (
            bool(counts)
            and sum(counts) == len(frozenset().union(*active)) == self._partitions
            and max(counts) - min(counts) <= 1
        )

    def settled(self, instances: Collection[str]) -> bool:
        """Return whether it is balanced, each task has its standbys, and nothing is warmed up."""
        with self._lock:
            followed = Counter(
                task for name in instances if name in self._now for task in self._now[name].followed
            )
        right = all(followed[task] == self._standbys for task in range(self._partitions))
        return right and self.balanced(instances)

    def moves(self, since: float) -> int:
        """Return how often a task became active elsewhere than before, in reports from a time on."""
        with self._lock:
            reports = sorted(self._reports, key=lambda report: report.at)
        owners: dict[int, str] = {}
        moves = 0
        for report in reports:
            for task in report.active:
                before = owners.get(task, report.instance)
                moves += report.at >= since and before != report.instance
                owners[task] = report.instance
        return moves
