"""Explains a task: where it is, its copies, its target, the decision, the refused instances, and what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from taskplace.errors import InputError
from taskplace.explanation.explained import Change, Outlook, Role, TaskExplanation
from taskplace.explanation.fates import fate
from taskplace.explanation.present import paragraph, place
from taskplace.explanation.reasons import OneTask, Reasons
from taskplace.lag.ranking import Copy, Seen
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import NO_COPY, ROLE_NAMES, Columns
from taskplace.validation import of_type
from taskplace.wording import count, one_of
from topology.tasks import TaskId

if TYPE_CHECKING:
    from taskplace.explanation.changes import Changes
    from taskplace.explanation.outlook import Timetable


def explain(problem: Problem, plan: Plan, task: TaskId | str) -> str:
    """Return why a task is where it is, why it does not move, what would have to change, and when it will.

    The first lines are one paragraph. Below it are the facts: the task's copies, its target, what would have to change,
    and the refused instances. What would have to change is confirmed by plans: up to
    `taskplace.explanation.changes.MOST_PLANS` of them. For many tasks of one plan, one `Explainer` is faster. Errors:
    `InputError` for a task that is not in the problem.

    >>> from taskplace.model.problem import Instance, Task
    >>> a, b = TaskId(0, 0), TaskId(0, 1)
    >>> ran = Instance("a", active=[a, b], lags={a: 0, b: 0})
    >>> problem = Problem([Task(a, end_offset=50_000), Task(b, end_offset=50_000)], [ran, Instance("b")])
    >>> from taskplace.planner import plan
    >>> print(explain(problem, plan(problem), "0_1"))
    0_1 is active on a, and b begins a warm-up. It is to move to b so that each instance has 1 of the 2 tasks (a
    has 2 now), but b still lacks 50,000 records. It moves once b lacks at most 10,000 records; the time is not
    known: no restore rate of b has been measured.
      task    stateful, changelog of 50,000 records
      now     active on a
      next    active on a, warm-up on b
      target  active on b
      if      a is lost: b takes it over after it has read 50,000 records
      if      num.standby.replicas=1: b becomes its standby at once
      copy    a: caught up, active
      copy    b: none
      refused b: it lacks 50,000 records, and a is caught up
    """
    return str(Explainer(problem, plan).in_full(task))


_NOWHERE: dict[str, str] = {}


@dataclass
class Explainer:
    """Explains the tasks of one plan. Values that tasks share are computed once.

    - `seen`: of the copies that catch up, what the driver of a stream has seen, by instance and task
    - `rates`: by instance, the records per second that its copies get now; None: not known. Without an entry, the
      problem's `restore_rate` counts
    - `plan_name`: what the text calls the plan; `waits_for`: what it waits for before it is in force, as a clause

    Cost: O(tasks + copies) once, and O(copies of the task) for each `task`. Errors: `InputError` if the plan names an
    instance that the problem does not have.
    """

    problem: Problem
    plan: Plan
    seen: Mapping[Copy, Seen] = field(default_factory=dict)
    rates: Mapping[str, float | None] = field(default_factory=dict)
    plan_name: str = "this plan"
    waits_for: str = ""
    _c: Columns = field(init=False)

    def __post_init__(self) -> None:
        of_type(self.plan, Plan, "plan")
        self._c = of_type(self.problem, Problem, "problem").columns
        for name in sorted({*self.plan.assignment, *self.plan.target} - set(self._c.names))[:1]:
            raise InputError("plan", found=name, expected="only instances of the problem")

    def task(self, task: TaskId | str) -> TaskExplanation:
        """Return where a task is and why. Errors: `InputError` if it is not in the problem."""
        return self._explained(self._find(task))

    def in_full(self, task: TaskId | str) -> TaskExplanation:
        """Return the same, and what would have to change for it to be elsewhere, and when it is where it belongs.

        This plans some changed problems. For a plan that was not made by the engine for this problem, the last two are
        None. Errors: as for `task`.
        """
        t = self._find(task)
        if self.plan.fingerprint != self.problem.fingerprint:
            return self._explained(t)
        return self._explained(t, full=True)

    def on_their_way(self) -> set[TaskId]:
        """Return the tasks whose roles are not those of the target, or change, or have a copy that is stuck.

        That no driver runs is the same for all, so a copy that waits for a driver is not stuck.
        """
        now, goal = (
            {
                (task, name, role)
                for name, roles in each.items()
                for role, tasks in roles._asdict().items()
                for task in tasks
            }
            for each in (self.plan.assignment, self.plan.target)
        )
        stuck = {task for (_, task), seen in self.seen.items() if seen.stalled and not seen.no_driver}
        return {task for task, _, _ in now ^ goal} | {move.task for move in self.plan.moves} | stuck

    def _explained(self, t: int, *, full: bool = False) -> TaskExplanation:
        c = self._c
        id_ = c.ids[t]
        one = OneTask(
            t=t,
            now=self._now.get(id_, _NOWHERE),
            goal=self._goal.get(id_, _NOWHERE),
            rows={int(c.inst[k]): k for k in range(int(c.start[t]), int(c.start[t + 1]))},
        )
        named = (self._at[n] for n in (*one.now, *one.goal) if n in self._at)
        there = sorted({*one.rows, *named}) if c.stateful[t] else []
        roles = tuple(Role(role, n, self._reasons.role(one, role, n)) for role, n in _ordered(one.now))
        changes = self._changes.of(id_) if full else None
        owner = c.names[int(c.owner[t])] if c.owner[t] >= 0 else ""
        outlook = None if changes is None else self._outlook_of(id_, changes, owner)
        held = self._held.get(id_, _NOWHERE)
        where = place(id_, roles, owner, held)
        reasons = self._reasons
        followers, parked = reasons.followers(one, held), reasons.parked(one, self.seen)
        if one.active:
            text, also = paragraph(where, reasons.place(one), followers, parked, outlook, self._at.keys())
        else:
            text, also = where, []
        return TaskExplanation(
            task=id_,
            text=text,
            nature=_nature(c, t),
            roles=roles,
            target=tuple(_ordered(one.goal)),
            copies=tuple((c.names[i], _copy_text(c, one.rows.get(i))) for i in there),
            refused=tuple(self._reasons.refusals(one, there)),
            changes=changes,
            outlook=outlook,
            held=tuple(_ordered(held)),
            waits_for=self.waits_for,
            also=tuple(also),
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
    def _held(self) -> dict[TaskId, dict[str, str]]:
        return _places({one.id: Roles(one.active, one.standby, one.warmup) for one in self.problem.instances})

    @cached_property
    def _goal(self) -> dict[TaskId, dict[str, str]]:
        return self._now if self.plan.target is self.plan.assignment else _places(self.plan.target)

    @cached_property
    def _reasons(self) -> Reasons:
        return Reasons(self.problem, self.plan)

    @cached_property
    def _timetable(self) -> Timetable:
        from taskplace.explanation.outlook import Timetable  # loads the solver

        return Timetable(self.problem, self.seen, self.rates)

    @cached_property
    def _changes(self) -> Changes:
        from taskplace.explanation.changes import Changes  # loads the solver

        return Changes(self.problem, self.plan, self._timetable)

    def _outlook_of(self, task: TaskId, changes: tuple[Change, ...], owner: str) -> Outlook:
        from taskplace.explanation.outlook import outlook  # loads the solver

        moved_by = ""
        if fate(self.plan, task).active != owner:
            verb = "moves" if owner or task in self._held else "starts"
            moved_by = f"{self.plan_name} {verb} it"
        return outlook(
            task,
            fate(self.plan, task),
            changes,
            self._timetable,
            moved_by=moved_by,
            waits_for=self.waits_for,
        )

    def _find(self, task: TaskId | str) -> int:
        try:
            return self._position[TaskId.parse(task) if isinstance(task, str) else task]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                "task",
                found=str(task) if isinstance(task, str | TaskId) else task,
                expected=one_of(self._c.ids, "task"),
            ) from None


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


def _nature(c: Columns, t: int) -> str:
    if not c.stateful[t]:
        return "stateless"
    if c.universal[t]:
        return "stateful, with an empty changelog or none: every instance counts as caught up"
    length = count(int(c.end[t]), "record") if c.end[t] >= 0 else "unknown records"
    text = f"stateful, changelog of {length}"
    return f"{text}; any lag is acceptable: every instance counts as caught up" if c.at_once[t] else text


def _copy_text(c: Columns, row: int | None) -> str:
    if row is None:
        return "none"
    role = ROLE_NAMES[int(c.role[row])] if c.role[row] else "without a role"
    role = "warm-up" if role == "warmup" else role
    if c.lag[row] == NO_COPY:
        return f"none yet, {role}"
    lag = f"{count(int(c.lag[row]), 'record')} behind"
    return f"{'caught up' if c.caught[row] else lag}, {role}"
