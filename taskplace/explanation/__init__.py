"""Explains why each task is where it is, when it moves, and whether an instance can be removed.

Reading order: `tasks` (a task, a plan), `binding` (the share or the cost that decides a place), `removal` (an
instance). The planner records the reason of each decision (`Plan.decision`); the texts are made of it.
"""

from taskplace.explanation.removal import Copy, Held, Removal, Stuck, Wait, can_remove, removable
from taskplace.explanation.tasks import (
    Explainer,
    Progress,
    Refusal,
    Role,
    TaskExplanation,
    explain,
    explain_plan,
    plan_explanation,
)
from taskplace.lag.ranking import Seen

__all__ = [
    "Copy",
    "Explainer",
    "Held",
    "Progress",
    "Refusal",
    "Removal",
    "Role",
    "Seen",
    "Stuck",
    "TaskExplanation",
    "Wait",
    "can_remove",
    "explain",
    "explain_plan",
    "plan_explanation",
    "removable",
]
