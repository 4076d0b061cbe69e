"""The events of a simulated cluster, as values that can be stored and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model.problem import read_task
from taskplace.simulation.cluster import Cluster
from topology.tasks import TaskId

# For each kind: the options it must have, and those it may have.
OPTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "add": ((), ("capacity", "tags", "copies")),
    "kill": ((), ()),
    "stop": ((), ()),
    "start": ((), ()),
    "drain": ((), ()),
    "undrain": ((), ()),
    "grow": (("tasks",), ()),
    "shrink": (("tasks",), ()),
    "produce": (("records",), ("task",)),
    "lag": (("task", "records"), ()),
    "stick": (("task",), ()),
}
KINDS = tuple(OPTIONS)
NAMELESS = ("grow", "shrink", "produce")


@dataclass(frozen=True, slots=True)
class Event:
    """An event, which happens before a round.

    kind        name                options
    add         instance            capacity, tags, copies {task: lag}
    kill        instance            its disk is gone too
    stop        instance            its disk stays
    start       instance            comes back with its disk
    drain       instance            (and undrain)
    grow        -                   tasks: [{"id", "end_offset", ...}] appear
    shrink      -                   tasks: ["0_3", ...] disappear
    produce     -                   records: every changelog grows by so many; or task: only this one
    lag         instance            task, records: that copy falls behind
    stick       instance            task: that copy makes no more progress

    Errors: `InputError` with the path of a wrong value, when the event is read; from `apply`, for an instance or a task
    that the cluster does not have at that moment.

    >>> Event.from_dict({"kind": "kil", "name": "a"})
    Traceback (most recent call last):
    taskplace.errors.InputError: event.kind: found 'kil', expected one of add, kill, stop, start, drain, undrain, \
grow, shrink, produce, lag, stick; did you mean 'kill'?
    """

    kind: str
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        extra = " ".join(f"{k}={v}" for k, v in sorted(self.options.items()))
        return " ".join(part for part in (self.kind, self.name, extra) if part)

    def apply(self, cluster: Cluster) -> None:
        """Apply the event to a cluster."""
        o = self.options
        match self.kind:
            case "add":
                copies = {TaskId.parse(t): lag for t, lag in o.get("copies", {}).items()}
                cluster.add(self.name, o.get("capacity", 1), o.get("tags"), copies)
            case "kill" | "stop" | "start":
                getattr(cluster, self.kind)(self.name)
            case "drain" | "undrain":
                cluster.drain(self.name, self.kind == "drain")
            case "grow":
                for task in (read_task(t, "event.tasks") for t in o["tasks"]):
                    cluster.tasks[task.id] = task
            case "shrink":
                for t in o["tasks"]:
                    cluster.tasks.pop(TaskId.parse(t), None)
            case "produce":
                ids = [TaskId.parse(o["task"])] if "task" in o else list(cluster.tasks)
                for t_id in ids:
                    cluster.produce(t_id, o["records"])
            case "lag":
                cluster.fall_behind(self.name, TaskId.parse(o["task"]), o["records"])
            case "stick":
                cluster.stick(self.name, TaskId.parse(o["task"]))

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a dict; `from_dict` reads it back."""
        return {"kind": self.kind, "name": self.name, **self.options}

    @classmethod
    def from_dict(cls, value: Any, path: str = "event") -> Event:
        """Return the event that a dict describes. `path`: the path of the dict, for errors."""
        m = validation.mapping(value, path)
        kind = m.get("kind")
        if not isinstance(kind, str) or kind not in OPTIONS:
            near = validation.nearest(kind, KINDS)
            raise InputError(f"{path}.kind", found=kind, expected="one of " + ", ".join(KINDS), hint=near)
        needed, more = OPTIONS[kind]
        validation.mapping(value, path, ("kind", "name", *needed, *more))
        for key in (*needed, *(() if kind in NAMELESS else ("name",))):
            if key not in m:
                raise InputError(f"{path}.{key}", found=None, expected=f"a value: {kind!r} needs it")
        name = m.get("name", "")
        if name != "" or kind not in NAMELESS:
            validation.text(name, f"{path}.name")
        options = {k: v for k, v in m.items() if k not in ("kind", "name")}
        for key, option in options.items():
            _check(kind, key, option, f"{path}.{key}")
        return cls(kind, name, options)


def _check(kind: str, key: str, value: Any, path: str) -> None:
    match key:
        case "capacity":
            validation.integer(value, path, 0, validation.MOST_CAPACITY)
        case "records":
            validation.integer(value, path)
        case "task":
            validation.task_id(value, path)
        case "tags":
            for tag, text in validation.mapping(value, path).items():
                validation.text(tag, path)
                validation.text(text, f"{path}.{tag}")
        case "copies":
            for t, lag in validation.mapping(value, path).items():
                validation.task_id(t, path)
                validation.integer(lag, f"{path}.{t}")
        case "tasks":
            for k, t in enumerate(validation.listing(value, path)):
                (read_task if kind == "grow" else validation.task_id)(t, f"{path}[{k}]")
