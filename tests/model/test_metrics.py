"""The figures of a plan: each is counted once more, from the problem and the assignments that the plan names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Task, TaskId
from taskplace.simulation import Cluster
from tests.support.scenarios import KINDS, scenario


def situations(kind: str, seed: int) -> Iterator[Problem]:
    """Return the problem of a scenario, and the problem after each group of events."""
    drawn = scenario(kind, seed, largest=0.3)
    yield drawn.problem
    cluster = Cluster.of(drawn.problem)
    for group in drawn.events:
        cluster.apply(taskplace.plan(cluster.problem()))
        for event in group:
            event.apply(cluster)
        yield cluster.problem()


def spreads(problem: Problem, plan: Plan) -> tuple[int, int]:
    """KIP-441's figures: how far apart tasks per instance are, and instances per subtopology."""
    stateful = {task.id for task in problem.tasks if task.stateful}
    able = [i.id for i in problem.instances if i.capacity > 0 and not i.draining]
    held = {name: [t for t in plan.target[name].active if t in stateful] for name in able}
    counts = [len(tasks) for tasks in held.values()]
    users = Counter(sub for tasks in held.values() for sub in {t.subtopology for t in tasks})
    return tuple(max(found, default=0) - min(found, default=0) for found in (counts, list(users.values())))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_the_figures_are_what_the_assignments_say(kind, seed):
    for problem in situations(kind, seed):
        plan = taskplace.plan(problem)
        roles = plan.assignment.values()
        tasks_apart, instances_apart = spreads(problem, plan)
        expected = {
            "tasks": len(problem.tasks),
            "stateful_tasks": sum(task.stateful for task in problem.tasks),
            "instances": len(problem.instances),
            "standbys": sum(len(r.standby) for r in roles),
            "warmups": sum(len(r.warmup) for r in roles),
            "active_spread": tasks_apart,
            "subtopology_instances_spread": instances_apart,
            "kip441_balanced": int(max(tasks_apart, instances_apart) <= problem.config.balance_factor),
        }
        assert {name: plan.metrics[name] for name in expected} == expected


@pytest.mark.parametrize(("factor", "balanced"), [(1, 0), (2, 0), (3, 1), (4, 1)])
def test_the_balance_of_kip_441_is_judged_by_its_factor(factor, balanced):
    tasks = [Task(TaskId(0, p), end_offset=0) for p in range(4)] + [Task(TaskId(1, 0), end_offset=0)]
    instances = [Instance(name) for name in "abcd"]
    plan = taskplace.plan(Problem(tasks, instances, PlacementConfig(balance_factor=factor)))
    assert (plan.metrics["active_spread"], plan.metrics["subtopology_instances_spread"]) == (1, 3)
    assert plan.metrics["kip441_balanced"] == balanced


@pytest.mark.parametrize("tasks", [[], [Task(TaskId(0, 0), stateful=False)]])
@pytest.mark.parametrize("draining", [False, True])
def test_without_state_or_without_instances_that_can_take_it_nothing_is_apart(tasks, draining):
    plan = taskplace.plan(Problem(tasks, [Instance("a", draining=draining)]))
    figures = ("active_spread", "subtopology_instances_spread", "kip441_balanced")
    assert [plan.metrics[name] for name in figures] == [0, 0, 1]
