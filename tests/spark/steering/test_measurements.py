"""What a task and a reload cost, by what the operators report.

What tasks weigh by what was measured of them, and how long changed weights wait.
"""

from __future__ import annotations

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from taskplace.spark.steering.measurements import (
    FEWEST,
    SAME,
    Costs,
    MeasuredCosts,
    TaskWeights,
    WeightBackoff,
)
from topology.tasks import TaskId


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


@given(st.lists(st.none() | st.floats(0.01, 100.0), max_size=60))
def test_a_task_costs_what_was_last_observed_however_long_ago(observed):
    learning, found = Learning(bytes_per_second=1.0), []
    for seconds in observed:
        found += [] if seconds is None else [seconds]
        cost = learning.after_batch(
            [{"commitTimeMs": 4000}], tasks=4, loaded=0, seconds=[seconds] * 4 if seconds else []
        ).task
        assert cost == (median(found[-5:]) if found else 1.0)


TASKS = [TaskId(0, p) for p in range(6)]


@given(st.lists(st.fixed_dictionaries({t: st.floats(0.9, 1.2) for t in TASKS}), max_size=10))
def test_noise_never_changes_a_weight(samples):
    loads = Measured()
    for sample in samples:
        assert not loads.measure(sample)
    assert {loads.weight(t) for t in TASKS} == {1.0}


@given(st.lists(st.fixed_dictionaries({t: st.floats(0, 1e9) for t in TASKS}), max_size=6))
def test_weights_are_positive_and_settle(samples):
    loads = Measured()
    for sample in samples:
        loads.measure(sample)
    assert all(loads.weight(t) > 0 for t in TASKS)
    if samples:
        for _ in range(5):
            loads.measure(samples[-1])
        assert not loads.measure(samples[-1])


class Measured:
    """The weights of tasks, measured again and again."""

    def __init__(self) -> None:
        self.weights = TaskWeights()

    def measure(self, load) -> bool:
        """Measure once; return whether that has changed a weight."""
        before, self.weights = self.weights, self.weights.measured(load)
        return self.weights.unusual != before.unusual

    def weight(self, task) -> float:
        return self.weights.of(task)


def hot(loads: Measured) -> None:
    for _ in range(FEWEST):
        loads.measure({**dict.fromkeys(TASKS, 1.0), TASKS[0]: 4.0})


def test_a_weight_that_has_left_one_stays_until_it_is_left_again():
    loads = Measured()
    hot(loads)
    assert loads.weight(TASKS[0]) == 4.0
    for _ in range(5):
        assert not loads.measure({**dict.fromkeys(TASKS, 1.0), TASKS[0]: 4.0 / (SAME - 0.1)})


@given(st.lists(st.sampled_from([0.0, 0.0, 0.0, 1.0, 7.0, 500.0, 1e6]), min_size=2, max_size=20))
def test_what_has_something_to_do_never_weighs_less_than_what_has_nothing_however_many_have_that(rows):
    loads, found = Measured(), {TaskId(0, p): count for p, count in enumerate(rows)}
    for _ in range(FEWEST):
        loads.measure(found)
    weights = [loads.weight(t) for t in found]
    assert [w for _, w in sorted(zip(rows, weights, strict=True))] == sorted(weights)
    if 0 in rows and max(rows) > 0:
        assert max(weights) > 2 * min(weights)


class Ticking:
    """A back-off that is handed from one measurement to the next."""

    def __init__(self) -> None:
        self.backoff = WeightBackoff()

    def tick(self, changed: bool) -> bool:
        counts, self.backoff = self.backoff.tick(changed=changed)
        return counts


@given(st.lists(st.booleans(), max_size=300))
def test_changed_weights_count_ever_more_rarely_but_none_is_lost(changes):
    calm, counted = Ticking(), []
    for tick, changed in enumerate(changes):
        if calm.tick(changed):
            counted.append(tick)
    if True in changes:
        assert counted[0] == changes.index(True), "the first counts at once"
        for _ in range(2 ** len(counted)):
            last = calm.tick(False)
            if last:
                break
        after = len(changes) - 1 - changes[::-1].index(True)
        assert last or counted[-1] >= after, "the last one counts in the end"
