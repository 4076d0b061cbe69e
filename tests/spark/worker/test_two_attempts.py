"""Two attempts of one task, at the same time or one after the other: one counts."""

from __future__ import annotations

import multiprocessing

import pytest

from taskplace.spark.messages import Change, Report
from taskplace.spark.state.copy import Copy
from tests.support.attempts import BATCHES, PLANES, sink_rows
from topology import TaskId


def at_the_same_time(runtime, task, rows, executors) -> list[Report]:
    """Run an attempt of a task on each of these executors; none has its copy before all of them have begun."""
    context = multiprocessing.get_context("fork")
    begun, told = context.Barrier(len(executors)), context.SimpleQueue()

    def run(number: int) -> None:
        really_open = Copy._open

        def opening(copy: Copy) -> None:
            begun.wait(30)
            really_open(copy)

        Copy._open = opening
        told.put((number, runtime.attempt(task, rows, executor=executors[number]).encode()))

    workers = [context.Process(target=run, args=(number,)) for number in range(len(executors))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    return [Report.decode(text) for _, text in sorted(told.get() for _ in workers)]


def place(change: Change) -> tuple[str, int]:
    return change.file, change.start


def committed_sections(runtime) -> dict[tuple[str, int], bytes]:
    changes = [change for history in runtime.history.values() for change in history.changes]
    return {
        place(change): (runtime.checkpoint / change.file).read_bytes()[change.start :][: change.size]
        for change in changes
    }


def commit_one_of_two(runtime, truth, two, rows) -> None:
    """Commit the first of two attempts at 0_0 and go on: nothing shows that there was another one.

    Neither in what is committed, nor in output, nor in any copy of whoever made them.
    """
    before = committed_sections(runtime)
    won, lost = two
    assert won.attempt != lost.attempt and place(won.change) != place(lost.change)
    first = [won, runtime.attempt(TaskId(0, 1), rows)]
    second = [runtime.attempt(TaskId(1, p), reports=first) for p in range(3)]
    expected = truth.run_batch(rows)
    for sink in ("out", "days-out"):
        assert sink_rows(runtime, [*first, *second], sink) == sink_rows(truth, expected, sink)
    runtime.commit(*first, *second)
    after = committed_sections(runtime)
    assert {section: after[section] for section in before} == before
    assert place(lost.change) not in after
    expected = truth.run_batch(BATCHES[3])
    reports = runtime.run_batch(BATCHES[3])
    for sink in ("out", "days-out"):
        assert sink_rows(runtime, reports, sink) == sink_rows(truth, expected, sink)
    for task in (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(1, 1), TaskId(1, 2)):
        for executor in {"1", won.instance[-1], lost.instance[-1]}:
            assert runtime.contents(task, executor) == truth.contents(task)


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("executors", [("1", "2"), ("1", "1")])
def test_of_two_attempts_at_the_same_time_one_counts(runtime, truth, executors, winner):
    """A task that Spark runs twice: on two executors, or by two workers of one, which wait for each other's copy."""
    runtime.run_batch(BATCHES[0], PLANES)
    truth.run_batch(BATCHES[0], PLANES)
    two = at_the_same_time(runtime, TaskId(0, 0), BATCHES[1], executors)
    assert [report.instance for report in two] == [f"executor-{executor}" for executor in executors]
    commit_one_of_two(runtime, truth, [two[winner], two[1 - winner]], BATCHES[1])


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("executor", ["1", "2"])
def test_of_a_finished_attempt_and_its_retry_one_counts(runtime, truth, executor, winner):
    """Spark runs a stage again, with attempt numbers from 0: epoch, batch, generation, run and round are the same."""
    runtime.run_batch(BATCHES[0], PLANES)
    truth.run_batch(BATCHES[0], PLANES)
    finished = runtime.attempt(TaskId(0, 0), BATCHES[1], executor="1")
    left = {name: (runtime.checkpoint / name).read_bytes() for name in runtime.files()}
    retry = runtime.attempt(TaskId(0, 0), BATCHES[1], executor=executor)
    assert retry.recovery.rolled_back == (executor == "1"), "it starts from what is committed"
    for name, data in left.items():  # a segment may grow
        assert (runtime.checkpoint / name).read_bytes()[: len(data)] == data
    two = [finished, retry]
    commit_one_of_two(runtime, truth, [two[winner], two[1 - winner]], BATCHES[1])
