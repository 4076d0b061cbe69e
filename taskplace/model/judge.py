"""Finds the value of a wrong type in a problem that was built in Python, not read from a dict.

**Idea.** Planning assumes values of the right types, which keeps it fast. If it fails because of a value, this module
checks all values one by one, and names the first wrong one.

Errors: `InputError` with the path. If all values have the right types, it does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model.config import PlacementConfig
from topology.tasks import TaskId

_TASK = ("id", "stateful", "end_offset", "weight", "logged", "racks", "changelog_racks")
_INSTANCE = (
    "id", "capacity", "tags", "draining", "active", "standby", "warmup", "lags", "parked", "keeps", "slots",
)  # fmt: skip


def judge(tasks: Any, instances: Any, config: Any) -> None:
    """Raise `InputError` for the first value of a wrong type. O(values)."""
    if not isinstance(config, PlacementConfig):
        raise InputError("config", found=config, expected="a PlacementConfig")
    for path, values, names, what, one in (
        ("tasks", tasks, _TASK, "a list of Tasks", "a Task"),
        ("instances", instances, _INSTANCE, "a list of Instances", "an Instance"),
    ):
        for k, value in enumerate(_items(values, path, what)):
            if not all(hasattr(value, name) for name in names):
                raise InputError(f"{path}[{k}]", found=value, expected=one)
    for task in tasks:
        _task_id(task.id, "tasks.id")
        path = f"tasks[{task.id}]"
        validation.boolean(task.stateful, f"{path}.stateful")
        validation.boolean(task.logged, f"{path}.logged")
        validation.integer(task.end_offset, f"{path}.end_offset", optional=True)
        validation.weight(task.weight, f"{path}.weight")
        for name in ("racks", "changelog_racks"):
            expected = "a list of racks for each partition"
            for k, racks in enumerate(_items(getattr(task, name), f"{path}.{name}", expected)):
                for rack in _items(racks, f"{path}.{name}[{k}]", "a list of racks"):
                    validation.text(rack, f"{path}.{name}[{k}]")
    for instance in instances:
        path = f"instances[{validation.text(instance.id, 'instances.id')}]"
        validation.integer(instance.capacity, f"{path}.capacity", 0, validation.MOST_CAPACITY)
        validation.boolean(instance.draining, f"{path}.draining")
        validation.positive(instance.restore_rate, f"{path}.restore_rate", optional=True)
        for name in ("active", "standby", "warmup", "parked", "keeps"):
            for task in _items(getattr(instance, name), f"{path}.{name}", "a list of TaskIds"):
                _task_id(task, f"{path}.{name}")
        for k, slot in enumerate(_items(instance.slots, f"{path}.slots", "a list of TaskIds for each slot")):
            for task in _items(slot, f"{path}.slots[{k}]", "a list of TaskIds"):
                _task_id(task, f"{path}.slots[{k}]")
        for name in ("lags", "tags"):
            if not isinstance(getattr(instance, name), Mapping):
                raise InputError(f"{path}.{name}", found=getattr(instance, name), expected="a mapping")
        for task, lag in instance.lags.items():
            _task_id(task, f"{path}.lags")
            validation.integer(lag, f"{path}.lags.{task}")
        for name, tag in instance.tags.items():
            validation.text(tag, f"{path}.tags.{validation.text(name, f'{path}.tags')}")


def _items(value: Any, path: str, what: str) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InputError(path, found=value, expected=what)
    return list(value)


def _task_id(value: Any, path: str) -> None:
    pair = isinstance(value, tuple) and len(value) == 2
    if not isinstance(value, TaskId) and not (pair and all(isinstance(part, int) for part in value)):
        raise InputError(path, found=value, expected="a TaskId, such as TaskId(0, 3)")
