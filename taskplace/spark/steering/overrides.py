"""Compares where Spark ran the tasks with where they were sent, and decides when to give up.

A preferred location is only a preference. Spark overrules it when the executor has no free slot within
`spark.locality.wait`, and the task then reloads its state elsewhere. Sending the task back once is right. If Spark
overrules it again and again, it only costs reloads. So steering stands down, with the reason, after
`patience.batches` batches in a row in which Spark overruled the same task, or `SHARE` of all tasks. A single straggler
among hundreds of tasks is not a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from taskplace.spark.steering.observation import Facts
from topology.tasks import TaskId

SHORT_WAIT_MS = 1000
"""A shorter wait usually ends before a slot is free."""

SHARE = 0.25
"""If this share of all tasks ran elsewhere, they are more than stragglers."""


@dataclass(frozen=True)
class StandDown:
    """Why steering has stopped moving tasks, and the remedy.

    >>> str(StandDown("errors", "see the log"))
    'errors; remedy: see the log'
    """

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; remedy: {self.remedy}"


def hopeless(facts: Facts) -> StandDown | None:
    """Return why steering cannot work with these settings, None if it can.

    >>> hopeless(Facts(unload_on_commit=True)).remedy
    'set it to false and restart the query'
    """
    if facts.unload_on_commit:
        key = "spark.sql.streaming.stateStore.unloadOnCommit"
        return StandDown(
            f"{key}=true drops every store after every batch, so there is no state to keep in place",
            "set it to false and restart the query",
        )
    return None


@dataclass(frozen=True)
class OverrideWatch:
    """Counts, batch after batch, the tasks that Spark ran elsewhere than intended. Immutable.

    `sent`: where each task was intended to run in the next batch. `overruled`: the tasks that ran elsewhere in the
    last batch. `streaks`: for each of them, the batches in a row. `many`: batches in a row with `SHARE` of all
    tasks elsewhere. `total`: overruled tasks so far.

    >>> watch, task = OverrideWatch(), TaskId(0, 0)
    >>> for _ in range(2):
    ...     watch = watch.send({task: "a"}).verify({task: "b"}, ["a", "b"])
    >>> str(watch.verdict(Facts(locality_wait_ms=0), patience=2))  # doctest: +ELLIPSIS
    'spark.locality.wait is 0 ms: Spark ran 1 of 1 tasks elsewhere, 2 batches in a row; remedy: ...'
    """

    sent: Mapping[TaskId, str] = field(default_factory=dict)
    overruled: tuple[TaskId, ...] = ()
    streaks: Mapping[TaskId, int] = field(default_factory=dict)
    many: int = 0
    total: int = 0

    def send(self, intended: Mapping[TaskId, str]) -> OverrideWatch:
        """Return the watch after the places for the next batch were sent."""
        return replace(self, sent=dict(intended))

    def verify(self, places: Mapping[TaskId, str | None], alive: Collection[str]) -> OverrideWatch:
        """Return the watch after a batch that began after the last send. `places`: where the tasks ran.

        A task whose executor is not among `alive` counts as obeyed: Spark had to run it elsewhere.
        """
        elsewhere = (
            t for t, name in self.sent.items() if name in alive and places.get(t) not in (None, name)
        )
        overruled = tuple(sorted(elsewhere))
        many = bool(overruled) and len(overruled) >= SHARE * len(self.sent)
        return replace(
            self,
            overruled=overruled,
            streaks={task: self.streaks.get(task, 0) + 1 for task in overruled},
            many=self.many + 1 if many else 0,
            total=self.total + len(overruled),
        )

    def verdict(self, facts: Facts, *, patience: int) -> StandDown | None:
        """Return why to stand down, None while fewer than `patience` batches in a row were overruled."""
        streak = max([self.many, *self.streaks.values()])
        if streak < patience:
            return None
        counts = f"{len(self.overruled)} of {len(self.sent)} tasks elsewhere, {streak} batches in a row"
        wait = facts.locality_wait_ms
        if wait < SHORT_WAIT_MS:
            return StandDown(
                f"spark.locality.wait is {wait} ms: Spark ran {counts}",
                "set spark.locality.wait to 3s or more when the application starts, then resume()",
            )
        return StandDown(
            f"Spark ran {counts}: their executors had no free slot within spark.locality.wait ({wait} ms), or "
            "batches follow each other faster than they can be steered",
            "give the query free slots, a longer spark.locality.wait or a trigger interval, then resume()",
        )
