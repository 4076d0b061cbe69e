"""Why each task is where it is: in sentences, from the problem and the plan alone."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from taskplace.errors import InputError
from taskplace.model.columns import NO_COPY, ROLE_NAMES, Columns
from taskplace.model.placement import FIXED, FORCED, RESUME, bases
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Problem
from taskplace.model.shares import floors_and_ceilings
from topology.ids import TaskId


def explain(problem: Problem, plan: Plan, task: TaskId | str) -> str:
    """Return why a task is where it is: its copies, where it goes, what was decided, and what was refused.

    Errors: `InputError` for a task that is not in the problem.

    >>> from taskplace.model.problem import Instance, Task
    >>> a, b = TaskId(0, 0), TaskId(0, 1)
    >>> ran = Instance("a", active=[a, b], lags={a: 0, b: 0})
    >>> problem = Problem([Task(a, end_offset=50_000), Task(b, end_offset=50_000)], [ran, Instance("b")])
    >>> from taskplace.planner import plan
    >>> print(explain(problem, plan(problem), "0_1"))
    0_1: stateful, changelog of 50000 records
      now     active on a, warmup on b
      target  active on b
      copy    a: caught up, active
      copy    b: none
      why     b is where it belongs, since both balances want 1 of 2 tasks there; but b is not caught up and a is,
              so a keeps the active while b warms up (50000 records to go)
    """
    c = problem.columns
    t = _position(c, task)
    lines = [f"{c.ids[t]}: {_nature(c, t)}"]
    now, goal = _where(plan.assignment, c.ids[t]), _where(plan.target, c.ids[t])
    lines.append(f"  now     {_roles_text(now)}")
    if goal:
        lines.append(f"  target  {_roles_text(goal)}")
    held = {int(c.inst[k]): k for k in range(int(c.start[t]), int(c.start[t + 1]))}
    mentioned = [c.names.index(n) for n in {**now, **goal} if n in c.names]
    if c.stateful[t]:
        for i in sorted({*held, *mentioned}):
            lines.append(f"  copy    {c.names[i]}: {_copy_text(c, held.get(i))}")
    lines.extend(_wrapped("  why     ", _why(c, problem, plan, t, now, goal)))
    return "\n".join(lines)


def explain_plan(problem: Problem, plan: Plan) -> str:
    """Return what a plan changes and how good it is: moves with their causes, optimality, and warnings.

    >>> from taskplace.model.problem import Instance, Task
    >>> from taskplace.planner import plan
    >>> problem = Problem([Task(TaskId(0, 0))], [Instance("a")])
    >>> print(explain_plan(problem, plan(problem)))
    1 task on 1 instance: 0 moves to go, 0 are the fewest possible; 0 forced promotions; stable after this step
      0_0: active - -> a (start)
    """
    o = plan.optimality
    c = problem.columns
    counts = f"{_count(c.n, 'task')} on {_count(c.m, 'instance')}"
    exact = o.moves == o.lower_bound
    best = f"{o.lower_bound} are {'the fewest possible' if exact else 'needed at least'}"
    state = "plan again once copies have caught up" if plan.followup else "stable after this step"
    lines = [f"{counts}: {o.moves} moves to go, {best}; {o.forced_promotions} forced promotions; {state}"]
    lines.extend(f"  {move}" for move in plan.moves)
    lines.extend(f"  warning: {warning}" for warning in plan.warnings)
    return "\n".join(lines)


@dataclass(frozen=True)
class Removal:
    """Whether an instance can be removed now without a stall. `blocking`: tasks that must catch up elsewhere."""

    instance: str
    can_remove: bool
    blocking: tuple[TaskId, ...]
    text: str


def can_remove(problem: Problem, instance: str) -> Removal:
    """Return whether an instance can be removed now: every task it has must be caught up somewhere else.

    It looks at each task, not at counts. Tasks that nobody has caught up are no reason to wait for this instance,
    unless it has the only copy.

    >>> from taskplace.model.problem import Instance, Task
    >>> t = TaskId(0, 0)
    >>> a, b = Instance("a", active=[t], lags={t: 0}), Instance("b", standby=[t], lags={t: 20_000})
    >>> can_remove(Problem([Task(t, end_offset=50_000)], [a, b]), "a").text
    'no: 1 task must catch up elsewhere first: 0_0 (b is 20000 records behind)'
    """
    c = problem.columns
    if instance not in c.names:
        raise InputError(
            "instance", found=instance, expected="an instance of the problem", hint=str(c.names[:10])
        )
    at = c.names.index(instance)
    if c.m == 1:
        return Removal(instance, False, c.ids, "no: it is the only instance")
    blocking, parts = [], []
    for t in range(c.n):
        rows = range(int(c.start[t]), int(c.start[t + 1]))
        mine = [k for k in rows if int(c.inst[k]) == at and (c.caught[k] or c.lag[k] != NO_COPY)]
        if not mine or not c.stateful[t] or c.universal[t]:
            continue
        others = [k for k in rows if int(c.inst[k]) != at and c.lag[k] != NO_COPY]
        if any(c.caught[k] for k in others) or (others and not c.caught[mine[0]]):
            continue
        blocking.append(c.ids[t])
        best = min(others, key=lambda k: int(c.lag[k]), default=None)
        text = (
            "no other copy"
            if best is None
            else f"{c.names[int(c.inst[best])]} is {c.lag[best]} records behind"
        )
        parts.append(f"{c.ids[t]} ({text})")
    if not blocking:
        return Removal(instance, True, (), "yes: every task it has is caught up elsewhere, or needs no copy")
    more = f" and {len(parts) - 5} more" if len(parts) > 5 else ""
    text = f"no: {_count(len(blocking), 'task')} must catch up elsewhere first: {', '.join(parts[:5])}{more}"
    return Removal(instance, False, tuple(blocking), text)


def _why(c: Columns, problem: Problem, plan: Plan, t: int, now: dict[str, str], goal: dict[str, str]) -> str:
    active = next((n for n, role in now.items() if role == "active"), "")
    wanted = next((n for n, role in goal.items() if role == "active"), active)
    if not active:
        return "the plan does not place it"
    if not c.stateful[t]:
        return "it has no state, so it goes to the least loaded instance, and stays while its share allows"
    base = int(bases(c)[t])
    owner = c.names[int(c.owner[t])] if c.owner[t] >= 0 else ""
    wanted_at = c.names.index(wanted)
    if active != wanted:
        behind = _behind(c, t, wanted_at)
        at = c.names.index(active)
        ready = any(int(c.inst[k]) == at and c.caught[k] for k in range(int(c.start[t]), int(c.start[t + 1])))
        rest = f"but {wanted} is not caught up and {active} is, so {active} "
        if not ready:
            rest = f"but nobody is caught up and {active} lacks least, so {active} "
        rest += "keeps the active" if active == owner else "is promoted"
        under = now.get(wanted, "")
        state = {"warmup": "warms up", "standby": "catches up as a standby"}.get(under, "waits for a warm-up")
        return f"{_share(c, t, wanted_at)}; {rest} while {wanted} {state} ({behind} records to go)"
    if base == FORCED:
        reason = f"{owner} lags" if owner else "its owner is gone"
        return f"{reason}, and the copy on {active} is caught up: a forced promotion, nothing is restored"
    if base == RESUME:
        return f"nobody is caught up, and the copy on {active} lacks least"
    if base == FIXED and owner == active:
        return f"{active} has it, and both balances allow it to stay; any other place would be a move"
    if base == FIXED:
        reason = (
            f"{owner} is draining" if c.room[int(c.owner[t])] == 0 else f"{owner} has more than its share"
        )
        return f"{reason}, and {active} can take over now; {_share(c, t, wanted_at)}"
    return f"it ran nowhere; {_share(c, t, wanted_at)}"


def _share(c: Columns, t: int, at: int) -> str:
    total = int(c.stateful.sum())
    low, high = floors_and_ceilings(total, c.room)
    span = f"{low[at]}" if low[at] == high[at] else f"{low[at]} to {high[at]}"
    return f"{c.names[at]} is where it belongs, since both balances want {span} of {total} tasks there"


def _behind(c: Columns, t: int, at: int) -> str:
    for k in range(int(c.start[t]), int(c.start[t + 1])):
        if int(c.inst[k]) == at and c.lag[k] != NO_COPY:
            return str(int(c.lag[k]))
    return str(int(c.end[t])) if c.end[t] >= 0 else "an unknown number of"


def _nature(c: Columns, t: int) -> str:
    if not c.stateful[t]:
        return "stateless"
    if c.universal[t]:
        return "stateful, with an empty changelog or none: every instance counts as caught up"
    return f"stateful, changelog of {int(c.end[t]) if c.end[t] >= 0 else 'unknown'} records"


def _copy_text(c: Columns, row: int | None) -> str:
    if row is None:
        return "none"
    role = ROLE_NAMES[int(c.role[row])] if c.role[row] else "left over"
    if c.lag[row] == NO_COPY:
        return f"none yet, {role}"
    return f"{'caught up' if c.caught[row] else f'{int(c.lag[row])} records behind'}, {role}"


def _where(roles: object, task: TaskId) -> dict[str, str]:
    out: dict[str, str] = {}
    if isinstance(roles, dict):
        for name, r in roles.items():
            for role in Roles._fields:
                if task in getattr(r, role):
                    out[name] = role
    return out


def _roles_text(roles: dict[str, str]) -> str:
    order = {role: k for k, role in enumerate(Roles._fields)}
    parts = sorted(roles.items(), key=lambda item: (order[item[1]], item[0]))
    return ", ".join(f"{role} on {name}" for name, role in parts) or "nowhere"


def _position(c: Columns, task: TaskId | str) -> int:
    try:
        wanted = TaskId.parse(task) if isinstance(task, str) else task
        return c.ids.index(wanted)
    except ValueError:
        known = ", ".join(str(i) for i in c.ids[:5])
        raise InputError(
            "task", found=str(task), expected=f"one of {c.n} tasks", hint=f"such as {known}"
        ) from None


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _wrapped(lead: str, text: str, width: int = 110) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=" " * len(lead))
