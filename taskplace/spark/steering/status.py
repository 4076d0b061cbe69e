"""What steering has to say for itself: as text for people, as a dict for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class SteeringStatus:
    """How one query is steered, as of its last batch.

    `state`: "waiting for the first batch", "steering", "stood down", "stopped", "ended", or "nothing to steer".
    `operators`: a line for each subtopology. `executors`: for each, tasks it runs and tasks it is to run.
    `moved`: moves made so far, or on their way; `waiting`: moves still to come; `overruled`: tasks that Spark ran
    elsewhere than intended. `kept`: for each executor that drains and is not empty, the queries that keep it, and why.
    `weights`: tasks that differ from the usual. `changes`: the last of `said`, each with its reason.
    `seconds`: how long the last look took, from the end of the batch to the last report.

    >>> print(SteeringStatus("clicks", "steering", batch=7, executors={"executor-0": (2, 2)}))
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
    said: int = 0

    def __str__(self) -> str:
        after = f", after batch {self.batch}" if self.batch >= 0 else ""
        lines = [f"query {self.query}: {self.state}{after}"]
        if self.reason:
            lines.append(f"  {self.reason}")
        lines += [f"  {line}" for line in self.operators]
        for name, (now, goal) in sorted(self.executors.items()):
            drains = ", draining" if name in self.draining else ""
            lines.append(f"  {name}: {now} tasks, {goal} intended{drains}")
        lines += [f"  {name} is kept by {why}" for name, all_ in self.kept.items() for why in all_]
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
        executors = {name: {"tasks": now, "intended": goal} for name, (now, goal) in self.executors.items()}
        return {
            **asdict(self),
            "operators": list(self.operators),
            "draining": list(self.draining),
            "kept": {name: list(why) for name, why in self.kept.items()},
            "changes": list(self.changes),
            "weights": dict(self.weights),
            "executors": executors,
        }
