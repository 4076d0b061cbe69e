"""Remembers why copies cannot follow, and when executors last answered, for operators.

The replicator's threads note what visits say, under the lock of the `Rebalancer`; the status reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from taskplace.spark.driver.event_log import shown_error, shown_text
from taskplace.spark.messages import FollowReport, Position
from topology import TaskId


class Troubles:
    """What keeps copies from following. Times are seconds since 1970. Lifetime: one for each driver."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._copies: dict[tuple[str, TaskId], str] = {}
        self._visits: dict[str, str] = {}
        self._visited: dict[str, float] = {}

    # -- notes

    def answered(
        self, visit: FollowReport, before: Mapping[TaskId, Position], wanted: Collection[TaskId]
    ) -> None:
        """Note a visit's report. `before`: the positions of the executor's copies so far; `wanted`: that should follow.

        A trouble is over when its copy has moved on, loads a snapshot, or is not wanted any more.
        """
        name = visit.instance
        self._visited[name] = self._clock()
        self._visits.pop(name, None)
        for task in self.of(name).keys() - visit.errors.keys():
            moved = task in visit.restoring or visit.copies.get(task) != before.get(task)
            if moved or task not in wanted:
                del self._copies[name, task]
        for task, error in visit.errors.items():
            if task in wanted:
                self._copies[name, task] = shown_text(error)

    def failed(self, instance: str, error: Exception) -> None:
        """Note a visit that has failed as a whole."""
        self._visits[instance] = shown_error(error)

    def keep(self, members: Collection[str]) -> None:
        """Forget the executors that are not members."""
        self._copies = {copy: why for copy, why in self._copies.items() if copy[0] in members}
        self._visits = {name: why for name, why in self._visits.items() if name in members}
        self._visited = {name: at for name, at in self._visited.items() if name in members}

    # -- questions

    def of(self, instance: str) -> dict[TaskId, str]:
        """Return why copies of an instance cannot follow, as far as its visits have said."""
        return {task: why for (name, task), why in self._copies.items() if name == instance}

    def contact(self, instance: str) -> tuple[float | None, str]:
        """Return when an instance last answered a visit, and why its last visit failed: "" if it did not."""
        return self._visited.get(instance), self._visits.get(instance, "")
