"""The tasks that a steered query publishes to the others, and whether they keep a draining executor busy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from taskplace.wording import count
from topology.tasks import TaskId


class Blocker(NamedTuple):
    """A query that keeps an executor from being empty, and why. `stuck`: it does so until a user acts.

    >>> print(Blocker("clicks", "has 2 tasks there"))
    query clicks has 2 tasks there
    """

    query: str
    why: str
    stuck: bool = False

    def __str__(self) -> str:
        return f"query {self.query} {self.why}"


@dataclass(frozen=True)
class PublishedTasks:
    """The tasks of one steered query, as the other queries see them.

    `places`: where the tasks belong. `planned`: where other queries count them. That is `places`; for a query that
    has stood down it is where the tasks were at the stand-down. Otherwise, if Spark ran them elsewhere in every
    batch, the other queries would plan again for ever. `ran`: the executors on which tasks ran in the last batch,
    None if unknown. A task that was sent elsewhere may still run there, so an executor is empty only after a batch
    without its tasks. `stood_down`: why the query moves no tasks; empty while it moves them. `drains_version`: the
    version of the drains at the time of the decision.
    """

    places: Mapping[TaskId, str | None] = field(default_factory=dict)
    weights: Mapping[TaskId, float] = field(default_factory=dict)
    ran: frozenset[str] | None = None
    stood_down: str = ""
    drains_version: int = 0
    planned: Mapping[TaskId, str | None] = field(default_factory=dict)

    @property
    def subtopologies(self) -> int:
        """The number of subtopologies of this query in the joint problem."""
        return 1 + max((task.subtopology for task in self.planned), default=-1)

    def blocker(self, query: str, instance: str, *, drains_since: int) -> Blocker | None:
        """Return why this query keeps `instance` from being empty, None if it does not. `query`: its name in logs.

        `drains_since`: the version of the drains with which the executor began to drain.
        """
        if why := self._tasks_on(instance):
            if self.stood_down:
                why = f"has stood down, and {why}: {self.stood_down}; or stop() its handle"
            return Blocker(query, why, stuck=bool(self.stood_down))
        if self.places and self.drains_version < drains_since:
            return Blocker(query, "has not planned since the drain was requested")
        return None

    def _tasks_on(self, instance: str) -> str:
        """Return a text about the tasks that this query has, or may have, on an executor; empty for none."""
        if self.ran is None:
            return "where its tasks run is unknown" + ("" if self.stood_down else " until it has run a batch")
        if tasks := sum(name == instance for name in self.places.values()):
            return f"has {count(tasks, 'task')} there"
        return (
            "ran tasks there in its last batch; they have to run elsewhere first"
            if instance in self.ran
            else ""
        )
