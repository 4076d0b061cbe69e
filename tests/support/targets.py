"""Small problems, and the counts of their targets."""

from __future__ import annotations

import hypothesis.strategies as st

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId

END = 50_000


def ids(subtopology: int, count: int) -> list[TaskId]:
    return [TaskId(subtopology, p) for p in range(count)]


def counts(plan: taskplace.Plan, which: str = "target") -> dict[str, int]:
    return {name: len(roles.active) for name, roles in getattr(plan, which).items()}


@st.composite
def small_problems(draw: st.DrawFn) -> Problem:
    tasks = [
        Task(TaskId(s, p), end_offset=draw(st.sampled_from([0, 200, END])))
        for s in range(draw(st.integers(1, 2)))
        for p in range(draw(st.integers(1, 3)))
    ]
    names = [chr(ord("a") + k) for k in range(draw(st.integers(1, 4)))]
    copies: dict[str, dict[TaskId, int]] = {n: {} for n in names}
    roles: dict[str, dict[str, list[TaskId]]] = {
        n: {"active": [], "standby": [], "warmup": []} for n in names
    }
    for t in tasks:
        owner = draw(st.sampled_from([None, *names]))
        if owner:
            roles[owner]["active"].append(t.id)
        for n in names:
            lag = draw(st.sampled_from([None, None, 0, 100, 20_000]))
            if lag is not None:
                copies[n][t.id] = min(lag, t.end_offset or 0)
                role = draw(st.sampled_from(["", "standby", "warmup"]))
                if role and n != owner:
                    roles[n][role].append(t.id)
    instances = [
        Instance(
            n,
            draw(st.integers(1, 3)),
            draining=draw(st.integers(0, 5)) == 0,
            lags=copies[n],
            **{k: tuple(v) for k, v in roles[n].items()},
        )
        for n in names
    ]
    return Problem(tasks, instances, PlacementConfig(acceptable_recovery_lag=100))
