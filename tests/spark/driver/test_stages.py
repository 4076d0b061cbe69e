"""A stage, run by the driver's own code without Spark: lost executors, zombies, cancelled rounds, histories."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from taskplace.errors import TaskplaceError
from taskplace.spark.bridge import ArrowInput, Executor, JobLostError
from taskplace.spark.checkpoint.manifests import history_before
from taskplace.spark.compile.programs import programs
from taskplace.spark.driver import stages
from taskplace.spark.driver.bins import TaskCosts
from taskplace.spark.driver.stages import TAIL, IdleTasks
from taskplace.spark.messages import (
    AttemptDescriptor,
    BinDescriptor,
    History,
    Recovery,
    Report,
    cancellation_mark,
)
from taskplace.spark.processors import Count
from taskplace.spark.state import environment as warm
from taskplace.spark.worker import bin_context
from taskplace.spark.worker import bins as attempt_reports
from taskplace.spark.worker import bins as worker_bins
from tests.support.attempt_files import decoded, reports_in
from tests.support.attempts import BATCHES, PLANES
from tests.support.sparkless import Sparkless
from tests.support.word_counts import counts, words
from topology import TaskId, Topology


@pytest.fixture
def sparkless(runtime, monkeypatch):
    """A bridge whose bins report each attempt as soon as it ends, so that a test can end a bin in between."""
    monkeypatch.setattr(attempt_reports, "SECONDS_LIMIT", 0.0)
    return Sparkless(runtime)


def test_a_stage_takes_over_what_had_finished_when_an_executor_was_lost(runtime, sparkless):
    """0_0 has finished, on executor 2; 0_1 was to run on the one that is lost."""
    sparkless.owners = {TaskId(0, 0): "2", TaskId(0, 1): "1"}

    def lose(task):
        if task == TaskId(0, 1) and sparkless.rounds == 1:
            raise JobLostError(frozenset({"1"}))

    sparkless.before_attempt = lose
    reports = sparkless.stage(0, BATCHES[0], PLANES)
    assert sparkless.attempted == [TaskId(0, 0), TaskId(0, 1), TaskId(0, 1)]
    assert [reports[task].instance for task in (TaskId(0, 0), TaskId(0, 1))] == ["executor-2", "executor-1"]


def test_without_a_shuffle_a_bin_has_all_tasks_of_its_executor(runtime, truth, sparkless):
    """The owners of the second stage take turns; 1_0 and 1_2 are in one bin."""
    first = sparkless.stage(0, BATCHES[0], PLANES)
    sparkless.owners = {TaskId(1, 1): "2"}
    second = sparkless.stage(1, reports=list(first.values()))
    assert sorted(sorted(t.partition for t in sparkless.job.tasks(i)) for i in range(2)) == [[0, 2], [1]]
    runtime.commit(*first.values(), *second.values())
    truth.run_batch(BATCHES[0], PLANES)
    for task, executor in ((TaskId(1, 0), "1"), (TaskId(1, 1), "2"), (TaskId(1, 2), "1")):
        assert runtime.contents(task, executor) == truth.contents(task)


def test_the_rows_of_a_dead_bins_finished_tasks_count_once(runtime, truth, sparkless):
    """A bin dies after 0_0 and before 0_1. Before it died, another attempt at 0_0 had written its rows as well."""
    root = runtime.checkpoint

    def lose(task):
        if task == TaskId(0, 1) and sparkless.rounds == 1:
            runtime.attempt(TaskId(0, 0), BATCHES[0], PLANES, executor="3")  # of no run: it never counts
            raise JobLostError(frozenset({"1"}))

    sparkless.before_attempt = lose
    first = sparkless.stage(0, BATCHES[0], PLANES)
    assert sparkless.rounds == 2 and sparkless.attempted == [TaskId(0, 0), TaskId(0, 1), TaskId(0, 1)]
    lost = [report.task for report in reports_in(root, 0, 0)]
    assert lost.count(TaskId(0, 0)) == 2
    second = sparkless.stage(1, reports=list(first.values()))
    runtime.commit(*first.values(), *second.values())
    truth.run_batch(BATCHES[0], PLANES)
    for task in (TaskId(1, 0), TaskId(1, 1), TaskId(1, 2)):
        assert runtime.contents(task) == truth.contents(task)


def test_a_zombie_of_an_earlier_run_of_the_batch_does_not_count(runtime, sparkless):
    """A query was stopped in a batch and started again on the same handle: the same epoch and the same batch."""
    earlier = sparkless.stage(0, BATCHES[0], PLANES)
    zombie = sparkless.job
    late = []

    def lose(task):
        if sparkless.rounds == 2:
            late.extend(decoded(zombie.attempt(0)))  # it reports only now
            raise JobLostError(frozenset({"1"}))

    sparkless.before_attempt = lose
    again = sparkless.stage(0, BATCHES[0], PLANES)
    assert late[0].task == TaskId(0, 0)
    assert again[TaskId(0, 0)].attempt not in {late[0].attempt, earlier[TaskId(0, 0)].attempt}
    # The zombie was on the copy before: it is what the next batch rolls back.
    runtime.commit(*again.values())
    runtime.run_batch(BATCHES[1])
    assert runtime.contents(TaskId(0, 0), "1") == runtime.contents(TaskId(0, 0), "2")


def test_a_round_of_an_earlier_run_that_is_cancelled_late_cancels_nothing_else(
    runtime, sparkless, monkeypatch
):
    """Every attempt lands on an executor without a copy, where it gives way if its round is cancelled."""
    monkeypatch.setattr(bin_context, "ELSEWHERE_SECONDS", 0.1)
    runtime.run_batch(BATCHES[0], PLANES)
    sparkless.stage(0, BATCHES[1])
    earlier = sparkless.job
    sparkless.before_attempt = lambda task: earlier.on_lost()
    sparkless.elsewhere = "2"
    assert {report.instance for report in sparkless.stage(0, BATCHES[1]).values()} == {"executor-2"}


def test_a_bin_that_spark_runs_again_takes_over_what_had_finished(runtime, truth, sparkless):
    """Both tasks are in one bin, on executor 1. It ends after 0_0; the next one runs only 0_1, on executor 2."""

    def again(task):
        if task == TaskId(0, 1) and "2" not in (sparkless.elsewhere or ""):
            sparkless.elsewhere = "2"
            reports = decoded(sparkless.job.attempt(0))
            assert [(r.task.partition, r.instance) for r in reports] == [(0, "executor-1"), (1, "executor-2")]
            finished = [report.task for report in reports_in(runtime.checkpoint, 0, 0)]
            assert sorted(finished) == [TaskId(0, 0), TaskId(0, 1)]
            raise JobLostError(frozenset({"1"}))

    sparkless.before_attempt = again
    reports = sparkless.stage(0, BATCHES[0], PLANES)
    assert sparkless.attempted == [TaskId(0, 0), TaskId(0, 1)]  # the driver takes both reports over
    runtime.commit(*reports.values())
    truth.run_batch(BATCHES[0], PLANES)
    for task in (TaskId(0, 0), TaskId(0, 1)):
        assert runtime.contents(task, "2") == truth.contents(task)


def test_a_bin_ends_before_its_next_task_when_its_round_is_cancelled_and_the_next_round_runs_the_rest(
    runtime, truth, sparkless
):
    def cancel(task):
        if task == TaskId(0, 1) and sparkless.rounds == 1:
            sparkless.job.on_lost()
            assert [report.task for report in decoded(sparkless.job.attempt(0))] == [], (
                "a bin that begins now"
            )
            raise JobLostError(frozenset({"3"}))

    sparkless.before_attempt = cancel
    reports = sparkless.stage(0, BATCHES[0], PLANES)
    assert sparkless.attempted == [TaskId(0, 0), TaskId(0, 1), TaskId(0, 1)]
    runtime.commit(*reports.values())
    truth.run_batch(BATCHES[0], PLANES)
    for task in (TaskId(0, 0), TaskId(0, 1)):
        assert runtime.contents(task, "1") == truth.contents(task)


@pytest.mark.parametrize("at", [TaskId(0, 0), TaskId(0, 1)])
def test_a_bin_whose_round_is_cancelled_ends_without_an_error_and_no_task_of_it_is_taken_for_done(
    runtime, sparkless, at
):
    """Nobody was lost, and still the bin was asked to end: the driver does not go on without the missing reports."""
    sparkless.before_attempt = lambda task: sparkless.job.on_lost() if task == at else None
    with pytest.raises(TaskplaceError, match=rf"without a report of {2 - at.partition} of"):
        sparkless.stage(0, BATCHES[0], PLANES)
    assert [r.task for r in reports_in(runtime.checkpoint, 0, 0)] == [TaskId(0, 0)][: at.partition]


def test_a_cancelled_bin_reads_its_rows_to_the_end(runtime):
    """Spark does not use a Python worker again that has left rows unread."""
    setting = runtime.setting(runtime.first)
    mark = runtime.checkpoint / cancellation_mark(setting, 0)
    mark.parent.mkdir(parents=True)
    mark.touch()
    rows = iter([b"not read", b"as Arrow"])
    bin_ = BinDescriptor((AttemptDescriptor(TaskId(0, 0), "executor-1", History()),))
    assert list(worker_bins.run_bin(runtime.first, setting, bin_, rows)) == []
    assert next(rows, None) is None


def test_of_two_attempts_that_have_finished_when_an_executor_is_lost_one_counts(
    runtime, truth, sparkless, monkeypatch
):
    """Spark has run 0_0 on two executors at the same time; what follows comes from one of them."""
    monkeypatch.setattr(worker_bins, "finished", lambda *_: [])  # both looked before the other one reported
    sparkless.owners = {TaskId(0, 1): "3"}
    duplicates = []

    def lose(task):
        if task == TaskId(0, 1) and sparkless.rounds == 1:
            sparkless.elsewhere = "2"
            duplicates.extend(decoded(sparkless.job.attempt(0)))
            sparkless.elsewhere = None
            raise JobLostError(frozenset({"3"}))

    sparkless.before_attempt = lose
    first = sparkless.stage(0, BATCHES[0], PLANES)
    assert sparkless.attempted == [TaskId(0, 0), TaskId(0, 1), TaskId(0, 1)]
    finished = [r.attempt for r in reports_in(runtime.checkpoint, 0, 0) if r.task == TaskId(0, 0)]
    assert len(finished) == 2 and finished[0] == first[TaskId(0, 0)].attempt
    second = sparkless.stage(1, reports=list(first.values()))
    runtime.commit(*first.values(), *second.values())
    truth.run_batch(BATCHES[0], PLANES)
    for task in (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(1, 1), TaskId(1, 2)):
        for executor in ("1", "2"):
            assert runtime.contents(task, executor) == truth.contents(task)


class Local:
    """A session whose driver is its only executor. It runs nothing, and keeps what it was asked to run."""

    local = True

    def __init__(self) -> None:
        self.locations: list[str | None] = []
        self.tasks: list[list[TaskId]] = []
        self.skipped: list[tuple[int, ...]] = []

    def keep(self, name, value):
        return SimpleNamespace(to=lambda function: partial(function, value))

    def pinned(self, elements, locations, function, arrow, ranges):
        self.locations = list(locations)
        descriptors = [BinDescriptor.decode(element) for element in elements]
        self.tasks = [[d.task for d in bin_.descriptors] for bin_ in descriptors]
        self.skipped = [bin_.skipped for bin_ in descriptors]

    def run(self, job, partitions, **_):
        return []


def run_without_reports(runtime, cluster, owners, sizes, costs):
    """Run a stage of these tasks, whose inputs have these bytes, on a cluster that runs nothing."""
    tasks, setting = list(owners), runtime.setting(runtime.first)
    stage = stages.Stage(
        program=runtime.first,
        setting=setting,
        boundaries={},
        arrow=ArrowInput([], setting.schema, tuple(range(len(tasks))), sizes),
        tasks=tasks,
        idle=frozenset(),
        expected=costs.estimates(tasks, sizes),
        histories={},
    )
    state = SimpleNamespace(owners=lambda: owners, behind=lambda: ())
    rebalancer = SimpleNamespace(state=state, lock=nullcontext(), loop=SimpleNamespace(generation=1))
    with pytest.raises(TaskplaceError, match=f"without a report of {len(tasks)}"):
        stages.run(cluster, stage, rebalancer, lambda lost: None)


@pytest.mark.parametrize(
    ("number", "seconds", "least", "most"), [(24, 0.001, 1, 5), (24, 0.2, 16, 24), (48, 0.2, 16, 32)]
)
def test_a_local_session_is_one_owner_and_costly_tasks_use_all_its_slots(
    runtime, number, seconds, least, most
):
    """Tasks of 50 kB on 16 slots, which took so long in the batch before."""
    tasks, costs, cluster = [TaskId(0, p) for p in range(number)], TaskCosts(), Local()
    sizes = (50_000,) * len(tasks)
    reports = [Report(task, "a", "", "", None, {}, {}, 0, Recovery(), {"process": seconds}) for task in tasks]
    costs.count(reports, costs.estimates(tasks, sizes))
    owners = dict.fromkeys(tasks, Executor("driver", "localhost", 16))
    run_without_reports(runtime, cluster, owners, sizes, costs)
    assert least <= len(cluster.tasks) <= most
    assert sorted(task for bin_ in cluster.tasks for task in bin_) == tasks
    assert set(cluster.locations) == {None}


def test_tasks_of_one_executor_among_those_of_another_share_bins_that_name_the_others(runtime):
    tasks, cluster = [TaskId(0, p) for p in range(60)], Local()
    owners = {task: Executor(str(task.partition % 2), "host", 2) for task in tasks}
    run_without_reports(runtime, cluster, owners, (1000,) * len(tasks), TaskCosts())
    assert len(cluster.tasks) <= 8
    for of, skipped in zip(cluster.tasks, cluster.skipped, strict=True):
        mine = {task.partition for task in of}
        assert set(skipped) == set(range(min(mine), max(mine))) - mine


# -- tasks get the last changes of their history only; the whole one is read from the manifests where a copy needs it


COMMITTED = 6


@pytest.fixture
def sent(world, monkeypatch) -> list[Any]:
    """What the tasks of the last jobs got."""
    found: list[Any] = []
    descriptor = stages.Stage.descriptor

    def noting(stage: Any, *given: Any) -> Any:
        made = descriptor(stage, *given)
        found.extend(made.descriptors)
        return made

    monkeypatch.setattr(stages.Stage, "descriptor", noting)
    return found


def run(world: Any, placed: Any, batches: range) -> None:
    for batch in batches:
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})


def expected(batches: int) -> list[tuple[str, int]]:
    return [(word, batches) for word in "abcdefgh"]


def test_a_copy_at_the_end_gets_the_last_changes_only(world, sent) -> None:
    placed = world.open(counts(world))
    run(world, placed, range(COMMITTED))
    sent.clear()
    run(world, placed, range(COMMITTED, COMMITTED + 1))
    assert sent and all(one.tail and len(one.history.changes) == TAIL for one in sent)
    for one in sent:
        whole = history_before(placed.journal.root, COMMITTED, one.task)
        assert whole.changes[-TAIL:] == one.history.changes and len(whole.changes) == COMMITTED
    assert sorted(world.stored(placed, "n")) == expected(COMMITTED + 1)


def test_a_copy_that_may_be_behind_gets_the_whole_history(world, sent) -> None:
    world.come(1)
    placed = world.open(counts(world))
    run(world, placed, range(COMMITTED))
    sent.clear()
    world.leave("1")
    run(world, placed, range(COMMITTED, COMMITTED + 1))
    moved = [one for one in sent if not one.tail]
    assert moved and all(len(one.history.changes) == COMMITTED for one in moved)
    assert sorted(world.stored(placed, "n")) == expected(COMMITTED + 1)


@pytest.mark.parametrize("what", ["removed", "older"])
def test_a_copy_that_is_not_where_the_driver_thinks_reads_the_manifests(world, sent, what: str) -> None:
    def copies() -> list[Path]:
        return sorted(data.parent for data in world.folder.rglob("data.mdb"))

    placed = world.open(counts(world))
    kept: dict[Path, Path] = {}
    for batch in range(COMMITTED):
        if batch == 2:
            warm.WARM.clear()
            kept = {home: shutil.copytree(home, home.with_name(home.name + ".kept")) for home in copies()}
        run(world, placed, range(batch, batch + 1))
    warm.WARM.clear()
    for home, old in kept.items():
        shutil.rmtree(home)
        if what == "older":
            old.rename(home)
    sent.clear()
    run(world, placed, range(COMMITTED, COMMITTED + 1))
    assert kept and all(one.tail for one in sent)
    assert sorted(world.stored(placed, "n")) == expected(COMMITTED + 1)


# -- which tasks do not run in a batch; no Spark needed


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
