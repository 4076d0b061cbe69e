"""Random histories: instances come and go, drain and fall behind, tasks appear and disappear, copies catch up slowly.

After every action the plan is verified; whenever the cluster is left alone, it comes to rest.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import taskplace
from taskplace import PlacementConfig, Task, TaskId
from taskplace.simulation import Cluster
from taskplace.simulation.run import settle

END = 60_000


class History(RuleBasedStateMachine):
    cluster: Cluster

    @initialize(
        standbys=st.integers(0, 2),
        warmups=st.integers(1, 3),
        acceptable=st.sampled_from([0, 1_000, 10_000]),
        instances=st.integers(1, 4),
        partitions=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    )
    def begin(self, standbys, warmups, acceptable, instances, partitions):
        config = PlacementConfig(
            num_standby_replicas=standbys, max_warmup_replicas=warmups, acceptable_recovery_lag=acceptable
        )
        tasks = [
            Task(TaskId(s, p), stateful=s != 2, end_offset=END, logged=(s, p) != (1, 1))
            for s, n in enumerate(partitions)
            for p in range(n)
        ]
        self.cluster = Cluster(tasks, config, restore_rate=50.0)  # 30,000 records in a round
        self.made = 0
        for _ in range(instances):
            self.add_instance(1)

    @rule(capacity=st.integers(1, 3))
    def add_instance(self, capacity):
        self.cluster.add(f"i{self.made}", capacity)
        self.made += 1

    @precondition(lambda self: len(self.cluster.hosts) > 1)
    @rule(data=st.data(), disk=st.booleans())
    def lose_instance(self, data, disk):
        name = data.draw(st.sampled_from(sorted(self.cluster.hosts)))
        (self.cluster.stop if disk else self.cluster.kill)(name)

    @precondition(lambda self: self.cluster.stopped)
    @rule(data=st.data())
    def bring_back(self, data):
        self.cluster.start(data.draw(st.sampled_from(sorted(self.cluster.stopped))))

    @rule(data=st.data(), draining=st.booleans())
    def drain(self, data, draining):
        self.cluster.drain(data.draw(st.sampled_from(sorted(self.cluster.hosts))), draining)

    @rule(records=st.integers(1, 40_000))
    def produce(self, records):
        for t in list(self.cluster.tasks):
            self.cluster.produce(t, records)

    @rule(data=st.data(), lag=st.integers(0, END))
    def fall_behind(self, data, lag):
        host = self.cluster.hosts[data.draw(st.sampled_from(sorted(self.cluster.hosts)))]
        if host.copies:
            host.copies[data.draw(st.sampled_from(sorted(host.copies)))] = lag

    @rule(subtopology=st.integers(0, 3), partition=st.integers(0, 7), end=st.sampled_from([0, 500, END]))
    def add_task(self, subtopology, partition, end):
        t = TaskId(subtopology, partition)
        self.cluster.tasks.setdefault(t, Task(t, end_offset=end))

    @precondition(lambda self: len(self.cluster.tasks) > 1)
    @rule(data=st.data())
    def remove_task(self, data):
        del self.cluster.tasks[data.draw(st.sampled_from(sorted(self.cluster.tasks)))]

    @rule(milliseconds=st.sampled_from([0, 60_000, 600_000]))
    def plan_and_wait(self, milliseconds):
        self.cluster.apply(taskplace.plan(self.cluster.problem()))
        self.cluster.advance(milliseconds)

    @rule()
    def come_to_rest(self):
        rounds = settle(self.cluster, limit=400, watch=taskplace.check)
        assert not rounds[-1].plan.followup
        moves = [r.plan.optimality.moves for r in rounds]
        assert moves == sorted(moves, reverse=True)  # what is left to do never grows
        for _ in range(4):  # "stable" holds while time passes: nobody is overtaken later
            assert taskplace.plan(self.cluster.problem()).stable
            self.cluster.advance(600_000)

    @invariant()
    def the_plan_is_valid(self):
        if hasattr(self, "cluster"):
            problem = self.cluster.problem()
            taskplace.check(problem, taskplace.plan(problem))


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
