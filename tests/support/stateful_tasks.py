"""Stateful tasks with changelogs of equal length, and problems with another configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Task, TaskId
from taskplace.simulation import Cluster, Event
from taskplace.simulation.run import settle

END = 50_000


def rests(cluster: Cluster, *groups: Iterable[Event], limit: int = 300) -> Iterator[Plan]:
    """Settle, then let groups of events happen one after the other. Yield the plan at rest each time: it stays."""
    for group in ((), *groups):
        plan = settle(cluster, group, limit=limit, watch=taskplace.check)[-1].plan
        assert not plan.followup
        yield plan
        assert taskplace.plan(cluster.problem()).stable


def ids(subtopology: int, count: int) -> list[TaskId]:
    return [TaskId(subtopology, p) for p in range(count)]


def stateful(*tasks: TaskId, **fields: object) -> list[Task]:
    return [Task(t, end_offset=END, **fields) for t in tasks]  # type: ignore[arg-type]


def configured(problem: Problem, **config: object) -> Problem:
    properties = {**problem.config.to_properties(), **{k.replace("__", "."): v for k, v in config.items()}}
    return Problem(problem.tasks, problem.instances, PlacementConfig.from_properties(properties))


def sticky(**config: object) -> PlacementConfig:
    return PlacementConfig(task_assignor_class="sticky", **config)  # type: ignore[arg-type]


def zoned(count: int, zones: str = "abc", **more: str) -> list[Instance]:
    return [Instance(f"i{k:02}", tags={"zone": zones[k % len(zones)], **more}) for k in range(count)]


def zones_of(plan: Plan, instances: list[Instance], tag: str = "zone") -> dict[TaskId, list[str]]:
    tags = {i.id: i.tags.get(tag, "") for i in instances}
    out: dict[TaskId, list[str]] = {}
    for name, roles in plan.target.items():
        for t in (*roles.active, *roles.standby):
            out.setdefault(t, []).append(tags[name])
    return out
