"""Spark's executors as a group: reports join, one call rebalances, generations fence."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from taskplace.errors import InputError
from taskplace.group import ExecutorGroup, LagReport, ProtocolError, StaleGeneration
from taskplace.group.executors import Work
from topology import TaskId

TASKS = [TaskId(0, p) for p in range(5)]


def deal(reports: Mapping[str, LagReport]) -> dict[str, Work]:
    names = sorted(reports)
    return {n: Work(tuple(TASKS[k :: len(names)]), probing_ms=600_000) for k, n in enumerate(names)}


class ExecutorHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = ExecutorGroup("orders", generation=41)
        self.now = 0.0
        self.alive: set[str] = set()
        self.given: dict[str, int] = {}
        self.newest = 41

    @rule(k=st.integers(0, 5), offset=st.integers(0, 9))
    def report(self, k: int, offset: int) -> None:
        self.now += 1
        self.alive.add(f"e{k}")
        self.group.report(f"e{k}", LagReport({TASKS[0]: (1, offset)}, {"zone": "a"}, 2).encode(), self.now)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.now += 1
        name = data.draw(st.sampled_from(sorted(self.alive)))
        self.alive.discard(name)
        assert self.group.keep(self.alive, self.now) == [name]
        with pytest.raises(StaleGeneration):
            self.group.admit(name, self.group.generation)

    @rule()
    def rebalance(self) -> None:
        self.now += 1
        states = self.group.rebalance(self.now, deal)
        assert set(states) == self.alive
        dealt = sorted(t for data in states.values() for t in Work.decode(data).active)
        assert dealt == (TASKS if self.alive else [])
        assert not self.group.wants_rebalance
        assert self.group.generation > self.newest
        for name, generation in self.given.items():
            if name in self.alive:
                with pytest.raises(StaleGeneration):
                    self.group.admit(name, generation)
        self.given = dict.fromkeys(states, self.group.generation)
        for name in states:
            self.group.admit(name, self.group.generation)

    @invariant()
    def generations_only_grow_and_reports_are_those_of_the_living(self) -> None:
        assert self.group.generation >= self.newest
        self.newest = self.group.generation
        assert set(self.group.reports) == self.alive


TestExecutorHistory = ExecutorHistory.TestCase
TestExecutorHistory.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_the_plan_gets_every_report_and_each_executor_its_own_work() -> None:
    group = ExecutorGroup("orders")
    said = {
        f"executor-{k}": LagReport({TASKS[k]: (7, k * 10)}, {"zone": "ab"[k % 2]}, k + 1) for k in range(3)
    }
    for name, report in said.items():
        group.report(name, report.encode(), 0.0)
    seen: list[Mapping[str, LagReport]] = []
    states = group.rebalance(0.0, lambda reports: seen.append(reports) or deal(reports))  # type: ignore[func-returns-value]
    assert seen == [said]
    assert Work.decode(states["executor-1"]) == Work((TASKS[1], TASKS[4]), probing_ms=600_000)


def test_a_plan_that_fails_leaves_nobody_at_work_until_the_next() -> None:
    group = ExecutorGroup("orders")
    group.report("e1", LagReport().encode(), 0.0)
    group.rebalance(0.0, deal)

    def fails(reports: Mapping[str, LagReport]) -> dict[str, Work]:
        raise RuntimeError("no valid plan")

    with pytest.raises(RuntimeError, match="no valid plan"):
        group.rebalance(1.0, fails)
    assert group.wants_rebalance
    for generation in (1, 2):
        with pytest.raises(StaleGeneration):
            group.admit("e1", generation)
    group.rebalance(2.0, deal)
    group.admit("e1", group.generation)


def test_silence_and_bad_reports() -> None:
    group = ExecutorGroup("orders", session_timeout_ms=5_000)
    group.report("e1", LagReport().encode(), 0.0)
    group.report("e2", LagReport().encode(), 4.0)
    assert group.keep(["e1", "e2"], 6.0) == ["e1"]
    with pytest.raises(ProtocolError, match="report: found"):
        group.report("e3", b"\x00", 6.0)
    assert set(group.reports) == {"e2"}
    with pytest.raises(InputError, match="another name than the driver's"):
        group.report("driver", LagReport().encode(), 6.0)
