"""Reasons to plan again. Each rule compares the input of the last plan with the current situation.

| rule | reason |
|---|---|
| `start` | no plan is in force yet |
| `membership` | instances joined, left, or changed their capacity or tags |
| `drain` | an instance began or ended draining |
| `tasks` | tasks appeared or disappeared |
| `caught up` | a copy that becomes the active one has caught up, so that a move can be finished (event) |
| `overtaken` | a task is active on a lagging copy, and another copy has caught up (event) |
| `probing` | the step is not the target, or an owner lags, and the probing interval is over (timer) |

Balance depends on members and tasks only (KIP-441). So without one of these reasons, no plan can be better.

The two events ask a `LagIndex` which copies are caught up. So a look between two batches does not rank every copy: it
costs O(tasks), and O(log copies) for each owner that lags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from taskplace.lag import LagIndex
from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Plan, Roles, with_roles
from taskplace.model.problem import Instance, Problem, Task, indexed_lags
from taskplace.wording import count
from topology.tasks import TaskId


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
    """The input of the rules: the plan in force, the input of that plan, and the current instances and tasks.

    `lags`: an index that the caller keeps up to date; None: the lags of `instances` are indexed when a rule asks.
    """

    config: PlacementConfig
    plan: Plan | None
    planned_instances: tuple[Instance, ...]
    planned_tasks: frozenset[TaskId]
    instances: tuple[Instance, ...]
    tasks: tuple[Task, ...]
    probing_due: bool
    lags: LagIndex | None = None

    @cached_property
    def copies(self) -> LagIndex:
        """The current copies by lag."""
        if self.lags is not None:
            return self.lags
        return indexed_lags(self.tasks, self.instances, self.config)

    @cached_property
    def stateful(self) -> frozenset[TaskId]:
        """The stateful tasks."""
        return frozenset(task.id for task in self.tasks if task.stateful)

    @cached_property
    def problem(self) -> Problem:
        """The problem of the current tasks and instances, with the roles of the plan in force."""
        in_force = self.plan.assignment if self.plan else {}
        return Problem(self.tasks, with_roles(self.instances, in_force), self.config)


Rule = Callable[[Situation], Iterator[Trigger]]


def start(now: Situation) -> Iterator[Trigger]:
    """Suggest the first plan."""
    if now.plan is None:
        counts = f"{count(len(now.tasks), 'task')} on {count(len(now.instances), 'instance')}"
        yield Trigger("start", counts)


def membership(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if the instances differ from those of the last plan, by identity, capacity or tags."""
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
    """Suggest a plan if a drain was requested or cancelled."""
    before = {i.id for i in now.planned_instances if i.draining}
    for instance in now.instances:
        if now.plan is not None and instance.draining != (instance.id in before):
            yield Trigger("drain", f"{instance.id} {'drains' if instance.draining else 'no longer drains'}")


def tasks(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if the tasks differ from those of the last plan."""
    present = frozenset(task.id for task in now.tasks)
    if now.plan is not None and present != now.planned_tasks:
        added, gone = len(present - now.planned_tasks), len(now.planned_tasks - present)
        yield Trigger("tasks", f"{added} appeared, {gone} disappeared")


def caught_up(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if a copy that moves wait for has caught up; one suggestion for all such copies.

    Moves wait for warm-ups, and for standbys where the target has the active copy: those were there already when the
    move was planned, so no warm-up was needed.
    """
    # An instance that needs no copy of a task is caught up without one; only a copy has caught up.
    ready = [
        (name, task)
        for name, roles in _roles(now)
        for task in sorted(now.stateful.intersection(_awaited(now, name, roles)))
        if (name, task) in now.copies and now.copies.is_caught_up(name, task)
    ]
    if ready:
        yield Trigger("caught up", ", ".join(f"{task} on {name}" for name, task in ready))


def _awaited(now: Situation, name: str, roles: Roles) -> frozenset[TaskId]:
    """Return the tasks whose copies on an instance are followers now, and that moves to it wait for."""
    target = now.plan.target.get(name) if now.plan else None
    to_come = frozenset(target.active) if target else frozenset()
    return frozenset(roles.warmup) | to_come.intersection(roles.standby)


def overtaken(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if a standby or warm-up has caught up before the owner of its task; one suggestion for all."""
    there = dict(_roles(now))
    if not any(roles.standby or roles.warmup for roles in there.values()):
        return
    lagging = {
        task: owner
        for owner, roles in there.items()
        for task in now.stateful.intersection(roles.active)
        if not now.copies.is_caught_up(owner, task)
    }
    ahead = sorted(
        (name, task)
        for task in lagging
        for name in now.copies.caught_up(task)
        if name in there and (task in there[name].standby or task in there[name].warmup)
    )
    if ahead:
        named = (f"{task} on {name} is ahead of {lagging[task]}" for name, task in ahead)
        yield Trigger("overtaken", ", ".join(named))


def probing(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan if the probing interval is over and the last plan needs a follow-up."""
    if now.probing_due and now.plan is not None and now.plan.followup:
        yield Trigger(
            "probing", f"every {now.config.probing_rebalance_interval_ms} ms while moves are pending"
        )


def _roles(now: Situation) -> Iterator[tuple[str, Roles]]:
    """Yield the instances that are there, by id, with their roles in the plan in force."""
    in_force = now.plan.assignment if now.plan else {}
    for name in sorted(i.id for i in now.instances):
        if name in in_force:
            yield name, in_force[name]


RULES: Sequence[Rule] = (start, membership, drain, tasks, caught_up, overtaken, probing)
EVENTS = ("caught up", "overtaken")  # these rules suggest again for as long as the situation lasts
