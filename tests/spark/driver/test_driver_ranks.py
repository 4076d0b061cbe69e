"""The driver's index of lags ranks as the engine does, whatever is reported; no Spark needed."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from taskplace import PlacementConfig, Problem, Task
from taskplace.model.placement import caught_at
from taskplace.rebalance import RebalanceLoop
from taskplace.spark.bridge import Executor
from taskplace.spark.driver.cluster_state import ClusterState
from taskplace.spark.messages import EMPTY, Position
from taskplace.validation import MOST
from topology import TaskId

IDS = [TaskId(0, p) for p in range(3)]


class Changelogs:
    """As much of a journal as lags depend on: how long each changelog is, and was one commit ago."""

    def __init__(self):
        self.end, self.settled = {}, {}
        self.history = self.end

    def end_offset(self, task):
        return self.end.get(task, 0)

    def settled_offset(self, task):
        return self.settled.get(task, 0)

    def commit(self, task, records):
        self.settled[task] = self.end_offset(task)
        self.end[task] = self.end_offset(task) + records


class Driver(RuleBasedStateMachine):
    names, tasks = st.sampled_from("123"), st.sampled_from(IDS)

    @initialize(
        lag=st.sampled_from([0, 20, MOST]),
        seconds=st.sampled_from([None, 0.01]),
        logged=st.lists(st.booleans(), min_size=3, max_size=3),
        before=st.dictionaries(tasks, st.integers(0, 30)),
    )
    def start(self, lag, seconds, logged, before):
        self.config = PlacementConfig(acceptable_recovery_lag=lag, acceptable_recovery_seconds=seconds)
        self.placed = [Task(t, logged=has) for t, has in zip(IDS, logged, strict=True)]
        self.log = Changelogs()
        self.state = ClusterState(self.log, RebalanceLoop(self.config), self.placed)
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

    @invariant()
    def the_engine_says_the_same(self):
        instances = self.state.instances()
        if not instances:
            return
        tasks = [task._replace(end_offset=self.log.end_offset(task.id)) for task in self.placed]
        c = Problem(tasks, instances, self.config).columns
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
