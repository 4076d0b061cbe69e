"""What the steering loop goes by, and what it answers: what is there after a batch, and what to do about it.

Several queries are one problem for the engine: this query's tasks are numbered beside those of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from taskplace.model.plan import Move
from taskplace.model.problem import Instance, Task
from taskplace.rebalance.triggers import Trigger
from taskplace.spark.steering.move_benefit import Prices, Verdict
from taskplace.spark.steering.overrides import Facts, StandDown
from topology.ids import TaskId


class Other(NamedTuple):
    """A task of another query, numbered beside this query's own, and where it is.

    `fixed`: its query has stood down, so nobody moves it; it counts where it was then, wherever Spark runs it since.
    """

    task: Task
    place: str | None
    fixed: bool = False


@dataclass(frozen=True)
class Seen:
    """What is there after a batch.

    `places`: the instance on which each task ran last, None for one that ran nowhere. `slots`: of each instance.
    `load`: what was observed of each task in this batch, if it was. `ran`: a batch that began after the last report
    has ended. `others`: the tasks of other steered queries; this query's own subtopologies count from `base`.
    `ending`: instances that Spark is about to give up; they get no tasks any more, and so are none of `slots`.
    """

    batch: int
    slots: Mapping[str, int]
    places: Mapping[TaskId, str | None]
    draining: frozenset[str] = frozenset()
    load: Mapping[TaskId, float] | None = None
    prices: Prices = field(default_factory=Prices)
    facts: Facts = field(default_factory=Facts)
    ran: bool = False
    others: Sequence[Other] = ()
    base: int = 0
    ending: frozenset[str] = frozenset()

    @property
    def beside(self) -> list[Other]:
        """The others that count: all but those that stay where no task may go, which are in nobody's way."""
        usable = self.slots.keys() - self.draining
        return [other for other in self.others if not other.fixed or other.place in usable]


@dataclass(frozen=True)
class Decision:
    """Where all tasks are wanted in the next batch, and how that came about.

    `moves`: what changes now, in tasks of this query; `waiting`: moves of later batches; `overruled`: tasks that ran
    elsewhere than intended. `why`: the reasons for a new goal, empty while an old one is pursued. `kept`: what keeps
    each executor that drains and is not empty.
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
        parts = [f"batch {self.batch}: {_some(len(self.moves), 'move')} now, {self.waiting} later"]
        if self.why:
            parts.append("; ".join(map(str, self.why)))
        if self.verdict.moves and (self.why or not self.verdict.worth):
            parts.append(str(self.verdict))
        if self.overruled:
            parts.append(f"{_some(len(self.overruled), 'task')} ran elsewhere than intended")
        parts += [f"{name} is kept by {why}" for name, keepers in self.kept.items() for why in keepers]
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


def joint(task: TaskId, seen: Seen) -> TaskId:
    """Return the number of a task of this query among those of all queries."""
    return TaskId(task.subtopology + seen.base, task.partition)


def instances(seen: Seen) -> tuple[Instance, ...]:
    """Return the instances with what they have, of all queries, as the engine sees them.

    What is fixed is barred from all instances but its own, as if its copies there made no progress.
    """
    held: dict[str, list[TaskId]] = {name: [] for name in seen.slots}
    others = seen.beside
    for task, name in [
        *((joint(t, seen), name) for t, name in seen.places.items()),
        *((other.task.id, other.place) for other in others),
    ]:
        if name in held:
            held[name].append(task)
    return tuple(
        Instance(
            name,
            capacity=max(1, slots),
            draining=name in seen.draining,
            active=tuple(held[name]),
            lags=dict.fromkeys(held[name], 0),
            parked=tuple(other.task.id for other in others if other.fixed and other.place != name),
        )
        for name, slots in sorted(seen.slots.items())
    )


def reason(task: TaskId, seen: Seen, *, by_load: bool = False) -> str:
    """Return why a task that is not where it belongs moves; `by_load`: counts alone would want it elsewhere."""
    at = seen.places[task]
    if at is None:
        return "it ran nowhere"
    if at in seen.slots:
        return "drain" if at in seen.draining else "load" if by_load else "balance"
    return "decommissioned" if at in seen.ending else f"{at} is gone"


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
