"""The input of planning: the tasks, the instances with their copies, and the configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from taskplace import validation
from taskplace.errors import InputError
from taskplace.lag import LagIndex
from taskplace.model.cluster import Instance as Instance
from taskplace.model.cluster import Task as Task
from taskplace.model.config import PlacementConfig
from taskplace.model.problem_columns import Columns, build
from taskplace.wording import one_of
from topology.tasks import TaskId

SCHEMA = "taskplace.problem/1"

_PLAIN_KEYS = frozenset(Task._fields) - {"racks", "changelog_racks"}


@dataclass(frozen=True)
class Problem:
    """A placement problem: the input of `plan`. The order of tasks and instances does not matter.

    Errors: `InputError` with the path, when the problem is read from a dict, or when `columns` is first used.

    >>> problem = Problem([Task(TaskId(0, 0))], [Instance("a"), Instance("b")])
    >>> Problem.from_dict(problem.to_dict()) == problem
    True
    >>> Problem([Task(TaskId(0, 0)), Task(TaskId(0, 0))], [Instance("a")]).columns
    Traceback (most recent call last):
    taskplace.errors.InputError: tasks: found '0_0', expected each task once
    """

    tasks: Sequence[Task]
    instances: Sequence[Instance]
    config: PlacementConfig = field(default_factory=PlacementConfig)

    def __post_init__(self) -> None:
        # Sorting gives the canonical order, so results depend on the values alone.
        object.__setattr__(self, "tasks", tuple(sorted(self.tasks, key=attrgetter("id"))))
        object.__setattr__(self, "instances", tuple(sorted(self.instances, key=attrgetter("id"))))

    @cached_property
    def columns(self) -> Columns:
        """The problem as numpy columns, built on first use. This also checks the values."""
        return build(self.tasks, self.instances, self.config)

    @property
    def fingerprint(self) -> str:
        """A short hash of all values that a plan depends on: equal problems have equal fingerprints."""
        return self.columns.fingerprint

    def instance(self, name: str) -> Instance:
        """Return the instance of that id. Errors: `InputError` with the known ids."""
        for each in self.instances:
            if each.id == name:
                return each
        known = one_of((i.id for i in self.instances), "instance", most=20)
        raise InputError("instance", found=name, expected=known)

    @classmethod
    def from_json(cls, document: str) -> Problem:
        """Return the problem in a JSON document; see `from_dict`."""
        try:
            value = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise InputError("problem", found=str(error), expected="a JSON document") from None
        return cls.from_dict(value)

    @classmethod
    def from_dict(cls, value: Any) -> Problem:
        """Return the problem that a "taskplace.problem/1" dict describes; optional fields may be missing.

        >>> Problem.from_dict({"tasks": [{"id": "0-3"}], "instances": []})
        Traceback (most recent call last):
        taskplace.errors.InputError: tasks[0].id: found '0-3', expected a task id like '0_3'
        """
        top = validation.mapping(value, "problem", ("schema", "config", "tasks", "instances"))
        schema = top.get("schema", SCHEMA)
        if schema != SCHEMA:
            raise InputError("schema", found=schema, expected=f"'{SCHEMA}'")
        for key in ("tasks", "instances"):
            if key not in top:
                raise InputError(key, found=None, expected="a list")
        config = PlacementConfig.from_properties(top.get("config", {}))
        known: dict[str, TaskId] = {}
        tasks = _read_tasks(validation.listing(top["tasks"], "tasks"), known)
        if len({t.id for t in tasks}) < len(tasks):
            _once([str(t.id) for t in tasks], "tasks", "task")
        instances = validation.each(partial(_read_instance, known), top["instances"], "instances")
        _once([i.id for i in instances], "instances", "instance")
        problem = cls(tuple(tasks), instances, config)
        _ = problem.columns  # checks that need the whole problem
        return problem

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as a "taskplace.problem/1" dict. Some optional fields are left out if they are unset."""
        return {
            "schema": SCHEMA,
            "config": self.config.to_properties(),
            "tasks": [_task_dict(t) for t in self.tasks],
            "instances": [_instance_dict(i) for i in self.instances],
        }


def indexed_lags(tasks: Iterable[Task], instances: Iterable[Instance], config: PlacementConfig) -> LagIndex:
    """Return the lags that instances report as an index, which ranks them as the columns of a problem do.

    For callers that do not keep an index of their own. O(copies * log copies).

    >>> t = TaskId(0, 0)
    >>> a, b = Instance("a", lags={t: 20_000}), Instance("b", lags={t: 0})
    >>> indexed_lags([Task(t, end_offset=50_000)], [a, b], PlacementConfig()).caught_up(t)
    ('b',)
    """
    index = LagIndex(config.acceptable_recovery_lag, config.acceptable_recovery_seconds)
    for task in tasks:
        index.end_offset(task.id, task.end_offset, logged=task.logged)
    for instance in instances:
        index.restore_rate(instance.id, instance.restore_rate)
        for id_, lag in instance.lags.items():
            index.report(instance.id, id_, lag)
    return index


def _read_tasks(values: Sequence[Any], known: dict[str, TaskId]) -> list[Task]:
    """Return the tasks. Values of exactly the expected types take a fast path; `read_task` reads all others."""
    out = []
    for k, value in enumerate(values):
        if type(value) is dict and value.keys() <= _PLAIN_KEYS:
            get = value.get
            name, stateful, end = get("id"), get("stateful", True), get("end_offset", 0)
            weight, logged = get("weight", 1.0), get("logged", True)
            if (
                (type(name) is str and type(stateful) is bool and type(logged) is bool)
                and (type(end) is int and 0 <= end < 2**63)
                and (type(weight) is float and validation.LEAST_WEIGHT <= weight <= validation.MOST_WEIGHT)
            ):
                task = known.get(name)
                if task is None:
                    task = known[name] = validation.task_id(name, f"tasks[{k}].id")
                out.append(Task(task, stateful, end, weight, logged))
                continue
        out.append(read_task(value, f"tasks[{k}]", known))
    return out


def read_task(value: Any, path: str, known: dict[str, TaskId] | None = None) -> Task:
    """Return the task that a dict describes, in the format of a problem. `known`: the ids that were read before."""
    known = {} if known is None else known
    m = validation.mapping(value, path, Task._fields)
    if "id" not in m:
        raise InputError(f"{path}.id", found=None, expected="a task id like '0_3'")
    get = m.get
    return Task(
        id=_read_id(known, m["id"], f"{path}.id"),
        stateful=validation.boolean(get("stateful", True), f"{path}.stateful"),
        end_offset=validation.integer(get("end_offset", 0), f"{path}.end_offset", optional=True),
        weight=validation.weight(get("weight", 1.0), f"{path}.weight"),
        logged=validation.boolean(get("logged", True), f"{path}.logged"),
        racks=validation.each(_read_racks, get("racks", ()), f"{path}.racks"),
        changelog_racks=validation.each(_read_racks, get("changelog_racks", ()), f"{path}.changelog_racks"),
    )


def _read_racks(value: Any, path: str) -> tuple[str, ...]:
    return tuple(validation.text(rack, path) for rack in validation.listing(value, path))


def _read_instance(known: dict[str, TaskId], value: Any, path: str) -> Instance:
    m = validation.mapping(value, path, Instance.__dataclass_fields__)
    if "id" not in m:
        raise InputError(f"{path}.id", found=None, expected="a non-empty string")
    get = m.get

    def ids(name: str) -> tuple[TaskId, ...]:
        values = validation.listing(get(name, ()), f"{path}.{name}")
        if all(type(v) is str for v in values):
            known_ids = tuple(t for t in map(known.get, values) if t is not None)
            if len(known_ids) == len(values):
                return known_ids
        return validation.each(partial(_read_id, known), values, f"{path}.{name}")

    tags = validation.mapping(get("tags", {}), f"{path}.tags")
    lags = validation.mapping(get("lags", {}), f"{path}.lags")
    return Instance(
        id=validation.text(m["id"], f"{path}.id"),
        capacity=validation.integer(get("capacity", 1), f"{path}.capacity", 0, validation.MOST_CAPACITY) or 0,
        tags={
            validation.text(k, f"{path}.tags"): validation.text(v, f"{path}.tags.{k}")
            for k, v in tags.items()
        },
        draining=validation.boolean(get("draining", False), f"{path}.draining"),
        active=ids("active"),
        standby=ids("standby"),
        warmup=ids("warmup"),
        lags=_read_lags(lags, f"{path}.lags", known),
        parked=ids("parked"),
        keeps=ids("keeps"),
        restore_rate=validation.positive(get("restore_rate"), f"{path}.restore_rate", optional=True),
        slots=validation.slots(get("slots", ()), f"{path}.slots"),
    )


def _read_lags(value: Mapping[str, Any], path: str, known: dict[str, TaskId]) -> dict[TaskId, int]:
    out = {}
    for k, lag in value.items():
        task = known.get(k)
        if task is None or type(lag) is not int or not 0 <= lag < 2**63:
            task, lag = _read_id(known, k, f"{path}.{k}"), validation.integer(lag, f"{path}.{k}") or 0
        out[task] = lag
    return out


def _read_id(known: dict[str, TaskId], value: Any, path: str) -> TaskId:
    task = known.get(value) if isinstance(value, str) else None
    if task is None:
        task = known[value] = validation.task_id(value, path)
    return task


def _once(names: Iterable[str], path: str, what: str) -> None:
    first: dict[str, int] = {}
    for k, name in enumerate(names):
        if name in first:
            hint = f"first at {path}[{first[name]}]"
            raise InputError(f"{path}[{k}].id", found=name, expected=f"each {what} once", hint=hint)
        first[name] = k


def _task_dict(task: Task) -> dict[str, Any]:
    out: dict[str, Any] = {"id": str(task.id), "stateful": task.stateful, "end_offset": task.end_offset}
    out["weight"] = task.weight
    if not task.logged:
        out["logged"] = False
    for name in ("racks", "changelog_racks"):
        if getattr(task, name):
            out[name] = [list(r) for r in getattr(task, name)]
    return out


def _instance_dict(i: Instance) -> dict[str, Any]:
    out: dict[str, Any] = {"id": i.id, "capacity": i.capacity, "tags": dict(sorted(i.tags.items()))}
    out["draining"] = i.draining
    for name in ("active", "standby", "warmup"):
        out[name] = [str(t) for t in getattr(i, name)]
    out["lags"] = {str(t): lag for t, lag in sorted(i.lags.items())}
    for name in ("parked", "keeps"):
        if getattr(i, name):
            out[name] = [str(t) for t in getattr(i, name)]
    if i.restore_rate is not None:
        out["restore_rate"] = i.restore_rate
    if i.slots:
        out["slots"] = [[str(t) for t in slot] for slot in i.slots]
    return out
