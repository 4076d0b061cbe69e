"""Explains the changes of a plan, its quality, and its tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from taskplace.explanation.tasks import Explainer
from taskplace.model.plan import Plan
from taskplace.model.problem import Problem
from taskplace.wording import count
from topology.tasks import TaskId

SCHEMA = "taskplace.explanation/1"


def explain_plan(problem: Problem, plan: Plan, *, runs: bool = True) -> str:
    """Return a text about a plan: its moves with their reasons, its optimality, and its warnings.

    `runs`: whether copies catch up; without a driver they do not.

    >>> from taskplace.model.problem import Instance, Task
    >>> from taskplace.planner import plan
    >>> problem = Problem([Task(TaskId(0, 0))], [Instance("a")])
    >>> print(explain_plan(problem, plan(problem)))
    1 task on 1 instance: no active task has to leave its instance; then nothing is left to move
      0_0: starts on a
    """
    lines = [_summary(problem, plan, runs=runs)]
    lines.extend(f"  {move}" for move in plan.moves)
    lines.extend(f"  warning: {warning}" for warning in plan.warnings)
    return "\n".join(lines)


def plan_explanation(
    problem: Problem,
    plan: Plan,
    tasks: Iterable[TaskId | str] | None = None,
    *,
    explainer: Explainer | None = None,
) -> dict[str, Any]:
    """Return a "taskplace.explanation/1" dict: the plan's moves, its optimality, and why each task is where it is.

    `tasks`: the tasks to explain in full, with what would have to change and when. By default all tasks are explained,
    without these two. `explainer`: of this plan; None: a new one. Errors: `InputError` for a task that is not in the
    problem.
    """
    explainer = explainer or Explainer(problem, plan)
    if tasks is None:
        explained = [explainer.task(t) for t in problem.columns.ids]
    else:
        explained = [explainer.in_full(t) for t in tasks]
    whole = plan.to_dict()
    return {
        "schema": SCHEMA,
        "fingerprint": plan.fingerprint,
        "summary": _summary(problem, plan),
        "followup": plan.followup,
        **{key: whole[key] for key in ("moves", "optimality", "warnings")},
        "tasks": [each.to_dict() for each in explained],
    }


def _summary(problem: Problem, plan: Plan, *, runs: bool = True) -> str:
    c = problem.columns
    counts = f"{count(c.n, 'task')} on {count(c.m, 'instance')}"
    if not (plan.moves or plan.followup or plan.optimality.moves):
        return f"{counts}: nothing has to move, every task is where it belongs"
    follows = "more follows" if runs else "more would follow"
    state = f"{follows} once copies have caught up" if plan.followup else "then nothing is left to move"
    stays = not (plan.optimality.moves or plan.optimality.forced_promotions)
    moved = "no active task has to leave its instance" if stays else str(plan.optimality)
    return f"{counts}: {moved}; {state}"
