"""Executors as members of a group: what their reports say is what is planned from; no Spark needed."""

from __future__ import annotations

import pytest

from taskplace.group.executors import ExecutorGroup, Work
from taskplace.spark.bridge import Executor
from taskplace.spark.codec import seal
from taskplace.spark.driver.journal import Journal
from taskplace.spark.driver.members import Members
from taskplace.spark.messages import EMPTY, Change, Position
from taskplace.spark.state.files import write_file
from topology import TaskId

TASK = TaskId(0, 0)


@pytest.fixture
def members(tmp_path):
    """Two commits of 10 records each to task 0_0."""
    journal = Journal(tmp_path, {})
    for batch in range(2):
        name = f"changelog/0_0/{batch:010d}-a{batch}.arrow"
        write_file(tmp_path / name, b"x", sync=False)
        base = f"a{batch - 1}" if batch else ""
        change = Change(batch, f"a{batch}", base, 10 * (batch + 1), 10, name, 1, seal(b"x"))
        journal.commit(batch, 1, {TaskId(0, 0): change}, {}, {})
    members = Members(journal, 0, ExecutorGroup("g"), clock=lambda: 0.0)
    members.tags = {"h1": {"zone": "a"}}
    return members


def at(batch):
    return Position(batch, f"a{batch}", 10 * (batch + 1))


def test_a_visit_is_a_join_and_its_report_is_what_the_engine_sees(members):
    members.join(Executor("1", "h1", 4), {TaskId(0, 0): at(0)}, pid=1)
    members.join(Executor("2", "h2", 2), {TaskId(0, 0): EMPTY}, pid=2)
    assert members.group.wants_rebalance
    said = members.group.reports
    assert said["executor-1"].copies == {TASK: (0, 10)}
    first, second = members.instances()
    assert (first.id, first.capacity, first.tags) == ("executor-1", 4, {"host": "h1", "zone": "a"})
    assert first.lags == {TASK: 0}  # one commit behind: what the last one wrote is on its way
    assert second.lags == {}


def test_what_a_batch_moved_on_is_in_the_next_report(members):
    members.join(Executor("1", "h1", 1), {}, pid=1)
    members.moved("executor-1", TaskId(0, 0), at(1))
    assert members.instances()[0].lags == {TASK: 0}
    assert members.group.reports["executor-1"].copies == {TASK: (1, 20)}


def test_who_is_gone_leaves_the_group_and_gets_no_work(members):
    for name in "12":
        members.join(Executor(name, "h", 1), {TaskId(0, 0): at(1)}, pid=1)
    work = members.group.rebalance(0.0, lambda reports: {name: Work((TASK,)) for name in list(reports)[:1]})
    assert members.group.generation == 1
    members.keep({"2"})
    assert [instance.id for instance in members.instances()] == ["executor-2"]
    work = members.group.rebalance(1.0, lambda reports: {name: Work((TASK,)) for name in reports})
    assert set(work) == {"executor-2"}
    assert members.group.generation == 2


def test_the_rate_of_catching_up_is_measured_where_there_was_enough_to_do(members):
    members.join(Executor("1", "h", 1), {}, pid=1)
    members.followed("executor-1", 10, 1.0)
    assert members.instances()[0].restore_rate is None
    members.followed("executor-1", 10_000, 1.0)
    members.followed("executor-1", 20_000, 1.0)
    assert members.instances()[0].restore_rate == 15_000
