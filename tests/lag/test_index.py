"""The index of copies by lag, against a dictionary that is searched in full."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from taskplace import LagIndex, PlacementConfig, TaskId
from taskplace.errors import InputError
from taskplace.lag.ranking import Acceptable
from taskplace.validation import MOST

TASKS = st.builds(TaskId, st.integers(0, 2), st.integers(0, 3))
NAMES = st.sampled_from(["a", "b", "c", "d"])
LIMIT = 50


class LagIndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = LagIndex(LIMIT)
        self.copies: dict[tuple[str, TaskId], int] = {}
        self.end: dict[TaskId, int] = {}
        self.unlogged: set[TaskId] = set()

    @rule(name=NAMES, task=TASKS, lag=st.integers(0, 120))
    def report(self, name, task, lag):
        self.index.report(name, task, lag)
        self.copies[name, task] = lag

    @rule(name=NAMES, task=TASKS)
    def drop(self, name, task):
        self.index.drop(name, task)
        self.copies.pop((name, task), None)

    @rule(name=NAMES)
    def forget(self, name):
        self.index.forget(name)
        self.copies = {key: lag for key, lag in self.copies.items() if key[0] != name}

    @rule(task=TASKS, end=st.integers(0, 200), logged=st.booleans())
    def end_offset(self, task, end, logged):
        self.index.end_offset(task, end, logged=logged)
        self.end[task] = end
        (self.unlogged.discard if logged else self.unlogged.add)(task)

    @invariant()
    def it_agrees_with_a_full_search(self):
        self.index.check()
        for task in {task for _, task in self.copies} | set(self.end):
            mine = sorted((lag, name) for (name, t), lag in self.copies.items() if t == task)
            assert [(lag, name) for name, lag in self.index.by_lag(task)] == mine
            end = self.end.get(task)
            universal = task in self.unlogged or end == 0
            # A copy that lacks more than there is belongs to a changelog that was reset.
            usable = [(lag, name) for lag, name in mine if universal or end is None or lag <= end]
            ready = tuple(name for lag, name in usable if universal or lag <= LIMIT)
            assert self.index.caught_up(task) == ready
            some = [(lag, name) for lag, name in usable if end is None or lag < end]
            best = ready or tuple(name for lag, name in some if lag == some[0][0])
            assert self.index.most_caught_up(task) == best
            assert self.index.universal(task) == universal
            for name in "abcd":
                lag = self.copies.get((name, task))
                rank = self.index.rank(name, task)
                assert self.index.is_caught_up(name, task) == (rank == 0)
                if universal:
                    assert rank == 0
                elif (lag, name) not in usable:
                    assert rank == (MOST if end is None else max(end, LIMIT + 1))
                else:
                    assert rank == (0 if lag <= LIMIT else lag)
                assert ((name, task) in self.index) == (lag is not None)

    @invariant()
    def it_gives_the_lags_of_an_instance(self):
        for name in "abcd":
            expected = {task: lag for (n, task), lag in self.copies.items() if n == name}
            assert self.index.lags(name) == expected


TestLagIndex = LagIndexMachine.TestCase
TestLagIndex.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("lag", [-1, 1.5, True])
def test_a_bad_lag_is_refused(lag):
    with pytest.raises(InputError, match="expected an integer of at least 0"):
        LagIndex().report("a", TaskId(0, 0), lag)


def test_what_is_acceptable_by_default_is_what_the_configuration_says():
    config = PlacementConfig()
    assert Acceptable() == config.acceptable == Acceptable(10_000, None)
    index, task = LagIndex(), TaskId(0, 0)
    index.end_offset(task, 50_000)
    for name, lag in (("a", 10_000), ("b", 10_001)):
        index.report(name, task, lag)
    assert index.caught_up(task) == ("a",)
    index.end_offset(task, 50_000, logged=False)
    assert index.caught_up(task) == ("a", "b")
