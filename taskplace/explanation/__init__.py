"""Explains why each task is where it is, what would have to change, when, and whether an instance can be removed.

Reading order: `tasks` (one task) with `reasons` and `binding` (the rule that decides); `changes` with `edits` and
`fates` (what would have to change); `outlook` (when); `present` and `explained` (the paragraph and the
value); `plans` (the whole plan); `removal` (an instance). Results have a text for people and a dict for programs.
"""

from taskplace.explanation.edits import Edit
from taskplace.explanation.explained import Change, Outlook, Refusal, Role, TaskExplanation
from taskplace.explanation.plans import explain_plan, plan_explanation
from taskplace.explanation.removal import Copy, Held, Removal, Stuck, Wait, can_remove, removable
from taskplace.explanation.tasks import Explainer, explain
from taskplace.lag.ranking import Seen

__all__ = [
    "Change",
    "Copy",
    "Edit",
    "Explainer",
    "Held",
    "Outlook",
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
