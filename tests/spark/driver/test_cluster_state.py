"""What the driver knows of its cluster: what is reported is what is planned from; no Spark needed."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from taskplace import PlacementConfig, Task
from taskplace.rebalance import RebalanceLoop
from taskplace.spark.bridge import Executor
from taskplace.spark.checkpoint.files import write_file
from taskplace.spark.checkpoint.history import trimmed_since
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.codec import checksum_of
from taskplace.spark.driver.cluster_state import ClusterState
from taskplace.spark.messages import EMPTY, Change, Position, Snapshot
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


def test_a_visit_makes_a_member_and_what_it_found_is_what_the_engine_sees(state):
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


def test_what_a_batch_moved_on_is_known_at_once(state):
    state.join(Executor("1", "h1", 1), {}, pid=1)
    state.moved("executor-1", TASK, at(1))
    assert state.instances()[0].lags == {TASK: 0}
    state.moved("executor-2", TASK, at(1))  # no member: nothing is known of it
    assert [instance.id for instance in state.instances()] == ["executor-1"]


def test_a_copy_that_a_visit_no_longer_finds_is_gone(state):
    state.join(Executor("1", "h1", 1), {TASK: at(1)}, pid=1)
    state.join(Executor("1", "h1", 1), {}, pid=1)
    assert state.instances()[0].lags == {}
    assert state.lags.most_caught_up(TASK) == ()


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


class _Log:
    """As much of a journal as lags depend on: how long each changelog is, and was one commit ago."""

    def __init__(self):
        self.end, self.settled, self.history = {}, {}, {}

    def end_offset(self, task):
        return self.end.get(task, 0)

    def settled_offset(self, task):
        return self.settled.get(task, 0)

    def commit(self, task, records):
        self.settled[task] = self.end_offset(task)
        self.end[task] = self.end_offset(task) + records


class Reports(RuleBasedStateMachine):
    """Whatever is reported in whatever order: the index is what copies and the journal say at that moment."""

    names, tasks = st.sampled_from("123"), st.builds(TaskId, st.just(0), st.integers(0, 2))

    def __init__(self):
        super().__init__()
        self.log = _Log()
        self.state = ClusterState(self.log, RebalanceLoop(PlacementConfig()))

    @rule(name=names, copies=st.dictionaries(tasks, st.integers(0, 60)))
    def visit(self, name, copies):
        positions = {t: EMPTY if not offset else Position(1, "a", offset) for t, offset in copies.items()}
        self.state.join(Executor(name, "h", 1), positions, pid=1)

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


TestReports = Reports.TestCase
TestReports.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
