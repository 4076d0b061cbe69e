"""How evenly active tasks are spread: one number, the same in metrics, reports and simulations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taskplace.model.cluster import Instance, Task
from taskplace.model.plan import Roles
from topology.tasks import TaskId


def imbalance(
    weights: Mapping[TaskId, float], slots: Mapping[str, int], assignment: Mapping[str, Roles]
) -> float | None:
    """Return the largest load per slot divided by the mean; 1 is even, None without a load.

    - `weights`: of tasks; a task without one weighs 1
    - `slots`: of the instances that count: those that have slots and do not drain

    O(tasks).

    >>> a, b, c = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)
    >>> imbalance({}, {"x": 1, "y": 1}, {"x": Roles((a, b, c)), "y": Roles()})
    2.0
    """
    loads = [
        sum(weights.get(task, 1.0) for task in assignment.get(name, Roles()).active) / count
        for name, count in slots.items()
    ]
    mean = sum(loads) / len(loads) if loads else 0.0
    return max(loads) / mean if mean else None


def imbalance_of(
    tasks: Iterable[Task], instances: Iterable[Instance], assignment: Mapping[str, Roles]
) -> float | None:
    """Return the `imbalance` of an assignment of a problem's tasks to its instances.

    >>> task = TaskId(0, 0)
    >>> imbalance_of([Task(task)], [Instance("x"), Instance("y", draining=True)], {"x": Roles((task,))})
    1.0
    """
    slots = {one.id: one.capacity for one in instances if one.capacity and not one.draining}
    return imbalance({task.id: task.weight for task in tasks}, slots, assignment)
