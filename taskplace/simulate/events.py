"""What can happen to a cluster, as values that can be written down and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taskplace.errors import InputError
from taskplace.model import reading
from taskplace.model.problem import Task
from taskplace.simulate.cluster import Cluster

KINDS = ("add", "kill", "stop", "start", "drain", "undrain", "grow", "shrink", "produce", "lag", "stick")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happens, before a round.

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
        """Let it happen."""
        o = self.options
        match self.kind:
            case "add":
                copies = {reading.task_id(t, "copies"): lag for t, lag in o.get("copies", {}).items()}
                cluster.add(self.name, o.get("capacity", 1), o.get("tags"), copies)
            case "kill" | "stop" | "start":
                getattr(cluster, self.kind)(self.name)
            case "drain" | "undrain":
                cluster.drain(self.name, self.kind == "drain")
            case "grow":
                for t in o["tasks"]:
                    task = Task(**{**t, "id": reading.task_id(t["id"], "tasks.id")})
                    cluster.tasks[task.id] = task
            case "shrink":
                for t in o["tasks"]:
                    cluster.tasks.pop(reading.task_id(t, "tasks"), None)
            case "produce":
                ids = [reading.task_id(o["task"], "task")] if "task" in o else list(cluster.tasks)
                for t_id in ids:
                    cluster.produce(t_id, o["records"])
            case "lag":
                copies = cluster.hosts[self.name].copies
                t_id = reading.task_id(o["task"], "task")
                end = cluster.tasks[t_id].end_offset or 0
                copies[t_id] = min(end, copies.get(t_id, 0) + o["records"])
            case "stick":
                cluster.hosts[self.name].stuck.add(reading.task_id(o["task"], "task"))

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a dict; `from_dict` reads it back."""
        return {"kind": self.kind, "name": self.name, **self.options}

    @classmethod
    def from_dict(cls, value: Any) -> Event:
        """Return the event that a dict describes."""
        m = dict(reading.mapping(value, "event"))
        kind, name = m.pop("kind", None), m.pop("name", "")
        if kind not in KINDS:
            near = reading.nearest(kind, KINDS)
            raise InputError("event.kind", found=kind, expected="one of " + ", ".join(KINDS), hint=near)
        return cls(kind, name, m)
