"""Reasons to plan again. Each rule compares the input of the last plan with the current situation.

| rule | reason |
|---|---|
| `start` | no plan is in force yet |
| `membership` | instances joined, left, or changed their capacity or tags |
| `drain` | an instance began or ended draining |
| `tasks` | tasks appeared or disappeared |
| `caught up` | a warm-up has caught up, so that a move can be finished (event) |
| `overtaken` | a task is active on a lagging copy, and another copy has caught up (event) |
| `probing` | the step is not the target, or an owner lags, and the probing interval is over (timer) |

Balance depends on members and tasks only (KIP-441). So without one of these reasons, no plan can be better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from taskplace.model.columns import NO_COPY, STANDBY, WARMUP, Bools, Columns
from taskplace.model.config import PlacementConfig
from taskplace.model.placement import caught_at
from taskplace.model.plan import Plan, with_roles
from taskplace.model.problem import Instance, Problem, Task
from topology.ids import TaskId


class Trigger(NamedTuple):
    """A reason to plan, for logs and tests.

    >>> str(Trigger("membership", "executor-3 joined"))
    'membership: executor-3 joined'
    """

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True)
class Situation:
    """The input of the rules: the plan in force, the input of that plan, and the current instances and tasks."""

    config: PlacementConfig
    plan: Plan | None
    planned_instances: tuple[Instance, ...]
    planned_tasks: frozenset[TaskId]
    instances: tuple[Instance, ...]
    tasks: tuple[Task, ...]
    probing_due: bool

    @cached_property
    def problem(self) -> Problem:
        """What is there now, under the roles of the plan in force: what would be planned, and how its copies rank."""
        in_force = self.plan.assignment if self.plan else {}
        return Problem(self.tasks, with_roles(self.instances, in_force), self.config)


Rule = Callable[[Situation], Iterator[Trigger]]


def start(now: Situation) -> Iterator[Trigger]:
    """Suggest the first plan."""
    if now.plan is None:
        yield Trigger("start", f"{len(now.tasks)} tasks on {len(now.instances)} instances")


def membership(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if the instances differ from those of the last plan; identities count, not numbers."""
    if now.plan is None:
        return
    before = {i.id: i for i in now.planned_instances}
    after = {i.id: i for i in now.instances}
    if lost := sorted(set(before) - set(after)):
        yield Trigger("membership", f"{', '.join(lost)} left")
    if joined := sorted(set(after) - set(before)):
        yield Trigger("membership", f"{', '.join(joined)} joined")
    for name in sorted(set(before) & set(after)):
        if (before[name].capacity, before[name].tags) != (after[name].capacity, after[name].tags):
            yield Trigger("membership", f"{name} changed its capacity or tags")


def drain(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if a drain was requested or taken back."""
    before = {i.id for i in now.planned_instances if i.draining}
    for instance in now.instances:
        if now.plan is not None and instance.draining != (instance.id in before):
            yield Trigger("drain", f"{instance.id} {'drains' if instance.draining else 'no longer drains'}")


def tasks(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if the tasks differ from those of the last plan."""
    found = frozenset(task.id for task in now.tasks)
    if now.plan is not None and found != now.planned_tasks:
        added, gone = len(found - now.planned_tasks), len(now.planned_tasks - found)
        yield Trigger("tasks", f"{added} appeared, {gone} disappeared")


def caught_up(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if a warm-up has caught up; one suggestion for all warm-ups."""
    if now.plan is None or not any(roles.warmup for roles in now.plan.assignment.values()):
        return
    c = now.problem.columns
    if ready := _named(c, c.caught & (c.lag != NO_COPY) & (c.role == WARMUP)):
        yield Trigger("caught up", ", ".join(f"{task} on {name}" for task, name in ready))


def overtaken(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if a standby or warm-up has caught up before the owner of its task; one suggestion for all."""
    if now.plan is None or not any(roles.standby or roles.warmup for roles in now.plan.assignment.values()):
        return
    c = now.problem.columns
    lags = c.stateful & (c.owner >= 0) & ~caught_at(c, c.owner)
    follows = (c.role == STANDBY) | (c.role == WARMUP)
    if passed := _named(c, c.caught & follows & lags[c.task]):
        owner = {c.ids[t]: c.names[int(c.owner[t])] for t in np.flatnonzero(lags).tolist()}
        ahead = (f"{task} on {name} is ahead of {owner[task]}" for task, name in passed)
        yield Trigger("overtaken", ", ".join(ahead))


def probing(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if the probing interval is over and the last plan needs a follow-up."""
    if now.probing_due and now.plan is not None and now.plan.followup:
        yield Trigger(
            "probing", f"every {now.config.probing_rebalance_interval_ms} ms while moves are pending"
        )


def _named(c: Columns, rows: Bools) -> list[tuple[TaskId, str]]:
    """Return (task, instance) of copy rows, by instance and then by task."""
    found = np.flatnonzero(rows)
    found = found[np.argsort(c.inst[found], kind="stable")]
    return [(c.ids[int(c.task[k])], c.names[int(c.inst[k])]) for k in found.tolist()]


RULES: Sequence[Rule] = (start, membership, drain, tasks, caught_up, overtaken, probing)
EVENTS = ("caught up", "overtaken")  # kinds that are suggested again as long as the situation lasts
