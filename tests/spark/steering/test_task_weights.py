"""What tasks weigh by what was measured of them, and how long changed weights wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from taskplace.spark.steering.measurements import FEWEST, HEAVIEST, SAME, TaskWeights, WeightBackoff

from topology.tasks import TaskId

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


def test_a_weight_needs_more_than_one_observation():
    loads = Measured()
    for _ in range(FEWEST - 1):
        assert not loads.measure({**dict.fromkeys(TASKS, 1.0), TASKS[0]: 4.0})
    assert loads.weight(TASKS[0]) == 1.0


def test_one_slow_run_is_forgotten():
    loads = Measured()
    usual = dict.fromkeys(TASKS, 1.0)
    for _ in range(FEWEST):
        loads.measure(usual)
    assert not loads.measure({**usual, TASKS[0]: 50.0})
    assert loads.weight(TASKS[0]) == 1.0


def test_subtopologies_are_compared_with_themselves():
    loads = Measured()
    other = {TaskId(1, p): 100.0 for p in range(6)}
    assert not loads.measure({**dict.fromkeys(TASKS, 1.0), **other})


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


def test_where_most_have_nothing_the_usual_is_the_mean():
    loads = Measured()
    for _ in range(FEWEST):
        loads.measure({**dict.fromkeys(TASKS, 0.0), TASKS[0]: 600.0, TASKS[1]: 120.0})
    assert [loads.weight(t) for t in TASKS[:3]] == [5.0, 1.0, 1 / HEAVIEST]


def test_what_is_gone_is_forgotten():
    loads = Measured()
    hot(loads)
    assert loads.weights.only(TASKS[1:]).of(TASKS[0]) == 1.0


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


def test_after_a_long_calm_weights_count_at_once_again():
    calm = Ticking()
    for _ in range(20):
        calm.tick(True)
    for _ in range(11 + 2 * (32 + 16 + 8 + 4 + 2)):  # the last change waits, and then five are forgotten
        calm.tick(False)
    assert [calm.tick(True) for _ in range(3)] == [True, False, True]
