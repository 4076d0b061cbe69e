"""Stateless tasks fill up the least loaded instances, level, and stay where they are level."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

import taskplace
from taskplace import Instance, Problem, Task, TaskId
from taskplace.model.shares import level_loads
from tests.support.targets import END, counts, ids


def test_stateless_tasks_fill_up_the_least_loaded_and_stay() -> None:
    stateful, loose = ids(0, 4), ids(1, 5)
    tasks = [Task(t, end_offset=END) for t in stateful] + [Task(t, stateful=False) for t in loose]
    at = [Instance("a", active=[*stateful[:2], loose[0]], lags=dict.fromkeys(stateful[:2], 0))]
    at.append(Instance("b", active=[*stateful[2:], *loose[1:]], lags=dict.fromkeys(stateful[2:], 0)))
    plan = taskplace.plan(Problem(tasks, at))
    assert counts(plan) == {"a": 4, "b": 5}
    assert not plan.followup
    assert loose[0] in plan.assignment["a"].active
    assert len([m for m in plan.moves if m.task in loose]) == 1


@settings(deadline=None)  # the machine may be busy
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any),
    st.integers(0, 12),
    st.integers(0, 12),
    st.data(),
)
def test_stateless_tasks_are_level_and_a_level_placement_is_kept(
    room: list[int], stateful: int, loose: int, data: st.DataObject
) -> None:
    capacity = np.array(room)
    owners = [data.draw(st.integers(-1, len(room) - 1)) for _ in range(loose)]
    instances = [
        Instance(f"i{k}", c, active=[TaskId(1, p) for p, o in enumerate(owners) if o == k])
        for k, c in enumerate(room)
    ]
    tasks = [Task(t) for t in ids(0, stateful)] + [Task(t, stateful=False) for t in ids(1, loose)]
    if not tasks:
        return
    problem = Problem(tasks, instances)
    plan = taskplace.plan(problem)
    load = np.array(list(counts(plan).values()))
    busy = np.array([sum(t.subtopology == 0 for t in r.active) for r in plan.target.values()])
    low, high = level_loads(len(tasks), len(tasks), busy, capacity)
    assert ((low <= load) & (load <= high)).all()
    level = [
        Instance(name, c, active=r.active, lags=dict.fromkeys(r.active, 0))
        for (name, r), c in zip(plan.target.items(), room, strict=True)
    ]
    assert taskplace.plan(Problem(tasks, level)).stable
