"""The driver's index of lags ranks as the engine does, whatever is reported; no Spark needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from taskplace import PlacementConfig, Problem, Task
from taskplace.explanation import Wait, can_remove
from taskplace.model.placement import caught_at
from taskplace.rebalance import RebalanceLoop
from taskplace.rebalance.triggers import Situation, caught_up, overtaken
from taskplace.spark.bridge import Executor
from taskplace.spark.driver.cluster_state import ClusterState
from taskplace.spark.messages import EMPTY, History, Position
from taskplace.validation import MOST
from topology import TaskId

IDS = [TaskId(0, p) for p in range(3)]


class Changelogs:
    """As much of a journal as lags depend on: how long each changelog is, and was one commit ago."""

    def __init__(self):
        self.end, self.settled = {}, {}
        self.history = {}

    def end_offset(self, task):
        return self.end.get(task, 0)

    def settled_offset(self, task):
        return self.settled.get(task, 0)

    def commit(self, task, records):
        self.settled[task] = self.end_offset(task)
        self.end[task] = self.end_offset(task) + records
        self.history[task] = History()  # as one that was never trimmed


class Driver(RuleBasedStateMachine):
    names, tasks = st.sampled_from("123"), st.sampled_from(IDS)

    @initialize(
        lag=st.sampled_from([0, 20, MOST]),
        standbys=st.integers(0, 1),
        seconds=st.sampled_from([None, 0.01]),
        logged=st.lists(st.booleans(), min_size=3, max_size=3),
        before=st.dictionaries(tasks, st.integers(0, 30)),
    )
    def start(self, lag, standbys, seconds, logged, before):
        self.config = PlacementConfig(
            acceptable_recovery_lag=lag,
            acceptable_recovery_seconds=seconds,
            num_standby_replicas=standbys,
            probing_rebalance_interval_ms=60_000,
        )
        self.placed = [Task(t, logged=has) for t, has in zip(IDS, logged, strict=True)]
        self.log = Changelogs()
        self.loop = RebalanceLoop(self.config, clock=lambda: 0.0)
        self.state = ClusterState(self.log, self.loop, self.placed)
        for task, records in before.items():  # read again as the checkpoint is taken over
            self.log.commit(task, records)

    @rule(name=names, copies=st.dictionaries(tasks, st.integers(0, 60)))
    def visit(self, name, copies):
        positions = {t: EMPTY if not offset else Position(1, "a", offset) for t, offset in copies.items()}
        self.state.join(Executor(name, "h", 1), positions, pid=1)

    @rule(name=names, records=st.sampled_from([1_000, 3_000]))
    def restore(self, name, records):
        if f"executor-{name}" in self.state.members:
            self.state.caught_up_by(f"executor-{name}", records, 1.0)

    @rule(name=names, task=tasks, offset=st.integers(0, 60))
    def report(self, name, task, offset):
        self.state.moved(f"executor-{name}", task, Position(1, "a", offset))

    @rule(written=st.dictionaries(tasks, st.integers(0, 30)))
    def commit(self, written):
        for task, records in written.items():
            self.log.commit(task, records)
        self.state.committed(written)

    @rule(alive=st.sets(names))
    def lose(self, alive):
        self.state.keep(alive)

    @rule(on=st.booleans(), name=names)
    def drain(self, on, name):
        (self.state.draining.add if on else self.state.draining.discard)(f"executor-{name}")

    @rule()
    def rebalance(self):
        if self.state.members:
            self.loop.rebalance_if_needed(self.measured(), self.state.instances(), lags=self.state.lags)

    def measured(self):
        return [task._replace(end_offset=self.log.end_offset(task.id)) for task in self.placed]

    @invariant()
    def an_executor_can_be_removed_if_the_engine_says_so(self):
        problem = Problem(self.measured(), self.loop.with_roles(self.state.instances()), self.config)
        for name in self.state.members:
            untimed = can_remove(problem, name).timed(
                lambda *_: None
            )  # the driver adds times from measured rates
            assert self.state.removal(name) == untimed

    @invariant()
    def events_are_those_of_an_index_that_is_made_anew(self):
        """The index that is kept from report to report suggests the plans that the reported lags suggest."""
        instances = tuple(self.state.instances())
        now = Situation(
            config=self.config,
            plan=self.loop.plan,
            planned_instances=instances,
            planned_tasks=frozenset(IDS),
            instances=instances,
            tasks=tuple(self.measured()),
            probing_due=False,
        )
        for rule_ in (caught_up, overtaken):
            assert list(rule_(replace(now, lags=self.state.lags))) == list(rule_(now))

    @invariant()
    def the_engine_says_the_same(self):
        instances = self.state.instances()
        if not instances:
            return
        c = Problem(self.measured(), instances, self.config).columns
        for i, name in enumerate(c.names):
            ready = dict(zip(c.ids, caught_at(c, np.full(c.n, i)).tolist(), strict=True))
            assert {t: self.state.lags.is_caught_up(name, t) for t in IDS} == ready
        best = {t: {*self.state.lags.most_caught_up(t)} for t in IDS}
        assert best == {
            t: {c.names[int(c.inst[k])] for k in np.flatnonzero(c.best & (c.task == n))}
            for n, t in enumerate(c.ids)
        }


TestDriver = Driver.TestCase
TestDriver.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_an_executor_can_go_once_another_copy_is_within_the_acceptable_lag():
    config = PlacementConfig(acceptable_recovery_lag=20, acceptable_recovery_seconds=0.01)
    log, task = Changelogs(), IDS[0]
    log.commit(task, 100)
    log.commit(task, 1)
    loop = RebalanceLoop(config, clock=lambda: 0.0)
    state = ClusterState(log, loop, [Task(task)])
    state.join(Executor("1", "h", 1), {task: Position(1, "a", 101)}, pid=1)
    loop.rebalance_if_needed([Task(task, end_offset=101)], state.instances(), lags=state.lags)
    assert state.removal("executor-1").alone
    state.join(Executor("2", "h", 1), {task: Position(1, "a", 79)}, pid=1)
    assert state.removal("executor-1").waits == (Wait(str(task), "active", "executor-2", 21),)
    state.moved("executor-2", task, Position(1, "a", 80))
    assert state.removal("executor-1").safe
    state.moved("executor-2", task, Position(1, "a", 70))
    assert not state.removal("executor-1").safe
    state.caught_up_by("executor-2", 3_000, 1.0)  # 30 records within the acceptable time
    assert state.removal("executor-1").safe
    state.draining.add("executor-2")
    assert state.removal("executor-1").alone
