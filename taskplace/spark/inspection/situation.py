"""Explains the tasks of a stream from its driver's status: the cluster as the driver saw it.

**Idea.** The status has the executors with their copies and lags, and the configuration; the manifests have the lengths
of the changelogs. Together they are the problem that the driver would plan now. So an explanation needs no driver, and
a driver that runs gives the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from taskplace.explanation import Explainer, Removal, can_remove
from taskplace.model.cluster import Instance, Task
from taskplace.model.config import PlacementConfig
from taskplace.model.problem import Problem
from taskplace.spark.operator_messages import ExecutorStatus, Status
from taskplace.spark.stuck import UNKNOWN, seen_of
from taskplace.wording import lasting, listed, noun
from topology import TaskId

Ends = Mapping[str, int | None]
"""By task, the length of its changelog in records. A task without an entry has an empty changelog."""


def status_explainer(
    status: Status, ends: Ends, *, runs: bool = True, checkpoint: str | Path = UNKNOWN
) -> Explainer:
    """Return what explains the tasks of a status, by the plan that would be made now. Plans; loads the solver.

    - `runs`: whether its driver still runs
    - `checkpoint`: the path that remedies name
    """
    from taskplace.planner import plan

    problem = _status_problem(status, ends)
    return Explainer(
        problem,
        plan(problem),
        seen=seen_of(status, runs=runs, checkpoint=checkpoint),
        rates=_rates(status),
        plan_name="the next rebalance",
        waits_for=waits_for(status, runs=runs),
    )


def status_removal(
    status: Status, ends: Ends, name: str, *, runs: bool = True, checkpoint: str | Path = UNKNOWN
) -> Removal:
    """Return whether an executor can be removed, as its driver answers. Plans only if a copy is stuck.

    Without a driver no copy catches up. That is no reason to call a copy stuck.
    """
    problem, target = _status_problem(status, ends), None
    seen = {
        copy: one
        for copy, one in seen_of(status, runs=runs, checkpoint=checkpoint).items()
        if not one.no_driver
    }
    if any(one.stalled for one in seen.values()):
        from taskplace.planner import plan

        target = plan(problem).target
    return can_remove(problem, name, seen=seen, rates=_rates(status), target=target)


def _rates(status: Status) -> dict[str, float | None]:
    return {name: executor.follow_rate for name, executor in status.executors.items()}


def _status_problem(status: Status, ends: Ends) -> Problem:
    """Return the problem that the driver of a status would plan now."""
    there = status.executors
    names = {task for executor in there.values() for task in executor.active} | set(status.homeless)
    tasks = [
        Task(
            TaskId.parse(name),
            stateful=name not in status.stateless,
            end_offset=ends.get(name, 0),
            weight=status.weights.get(name, 1.0),
            logged=name not in status.unlogged,
        )
        for name in names
    ]
    instances = [_instance(name, executor) for name, executor in there.items()]
    return Problem(tasks, instances, PlacementConfig.from_properties(dict(status.config)))


def waits_for(status: Status, *, runs: bool) -> str:
    """Return what the next rebalance waits for, as a clause: the batch that runs, or the next driver.

    A drain ends with its driver, so it has to be asked for again. Within a batch, only a loss makes the driver plan.
    """
    if not runs:
        draining = [name for name, executor in status.executors.items() if executor.draining]
        again = (
            f" and {listed(draining)} {noun(len(draining), 'is', 'are')} drained again" if draining else ""
        )
        return f"once the stream is started again{again}"
    if status.running is not None:
        since = max(0.0, status.written - status.running.since)
        return f"once batch {status.running.batch}, which has run for {lasting(since)}, has ended"
    return ""


def _instance(name: str, executor: ExecutorStatus) -> Instance:
    warm = {task: warmup.lag for task, warmup in executor.warmup.items()}
    lags = {**executor.left, **executor.active, **executor.standby, **warm}
    return Instance(
        name,
        capacity=executor.cores,
        tags=dict(executor.tags),
        draining=executor.draining,
        active=_ids(executor.active),
        standby=_ids(executor.standby),
        warmup=_ids(warm),
        lags={TaskId.parse(task): lag for task, lag in lags.items() if task not in executor.empty},
        parked=_ids(executor.parked),
        keeps=_ids(executor.keeps),
        restore_rate=executor.restore_rate,
    )


def _ids(tasks: Mapping[str, object] | tuple[str, ...]) -> tuple[TaskId, ...]:
    return tuple(map(TaskId.parse, tasks))
