"""Which tasks do not run in a batch; no Spark needed."""

from __future__ import annotations

from msgspec.structs import replace

from taskplace.spark.compile.programs import programs
from taskplace.spark.driver import stats as stats_module
from taskplace.spark.driver.stages import IdleTasks
from taskplace.spark.driver.stats import Stats
from taskplace.spark.messages import Recovery, Report
from taskplace.spark.processors import Count
from topology import TaskId, Topology

TASKS = (TaskId(0, 0), TaskId(0, 1), TaskId(0, 2))


def program(*, ttl=None, every_batch=False, repartition=False):
    topo = Topology("t")
    source = topo.source("s", key=["k"], partitions=3, event_time="at")

    def plain(context, rows):
        return rows

    if every_batch:
        plain.every_batch = True
    columns = {"k": "string"} | ({"at": "timestamp"} if ttl else {})
    counted = source.process(plain, name="plain", event_time="at").process(
        Count("n", by=columns, ttl=ttl, time="at" if ttl else None), name="count"
    )
    if repartition:
        counted.repartition(key=["k"], name="again").process(
            Count("m", by={"k": "string"}, over_changes=True)
        )
    return programs(topo.build())[0]


def report(task, **what):
    return replace(Report(task, "a", "", "", None, {}, {}, 0, Recovery(), {}), **what)


def idle(state, found, rows=(), watermark=None, behind=()):
    watermarks = {"t": watermark}
    return sorted(state.tasks(found, TASKS, [p in rows for p in range(3)], watermarks, frozenset(behind)))


def test_a_task_without_rows_does_not_run():
    assert idle(IdleTasks(), program(), rows={1}) == [TaskId(0, 0), TaskId(0, 2)]
    assert idle(IdleTasks(), program()) == [TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)]


def test_a_task_whose_active_copy_is_behind_runs():
    assert idle(IdleTasks(), program(), rows={1}, behind=[TaskId(0, 2)]) == [TaskId(0, 0)]


def test_a_processor_may_want_every_batch():
    assert idle(IdleTasks(), program(every_batch=True)) == []


def test_one_task_tells_the_columns_of_what_is_repartitioned():
    assert idle(IdleTasks(), program(repartition=True)) == [TaskId(0, 1), TaskId(0, 2)]
    assert idle(IdleTasks(), program(repartition=True), rows={2}) == [TaskId(0, 0), TaskId(0, 1)]


def test_all_tasks_run_when_the_watermark_has_moved_and_until_all_that_expired_is_gone():
    state, forgets = IdleTasks(), program(ttl="1 hour")
    assert idle(state, forgets, watermark=None) == []  # what this driver has not seen applied
    assert idle(state, forgets, watermark=None) == []  # the batch was not committed
    state.committed({})
    assert idle(state, forgets, watermark=None) == list(TASKS)
    assert idle(state, forgets, watermark=7) == []
    state.committed({TaskId(0, 1): report(TaskId(0, 1), expiring=True), TaskId(0, 2): report(TaskId(0, 2))})
    assert idle(state, forgets, watermark=7) == [TaskId(0, 0), TaskId(0, 2)]
    state.committed({TaskId(0, 1): report(TaskId(0, 1))})
    assert idle(state, forgets, watermark=7) == list(TASKS)
    assert idle(IdleTasks(), forgets, watermark=7) == []


def test_a_store_that_never_forgets_does_not_care_for_the_watermark():
    assert idle(IdleTasks(), program(), watermark=7) == list(TASKS)


def test_medians_are_of_the_last_batches(monkeypatch):
    monkeypatch.setattr(stats_module, "WINDOW", 3)
    stats = Stats()
    for seconds in (90.0, 80.0, 3.0, 1.0):
        stats.time({"commit": seconds})
    stats.time({"commit": 2.0, "publish": 4.0})
    assert stats.medians() == {"commit": 2.0, "publish": 0.0}
    assert [len(kept) for kept in stats.phases.values()] == [3, 3]
