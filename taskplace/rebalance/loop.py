"""The rebalance loop: decides whether to plan, plans, and puts the plan in force under a new generation.

The rules of `taskplace.rebalance.triggers` suggest plans, and the loop plans. The caller calls it between two
batches. The loop has no thread, and reads the time from a given clock.

Properties:
- A plan is verified before it is in force (`taskplace.plan` does that). If it is invalid, the assignment in force
  stays, the reason is logged, and the next probing rebalance tries again. The first plan must be valid.
- The generation changes exactly when the assignment changes.
- If a plan for an event did not change the assignment, the same event is ignored until the assignment changes. So a
  warm-up that has caught up and stays a warm-up does not cause a plan at every call. The probing timer still plans.
- A warm-up or standby without progress for `patience` probing rebalances is parked, and its task is planned elsewhere.
  The plan's warnings name the copy until its instance is gone or `release` is called.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from taskplace.errors import InvalidPlan
from taskplace.lag import LagIndex
from taskplace.logs import RepeatedWarnings
from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Plan, Roles, with_roles
from taskplace.model.problem import Instance, Problem, Task
from taskplace.rebalance.triggers import EVENTS, RULES, Situation, Trigger
from taskplace.refine.parking import ProgressWatch, with_parked
from topology.tasks import TaskId

log = logging.getLogger(__name__)

Planner = Callable[[Problem], Plan]


@dataclass(frozen=True)
class Decision:
    """A plan with its triggers, its generation, and whether it changed the assignment."""

    plan: Plan
    generation: int
    triggers: tuple[Trigger, ...]
    changed: bool

    @property
    def reason(self) -> str:
        """The triggers in one line."""
        return "; ".join(map(str, self.triggers))


class RebalanceLoop:
    """Holds the assignment in force, and decides when to change it.

    - `generation`: the generation to continue from
    - `planner`: the function that plans, by default `taskplace.plan`
    - `patience`: the probing rebalances without progress after which a copy is parked. They are ten minutes apart by
      default

    Lifetime: `plan`, `problem` and `generation` change only in `rebalance_if_needed`. `plan` was made for `problem`;
    both are None before the first plan. `failed` counts invalid plans. A changed assignment empties `_ignored`.

    >>> from topology.tasks import TaskId
    >>> loop = RebalanceLoop(PlacementConfig())
    >>> decision = loop.rebalance_if_needed([Task(TaskId(0, 0))], [Instance("a")])
    >>> decision.generation, decision.reason
    (1, 'start: 1 task on 1 instance')
    >>> loop.rebalance_if_needed([Task(TaskId(0, 0))], [Instance("a", lags={TaskId(0, 0): 0})]) is None
    True
    """

    def __init__(
        self,
        config: PlacementConfig,
        *,
        generation: int = 0,
        planner: Planner | None = None,
        patience: int = 10,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.generation = generation
        self.plan: Plan | None = None
        self.problem: Problem | None = None
        self.failed = 0
        self.probing = ProbingSchedule(config.probing_rebalance_interval_ms, clock)
        self._planner = planner or _default_planner
        self._watch = ProgressWatch(patience)
        self._planned_for: tuple[Instance, ...] = ()
        self._tasks: frozenset[TaskId] = frozenset()
        self._ignored: frozenset[Trigger] = frozenset()
        self._released: tuple[Trigger, ...] = ()
        self._repeated = RepeatedWarnings()

    def rebalance_if_needed(
        self,
        tasks: Sequence[Task],
        instances: Iterable[Instance],
        *,
        because: Sequence[Trigger] = (),
        lags: LagIndex | None = None,
    ) -> Decision | None:
        """Plan if there is a reason; return the decision, or None.

        `instances` have capacity, tags, draining and lags; their roles are filled in from the plan in force.
        `because` has reasons from the caller, such as an executor lost within a batch; with one, the loop always plans.
        `lags`: an index of the same lags that the caller keeps up to date, for the rules; None: the loop makes one.
        """
        because, self._released = (*because, *self._released), ()
        present = self.with_roles(instances)
        situation = Situation(
            config=self.config,
            plan=self.plan,
            planned_instances=self._planned_for,
            planned_tasks=self._tasks,
            instances=present,
            tasks=tuple(tasks),
            probing_due=self.probing.due(),
            lags=lags,
        )
        suggested = tuple(trigger for rule in RULES for trigger in rule(situation))
        fresh = tuple(trigger for trigger in suggested if trigger not in self._ignored)
        if not fresh and not because:
            return None
        problem = situation.problem
        if any(trigger.kind == "probing" for trigger in fresh):
            problem = self._watch.observe(
                problem
            )  # only on the timer: copies progress little between batches
        else:
            problem = with_parked(problem, self._watch.by_instance())
        try:
            plan = self._planner(problem)
        except InvalidPlan as error:
            if self.plan is None:
                raise
            self.failed += 1
            said = "the plan for %s is invalid, so the assignment in force stays: %s"
            self._repeated.warn(log, said, suggested, error, level=logging.ERROR)
            self.probing.planned(followup=True)
            return None
        self._repeated.settle(log, "the plan is valid again")
        changed = self.plan is None or _roles(plan) != _roles(self.plan)
        self.generation += changed
        self.plan, self.problem = plan, problem
        self._planned_for = present
        self._tasks = frozenset(task.id for task in tasks)
        self._ignored = frozenset() if changed else self._ignored | {t for t in fresh if t.kind in EVENTS}
        self.probing.planned(followup=plan.followup)
        return Decision(plan, self.generation, (*because, *fresh), changed)

    @property
    def parked(self) -> frozenset[tuple[str, TaskId]]:
        """The copies that are parked, as (instance, task)."""
        return frozenset(self._watch.parked)

    def release(self, instance: str | None = None) -> tuple[tuple[str, TaskId], ...]:
        """Unpark copies, those of one instance or all, and return them as (instance, task).

        Call it when the cause is gone, such as a full disk. If a copy was unparked, the loop plans next time.

        >>> RebalanceLoop(PlacementConfig()).release("a")  # nothing is parked
        ()
        """
        released = tuple(
            sorted(copy for copy in self._watch.parked if instance is None or copy[0] == instance)
        )
        self._watch.release(instance)
        if released:
            names = ", ".join(f"{task} on {name}" for name, task in released)
            self._released = (*self._released, Trigger("released", names))
        return released

    def preview(self, tasks: Sequence[Task], instances: Iterable[Instance]) -> Plan:
        """Return the plan for a situation without putting it in force. Errors: `InvalidPlan`.

        >>> RebalanceLoop(PlacementConfig()).preview([Task(TaskId(0, 0))], [Instance("a")]).active(TaskId(0, 0))
        'a'
        """
        problem = Problem(tuple(tasks), self.with_roles(instances), self.config)
        return self._planner(with_parked(problem, self._watch.by_instance()))

    def with_roles(self, instances: Iterable[Instance]) -> tuple[Instance, ...]:
        """Return the instances with their roles in the plan in force, sorted by id."""
        return with_roles(instances, self.plan.assignment if self.plan else {})


def _roles(plan: Plan) -> dict[str, Roles]:
    return {name: roles for name, roles in plan.assignment.items() if any(roles)}


def _default_planner(problem: Problem) -> Plan:
    from taskplace.planner import plan  # imported on first use, because it loads the solver

    return plan(problem)


class ProbingSchedule:
    """A timer that runs while the plan in force needs a follow-up.

    `next_at`: when it is due, in seconds of `clock`; None if no follow-up is pending.

    >>> now = [0.0]
    >>> schedule = ProbingSchedule(600_000, clock=lambda: now[0])
    >>> schedule.due(), schedule.planned(followup=True)
    (False, None)
    >>> now[0] = 600.0
    >>> schedule.due()
    True
    """

    def __init__(self, interval_ms: int, clock: Callable[[], float]) -> None:
        self.interval = interval_ms / 1000
        self.next_at: float | None = None
        self._clock = clock

    def planned(self, *, followup: bool) -> None:
        """Record a new plan: restart the timer if the plan needs a follow-up, else stop it."""
        self.next_at = self._clock() + self.interval if followup else None

    def due(self) -> bool:
        """Return whether the interval is over."""
        return self.next_at is not None and self._clock() >= self.next_at
