"""Counts give way to load: never to a higher peak, only where it clearly pays, and to rest."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taskplace.model.config import PlacementConfig
from taskplace.model.problem import Instance, Problem, Task
from taskplace.planner import plan
from taskplace.spark.steering.moves import gained
from taskplace.spark.steering.target import level_load
from topology.tasks import TaskId

TOLERANCE = 0.2


WEIGHTS = st.sampled_from([1.0, 1.0, 1.0, 1.0, 1 / 64, 0.5, 1.6, 2.5, 4.0, 11.0, 64.0])


def counted(weights, places, slots) -> dict[TaskId, str]:
    """Return where the engine wants the tasks."""
    problem = Problem(
        [Task(t, end_offset=1, weight=w) for t, w in sorted(weights.items())],
        [
            Instance(
                name,
                capacity=cores,
                active=tuple(t for t in sorted(places) if places[t] == name),
                lags={t: 0 for t in places if places[t] == name},
            )
            for name, cores in sorted(slots.items())
        ],
        PlacementConfig(acceptable_recovery_lag=0),
    )
    return {task: name for name, roles in plan(problem).target.items() for task in roles.active}


def level(weights, places, target, slots, fixed=()) -> dict[TaskId, str]:
    """Return the target with counts giving way to load."""
    return level_load(
        weights=weights, places=places, target=target, slots=slots, tolerance=TOLERANCE, fixed=fixed
    )


def peak(weights, at, slots, subtopology=None) -> float:
    load = Counter()
    for task, name in at.items():
        if subtopology in (None, task.subtopology):
            load[name] += weights[task] / slots[name]
    return max(load.values())


@st.composite
def clusters(draw, weight=WEIGHTS, cores=3):
    """Weights, places (some nowhere or gone), and slots."""
    slots = {f"x{i}": draw(st.integers(1, cores)) for i in range(draw(st.integers(1, 5)))}
    tasks = [TaskId(s, p) for s in range(draw(st.integers(1, 3))) for p in range(draw(st.integers(1, 10)))]
    place = st.sampled_from([*sorted(slots), *sorted(slots), None, "gone"])
    return {t: draw(weight) for t in tasks}, {t: draw(place) for t in tasks}, slots


@settings(deadline=None)
@given(clusters(weight=st.sampled_from([1.0])))
def test_equal_weights_are_exactly_as_the_engine_has_them(found):
    weights, places, slots = found
    target = counted(weights, places, slots)
    assert level(weights, places, target, slots) == target


@settings(deadline=None)
@given(clusters())
def test_no_peak_is_higher_than_with_counts_alone_and_all_tasks_are_somewhere(found):
    weights, places, slots = found
    target = counted(weights, places, slots)
    result = level(weights, places, target, slots)
    assert result.keys() == weights.keys()
    assert set(result.values()) <= slots.keys()
    for part in (None, *{t.subtopology for t in weights}):
        assert peak(weights, result, slots, part) <= peak(weights, target, slots, part) + 1e-6


@settings(deadline=None)
@given(clusters(cores=8))
def test_planned_again_and_again_it_comes_to_rest(found):
    """Each change of mind lowers a peak, so they end: in a few rounds, mostly the first."""
    weights, places, slots = found
    for _ in range(6):
        result = level(weights, places, counted(weights, places, slots), slots)
        if result == places:
            return
        places = result
    pytest.fail(f"still changing: {places}")


WIDE = {TaskId(0, 0): 8.0, TaskId(0, 1): 1.0} | {TaskId(0, p): 5.0 for p in range(2, 10)}


@settings(deadline=None)
@given(clusters(cores=8))
@example((WIDE, {t: "x1" if t.partition > 1 else "x0" for t in WIDE}, {"x0": 1, "x1": 8}))
def test_all_that_is_handed_over_together_is_a_gain(found):
    weights, places, slots = found
    here = {t: name if name in slots else "x0" for t, name in places.items()}
    result = level(weights, here, here, slots)
    assert result == here or gained(weights, here, result, slots) > 0


@settings(deadline=None)
@given(st.integers(2, 5), st.lists(WEIGHTS, min_size=2, max_size=20))
def test_one_subtopology_on_equal_instances_ends_up_within_a_task_of_the_least_busy(count, costs):
    """Where counts give way, no task can be handed over any more that would help."""
    slots = {f"x{i}": 1 for i in range(count)}
    weights = {TaskId(0, p): w for p, w in enumerate(costs)}
    target = counted(weights, dict.fromkeys(weights), slots)
    result = level(weights, target, target, slots)
    if result == target:
        return
    load = {name: sum(w for t, w in weights.items() if result[t] == name) for name in slots}
    for task, weight in weights.items():
        assert min(load.values()) + weight >= load[result[task]] - 1e-6


@settings(deadline=None)
@given(clusters())
def test_what_is_fixed_stays_as_the_target_has_it_and_the_others_level_around_it(found):
    weights, places, slots = found
    target = counted(weights, places, slots)
    fixed = {t for t in weights if t.subtopology == 0}
    result = level(weights, places, target, slots, fixed)
    assert all(result[t] == target[t] for t in fixed)
    assert peak(weights, result, slots) <= peak(weights, target, slots) + 1e-6


def test_a_hot_task_does_not_push_others_onto_an_instance_that_is_busy_with_another_query():
    slots = dict.fromkeys("xyz", 1)
    hot = {TaskId(0, p): 1.0 for p in range(12)} | {TaskId(0, 0): 11.0}
    other = {TaskId(1, p): w for p, w in enumerate([2.0, 14.0, 2.0])}
    at = {t: "xyz"[t.partition % 3] for t in [*hot, *other]}
    result = level({**hot, **other}, at, at, slots)
    given_up = [t for t in at if result[t] != at[t]]
    assert len(given_up) == 3
    assert {result[t] for t in given_up} == {"z"}
