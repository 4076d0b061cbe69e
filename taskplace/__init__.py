"""Kafka-Streams-grade task placement for stateful PySpark.

The engine in three lines: describe the cluster as a `Problem`, ask for its `plan`, put the step in force.

>>> import taskplace
>>> problem = {"tasks": [{"id": "0_0"}, {"id": "0_1"}], "instances": [{"id": "a"}, {"id": "b"}]}
>>> now = taskplace.plan(problem)
>>> {name: [str(t) for t in roles.active] for name, roles in now.assignment.items()}
{'a': ['0_0'], 'b': ['0_1']}
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskplace.explanation import explain
    from taskplace.lag import LagIndex
    from taskplace.model.config import PlacementConfig
    from taskplace.model.plan import Move, Optimality, Plan, Roles
    from taskplace.model.problem import Instance, Problem, Task
    from taskplace.planner import plan
    from taskplace.verify import Violation, check
    from topology.tasks import TaskId

__version__ = "0.1.0"

#: Names that are imported when they are first used. Workers of Spark import this package and need none of them.
_WHERE = {
    "Instance": "taskplace.model.problem",
    "LagIndex": "taskplace.lag",
    "Move": "taskplace.model.plan",
    "Optimality": "taskplace.model.plan",
    "PlacementConfig": "taskplace.model.config",
    "Plan": "taskplace.model.plan",
    "Problem": "taskplace.model.problem",
    "Roles": "taskplace.model.plan",
    "Task": "taskplace.model.problem",
    "TaskId": "topology.tasks",
    "Violation": "taskplace.verify",
    "check": "taskplace.verify",
    "explain": "taskplace.explanation",
    "plan": "taskplace.planner",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def simulate(*args: Any, **options: Any) -> Any:
    """Return how a cluster develops; `taskplace.simulation.run.simulate`, which is loaded when first used.

    >>> trajectory = simulate({"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]})
    >>> trajectory.stable
    True
    """
    return importlib.import_module("taskplace.simulation.run").simulate(*args, **options)


def assign_partitions(*args: Any, **options: Any) -> Any:
    """Return who gets which topic partitions; `taskplace.groups.partitions.assign_partitions`, loaded when first used.

    >>> group = {"topics": {"t": 2}, "members": {"C0": {"topics": ["t"]}, "C1": {"topics": ["t"]}}}
    >>> assign_partitions(group).to_dict()["assignment"]
    {'C0': [['t', 0]], 'C1': [['t', 1]]}
    """
    return importlib.import_module("taskplace.groups.partitions").assign_partitions(*args, **options)


__all__ = [
    "Instance",
    "LagIndex",
    "Move",
    "Optimality",
    "PlacementConfig",
    "Plan",
    "Problem",
    "Roles",
    "Task",
    "TaskId",
    "Violation",
    "assign_partitions",
    "check",
    "explain",
    "plan",
    "simulate",
]
