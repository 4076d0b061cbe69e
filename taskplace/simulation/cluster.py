"""The cluster in memory: instances with copies, which catch up as virtual time passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Instance, Problem, Task
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
