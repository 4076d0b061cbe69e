"""The memory of a query from one steering round to the next: observed, learned, decided, logged.

The memory is one immutable value, which a round replaces after its decision. So a failed round leaves no partial
change, and other threads read a consistent state without a lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.decide import SteeringState
from taskplace.spark.steering.layout import QueryLayout
from taskplace.spark.steering.measurements import LoadSampling, MeasuredCosts
from taskplace.spark.steering.rounds import Places, SentMoves
from taskplace.spark.steering.status import LoggedDecisions, SteeringPhase


@dataclass(frozen=True)
class Observed:
    """The observations of the rounds.

    `layout`: the operators and their tasks; `layout_final`: it was read after a batch, so it does not change.
    `batch`: the last batch after which a round decided, or that was given up; -1 before the first. `places`: Spark's
    map of tasks at the last round. `ran`: where the tasks ran in the last batch, None if unknown. `sent`: the moves
    that have not run.
    """

    layout: QueryLayout = field(default_factory=QueryLayout)
    layout_final: bool = False
    batch: int = -1
    places: Places = field(default_factory=dict)
    ran: Places | None = None
    sent: SentMoves = field(default_factory=SentMoves)


@dataclass(frozen=True)
class Learned:
    """The measured costs and load. The weights of tasks are in the `SteeringState`."""

    costs: MeasuredCosts
    sampling: LoadSampling = field(default_factory=LoadSampling)


@dataclass(frozen=True)
class RoundMemory:
    """Everything that one round passes to the next."""

    observed: Observed
    learned: Learned
    state: SteeringState
    logged: LoggedDecisions

    @classmethod
    def empty(cls, config: SteeringConfig) -> RoundMemory:
        """Return the memory before the first round."""
        costs = MeasuredCosts(config.reload_bytes_per_second)
        return cls(Observed(), Learned(costs), SteeringState(), LoggedDecisions())

    @property
    def phase(self) -> SteeringPhase:
        """The phase of steering: waiting, steering, stood down, or without anything to steer."""
        has_tasks = bool(self.observed.layout.tasks)
        if self.observed.layout_final and not has_tasks:
            return SteeringPhase.NOTHING_TO_STEER
        if self.state.stood_down:
            return SteeringPhase.STOOD_DOWN
        return SteeringPhase.STEERING if has_tasks else SteeringPhase.WAITING

    def empty_of(self, instance: str) -> bool:
        """Return whether no task ran on `instance` in the last batch; False if that is unknown."""
        if self.observed.ran is None:
            return self.phase is SteeringPhase.NOTHING_TO_STEER
        return instance not in self.observed.ran.values()
