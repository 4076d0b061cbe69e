"""The fewest moves, proved without the flow by which targets are made."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace import Instance, PlacementConfig, Problem, Task, TaskId, planner
from taskplace.assign import target
from taskplace.model.placement import bases, moved
from taskplace.model.plan import Optimality
from taskplace.model.proofs import saving
from taskplace.model.shares import floors_and_ceilings
from taskplace.verify import verify

END = 50_000


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    tasks = [TaskId(s, p) for s in range(draw(st.integers(1, 2))) for p in range(draw(st.integers(1, 3)))]
    names = "abc"[: draw(st.integers(1, 3))]
    owner = {t: draw(st.sampled_from([None, *names])) for t in tasks}
    lag = {(n, t): draw(st.sampled_from([None, 0, 20_000])) for n in names for t in tasks}
    instances = []
    for n in names:
        room, draining = draw(st.integers(1, 2)), draw(st.integers(0, 5)) == 0
        lags = {t: lag[n, t] for t in tasks if lag[n, t] is not None}
        active = [t for t in tasks if owner[t] == n]
        instances.append(Instance(n, room, draining=draining, active=active, lags=lags))
    return Problem([Task(t, end_offset=END) for t in tasks], instances)


@settings(max_examples=60, deadline=None, print_blob=True)
@given(problem=problems(), seed=st.integers(0, 10**6))
def test_what_can_be_saved_is_what_trying_all_placements_says(problem, seed):
    c = problem.columns
    if not (c.open_slots > 0).any():
        return
    base, tasks = bases(c), np.flatnonzero(c.stateful)
    found = []
    for choice in itertools.product(np.flatnonzero(c.open_slots > 0).tolist(), repeat=len(tasks)):
        place = np.full(c.n, -1, np.int64)
        place[tasks] = choice
        groups = [tasks, *(tasks[c.sub[tasks] == s] for s in range(len(c.subtopologies)))]
        bounds = [
            (*floors_and_ceilings(len(g), c.open_slots), np.bincount(place[g], minlength=c.m)) for g in groups
        ]
        if all(((low <= n) & (n <= high)).all() for low, high, n in bounds):
            found.append((int(moved(c, base, place).sum()), place))
    best = min(moves for moves, _ in found)
    moves, place = found[seed % len(found)]  # any balanced placement, not only a good one
    assert saving(c, base, place) == moves - best


A, B, C, D = (TaskId(0, p) for p in range(4))
PROBLEM = Problem(
    [Task(t, end_offset=END) for t in (A, B, C, D)],
    [Instance("a", active=(A, B), lags={A: 0, B: 0}), Instance("b", active=(C, D), lags={C: 0, D: 0})],
    PlacementConfig(acceptable_recovery_lag=END),
)


@pytest.fixture
def a_flow_that_is_wrong(monkeypatch):
    """A flow that swaps two tasks for nothing, and says that it has to be so."""
    right = target.place_actives

    def place_actives(c, base):
        found = right(c, base)
        return dataclasses.replace(found, place=found.place[[2, 1, 0, 3]], moves=2, lower_bound=2)

    monkeypatch.setattr(target, "place_actives", place_actives)
    monkeypatch.setattr(target, "_steady", lambda *_: None)


@pytest.mark.usefixtures("a_flow_that_is_wrong")
def test_needless_moves_of_a_wrong_flow_show_at_the_full_level():
    plan = planner.plan(PROBLEM)  # "quick": the bound is believed
    assert plan.optimality == Optimality(2, 2, 0)
    assert verify(PROBLEM, plan, level="quick") == ()
    found = {v.invariant: v.text for v in verify(PROBLEM, plan)}
    assert set(found) == {"minimal", "figures"}
    assert found["minimal"] == "2 moves, although 0 are enough"
