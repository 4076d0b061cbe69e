"""What a task and a reload cost, by what the operators report."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from taskplace.spark.steering.measurements import MIN_RELOAD_SECONDS, MIN_TASK_SECONDS, Costs, MeasuredCosts


class Learning:
    """The costs of a query, batch after batch."""

    def __init__(self, bytes_per_second: float) -> None:
        self.measured = MeasuredCosts(bytes_per_second)

    def after_batch(self, operators, **batch) -> Costs:
        self.measured = self.measured.after_batch(operators, **batch)
        return self.measured.costs


def test_a_batch_of_which_nobody_knows_what_it_loaded_teaches_nothing_of_reloads():
    learning = Learning(bytes_per_second=1000)

    def said(load: int) -> list[dict]:
        return [
            {"commitTimeMs": 400, "memoryUsedBytes": 8000, "customMetrics": {"rocksdbLoadLatencyMs": load}}
        ]

    assert learning.after_batch(said(60_000), tasks=4, loaded=None) == Costs(task=0.1, reload=2.0)
    assert learning.after_batch(said(20_000), tasks=4, loaded=4).reload == 2.0, (
        "what is usual is not known yet"
    )
    assert learning.after_batch(said(40), tasks=4, loaded=0).reload == 2.0
    assert learning.after_batch(said(20_040), tasks=4, loaded=4).reload == 5.0
    assert learning.after_batch(said(90_000), tasks=4, loaded=None).reload == 5.0


def test_rocksdb_s_own_load_time_is_what_a_reload_costs():
    learning = Learning(bytes_per_second=1.0)
    quiet = {"commitTimeMs": 400, "memoryUsedBytes": 4000}
    assert learning.after_batch([quiet], tasks=4, loaded=0).reload == 1000.0  # the assumption
    moved = {**quiet, "customMetrics": {"rocksdbLoadLatencyMs": 900, "rocksdbLoadFromSnapshotLatencyMs": 800}}
    assert learning.after_batch([moved], tasks=4, loaded=2).reload == 0.45
    assert learning.after_batch([quiet], tasks=4, loaded=0).reload == 0.45


def test_what_every_batch_spends_on_loading_is_no_reload():
    learning = Learning(bytes_per_second=1e9)
    quiet = {"commitTimeMs": 1000, "customMetrics": {"rocksdbLoadLatencyMs": 600}}
    assert (
        learning.after_batch([quiet], tasks=200, loaded=1).reload == MIN_RELOAD_SECONDS
    )  # nothing to compare with
    learning.after_batch([quiet], tasks=200, loaded=0)
    moved = {**quiet, "customMetrics": {"rocksdbLoadLatencyMs": 1000}}
    assert learning.after_batch([moved], tasks=200, loaded=2).reload == pytest.approx(0.2)


def test_prices_are_never_nothing():
    costs = Learning(bytes_per_second=1e9).after_batch([{"numRowsTotal": 0}], tasks=4, loaded=0)
    assert (costs.task, costs.reload) == (MIN_TASK_SECONDS, MIN_RELOAD_SECONDS)


def test_observed_tasks_come_before_the_operators_own_times():
    learning = Learning(bytes_per_second=1.0)
    assert (
        learning.after_batch([{"commitTimeMs": 4000}], tasks=4, loaded=0, seconds=[2.0, 3.0, 4.0]).task == 3.0
    )


@given(st.lists(st.none() | st.floats(0.01, 100.0), max_size=60))
def test_a_task_costs_what_was_last_observed_however_long_ago(observed):
    learning, found = Learning(bytes_per_second=1.0), []
    for seconds in observed:
        found += [] if seconds is None else [seconds]
        cost = learning.after_batch(
            [{"commitTimeMs": 4000}], tasks=4, loaded=0, seconds=[seconds] * 4 if seconds else []
        ).task
        assert cost == (median(found[-5:]) if found else 1.0)
