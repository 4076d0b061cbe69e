"""What the driver knows of its cluster: what is reported is planned from, and ranks as the engine ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from taskplace import PlacementConfig, Problem, Task
from taskplace.explanation import Wait, can_remove
from taskplace.model.placement import caught_at
from taskplace.rebalance import RebalanceLoop
from taskplace.rebalance.triggers import Situation, caught_up, overtaken
from taskplace.spark.bridge import Executor
from taskplace.spark.checkpoint.files import write_file
from taskplace.spark.checkpoint.history import trimmed_since
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.codec import checksum_of
from taskplace.spark.driver.cluster_state import WINDOW_SECONDS, ClusterState, WarmupProgress
from taskplace.spark.messages import EMPTY, Change, History, Position, Snapshot
from taskplace.validation import MOST
from topology import TaskId

TASK = TaskId(0, 0)


def at(batch):
    return Position(batch, f"a{batch}", 10 * (batch + 1))


def commit(journal: Journal, batch: int, tasks=(TASK,)) -> None:
    """Commit 10 records to each task."""
    changes = {}
    for task in tasks:
        name = f"changelog/{task}/{batch:010d}-a{batch}.arrow"
        write_file(journal.root / name, b"x", sync=False)
        base = f"a{batch - 1}" if batch else ""
        changes[task] = Change(batch, f"a{batch}", base, 10 * (batch + 1), 10, name, 1, checksum_of(b"x"))
    journal.commit(batch, 1, changes, {}, {})


def snapshot(journal: Journal, batch: int, records: int) -> Snapshot:
    """Return a snapshot of task 0_0 as it was after a batch."""
    name = f"snapshots/0_0/{batch}.arrow"
    write_file(journal.root / name, b"x", sync=False)
    return Snapshot(batch, f"a{batch}", 10 * (batch + 1), records, name, 1, checksum_of(b"x"))


@pytest.fixture
def journal(tmp_path):
    """Two commits of 10 records each to task 0_0."""
    journal = Journal(tmp_path, {})
    for batch in range(2):
        commit(journal, batch)
    return journal


@pytest.fixture
def state(journal):
    loop = RebalanceLoop(PlacementConfig(acceptable_recovery_lag=0))
    return ClusterState(journal, loop, tags={"h1": {"zone": "a"}}, clock=lambda: 0.0)


def test_a_follow_job_makes_a_member_and_what_it_found_is_what_the_engine_sees(state):
    state.join(Executor("1", "h1", 4), {TASK: at(0)}, pid=1)
    state.join(Executor("2", "h2", 2), {TASK: EMPTY}, pid=2)
    first, second = state.instances()
    assert (first.id, first.capacity, first.tags) == ("executor-1", 4, {"host": "h1", "zone": "a"})
    assert first.lags == {TASK: 0}  # one commit behind: what the last one wrote is on its way
    assert second.lags == {}  # a directory without anything in it is no copy


def test_a_copy_that_is_older_than_the_history_lacks_a_whole_snapshot(journal, state):
    """Its offset is near the end. But the changes behind it are gone, so it cannot read only these."""
    state.join(Executor("1", "h1", 1), {TASK: at(1)}, pid=1)
    state.join(Executor("2", "h2", 1), {TASK: at(3)}, pid=2)
    lags = []
    for batch in range(2, 5):
        if batch > 2:
            journal.add_snapshots({TASK: snapshot(journal, batch - 1, records=25 + batch)})
        before = journal.history
        commit(journal, batch)
        state.committed({TASK, *trimmed_since(before, journal.history)})
        lags.append([instance.lags[TASK] for instance in state.instances()])
    assert [change.version for change in journal.history[TASK].changes] == [3, 4]
    assert lags == [[0, 0], [10, 0], [29, 0]]


def test_a_history_is_trimmed_without_a_change_in_the_batch(journal):
    other = TaskId(0, 1)
    for batch in (2, 3):
        journal.add_snapshots({TASK: snapshot(journal, batch - 2, records=5)})
        before = journal.history
        commit(journal, batch, tasks=(other,))
    assert trimmed_since(before, journal.history) == {TASK}
    assert trimmed_since(journal.history, journal.history) == set()


def test_who_is_gone_is_no_instance_owns_nothing_and_may_come_back(state):
    for name in "12":
        state.join(Executor(name, "h", 1), {TASK: at(1)}, pid=1)
    state._loop.rebalance_if_needed([Task(TASK, end_offset=20)], state.instances())
    assert state._loop.generation == 1
    [owner] = state.owners().values()
    state.draining.add(owner.instance)
    other = "1" if owner.id == "2" else "2"
    assert [member.executor.id for member in state.keep({other})] == [owner.id]
    assert state.owners() == {TASK: None}
    assert state.behind() == {TASK}
    assert (state.gone, state.draining) == ({owner.instance}, set())
    state._loop.rebalance_if_needed([Task(TASK, end_offset=20)], state.instances())
    assert state._loop.generation == 2
    assert state.owners() == {TASK: state.members[f"executor-{other}"].executor}
    assert state.behind() == frozenset()
    state.join(owner, {}, pid=3)
    assert state.gone == set()


def test_a_follower_without_a_copy_has_all_of_it_to_apply(journal):
    loop = RebalanceLoop(PlacementConfig(num_standby_replicas=1, acceptable_recovery_lag=0))
    state = ClusterState(journal, loop)
    state.join(Executor("1", "h", 1), {TASK: at(1)}, pid=1)
    state.join(Executor("2", "h", 1), {}, pid=1)
    loop.rebalance_if_needed([Task(TASK, end_offset=20)], state.instances())
    assert [(view.active, view.standby, view.lag) for view in state.placement()] == [(1, 0, 0), (0, 1, 10)]
    state.moved("executor-2", TASK, at(0))
    assert [view.lag for view in state.placement()] == [0, 0]


def test_the_rate_of_catching_up_is_measured_where_there_was_enough_to_do(state):
    state.join(Executor("1", "h", 1), {}, pid=1)
    state.caught_up_by("executor-1", 10, 1.0)
    assert state.instances()[0].restore_rate is None
    state.caught_up_by("executor-1", 10_000, 1.0)
    state.caught_up_by("executor-1", 20_000, 1.0)
    assert state.instances()[0].restore_rate == 15_000


def test_a_copy_without_a_role_is_named_once_it_has_been_so_for_long_enough(journal):
    now = [0.0]
    loop = RebalanceLoop(PlacementConfig())
    state = ClusterState(journal, loop, clock=lambda: now[0])
    state.join(Executor("1", "h", 1), {TASK: at(1), TaskId(9, 9): at(1)}, pid=1)
    loop.rebalance_if_needed([Task(TASK, end_offset=20)], state.instances())
    assert state.without_role(60) == {}
    now[0] = 61.0
    assert state.without_role(60) == {"executor-1": [TaskId(9, 9)]}
    state.join(Executor("1", "h", 1), {TASK: at(1)}, pid=1)
    assert state.without_role(60) == {}


@pytest.mark.parametrize("lost", [True, False])
def test_a_copy_without_a_role_stays_while_it_is_the_best_of_its_task(journal, lost):
    """Its owner is lost, or lags, and the next plan is still to come."""
    now = [0.0]
    loop = RebalanceLoop(PlacementConfig(acceptable_recovery_lag=0))
    state = ClusterState(journal, loop, [Task(TASK)], clock=lambda: now[0])
    state.join(Executor("1", "h", 1), {TASK: at(1)}, pid=1)
    loop.rebalance_if_needed([Task(TASK, end_offset=20)], state.instances(), lags=state.lags)
    state.join(Executor("2", "h", 1), {TASK: at(1)}, pid=1)
    assert state.without_role(60) == {}
    now[0] = 61.0
    assert state.without_role(60) == {"executor-2": [TASK]}
    if lost:
        state.keep({"2"})
    else:
        state.moved("executor-1", TASK, EMPTY)
    assert state.without_role(60) == {}
    loop.rebalance_if_needed([Task(TASK, end_offset=20)], state.instances(), lags=state.lags)
    assert state.roles("executor-2").active == (TASK,)


# -- the driver's index of lags ranks as the engine does, whatever is reported; no Spark needed


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
    def follow(self, name, copies):
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
    def lags_are_those_of_the_moment(self):
        self.state.lags.check()
        for instance in self.state.instances():
            assert instance.lags == {
                task: max(0, self.log.settled_offset(task) - position.offset)
                for task, position in self.state.members[instance.id].copies.items()
                if position != EMPTY
            }
        for gone in {f"executor-{name}" for name in "123"} - self.state.members.keys():
            assert self.state.lags.lags(gone) == {}

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


# -- when a warm-up has caught up: from its progress, or from its executor's rate while it shows none yet


@pytest.mark.parametrize(
    ("lags", "given", "remaining"),
    [
        ([(0, 900)], {}, None),
        ([(0, 900)], {"rate": 100.0, "ahead": 1_100}, 20.0),  # its turn, at the rate of its executor
        ([(0, 900), (10, 950)], {"rate": 100.0}, 9.5),  # it shows no progress yet
        ([(0, 900)], {"rate": 100.0, "acceptable": 400}, 5.0),
        ([(0, 900), (10, 500)], {"rate": 1.0, "acceptable": 400}, 2.5),  # at its own pace
        ([(0, 900), (10, 500), (12, 400)], {"acceptable": 400}, 0.0),
        ([(now, 900) for now in range(0, int(WINDOW_SECONDS), 2)], {"rate": 100.0}, None),  # it is stuck
    ],
)
def test_the_time_until_a_copy_has_caught_up(lags, given, remaining):
    progress = WarmupProgress(now=0.0)
    for now, lag in lags:
        progress.observe(lag, now=float(now))
    assert progress.remaining(**given) == remaining


def test_the_time_without_a_record_is_known():
    progress = WarmupProgress(now=0.0)
    for now, lag, applied, idle in ((0.0, 900, 100, 0.0), (10.0, 1_000, 100, 10.0), (20.0, 990, 110, 0.0)):
        progress.observe(lag, now=now, applied=applied)  # meanwhile, a batch adds records
        assert progress.idle == idle


def test_looking_often_does_not_shorten_the_past_that_counts():
    progress = WarmupProgress(now=0.0)
    for tenth in range(0, 600):
        progress.observe(10_000 - 10 * tenth, now=tenth / 10)
    assert progress.pace() == pytest.approx(100.0)
    assert progress.remaining() == pytest.approx(progress._samples[-1][1] / 100.0)
    assert len(progress._samples) <= 40, "of 600"
