"""The status of a steered query: as text for people, as a dict for machines."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from taskplace.spark.steering.status import not_empty


class SteeringPhase(StrEnum):
    """The phase of a handle."""

    WAITING = "waiting for the first batch"
    STEERING = "steering"
    STOOD_DOWN = "stood down"
    NOTHING_TO_STEER = "nothing to steer"
    STOPPED = "stopped"
    ENDED = "ended"

    @property
    def over(self) -> bool:
        """Whether the handle has ended for good."""
        return self in (SteeringPhase.STOPPED, SteeringPhase.ENDED)


@dataclass(frozen=True)
class SteeringStatus:
    """How one query is steered, as of its last round.

    `state`: the text of a `SteeringPhase`. `operators`: a line for each subtopology. `executors`: for each
    executor, the number of tasks that it runs and that it should run. `kept`: for each draining executor that is
    not empty, the queries that keep tasks there, and why. `moved`: tasks moved so far, or on their way; `waiting`:
    moves still to come; `overruled`: tasks that Spark ran elsewhere than intended. `weights`: of tasks that do not
    weigh 1. `changes`: the last events; `event_count`: the number of all events. `seconds`: the duration of the last
    round, from the end of the batch to the last place sent. `said`: `event_count`, deprecated.

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
        for name, (now, goal) in sorted(self.executors.items()):
            drains = ", draining" if name in self.draining else ""
            lines.append(f"  {name}: {now} tasks, {goal} intended{drains}")
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

    @property
    def said(self) -> int:
        """Return `event_count`. Deprecated: this is its name of version 0.1.0, and is removed in version 0.3.0."""
        warnings.warn("said is deprecated: read event_count", DeprecationWarning, stacklevel=2)
        return self.event_count

    def to_dict(self) -> dict[str, object]:
        """Return the status as plain values, ready for JSON."""
        executors = {name: {"tasks": now, "intended": goal} for name, (now, goal) in self.executors.items()}
        return {
            **asdict(self),
            "state": str(self.state),
            "operators": list(self.operators),
            "draining": list(self.draining),
            "kept": {name: list(why) for name, why in self.kept.items()},
            "changes": list(self.changes),
            "weights": dict(self.weights),
            "executors": executors,
            "said": self.event_count,  # until version 0.3.0
        }
