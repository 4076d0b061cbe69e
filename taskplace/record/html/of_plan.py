"""Makes the report of a plan: the placement before and after it, its moves, and why each task is where it is."""

from __future__ import annotations

import time

from taskplace.explanation import Explainer
from taskplace.explanation.tasks import in_force
from taskplace.model.plan import Plan, Roles, texts_of
from taskplace.model.problem import Problem
from taskplace.model.shares import imbalance_of
from taskplace.record.events import Change
from taskplace.record.html.values import (
    ROLES,
    CopyLag,
    Figure,
    InstanceRow,
    Placements,
    Reason,
    Report,
    State,
    move_rows,
)
from taskplace.wording import count

#: The most tasks that are explained; those that move come first.
MOST_REASONS = 5_000
#: The most copies whose lags are listed; the largest lags come first.
MOST_COPIES = 5_000


def report_of_plan(plan: Plan, problem: Problem | None = None, *, title: str = "plan") -> Report:
    """Return the report of a plan.

    Without its problem, the report has neither the placement before the plan, nor lags and reasons. Errors:
    `InputError` if the plan is not one of this problem.

    >>> import taskplace
    >>> plan = taskplace.plan({"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]})
    >>> report_of_plan(plan).figures[0].value
    '1'
    """
    reasons, left_out = ((), []) if problem is None else reasons_of(Explainer(problem, plan))
    placements = _placements(plan, problem)
    copies = () if problem is None else _copies(problem, plan)
    return Report(
        kind="plan",
        title=title,
        state=_state(plan),
        made=time.time(),
        figures=_figures(plan, placements, copies),
        tasks=placements.tasks,
        instances=placements.instances,
        steps=tuple(placements.steps),
        copies=copies,
        now=tuple(_row(name, roles, problem) for name, roles in sorted(plan.assignment.items())),
        moves=move_rows(map(Change.of, plan.moves), "step"),
        reasons=reasons,
        warnings=plan.warnings,
        facts=tuple((name.replace("_", " "), f"{value:,g}") for name, value in sorted(plan.metrics.items())),
        left_out=tuple(left_out),
    )


def _placements(plan: Plan, problem: Problem | None) -> Placements:
    placements = Placements()

    def even(assignment: dict[str, Roles]) -> float | None:
        return None if problem is None else imbalance_of(problem.tasks, problem.instances, assignment)

    if problem is not None:
        places = in_force(problem)
        placements.add("before", texts_of(places), text="the assignment in force", imbalance=even(places))
    for label, text, roles, left in (
        ("step", "safe to run now", plan.assignment, plan.to_go),
        ("target", "where every task belongs", plan.target, 0),
    ):
        if roles or label == "step":
            placements.add(label, texts_of(roles), text=text, imbalance=even(dict(roles)), to_go=left)
    return placements


def _state(plan: Plan) -> State:
    if plan.stable:
        return State("stable", "nothing has to move", "good")
    if plan.followup:
        return State("more to follow", "plan again once copies have caught up", "busy")
    return State("moves planned", "stable after this step", "busy")


def _figures(plan: Plan, placements: Placements, copies: tuple[CopyLag, ...]) -> tuple[Figure, ...]:
    best, metrics = plan.optimality, plan.metrics
    fewest = str(best).partition(", ")[2].partition(", ")[0]
    roles = list(plan.assignment.values())
    even = [f"{step.imbalance:.2f}" for step in placements.steps if step.imbalance is not None]
    figures = [
        Figure("tasks", f"{sum(len(r.active) for r in roles):,}", f"on {count(len(roles), 'instance')}"),
        Figure("changes now", f"{len(plan.moves):,}", "roles that are new in this step"),
        Figure("moves to the target", f"{best.moves:,}", fewest),
        Figure("forced promotions", f"{best.forced_promotions:,}", "caught-up copies take over at once"),
        Figure(
            "warm-ups",
            f"{sum(len(r.warmup) for r in roles):,}",
            f"{metrics['warmups_waiting']:,.0f} wait" if metrics.get("warmups_waiting") else "",
        ),
    ]
    if even:  # with its problem
        figures.append(Figure("imbalance", even[-1], f"{' → '.join(even)}: largest load / mean"))
        lag = sum(copy.last for copy in copies)
        figures.append(Figure("records to catch up", f"{lag:,}", "of the copies with a role"))
    return tuple(figures)


def _row(name: str, roles: Roles, problem: Problem | None) -> InstanceRow:
    one = next((i for i in problem.instances if i.id == name), None) if problem else None
    state = "draining" if one and one.draining else "no capacity" if one and not one.capacity else ""
    tags = ", ".join(f"{key} {value}" for key, value in sorted(one.tags.items())) if one else ""
    active, standby, warmup = map(len, roles)
    return InstanceRow(name, active, standby, warmup, state=state, note=tags)


def _copies(problem: Problem, plan: Plan) -> tuple[CopyLag, ...]:
    """Return the lags above 0 of the copies that have a role in the plan, the largest first."""
    ends = {task.id: task.end_offset for task in problem.tasks if task.stateful and task.logged}
    copies = []
    for one in problem.instances:
        for role, tasks in zip(ROLES, plan.assignment.get(one.id, Roles()), strict=True):
            for task in ends.keys() & set(tasks):
                if lag := _lag(one.lags.get(task), ends[task]):
                    copies.append(CopyLag(str(task), one.id, role, lag, lag))
    return tuple(sorted(copies, key=lambda c: (-c.last, c.task, c.instance))[:MOST_COPIES])


def _lag(lag: int | None, end: int | None) -> int:
    """Return what a copy lacks: the whole changelog without a copy, or with one of an earlier changelog."""
    reset = lag is not None and end is not None and lag > end
    return (end or 0) if lag is None or reset else lag


def reasons_of(explainer: Explainer) -> tuple[tuple[Reason, ...], list[str]]:
    """Return why each task is where it is, of `MOST_REASONS` tasks at the most, and a line about the others.

    The text is that of `explain --task`.
    """
    moving = explainer.on_their_way()
    ids = sorted(explainer.problem.columns.ids, key=lambda task: (task not in moving, task))
    found = map(explainer.task, sorted(ids[:MOST_REASONS]))
    reasons = tuple(Reason(str(one.task), one.instance, one.why, str(one)) for one in found)
    left = [f"why {count(len(ids) - MOST_REASONS, 'more task')} are where they are: taskplace explain"]
    return reasons, left if len(ids) > MOST_REASONS else []
