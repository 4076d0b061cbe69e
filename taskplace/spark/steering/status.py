"""What steering shows: the decision of a round, and the status of a query, as text for people and as a dict for
machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from msgspec import json

from taskplace.model.plan import Move
from taskplace.rebalance.triggers import Trigger
from taskplace.spark.steering.moves import Verdict
from taskplace.wording import count
from topology.tasks import TaskId


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


@dataclass(frozen=True)
class Decision:
    """Where each task should run in the next batch, and why.

    `moves`: the tasks that change their executor now. `waiting`: moves left for later batches. `why`: the reasons for a
    new target, empty while the target is the old one. `overruled`: tasks that Spark ran elsewhere than intended.
    `kept`: for each draining executor that is not empty, the queries that keep tasks there, and why.
    """

    batch: int
    intended: Mapping[TaskId, str]
    target: Mapping[TaskId, str]
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
            "target": {str(task): name for task, name in sorted(self.target.items())},
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


class SteeringPhase(str, Enum):
    """The phase of a handle."""

    WAITING = "waiting for the first batch"
    STEERING = "steering"
    STOOD_DOWN = "stood down"
    NOTHING_TO_STEER = "nothing to steer"
    STOPPED = "stopped"
    ENDED = "ended"

    __str__ = str.__str__


@dataclass(frozen=True)
class SteeringStatus:
    """How one query is steered, as of its last round.

    `state`: the text of a `SteeringPhase`. `operators`: a line for each subtopology. `executors`: for each
    executor, the number of tasks that it runs and that it should run. `kept`: for each draining executor that is
    not empty, the queries that keep tasks there, and why. `moved`: tasks moved so far, or on their way; `waiting`:
    moves still to come; `overruled`: tasks that Spark ran elsewhere than intended. `weights`: of tasks that do not
    weigh 1. `changes`: the last events; `event_count`: the number of all events. `seconds`: the duration of the last
    round, from the end of the batch to the last place sent.

    >>> print(SteeringStatus("clicks", SteeringPhase.STEERING, batch=7, executors={"executor-0": (2, 2)}))
    query clicks: steering, after batch 7
      executor-0: 2 tasks, 2 intended
      0 moved, 0 waiting, 0 overruled
    """

    query: str
    state: str
    batch: int = -1
    operators: tuple[str, ...] = ()
    executors: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    draining: tuple[str, ...] = ()
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    moved: int = 0
    waiting: int = 0
    overruled: int = 0
    reason: str = ""
    verdict: str = ""
    load: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0
    errors: int = 0
    seconds: float = 0.0
    changes: tuple[str, ...] = ()
    event_count: int = 0

    def __str__(self) -> str:
        after = f", after batch {self.batch}" if self.batch >= 0 else ""
        lines = [f"query {self.query}: {self.state}{after}"]
        if self.reason:
            lines.append(f"  {self.reason}")
        lines += [f"  {line}" for line in self.operators]
        for name, (now, target) in sorted(self.executors.items()):
            drains = ", draining" if name in self.draining else ""
            lines.append(f"  {name}: {now} tasks, {target} intended{drains}")
        lines += [f"  {line}" for line in not_empty(self.kept)]
        lines.append(f"  {self.moved} moved, {self.waiting} waiting, {self.overruled} overruled")
        if self.verdict:
            lines.append(f"  {self.verdict}")
        if self.weights:
            lines.append("  weights: " + ", ".join(f"{t} {w:.1f}" for t, w in sorted(self.weights.items())))
        if self.load:
            lines.append(f"  load: {self.load}")
        if self.errors:
            lines.append(f"  {self.errors} errors inside steering; see the log")
        lines += [f"  - {change}" for change in self.changes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """Return the status as plain values, ready for JSON."""
        executors = {name: {"tasks": now, "intended": then} for name, (now, then) in self.executors.items()}
        return {**json.decode(json.encode(self)), "executors": executors}
