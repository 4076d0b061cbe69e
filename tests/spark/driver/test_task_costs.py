"""What is expected of tasks: by their input, and by what their last attempts have cost."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.spark.driver.bins import (
    BYTES_PER_RECORD,
    ENOUGH_BYTES,
    EXPANSION_BATCHES,
    SECONDS_WORTH_A_BIN,
    WORTH_A_BIN,
    TaskCosts,
)
from taskplace.spark.messages import Recovery, Report, TopicRead
from topology import TaskId

TASK, OTHER = TaskId(0, 0), TaskId(0, 1)


class Stream:
    """One task and its attempts."""

    def __init__(self) -> None:
        self.costs = TaskCosts()

    def work(self, size: int, records: int = 0) -> int:
        """Return the work that is expected of the task's next attempt."""
        return self.costs.estimates([TASK], [size], {0: records}).work[0]

    def run(
        self, size: int, seconds: float, *, records: int = 0, fetched: int = 0, read: int = 0, **laps: float
    ) -> None:
        expected = self.costs.estimates([TASK], [size], {0: records})
        rows = {"t": TopicRead("id", rows=read)} if read else {}
        laps = {"process": seconds, **laps}
        self.costs.count([report(TASK, laps, brought=size, fetched=fetched, read=rows)], expected)


def report(task: TaskId, seconds: dict[str, float], **what: object) -> Report:
    return Report(task, "a", "", "", None, {}, {}, 0, Recovery(), seconds, **what)


def worth(seconds: float) -> float:
    """Return seconds as input that takes as long."""
    return pytest.approx(seconds / SECONDS_WORTH_A_BIN * WORTH_A_BIN, abs=2)


def test_before_the_first_attempt_the_input_counts():
    assert [Stream().work(size) for size in (0, 7, 5 * WORTH_A_BIN)] == [0, 7, 5 * WORTH_A_BIN]


def test_a_costly_task_counts_by_its_seconds_and_a_cheap_one_by_its_input():
    stream = Stream()
    stream.run(1000, 2.0)
    assert stream.work(1000) == worth(2.0)
    assert stream.work(100 * WORTH_A_BIN) == 100 * WORTH_A_BIN
    stream.run(1000, 0.0)
    assert stream.work(1000) == 1000


def test_less_input_takes_less_time_in_proportion_and_more_input_is_not_guessed():
    stream = Stream()
    stream.run(10_000, 2.0)
    assert stream.work(1000) == worth(0.2)
    assert stream.work(20_000) == worth(2.0)


def test_batches_without_rows_are_a_matter_of_their_own():
    """Between two batches with rows, Spark often runs one without."""
    stream = Stream()
    for _ in range(3):
        stream.run(1000, 2.0)
        stream.run(0, 0.001)
    assert stream.work(1000) == worth(2.0)
    assert stream.work(0) == worth(0.001)


def test_a_slow_first_attempt_is_forgotten_and_a_slower_one_counts_by_half():
    stream = Stream()
    stream.run(1000, 2.0)
    stream.run(1000, 0.1)
    assert stream.work(1000) == worth(0.1)
    stream.run(1000, 0.3)
    assert stream.work(1000) == worth(0.2)


@given(st.integers(1, 10), st.booleans())
def test_small_batches_between_large_ones_do_not_hide_their_cost(pairs, small_last):
    stream = Stream()
    for _ in range(pairs):
        stream.run(1_000_000, 5.0)
        stream.run(100, 0.001)
    if not small_last:
        stream.run(1_000_000, 5.0)
    assert stream.work(1_000_000) > 1.6 / SECONDS_WORTH_A_BIN * WORTH_A_BIN
    assert stream.work(100) < WORTH_A_BIN / 10


def test_bringing_a_copy_to_its_base_does_not_count():
    stream = Stream()
    stream.run(1000, 0.2, position=30.0, read=0)
    assert stream.work(1000) == worth(0.2)


def test_records_that_a_task_reads_itself_count_by_the_size_of_the_last_ones():
    """Spark brings one row, the range, however many records it has."""
    stream = Stream()
    assert stream.work(50, records=100_000) == 50 + 100_000 * BYTES_PER_RECORD
    stream.run(50, 0.0, records=10, fetched=30_000, read=10)
    assert stream.work(50, records=1000) == 50 + 1000 * 3000
    assert stream.work(50) == 50, "how many there are is not known"
    assert stream.work(0, records=1000) == 0, "without a range there is nothing to read"


def test_the_worst_known_expansion_counts_for_all_tasks_of_a_subtopology():
    costs, sizes = TaskCosts(), [ENOUGH_BYTES, ENOUGH_BYTES]
    for brought, space in ((3 * ENOUGH_BYTES, 3), (ENOUGH_BYTES // 2, 3), (ENOUGH_BYTES, 1)):
        expected = costs.estimates([TASK, OTHER], sizes)
        costs.count([report(TASK, {}, brought=brought)], expected)
        after = costs.estimates([TASK, OTHER], sizes)
        assert after.space == [space * ENOUGH_BYTES] * 2
        assert after.sizes == after.work == sizes
    costs.count(
        [report(TASK, {}, brought=ENOUGH_BYTES)], costs.estimates([TASK, OTHER], [2 * ENOUGH_BYTES] * 2)
    )
    assert costs.estimates([TASK, OTHER], sizes).space == sizes, "never less than what Spark says"
    assert costs.estimates([TaskId(1, 0)], [10]).space == [10]


def test_an_expansion_that_is_not_seen_again_is_forgotten():
    """The task may never bring as much again, and the bins of all tasks would stay small."""
    costs, sizes = TaskCosts(), [ENOUGH_BYTES, ENOUGH_BYTES]

    def run(task: TaskId, brought: int) -> float:
        costs.count([report(task, {}, brought=brought)], costs.estimates([TASK, OTHER], sizes))
        return costs.estimates([TASK, OTHER], sizes).space[0] / ENOUGH_BYTES

    assert run(TASK, 9 * ENOUGH_BYTES) == 9
    for _ in range(1000):
        costs.count([report(TaskId(1, 0), {}, brought=10)], costs.estimates([TaskId(1, 0)], [10]))
    for number in range(1, EXPANSION_BATCHES):
        assert run(TASK if number % 2 else OTHER, 10) == 9
    assert run(TASK, 10) == 1
    assert run(TASK, 4 * ENOUGH_BYTES) == 4
    for _ in range(2 * EXPANSION_BATCHES):
        assert run(TASK, 3 * ENOUGH_BYTES) == 3, "a task that shows it again keeps it"


def test_rows_that_are_smaller_than_estimated_do_not_make_a_stage_smaller():
    costs = TaskCosts()
    costs.count([report(TASK, {}, brought=ENOUGH_BYTES)], costs.estimates([TASK], [2 * ENOUGH_BYTES]))
    assert costs.estimates([TASK], [ENOUGH_BYTES]).space == [ENOUGH_BYTES]


def test_estimates_are_by_partition_and_a_stage_may_have_no_tasks():
    assert astuple(TaskCosts().estimates([], [])) == ([], [], [], [])
    costs = TaskCosts()
    expected = costs.estimates([TASK, OTHER], [10, 20])
    costs.count([report(OTHER, {"process": 1.0})], expected)
    assert costs.estimates([TASK, OTHER], [10, 20]).work == [10, worth(1.0)]
