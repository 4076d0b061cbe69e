"""What a steered query publishes to the others, and whether that keeps a draining executor from being empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from topology.ids import TaskId


@dataclass(frozen=True)
class PublishedTasks:
    """The tasks of one steered query, as the other queries see them.

    `places`: where the tasks belong. `planned`: where other queries count them. That is `places`; for a query that
    has stood down it is where the tasks were at the stand-down. Spark may run them elsewhere in every batch, and
    the other queries would follow them for ever. `ran`: the executors on which tasks ran in the last batch, None if
    unknown; a task that was sent elsewhere may still be running there, so only what ran leaves an executor empty.
    `stood_down`: why the query moves no tasks, empty while it does. `drains_version`: the drains that this was
    decided with.
    """

    places: Mapping[TaskId, str | None] = field(default_factory=dict)
    weights: Mapping[TaskId, float] = field(default_factory=dict)
    ran: frozenset[str] | None = None
    stood_down: str = ""
    drains_version: int = 0
    planned: Mapping[TaskId, str | None] = field(default_factory=dict)

    @property
    def subtopologies(self) -> int:
        """How many numbers its subtopologies take in the joint problem."""
        return 1 + max((task.subtopology for task in self.planned), default=-1)

    def blocks(self, instance: str, *, drains_since: int) -> str:
        """Return why this query keeps `instance` from being empty; empty text if it does not.

        `drains_since`: the version of the drains since which the executor drains.
        """
        if self.ran is None:
            found = "where its tasks run is unknown"
            found += "" if self.stood_down else " until it has run a batch"
        elif count := sum(name == instance for name in self.places.values()):
            found = f"has {count} task{'' if count == 1 else 's'} there"
        elif instance in self.ran:
            found = "ran tasks there in its last batch; they have to run elsewhere first"
        elif self.places and self.drains_version < drains_since:
            return "has not planned since the drain was requested"
        else:
            return ""
        if self.stood_down:
            return f"has stood down, and {found}: {self.stood_down}; or stop() its handle"
        return found


class Blocker(NamedTuple):
    """A query that keeps an executor from being empty, and why. `stuck`: it will, unless somebody acts.

    >>> print(Blocker("clicks", "has 2 tasks there"))
    query clicks has 2 tasks there
    """

    query: str
    why: str
    stuck: bool = False

    def __str__(self) -> str:
        return f"query {self.query} {self.why}"
