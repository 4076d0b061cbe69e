"""What a plan does with one task, and how two plans differ for it."""

from __future__ import annotations

from typing import NamedTuple

from taskplace.model.plan import Plan
from topology.tasks import TaskId


class Fate(NamedTuple):
    """The roles of one task in a plan.

    - `active`: the instance that runs it after the step; "" if none does
    - `goal`: the instance where it belongs: its active in the target
    - `warmups`, `standbys`: in the step; `goal_standbys`: in the target. Sorted
    """

    active: str
    goal: str
    warmups: tuple[str, ...] = ()
    standbys: tuple[str, ...] = ()
    goal_standbys: tuple[str, ...] = ()


class Effect(NamedTuple):
    """What changes for a task between two plans.

    - `kind`: "runs" (on `instance`, after the step), "stays" (a move is given up), "belongs" (it is to move there),
      "warm-up" or "standby" (a copy begins there)
    - `text`: the same as a clause
    """

    kind: str
    instance: str
    text: str


def fate(plan: Plan, task: TaskId) -> Fate:
    """Return what a plan does with a task. O(tasks).

    >>> from taskplace.model.plan import Roles
    >>> one = TaskId(0, 0)
    >>> fate(Plan({"a": Roles((one,)), "b": Roles((), (one,))}, {"b": Roles((one,))}), one)
    Fate(active='a', goal='b', warmups=(), standbys=('b',), goal_standbys=())
    """
    now = sorted(plan.assignment.items())
    then = now if plan.target is plan.assignment or not plan.target else sorted(plan.target.items())
    active = next((name for name, roles in now if task in roles.active), "")
    return Fate(
        active=active,
        goal=next((name for name, roles in then if task in roles.active), active),
        warmups=tuple(name for name, roles in now if task in roles.warmup),
        standbys=tuple(name for name, roles in now if task in roles.standby),
        goal_standbys=tuple(name for name, roles in then if task in roles.standby),
    )


def effect(before: Fate, after: Fate) -> Effect | None:
    """Return the most important difference of two plans for a task; None if they do the same with it.

    >>> effect(Fate("a", "b", warmups=("b",)), Fate("b", "b"))
    Effect(kind='runs', instance='b', text='it moves to b at once')
    >>> effect(Fate("a", "a"), Fate("a", "a")) is None
    True
    """
    active, goal = after.active, after.goal
    if active and active != before.active:
        text = f"it moves to {active} at once" if active == before.goal else f"{active} takes it over at once"
        if active != goal:
            text += f", and it goes on to {goal}"
        return Effect("runs", active, text)
    if goal != before.goal:
        if goal == active:
            return Effect("stays", goal, f"it stays on {goal}")
        return Effect("belongs", goal, f"it moves to {goal}, which catches up first")
    for name in sorted(set(after.warmups) - set(before.warmups)):
        return Effect("warm-up", name, f"{name} warms up at once")
    for name in sorted(set(after.standbys) - set(before.standbys)):
        return Effect("standby", name, f"{name} becomes its standby at once")
    for name in sorted(set(after.goal_standbys) - set(before.goal_standbys)):
        return Effect(
            "standby", name, f"{name} {'stays' if name in before.standbys else 'becomes'} its standby"
        )
    return None
