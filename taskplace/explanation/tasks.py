"""Explains why a task is where it is: its copies, its target, the decision, and the refused instances."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from taskplace.errors import InputError
from taskplace.explanation.binding import Binding
from taskplace.lag.ranking import lacking
from taskplace.model.placement import FIXED, FORCED, RESUME, bases
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import NO_COPY, ROLE_NAMES, UNKNOWN, Columns
from taskplace.validation import of_type
from topology.ids import TaskId

DOING = {"warmup": "warms up", "standby": "catches up as a standby"}


def explain(problem: Problem, plan: Plan, task: TaskId | str) -> str:
    """Return why a task is where it is: its copies, its target, the decision, and the refused instances.

    For many tasks of one plan, one `Explainer` is faster. Errors: `InputError` for a task that is not in the problem.

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
      why     b is where it belongs, since both balances require 1 of 2 tasks there, and a has more than its
              share: 2 instead of 1 of 2 tasks; but b is not caught up and a is, so a keeps the active while b
              warms up (50000 records to go)
      refused b: it lacks 50000 records, and a is caught up
    """
    return str(Explainer(problem, plan).task(task))


class Role(NamedTuple):
    """A role that the plan gives to an instance, with the reason."""

    role: str
    instance: str
    why: str


class Refusal(NamedTuple):
    """An instance with a copy, or with one in the plan, and the reason why the task is not active there now."""

    instance: str
    why: str


@dataclass(frozen=True)
class TaskExplanation:
    """The explanation of one task. `str()` is the text for people, and `to_dict` the same for programs.

    - `nature`: stateless, or stateful with the length of its changelog
    - `roles`: its roles in this step, the active first
    - `target`: its (role, instance) pairs in the target
    - `copies`: (instance, state of the copy) pairs
    - `refused`: the instances where it is not active, with reasons
    """

    task: TaskId
    nature: str
    roles: tuple[Role, ...]
    target: tuple[tuple[str, str], ...]
    copies: tuple[tuple[str, str], ...]
    refused: tuple[Refusal, ...]

    @property
    def role(self) -> str:
        """The first of `roles`, "active" in a valid plan; "" if the plan does not place the task."""
        return self.roles[0].role if self.roles else ""

    @property
    def instance(self) -> str:
        """The instance of the task's first role in this step."""
        return self.roles[0].instance if self.roles else ""

    @property
    def why(self) -> str:
        """The reason why the task is active there."""
        return self.roles[0].why if self.role == "active" else "the plan does not place it"

    def __str__(self) -> str:
        lines = [
            f"{self.task}: {self.nature}",
            f"  now     {_listed((r.role, r.instance) for r in self.roles)}",
        ]
        if self.target:
            lines.append(f"  target  {_listed(iter(self.target))}")
        lines.extend(f"  copy    {name}: {text}" for name, text in self.copies)
        lines.extend(_wrapped("  why     ", self.why))
        for refusal in self.refused:
            lines.extend(_wrapped("  refused ", f"{refusal.instance}: {refusal.why}"))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return an entry of "taskplace.explanation/1"."""
        return {
            "task": str(self.task),
            "nature": self.nature,
            "role": self.role,
            "instance": self.instance,
            "why": self.why,
            "followers": [r._asdict() for r in self.roles[1:]],
            "target": [{"role": role, "instance": name} for role, name in self.target],
            "copies": [{"instance": name, "state": text} for name, text in self.copies],
            "refused": [r._asdict() for r in self.refused],
        }


_NOWHERE: dict[str, str] = {}


class _OneTask(NamedTuple):
    """One task: its position, its roles by instance (`now` in the step, `goal` in the target), and its copy rows."""

    t: int
    now: Mapping[str, str]
    goal: Mapping[str, str]
    rows: Mapping[int, int]


@dataclass
class Explainer:
    """Explains the tasks of one plan. Values that tasks share are computed once.

    Cost: O(tasks + copies) once, and O(copies of the task) for each task. Errors: `InputError` if the plan names an
    instance that the problem does not have.
    """

    problem: Problem
    plan: Plan
    _c: Columns = field(init=False)

    def __post_init__(self) -> None:
        of_type(self.plan, Plan, "plan")
        self._c = of_type(self.problem, Problem, "problem").columns
        for name in sorted({*self.plan.assignment, *self.plan.target} - set(self._c.names))[:1]:
            raise InputError("plan", found=name, expected="only instances of the problem")

    def task(self, task: TaskId | str) -> TaskExplanation:
        """Return the explanation of one task. Errors: `InputError` if it is not in the problem."""
        c, t = self._c, self._find(task)
        one = _OneTask(
            t=t,
            now=self._now.get(c.ids[t], _NOWHERE),
            goal=self._goal.get(c.ids[t], _NOWHERE),
            rows={int(c.inst[k]): k for k in range(int(c.start[t]), int(c.start[t + 1]))},
        )
        named = (self._at[n] for n in (*one.now, *one.goal) if n in self._at)
        seen = sorted({*one.rows, *named}) if c.stateful[t] else []
        return TaskExplanation(
            task=c.ids[t],
            nature=_nature(c, t),
            roles=tuple(Role(role, name, self._reason(one, role, name)) for role, name in _ordered(one.now)),
            target=tuple(_ordered(one.goal)),
            copies=tuple((c.names[i], _copy_text(c, one.rows.get(i))) for i in seen),
            refused=tuple(self._refusals(one, seen)),
        )

    # -- values that the tasks share

    @cached_property
    def _position(self) -> dict[TaskId, int]:
        return {t: k for k, t in enumerate(self._c.ids)}

    @cached_property
    def _at(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self._c.names)}

    @cached_property
    def _now(self) -> dict[TaskId, dict[str, str]]:
        return _places(self.plan.assignment)

    @cached_property
    def _goal(self) -> dict[TaskId, dict[str, str]]:
        return self._now if self.plan.target is self.plan.assignment else _places(self.plan.target)

    @cached_property
    def _base(self) -> Any:
        return bases(self._c).tolist()

    @cached_property
    def _binding(self) -> Binding:
        return Binding(self.problem, self.plan)

    @cached_property
    def _parked(self) -> frozenset[int]:
        return frozenset(self._c.parked.tolist())

    def _find(self, task: TaskId | str) -> int:
        try:
            return self._position[TaskId.parse(task) if isinstance(task, str) else task]
        except (ValueError, KeyError, TypeError):
            known = ", ".join(str(i) for i in self._c.ids[:5])
            raise InputError(
                "task",
                found=str(task) if isinstance(task, str | TaskId) else task,
                expected=f"one of {self._c.n} tasks",
                hint=f"such as {known}",
            ) from None

    # -- reasons

    def _reason(self, one: _OneTask, role: str, name: str) -> str:
        t, now, goal, rows = one
        if role == "active":
            return self._why(one, name)
        row = rows.get(self._at.get(name, -1))
        before = ROLE_NAMES[int(self._c.role[row])] if row is not None else "none"
        if role == "warmup":
            wanted = goal.get(name, "")
            then = (
                "it will take over the active"
                if wanted == "active"
                else f"it will replace another standby{self._binding.follows(t, self._at[name])}"
            )
            return then if wanted else "it continues to warm up"
        if name not in goal:
            return "it keeps its copy until another copy has caught up"
        if goal[name] == "active":
            return "it will be active once it has caught up"
        others = [self._at[n] for n, r in now.items() if n != name and r in ("active", "standby")]
        shared, differ = self._binding.apart(self._at[name], others)
        tags = f", apart from the other copies ({', '.join(differ)})" if differ else ""
        tags += f", though it shares {', '.join(shared)} with another copy" if shared else ""
        tags += self._binding.follows(t, self._at[name])
        if before == "standby":
            return f"it is a standby already{tags}"
        if row is not None and self._c.caught[row]:
            return f"its copy is caught up{tags}"
        return f"a standby was missing, so it is created at once{tags}"

    def _why(self, one: _OneTask, active: str) -> str:
        c = self._c
        t, now, goal, rows = one
        wanted = next((n for n, role in goal.items() if role == "active"), active)
        if not c.stateful[t]:
            return self._binding.stateless(t, self._at[active], self._at[wanted])
        base = self._base[t]
        owner = c.names[int(c.owner[t])] if c.owner[t] >= 0 else ""
        at = self._at[wanted]
        if active != wanted:
            row = rows.get(self._at[active])
            ready = row is not None and bool(c.caught[row])
            rest = f"but {wanted} is not caught up and {active} is, so {active} "
            if not ready:
                rest = f"but no copy is caught up or far ahead of {active}, so {active} "
            rest += "keeps the active" if active == owner else "is promoted"
            state = DOING.get(now.get(wanted, ""), "waits for a warm-up")
            return (
                f"{self._moves(t, at)}; {rest} while {wanted} {state} ({self._behind(t, rows.get(at))} to go)"
            )
        if base == FORCED:
            reason = f"{owner} lags" if owner else "its owner is gone"
            return f"{reason}, and the copy on {active} is caught up: a forced promotion, nothing is restored"
        if base == RESUME:
            far = f"{owner} lacks far more" if owner else "its owner is gone"
            return f"no copy is caught up, {far}, and the copy on {active} lacks least"
        if base == FIXED and owner == active:
            may = self._binding.may_stay(t, at)
            return f"{active} has it, and {may}; any other place would be a move"
        if base == FIXED:
            return f"{self._binding.leaves(t, at)}, and {active} can take over now; {self._share(t, at)}"
        return f"it was not running; {self._share(t, at)}"

    def _refusals(self, one: _OneTask, seen: list[int]) -> Iterator[Refusal]:
        """Yield the reason why the task is not active, for every other instance that has or gets a copy."""
        c = self._c
        t, now, goal, rows = one
        active = next((n for n, role in now.items() if role == "active"), "")
        wanted = next((n for n, role in goal.items() if role == "active"), active)
        chosen = rows.get(self._at.get(active, -1))
        ready = bool(c.at_once[t]) or (chosen is not None and bool(c.caught[chosen]))
        for i in seen if active else ():
            name, row = c.names[i], rows.get(i)
            if name == active:
                continue
            if t * c.m + i in self._parked:
                why = "it is parked: its copy made no progress"
            elif not c.open_slots[i]:
                why = "it is draining" if c.draining[i] else "it has no capacity"
            elif not c.at_once[t] and not (row is not None and c.caught[row]):
                lacks = self._behind(t, row)
                why = f"it lacks {lacks}, " + (
                    f"and {active} is caught up" if ready else f"and no copy is far ahead of {active}"
                )
            elif self._base[t] == FIXED and active == wanted == c.names[int(c.owner[t])]:
                why = f"it could take over, but {active} may stay, and {self._binding.stays(t, i)}"
            elif name == wanted:
                why = f"it will take over, but {active} is caught up and stays until then"
            else:
                why = f"it could take over, but {self._binding.refused(t, i, self._at[wanted])}"
            yield Refusal(name, why + self._no_standby(i, now))

    def _no_standby(self, i: int, now: Mapping[str, str]) -> str:
        """Return the tags because of which an instance without a role is not a standby, as the end of a sentence."""
        name = self._c.names[i]
        shared, _ = self._binding.apart(i, [self._at[n] for n in now if n != name])
        if name in now or not shared or not self.problem.config.num_standby_replicas:
            return ""
        return f"; as a standby it would share {', '.join(shared)} with another copy"

    def _share(self, t: int, at: int) -> str:
        return f"{self._c.names[at]} is where it belongs, since {self._binding.wanted(t, at)}"

    def _moves(self, t: int, at: int) -> str:
        """Return why the task belongs at instance `at`, and the reason for the move if it is one."""
        owner = int(self._c.owner[t])
        if self._base[t] != FIXED or owner in (-1, at) or self._c.open_slots[owner] == 0:
            return self._share(t, at)
        return f"{self._share(t, at)}, and {self._binding.leaves(t, at)}"

    def _behind(self, t: int, row: int | None) -> str:
        lag = NO_COPY if row is None else int(self._c.lag[row])
        records = int(lacking(lag, int(self._c.end[t])))
        return "an unknown number of records" if records == UNKNOWN else f"{records} records"


def _places(roles: Mapping[str, Roles]) -> dict[TaskId, dict[str, str]]:
    """Return, for every task, its instances and their roles."""
    out: dict[TaskId, dict[str, str]] = {}
    for name, r in roles.items():
        for role, tasks in zip(Roles._fields, r, strict=True):
            for t in tasks:
                out.setdefault(t, {})[name] = role
    return out


def _ordered(places: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (role, instance) pairs, the active first."""
    order = {role: k for k, role in enumerate(Roles._fields)}
    return sorted(((role, name) for name, role in places.items()), key=lambda r: (order[r[0]], r[1]))


def _listed(roles: Iterator[tuple[str, str]]) -> str:
    return ", ".join(f"{role} on {name}" for role, name in roles) or "nowhere"


def _nature(c: Columns, t: int) -> str:
    if not c.stateful[t]:
        return "stateless"
    if c.universal[t]:
        return "stateful, with an empty changelog or none: every instance counts as caught up"
    text = f"stateful, changelog of {int(c.end[t]) if c.end[t] >= 0 else 'unknown'} records"
    return f"{text}; any lag is acceptable: every instance counts as caught up" if c.at_once[t] else text


def _copy_text(c: Columns, row: int | None) -> str:
    if row is None:
        return "none"
    role = ROLE_NAMES[int(c.role[row])] if c.role[row] else "left over"
    if c.lag[row] == NO_COPY:
        return f"none yet, {role}"
    return f"{'caught up' if c.caught[row] else f'{int(c.lag[row])} records behind'}, {role}"


def _wrapped(lead: str, text: str, width: int = 110) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=" " * len(lead))
