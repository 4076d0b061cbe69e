"""Explains why each task is where it is, when it moves, and whether an instance can be removed.

Reading order: `tasks` (a task, a plan), `binding` (the share or the cost that decides a place), `removal` (an
instance). The planner records the reason of each decision (`Plan.decision`); the texts are made of it.
"""

from taskplace.explanation.removal import Copy as Copy
from taskplace.explanation.removal import Held as Held
from taskplace.explanation.removal import Removal as Removal
from taskplace.explanation.removal import Stuck as Stuck
from taskplace.explanation.removal import Wait as Wait
from taskplace.explanation.removal import can_remove as can_remove
from taskplace.explanation.removal import removable as removable
from taskplace.explanation.tasks import Explainer as Explainer
from taskplace.explanation.tasks import Progress as Progress
from taskplace.explanation.tasks import Refusal as Refusal
from taskplace.explanation.tasks import Role as Role
from taskplace.explanation.tasks import TaskExplanation as TaskExplanation
from taskplace.explanation.tasks import explain as explain
from taskplace.explanation.tasks import explain_plan as explain_plan
from taskplace.explanation.tasks import plan_explanation as plan_explanation
from taskplace.lag.ranking import Seen as Seen
