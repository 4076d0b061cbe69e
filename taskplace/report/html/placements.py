"""Collects assignments one after the other, and keeps only what each changes.

Idea: an assignment of 1,000 tasks is large, and most rebalances move a few. The first step has all tasks, and each
further step those whose copies differ from the step before.

Properties: bounded. If there are more than `keep` steps, the oldest are merged into one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from taskplace.model.plan import Roles
from taskplace.record.html.values import Step

#: By task, its (instance, role) pairs.
Places = dict[int, tuple[tuple[int, int], ...]]

#: The most steps of a report.
KEPT = 200


class Placements:
    """A sequence of assignments. `tasks` and `instances` are the names in the order of their numbers.

    >>> from topology.ids import TaskId
    >>> task, placements = TaskId(0, 0), Placements()
    >>> placements.add("before", {"a": Roles((task,))})
    >>> placements.add("after", {"b": Roles((task,)), "a": Roles(standby=(task,))})
    >>> [step.changes for step in placements.steps]
    [{0: ((0, 0),)}, {0: ((0, 1), (1, 0))}]
    """

    def __init__(self, keep: int = KEPT) -> None:
        self.steps: list[Step] = []
        self.merged = 0
        self._keep = keep
        self._tasks: dict[str, int] = {}
        self._instances: dict[str, int] = {}
        self._now: Places = {}

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order of their numbers."""
        return tuple(self._tasks)

    @property
    def instances(self) -> tuple[str, ...]:
        """The instances, in the order of their numbers."""
        return tuple(self._instances)

    def add(
        self,
        label: str,
        assignment: Mapping[str, Roles] | Mapping[str, Mapping[str, Sequence[str]]],
        *,
        at: float | None = None,
        text: str = "",
        imbalance: float | None = None,
        to_go: int | None = None,
    ) -> None:
        """Add an assignment: by instance its roles, as `Roles` or as the lists of a document. O(tasks)."""
        places = self._places(assignment)
        gone = self._now.keys() - places.keys()
        changes = {task: places.get(task, ()) for task in sorted({*gone, *places})}
        changes = {task: held for task, held in changes.items() if self._now.get(task, ()) != held}
        self._now = places
        up = tuple(self._number(self._instances, name) for name in sorted(assignment))
        step = Step(label, at, text, up, changes, imbalance=imbalance, to_go=to_go)
        self.steps.append(step)
        if len(self.steps) > self._keep:
            first, second = self.steps[:2]
            self.steps[:2] = [replace(second, changes={**first.changes, **second.changes})]
            self.merged += 1

    def _places(self, assignment: Mapping[str, Roles] | Mapping[str, Mapping[str, Sequence[str]]]) -> Places:
        found: dict[int, list[tuple[int, int]]] = {}
        for name in sorted(assignment):
            instance, roles = self._number(self._instances, name), assignment[name]
            held = roles if isinstance(roles, tuple) else [roles.get(role, ()) for role in Roles._fields]
            for role, tasks in enumerate(held):
                for task in tasks:
                    found.setdefault(self._number(self._tasks, str(task)), []).append((instance, role))
        return {task: tuple(sorted(held)) for task, held in found.items()}

    @staticmethod
    def _number(numbers: dict[str, int], name: str) -> int:
        return numbers.setdefault(name, len(numbers))
