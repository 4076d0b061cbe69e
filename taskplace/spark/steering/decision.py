"""The decision of a steering round: where each task should run in the next batch, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from taskplace.model.plan import Move
from taskplace.rebalance.triggers import Trigger
from taskplace.spark.steering.decide import StandDown
from taskplace.spark.steering.moves import Verdict
from taskplace.wording import count
from topology.tasks import TaskId


@dataclass(frozen=True)
class Decision:
    """Where each task should run in the next batch, and why.

    `moves`: the tasks that change their executor now. `waiting`: moves left for later batches. `why`: the reasons for
    a new goal, empty while the goal is the old one. `overruled`: tasks that Spark ran elsewhere than intended. `kept`:
    for each draining executor that is not empty, the queries that keep tasks there, and why.
    """

    batch: int
    intended: Mapping[TaskId, str]
    goal: Mapping[TaskId, str]
    moves: tuple[Move, ...] = ()
    waiting: int = 0
    why: tuple[Trigger, ...] = ()
    verdict: Verdict = field(default_factory=Verdict)
    overruled: tuple[TaskId, ...] = ()
    stood_down: StandDown | None = None
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.stood_down:
            return f"batch {self.batch}: stood down: {self.stood_down}"
        parts = [f"batch {self.batch}: {count(len(self.moves), 'move')} now, {self.waiting} later"]
        if self.why:
            parts.append("; ".join(map(str, self.why)))
        if self.verdict.moves and (self.why or not self.verdict.worth):
            parts.append(str(self.verdict))
        if self.overruled:
            parts.append(f"{count(len(self.overruled), 'task')} ran elsewhere than intended")
        parts += not_empty(self.kept)
        return "; ".join(parts)

    def to_dict(self) -> dict[str, object]:
        """Return the decision as plain values, ready for JSON."""
        return {
            "batch": self.batch,
            "goal": {str(task): name for task, name in sorted(self.goal.items())},
            "moves": [{"task": str(m.task), "from": m.from_, "to": m.to, "why": m.why} for m in self.moves],
            "waiting": self.waiting,
            "why": [str(trigger) for trigger in self.why],
            "gain_seconds_per_batch": self.verdict.gain,
            "cost_seconds": self.verdict.cost,
            "worth": self.verdict.worth,
            "overruled": [str(task) for task in self.overruled],
            "stood_down": str(self.stood_down) if self.stood_down else None,
            "kept": {name: list(why) for name, why in self.kept.items()},
        }


def not_empty(kept: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return a line for each query that keeps tasks on a draining executor.

    >>> not_empty({"executor-3": ("query clicks has 2 tasks there",)})
    ['executor-3 is not empty: query clicks has 2 tasks there']
    """
    return [f"{name} is not empty: {reason}" for name, reasons in kept.items() for reason in reasons]
