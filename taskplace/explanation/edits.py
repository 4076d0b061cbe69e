"""Changes of a problem, as data: what an operator, or time, may change. An `Edit` applies to a problem and has words.

kind      instance  task  key  value    what it says
lag       x         x          records  a copy there lacks at most so many records
lags                           copies   each of these (instance, task, records) lacks at most so many
config                    x    value    a key of the configuration has another value
drain     x                             an instance begins to drain
undrain   x                             it drains no longer
lose      x                             an instance goes with its copies
join      x                    slots    another instance comes, without copies and tags
capacity  x                    slots    an instance has so many slots
release   x         x                   a parked copy counts again
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from taskplace.errors import InputError
from taskplace.model.cluster import Instance
from taskplace.model.config import PlacementConfig
from taskplace.model.problem import Problem
from taskplace.wording import count
from topology.tasks import TaskId

RECORD = "record"
KINDS = ("lag", "lags", "config", "drain", "undrain", "lose", "join", "capacity", "release")


@dataclass(frozen=True)
class Edit:
    """One change of a problem; the table above has the kinds and their fields.

    >>> edit = Edit("lag", "c", TaskId(0, 1), value=100)
    >>> str(edit), edit.to_dict()
    ('c lacks at most 100 records', {'kind': 'lag', 'instance': 'c', 'task': '0_1', 'value': 100})
    """

    kind: str
    instance: str = ""
    task: TaskId | None = None
    key: str = ""
    value: Any = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError("edit.kind", found=self.kind, expected=f"one of {', '.join(KINDS)}")

    def apply(self, problem: Problem) -> Problem:
        """Return the changed problem. Errors: `InputError` for an instance that is not there, or for a wrong value."""
        if self.kind == "config":
            properties = {**problem.config.to_properties(), self.key: self.value}
            return replace(problem, config=PlacementConfig.from_properties(properties))
        if self.kind == "join":
            new = Instance(self.instance, capacity=self.value)
            return replace(problem, instances=(*problem.instances, new))
        if self.kind == "lags":
            for name, task, records in self.value:
                problem = Edit("lag", name, task, value=records).apply(problem)
            return problem
        changed = self._changed(problem.instance(self.instance))
        others = [each for each in problem.instances if each.id != self.instance]
        return replace(problem, instances=(*others, *([] if changed is None else [changed])))

    def _changed(self, one: Instance) -> Instance | None:
        task = self.task
        match self.kind:
            case "lag" if task is not None:
                lags: Mapping[TaskId, int] = {**one.lags, task: self.value}
                return replace(one, lags=lags)
            case "release":
                return replace(one, parked=tuple(t for t in one.parked if t != task))
            case "drain" | "undrain":
                return replace(one, draining=self.kind == "drain")
            case "capacity":
                return replace(one, capacity=self.value)
        return None

    def __str__(self) -> str:
        name = self.instance
        match self.kind:
            case "lag":
                return f"{name} lacks {f'at most {count(self.value, RECORD)}' if self.value else 'no record'}"
            case "lags":
                return f"{self.value[-1][0]} and the copies before it have caught up"
            case "config":
                return f"{self.key} is empty" if self.value == () else f"{self.key}={self.value}"
            case "drain" | "undrain":
                return f"{name} drains" if self.kind == "drain" else f"{name} no longer drains"
            case "lose":
                return f"{name} is lost"
            case "join":
                return "another instance joins"
            case "capacity":
                return f"{name} has a capacity of {self.value:,}"
        return f"its copy on {name} is released"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that its kind has, as JSON data."""
        value = self.value
        if self.kind == "lags":
            value = [{"instance": name, "task": str(task), "value": lag} for name, task, lag in value]
        fields = {
            "kind": self.kind,
            "instance": self.instance,
            "task": "" if self.task is None else str(self.task),
            "key": self.key,
            "value": list(value) if isinstance(value, tuple) else value,
        }
        return {name: value for name, value in fields.items() if value not in ("", None)}
