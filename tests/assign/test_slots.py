"""Slots of an instance: tasks are dealt to them evenly, and few change their slot."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

import taskplace
from taskplace import Instance, Plan, Problem, TaskId
from taskplace.errors import InputError
from taskplace.model.shares import is_even
from taskplace.planner import over_slots
from taskplace.simulation import Cluster
from taskplace.verify import verify
from tests.support.scenarios import scenario
from tests.support.stateful_tasks import ids, stateful


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 40])
def test_slots_are_even_in_all_and_per_subtopology_and_sticky(slots):
    tasks = [*ids(0, 7), *ids(1, 3), *ids(2, 16)]
    now = over_slots(tasks, slots)
    assert sorted(t for slot in now for t in slot) == sorted(tasks)
    for group in (tasks, ids(0, 7), ids(1, 3), ids(2, 16)):
        n = [len(set(slot) & set(group)) for slot in now]
        assert max(n) - min(n) <= 1
    assert over_slots(tasks, slots, now) == now


@pytest.mark.parametrize("tasks", [3, 300])
def test_a_capacity_beyond_the_tasks_costs_nothing(tasks):
    now = over_slots(ids(0, tasks), 1_000_000)
    assert [len(slot) for slot in now] == [1] * tasks + [0] * max(0, 256 - tasks)
    assert over_slots(ids(0, tasks), 1_000_000, now) == now
    instances = tuple(Instance(f"{k}", capacity=1_000_000 - k) for k in range(30))
    problem = Problem(stateful(*ids(0, tasks)), instances)
    made = taskplace.check(problem, taskplace.plan(problem))
    assert max(map(len, made.slots.values())) == 256


def test_slots_that_come_and_go_move_few_tasks():
    tasks = ids(0, 12)
    three = over_slots(tasks, 3)
    four = over_slots(tasks, 4, three)
    assert sum(len(set(a) - set(b)) for a, b in zip(three, four, strict=False)) == 3
    assert [len(slot) for slot in over_slots(tasks, 3, four)] == [4, 4, 4]
    with pytest.raises(InputError, match="slots: found 0"):
        over_slots(tasks, 0)


@pytest.mark.parametrize("kind", ["scale-out", "several", "drain"])
@pytest.mark.parametrize("seed", range(4))
def test_a_plan_deals_actives_to_slots_evenly_and_moves_few_of_them(kind, seed):
    s = scenario(kind, seed, largest=0.5)
    cluster = Cluster.of(s.problem)
    slots: Mapping[str, tuple[tuple[TaskId, ...], ...]] = {}
    for group in ((), *s.events):
        for event in group:
            event.apply(cluster)
        for _ in range(3):
            bare = cluster.problem()
            known = [dataclasses.replace(i, slots=slots.get(i.id, ())) for i in bare.instances]
            problem = Problem(bare.tasks, known, bare.config)
            assert Problem.from_dict(problem.to_dict()) == problem
            plan = taskplace.check(problem, taskplace.plan(problem))
            assert Plan.from_dict(plan.to_dict()) == plan
            for i in problem.instances:
                held = plan.assignment[i.id].active
                if i.capacity < 2 or not held:
                    assert i.id not in plan.slots
                    continue
                assert len(plan.slots[i.id]) == i.capacity
                assert is_even(plan.slots[i.id], held)
                if i.slots and is_even(i.slots, held):
                    assert plan.slots[i.id] == i.slots
            slots = plan.slots
            cluster.apply(plan)
            cluster.advance(600_000)


def test_slots_of_a_plan_are_verified():
    tasks = ids(0, 4)
    problem = Problem(stateful(*tasks), (Instance("a", 2, active=tasks, lags=dict.fromkeys(tasks, 0)),))
    plan = taskplace.plan(problem)
    assert plan.slots == {"a": ((tasks[0], tasks[2]), (tasks[1], tasks[3]))}
    for wrong in (
        {"a": ((tasks[0],), (tasks[1], tasks[2], tasks[3]))},
        {"a": ((tasks[0], tasks[2]), (tasks[1],))},
        {"a": ((tasks[0],), (tasks[1],), tuple(tasks[2:]))},
    ):
        assert [v.invariant for v in verify(problem, dataclasses.replace(plan, slots=wrong))] == ["slots"]
    found = verify(problem, dataclasses.replace(plan, slots={"z": ()}))
    assert [v.invariant for v in found] == ["known"]
    old = plan.to_dict()
    del old["slots"]
    assert verify(problem, Plan.from_dict(old)) == ()
