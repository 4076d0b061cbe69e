"""Kafka-Streams-grade task placement for stateful PySpark.

The engine in three lines: describe the cluster as a `Problem`, ask for its `plan`, put the step in force.

>>> import taskplace
>>> problem = {"tasks": [{"id": "0_0"}, {"id": "0_1"}], "instances": [{"id": "a"}, {"id": "b"}]}
>>> now = taskplace.plan(problem)
>>> {name: [str(t) for t in roles.active] for name, roles in now.assignment.items()}
{'a': ['0_0'], 'b': ['0_1']}
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskplace.explanation import explain as explain
    from taskplace.groups.partitions import assign_partitions as assign_partitions
    from taskplace.lag import LagIndex as LagIndex
    from taskplace.model.config import PlacementConfig as PlacementConfig
    from taskplace.model.plan import Move as Move
    from taskplace.model.plan import Optimality as Optimality
    from taskplace.model.plan import Plan as Plan
    from taskplace.model.plan import Roles as Roles
    from taskplace.model.problem import Instance as Instance
    from taskplace.model.problem import Problem as Problem
    from taskplace.model.problem import Task as Task
    from taskplace.planner import plan as plan
    from taskplace.simulation.run import simulate as simulate
    from taskplace.verify import Violation as Violation
    from taskplace.verify import check as check
    from topology.tasks import TaskId as TaskId

__version__ = "0.1.0"

#: Names that are imported when they are first used. Workers of Spark import this package and need none of them.
_NAMES = {
    "taskplace.explanation": "explain",
    "taskplace.groups.partitions": "assign_partitions",
    "taskplace.lag": "LagIndex",
    "taskplace.model.config": "PlacementConfig",
    "taskplace.model.plan": "Move Optimality Plan Roles",
    "taskplace.model.problem": "Instance Problem Task",
    "taskplace.planner": "plan",
    "taskplace.simulation.run": "simulate",
    "taskplace.verify": "Violation check",
    "topology.tasks": "TaskId",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
