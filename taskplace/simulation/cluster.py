"""The cluster in memory, whose copies catch up as virtual time passes; and the events that may happen to it.

Events are values that can be stored and replayed. `random_events` makes them from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Instance, Problem, Task, read_task
from topology.tasks import TaskId


@dataclass(slots=True)
class Host:
    """One instance: its roles in force, and its copies with their lag in records (also left-over copies)."""

    capacity: int = 1
    tags: dict[str, str] = field(default_factory=dict)
    draining: bool = False
    roles: Roles = field(default_factory=Roles)
    copies: dict[TaskId, int] = field(default_factory=dict)
    idle_since: dict[TaskId, int] = field(default_factory=dict)
    stuck: set[TaskId] = field(default_factory=set)
    parked: tuple[TaskId, ...] = ()
    restore_rate: float | None = None
    slots: tuple[tuple[TaskId, ...], ...] = ()


class Cluster:
    """Tasks and instances that obey plans.

    A copy that has a role follows the changelog at the `restore_rate` of its instance, else that of the cluster, in
    records per second (None: it catches up within one round, however short); an active that is caught up stays at
    lag 0. A copy without a role stands still, and is deleted `state.cleanup.delay.ms` after it lost its role. All in
    virtual time, `now` milliseconds.

    >>> cluster = Cluster([Task(TaskId(0, 0), end_offset=50_000)], PlacementConfig())
    >>> cluster.add("a")
    >>> cluster.apply({"a": Roles(active=(TaskId(0, 0),))})
    >>> cluster.problem().instances[0].lags
    {TaskId(subtopology=0, partition=0): 50000}
    >>> cluster.advance(600_000)
    >>> cluster.problem().instances[0].lags
    {TaskId(subtopology=0, partition=0): 0}
    """

    def __init__(
        self, tasks: Iterable[Task], config: PlacementConfig, restore_rate: float | None = None
    ) -> None:
        self.config = config
        self.restore_rate = restore_rate
        self.now = 0
        self.tasks: dict[TaskId, Task] = {t.id: t for t in tasks}
        self.hosts: dict[str, Host] = {}
        self.stopped: dict[str, Host] = {}

    @classmethod
    def of(cls, problem: Problem, restore_rate: float | None = None) -> Cluster:
        """Return the cluster that a problem describes."""
        cluster = cls(problem.tasks, problem.config, restore_rate)
        for i in problem.instances:
            cluster.hosts[i.id] = Host(
                capacity=i.capacity,
                tags=dict(i.tags),
                draining=i.draining,
                roles=Roles(i.active, i.standby, i.warmup),
                copies=dict(i.lags),
                parked=i.parked,
                restore_rate=i.restore_rate,
                slots=i.slots,
            )
        return cluster

    def problem(self) -> Problem:
        """Return the cluster as it is now, as a problem to plan."""
        instances = [
            Instance(
                name,
                capacity=host.capacity,
                tags=dict(host.tags),
                draining=host.draining,
                active=host.roles.active,
                standby=host.roles.standby,
                warmup=host.roles.warmup,
                lags=dict(sorted(host.copies.items())),
                parked=host.parked,
                restore_rate=self._rate(host),
                slots=host.slots,
            )
            for name, host in self.hosts.items()
        ]
        return Problem(tuple(self.tasks.values()), tuple(instances), self.config)

    def apply(self, plan: Plan | Mapping[str, Roles]) -> None:
        """Put an assignment in force: new copies start from nothing, copies without a role stand still."""
        assignment = plan.assignment if isinstance(plan, Plan) else plan
        slots = plan.slots if isinstance(plan, Plan) else {}
        for name, host in self.hosts.items():
            host.roles = assignment.get(name, Roles())
            host.slots = slots.get(name, ())
            held = {t for role in host.roles for t in role}
            for t in held:
                if self._stateful(t):
                    host.copies.setdefault(t, self._end(t))
                host.idle_since.pop(t, None)
            for t in host.copies.keys() - held:
                host.idle_since.setdefault(t, self.now)

    def following_lags(self) -> dict[str, dict[TaskId, int]]:
        """Return, by instance, the lags above 0 of its standbys and warm-ups. O(copies)."""
        return {
            name: behind
            for name, host in self.hosts.items()
            if (behind := {t: lag for t in host.roles[1] + host.roles[2] if (lag := host.copies.get(t, 0))})
        }

    def advance(self, milliseconds: int) -> None:
        """Let time pass: copies with a role catch up, copies without one are deleted when their time is over."""
        self.now += milliseconds
        for host in self.hosts.values():
            rate = self._rate(host)
            step = None if rate is None else int(min(rate * milliseconds / 1000, 2**62))
            for t in (t for role in host.roles for t in role if t in host.copies and t not in host.stuck):
                host.copies[t] = 0 if step is None else max(0, host.copies[t] - step)
            keep = self.config.state_cleanup_delay_ms
            for t, since in list(host.idle_since.items()):
                if self.now - since > keep:
                    host.copies.pop(t, None)
                    del host.idle_since[t]

    def produce(self, task: TaskId, records: int) -> None:
        """Let a task's changelog grow: an active that is caught up keeps up, every other copy falls behind."""
        old = self._task(task)
        if not old.stateful or not old.logged:
            return
        validation.integer((old.end_offset or 0) + records, f"simulate.task.{task}.end_offset")
        self.tasks[task] = old._replace(end_offset=(old.end_offset or 0) + records)
        for host in self.hosts.values():
            if task in host.copies and not (task in host.roles.active and host.copies[task] == 0):
                host.copies[task] += records
        for host in self.stopped.values():
            if task in host.copies:
                host.copies[task] += records

    def fall_behind(self, name: str, task: TaskId, records: int) -> None:
        """Let one copy fall behind, by its whole changelog at the most."""
        copies, end = self._host(name).copies, self._task(task).end_offset or 0
        copies[task] = min(end, copies.get(task, 0) + records)

    def stick(self, name: str, task: TaskId) -> None:
        """Let one copy make no more progress."""
        self._host(name).stuck.add(task)

    def add(
        self,
        name: str,
        capacity: int = 1,
        tags: Mapping[str, str] | None = None,
        copies: Mapping[TaskId, int] | None = None,
    ) -> None:
        """Add an instance, with copies that it found on its disk."""
        if name in self.hosts:
            raise InputError("simulate.instance", found=name, expected="a new instance")
        self.hosts[name] = Host(capacity, dict(tags or {}), copies=dict(copies or {}))
        for t in self.hosts[name].copies:
            self.hosts[name].idle_since[t] = self.now

    def kill(self, name: str) -> None:
        """Remove an instance with its disk."""
        self._host(name)
        del self.hosts[name]

    def stop(self, name: str) -> None:
        """Stop an instance; its disk stays, see `start`."""
        host = self._host(name)
        del self.hosts[name]
        host.roles, host.slots = Roles(), ()
        self.stopped[name] = host

    def start(self, name: str) -> None:
        """Start an instance that was stopped: it comes back with the copies on its disk, and no role."""
        if name not in self.stopped:
            raise InputError("simulate.instance", found=name, expected="an instance that was stopped")
        host = self.stopped.pop(name)
        host.idle_since = dict.fromkeys(host.copies, self.now)
        self.hosts[name] = host

    def drain(self, name: str, draining: bool = True) -> None:
        """Let an instance drain, or end it."""
        self._host(name).draining = draining

    def _rate(self, host: Host) -> float | None:
        return self.restore_rate if host.restore_rate is None else host.restore_rate

    def _host(self, name: str) -> Host:
        if name not in self.hosts:
            known = ", ".join(sorted(self.hosts)[:10])
            raise InputError("simulate.instance", found=name, expected="a running instance", hint=known)
        return self.hosts[name]

    def _task(self, task: TaskId) -> Task:
        if task not in self.tasks:
            known = ", ".join(map(str, sorted(self.tasks)[:10]))
            raise InputError("simulate.task", found=str(task), expected="a task of the cluster", hint=known)
        return self.tasks[task]

    def _stateful(self, task: TaskId) -> bool:
        return task in self.tasks and self.tasks[task].stateful

    def _end(self, task: TaskId) -> int:
        t = self.tasks[task]
        return (t.end_offset or 0) if t.logged else 0


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


MOST_EVENTS = 100_000
"""The most random events at a time: each is planned at least once."""


def random_events(problem: Problem, count: int, seed: int = 0) -> list[list[Event]]:
    """Return `count` groups of one event each: instances die, restart, drain and join. The same seed gives the same.

    At least one instance always stays that can take work. What was stopped starts again sooner or later.

    >>> from taskplace.model.problem import Instance
    >>> cluster = Problem([], [Instance("a"), Instance("b"), Instance("c")])
    >>> [str(group[0].kind) for group in random_events(cluster, 4, seed=1)]
    ['stop', 'stop', 'start', 'stop']
    """
    validation.integer(count, "count", 0, MOST_EVENTS)
    rng = random.Random(f"failures-{seed}")
    working = sorted(i.id for i in problem.instances if i.capacity and not i.draining)
    capacity = {i.id: i.capacity for i in problem.instances}
    names = {i.id for i in problem.instances}
    stopped: list[str] = []
    groups: list[list[Event]] = []
    for number in range(count):
        kinds = ["add"] + ["start"] * 2 * bool(stopped)
        if len(working) > 1:
            kinds += ["kill", "stop", "drain"]
        kind = rng.choice(kinds)
        if kind == "add":
            name = next(
                n for n in (f"new-{number}", *(f"new-{number}-{k}" for k in range(99))) if n not in names
            )
            names.add(name)
            given = rng.choice(sorted(capacity.values())) if capacity else 1
            groups.append([Event("add", name, {"capacity": max(1, given)})])
            working = sorted([*working, name])
            continue
        name = rng.choice(stopped if kind == "start" else working)
        groups.append([Event(kind, name)])
        if kind == "start":
            stopped.remove(name)
            working = sorted([*working, name])
        else:
            working.remove(name)
            if kind == "stop":
                stopped.append(name)
    return groups
