"""Moves go on as soon as the copies that they wait for have caught up: the probing timer is not needed for that."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace import Instance, PlacementConfig, Task, TaskId
from taskplace.rebalance import RebalanceLoop

END = 150_000
A, B = TaskId(0, 0), TaskId(0, 1)


def test_a_standby_that_becomes_the_active_copy_is_waited_for_like_a_warm_up() -> None:
    tasks = [Task(A, end_offset=END), Task(B, end_offset=END)]
    loop = RebalanceLoop(PlacementConfig(num_standby_replicas=1), clock=lambda: 0.0)
    owner = Instance("a", lags={A: 0, B: 0})
    loop.rebalance_if_needed(tasks, [owner])
    begun = loop.rebalance_if_needed(tasks, [owner, Instance("b")])
    assert begun is not None and begun.plan.followup
    assert set(begun.plan.assignment["b"].standby) == {A, B}  # so neither needs a warm-up
    assert loop.rebalance_if_needed(tasks, [owner, Instance("b", lags={A: 60_000, B: 60_000})]) is None
    finished = loop.rebalance_if_needed(tasks, [owner, Instance("b", lags={A: 0, B: 0})])
    assert finished is not None and not finished.plan.followup
    assert [trigger.kind for trigger in finished.triggers] == ["caught up"]
    assert [len(finished.plan.assignment[name].active) for name in "ab"] == [1, 1]


class Copies:
    """Two instances with all copies; then one is lost and replaced, and a third one joins. The timer never ends."""

    def __init__(self, seed: int, standbys: int) -> None:
        self.rng, self.lags = random.Random(seed), dict[tuple[str, TaskId], int]()
        self.tasks = [Task(TaskId(0, number), end_offset=END) for number in range(12)]
        self.loop = RebalanceLoop(PlacementConfig(num_standby_replicas=standbys), clock=lambda: 0.0)
        self.names = {"a", "b"}

    def look(self) -> None:
        """Let the loop look, and give each copy of the plan in force a lag."""
        lags = {
            name: {task: lag for (at, task), lag in self.lags.items() if at == name} for name in self.names
        }
        self.loop.rebalance_if_needed(
            self.tasks, [Instance(name, capacity=2, lags=lags[name]) for name in sorted(lags)]
        )
        assert self.loop.plan is not None
        for name, roles in self.loop.plan.assignment.items():
            self.lags |= {(name, task): 0 for task in roles.active}
            for task in (*roles.standby, *roles.warmup):
                self.lags.setdefault((name, task), END)

    def progress(self) -> None:
        """Let some copies read on."""
        for copy, lag in self.lags.items():
            if lag and self.rng.random() < 0.3:
                self.lags[copy] = max(0, lag - self.rng.randint(1, END // 2))

    def lose(self, name: str) -> None:
        self.names.discard(name)
        self.lags = {copy: lag for copy, lag in self.lags.items() if copy[0] != name}


@pytest.mark.parametrize("standbys", [0, 1, 2])
@given(seed=st.integers(0, 1 << 16), joins=st.integers(1, 60), replaced=st.integers(1, 12))
def test_all_moves_are_made_without_the_timer(standbys: int, seed: int, joins: int, replaced: int) -> None:
    copies = Copies(seed, standbys)
    for number in range(250):
        if number == 30:
            copies.lose("a")
        if number == 30 + replaced:
            copies.names.add("d")
        if number == joins + 30:
            copies.names.add("c")
        copies.look()
        copies.progress()
    plan = copies.loop.plan
    assert plan is not None
    assert {name: set(roles.active) for name, roles in plan.assignment.items()} == {
        name: set(roles.active) for name, roles in plan.target.items()
    }
    assert {len(roles.active) for roles in plan.assignment.values()} == {4}
    assert not any(
        roles.warmup for roles in plan.assignment.values()
    )  # a standby too many may stay until the timer
