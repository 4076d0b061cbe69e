"""Reasons to plan again. Each rule compares what was planned for with what is there now, and suggests.

| rule | says |
|---|---|
| `start` | nothing is in force yet |
| `membership` | instances came, went, or changed their capacity or tags |
| `drain` | an instance began or ended draining |
| `tasks` | tasks appeared or disappeared |
| `caught up` | a warm-up has caught up, so that a move can be finished (event) |
| `overtaken` | a task is active on a lagging copy, and another copy has caught up (event) |
| `probing` | the step is not the target, or an owner lags, and the probing interval is over (timer) |

Balance depends on members and tasks alone (KIP-441), so while none of these holds, no plan can be better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from taskplace.model.columns import acceptable_lag
from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Instance, Task
from topology.ids import TaskId


class Trigger(NamedTuple):
    """A reason to plan, for people and for tests.

    >>> str(Trigger("membership", "executor-3 joined"))
    'membership: executor-3 joined'
    """

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True)
class Situation:
    """What the rules look at: the plan in force and what it was made for, and what is there now."""

    config: PlacementConfig
    plan: Plan | None
    planned_instances: tuple[Instance, ...]
    planned_tasks: frozenset[TaskId]
    instances: tuple[Instance, ...]
    tasks: tuple[Task, ...]
    probing_due: bool


Rule = Callable[[Situation], Iterator[Trigger]]


def start(now: Situation) -> Iterator[Trigger]:
    """Suggest the first plan."""
    if now.plan is None:
        yield Trigger("start", f"{len(now.tasks)} tasks on {len(now.instances)} instances")


def membership(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan when the instances are not those planned for; identities count, not numbers."""
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
    """Suggest a plan when draining was asked for or taken back."""
    before = {i.id for i in now.planned_instances if i.draining}
    for instance in now.instances:
        if now.plan is not None and instance.draining != (instance.id in before):
            yield Trigger("drain", f"{instance.id} {'drains' if instance.draining else 'no longer drains'}")


def tasks(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan when the tasks are not those planned for."""
    found = frozenset(task.id for task in now.tasks)
    if now.plan is not None and found != now.planned_tasks:
        added, gone = len(found - now.planned_tasks), len(now.planned_tasks - found)
        yield Trigger("tasks", f"{added} appeared, {gone} disappeared")


def caught_up(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan when a warm-up has caught up; one suggestion for all of them."""
    if now.plan is None:
        return
    ready = []
    for instance in now.instances:
        enough = acceptable_lag(instance, now.config)
        for task in now.plan.assignment.get(instance.id, Roles()).warmup:
            if task in instance.lags and instance.lags[task] <= enough:
                ready.append(f"{task} on {instance.id}")
    if ready:
        yield Trigger("caught up", ", ".join(ready))


def overtaken(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan when a standby or warm-up has caught up before the owner of its task; one for all of them."""
    if now.plan is None or now.config.unbounded:  # then every owner counts as caught up
        return
    roles = {i.id: now.plan.assignment.get(i.id, Roles()) for i in now.instances}
    enough = {i.id: acceptable_lag(i, now.config) for i in now.instances}
    needed = {t.id for t in now.tasks if t.stateful and t.logged and t.end_offset != 0}
    behind = {
        t: i.id
        for i in now.instances
        for t in roles[i.id].active
        if t in needed and i.lags.get(t, enough[i.id] + 1) > enough[i.id]
    }
    if not behind:
        return
    passed = [
        f"{t} on {i.id} is ahead of {behind[t]}"
        for i in now.instances
        for t in (*roles[i.id].standby, *roles[i.id].warmup)
        if t in behind and t in i.lags and i.lags[t] <= enough[i.id]
    ]
    if passed:
        yield Trigger("overtaken", ", ".join(passed))


def probing(now: Situation) -> Iterator[Trigger]:
    """Suggest a plan when the interval is over and there is something left to do."""
    if now.probing_due and now.plan is not None and now.plan.followup:
        yield Trigger(
            "probing", f"every {now.config.probing_rebalance_interval_ms} ms while moves are pending"
        )


RULES: Sequence[Rule] = (start, membership, drain, tasks, caught_up, overtaken, probing)
EVENTS = ("caught up", "overtaken")  # kinds that go on being suggested while the situation lasts
