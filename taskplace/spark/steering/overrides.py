"""Intended against actual: did the tasks run where they were sent, and if not, again and again, why not.

A preferred location is a wish. Spark overrules it when the instance has no free slot for as long as
`spark.locality.wait` allows, and then the task has reloaded its state elsewhere. Sending it back is right once, and
harm when it goes on: steering stands down, and says why, when the same task was overruled `patience` batches in a row,
or `SHARE` of all tasks, whichever they were. Now and then a straggler among hundreds is nothing to stand down for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from topology.ids import TaskId

SHORT_WAIT_MS = 1000
"""A wait below this is over before a slot is free, with tasks of the usual length."""

SHARE = 0.25
"""So many of all tasks elsewhere is more than stragglers."""


@dataclass(frozen=True)
class Facts:
    """What Spark's configuration says that bears on steering."""

    locality_wait_ms: int = 3000
    unload_on_commit: bool = False


@dataclass(frozen=True)
class StandDown:
    """Why steering has stopped moving anything, and what to do about it.

    >>> str(StandDown("errors", "see the log"))
    'errors; remedy: see the log'
    """

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; remedy: {self.remedy}"


def hopeless(facts: Facts) -> StandDown | None:
    """Return why steering cannot work under this configuration, or None.

    >>> hopeless(Facts(unload_on_commit=True)).remedy
    'set it to false and restart the query'
    """
    if facts.unload_on_commit:
        key = "spark.sql.streaming.stateStore.unloadOnCommit"
        return StandDown(
            f"{key}=true drops every store after every batch, so that there is nothing to keep in place",
            "set it to false and restart the query",
        )
    return None


class OverrideWatch:
    """Compares, after each batch, where tasks ran with where they were sent.

    Lifetime: `sent` is what the last report intended. `streaks` counts, for each task, batches in a row in which it
    was overruled; `many`, batches in a row in which `SHARE` of the tasks were.

    >>> watch, task = OverrideWatch(patience=2), TaskId(0, 0)
    >>> for _ in range(2):
    ...     watch.send({task: "a"})
    ...     overruled = watch.verify({task: "b"}, ["a", "b"])
    >>> str(watch.verdict(Facts(locality_wait_ms=0)))  # doctest: +ELLIPSIS
    'spark.locality.wait is 0 ms: Spark ran 1 of 1 tasks elsewhere, 2 batches in a row; remedy: ...'
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.sent: dict[TaskId, str] = {}
        self.streaks: Counter[TaskId] = Counter()
        self.many = 0
        self.overruled: tuple[TaskId, ...] = ()
        self.total = 0

    def send(self, intended: Mapping[TaskId, str]) -> None:
        """Take note of where all tasks are wanted in the next batch."""
        self.sent = dict(intended)

    def verify(self, places: Mapping[TaskId, str | None], alive: Collection[str]) -> tuple[TaskId, ...]:
        """Return the tasks that ran elsewhere than intended, in a batch that began after the last report.

        A task whose instance is gone was not overruled: it had nowhere else to go.
        """
        self.overruled = tuple(
            sorted(t for t, name in self.sent.items() if name in alive and places.get(t) not in (None, name))
        )
        self.streaks = Counter({task: self.streaks[task] + 1 for task in self.overruled})
        many = bool(self.overruled) and len(self.overruled) >= SHARE * len(self.sent)
        self.many = self.many + 1 if many else 0
        self.total += len(self.overruled)
        return self.overruled

    def verdict(self, facts: Facts) -> StandDown | None:
        """Return why to stand down, or None while there is patience left."""
        streak = max([self.many, *self.streaks.values()])
        if streak < self.patience:
            return None
        found = f"{len(self.overruled)} of {len(self.sent)} tasks elsewhere, {streak} batches in a row"
        wait = facts.locality_wait_ms
        if wait < SHORT_WAIT_MS:
            return StandDown(
                f"spark.locality.wait is {wait} ms: Spark ran {found}",
                "set spark.locality.wait to 3s or more when the application starts, then resume()",
            )
        return StandDown(
            f"Spark ran {found}: their executors had no free slot within spark.locality.wait ({wait} ms), or "
            "batches follow each other faster than they can be steered",
            "give the query free slots, a longer spark.locality.wait or a trigger interval, then resume()",
        )
