"""Explains why each task is where it is, what a plan changes, and whether an instance can be removed.

It reads only the problem and the plan. Reading order: `tasks` (one task) with `binding` (the rule that decides),
`plans` (the whole plan), `removal` (an instance). Results have a text for people and a dict for programs.
"""

from taskplace.explanation.plans import explain_plan, plan_explanation
from taskplace.explanation.removal import Copy, Held, Removal, Wait, can_remove, removable
from taskplace.explanation.tasks import Explainer, Refusal, Role, TaskExplanation, explain

__all__ = [
    "Copy",
    "Explainer",
    "Held",
    "Refusal",
    "Removal",
    "Role",
    "TaskExplanation",
    "Wait",
    "can_remove",
    "explain",
    "explain_plan",
    "plan_explanation",
    "removable",
]
