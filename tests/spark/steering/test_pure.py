"""`decide` is a function: of its arguments alone, changing none of them, within the budget, and to rest if obeyed."""

from __future__ import annotations

from copy import deepcopy
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.model.problem import Task
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.decide import SteeringState, decide, dry_run
from taskplace.spark.steering.layout import SparkSettings
from taskplace.spark.steering.measurements import Costs
from taskplace.spark.steering.observation import ExecutorSlots, Neighbours, NeighbourTask, Observation
from tests.support.steering_simulation import changed, grid, paid
from topology.tasks import TaskId

NAMES = [f"executor-{i}" for i in range(4)]
TASKS = grid(2, 3)
PLACE = st.sampled_from([None, "executor-9", *NAMES])
CONFIGS = st.builds(
    SteeringConfig,
    max_moves_per_batch=st.integers(1, 3),
    worth_batches=st.sampled_from([0.0, 100.0]),
    patience_batches=st.sampled_from([2, 1000]),
)
NEIGHBOURS = st.tuples(st.integers(0, 2), PLACE, st.booleans()).map(
    lambda drawn: NeighbourTask(Task(TaskId(0, drawn[0]), end_offset=1), *drawn[1:])
)


@st.composite
def clusters(draw) -> ExecutorSlots:
    slots = draw(st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3)))
    draining = draw(st.sets(st.sampled_from(sorted(slots)))) if slots else set()
    ending = draw(st.sets(st.sampled_from(NAMES))) - slots.keys()
    return ExecutorSlots(slots, frozenset(draining), frozenset(ending))


@st.composite
def observations(draw) -> Observation:
    neighbours = draw(st.lists(NEIGHBOURS, unique_by=lambda other: other.task.id, max_size=3))
    return Observation(
        batch=draw(st.integers(0, 9)),
        cluster=draw(clusters()),
        places=draw(st.fixed_dictionaries(dict.fromkeys(TASKS, PLACE))),
        load=draw(st.none() | st.fixed_dictionaries(dict.fromkeys(TASKS, st.sampled_from([0.0, 1.0, 9.0])))),
        costs=draw(st.sampled_from([Costs(), Costs(1.0, 0.01), Costs(0.1, 5.0)])),
        settings=SparkSettings(
            draw(st.sampled_from([0, 3000])), unload_on_commit=draw(st.integers(0, 20)) == 20
        ),
        ran=draw(st.booleans()),
        neighbours=Neighbours(1, neighbours),
    )


HISTORIES = st.lists(observations(), min_size=1, max_size=6)


def after(config: SteeringConfig, history) -> SteeringState:
    state = SteeringState()
    for seen in history:
        _, state = decide(config, state, seen)
    return state


@settings(deadline=None, max_examples=60)
@given(CONFIGS, HISTORIES)
def test_the_same_arguments_give_the_same_result_and_are_left_as_they_were(config, history):
    state = SteeringState()
    for seen in history:
        arguments = deepcopy((config, state, seen))
        decision, following = decide(config, state, seen)
        dry_run(config, state, seen)
        assert (config, state, seen) == arguments
        assert decide(*arguments) == (decision, following)
        state = following


@settings(deadline=None, max_examples=60)
@given(CONFIGS, HISTORIES, st.randoms(use_true_random=False))
def test_the_order_in_which_tasks_and_executors_are_given_does_not_matter(config, history, random):
    def shuffled(mapping):
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    *before, last = history
    state = after(config, before)
    other = changed(last, slots=shuffled(last.cluster.slots), places=shuffled(last.places))
    decision, _ = decide(config, state, last)
    again, _ = decide(config, state, other)
    assert again.to_dict() == decision.to_dict()
    assert again.intended == decision.intended


@settings(deadline=None, max_examples=60)
@given(CONFIGS, HISTORIES)
def test_between_two_batches_that_ran_no_more_tasks_leave_running_executors_than_the_budget(config, history):
    state, sent = SteeringState(), 0
    for seen in history:
        decision, state = decide(config, state, seen)
        sent = paid(decision.moves) + (0 if seen.ran else sent)
        assert sent <= config.max_moves_per_batch
        assert state.spent <= config.max_moves_per_batch


@settings(deadline=None, max_examples=60)
@given(CONFIGS, HISTORIES)
def test_moves_are_what_is_intended_elsewhere_than_it_ran(config, history):
    *before, seen = history
    decision, _ = decide(config, after(config, before), seen)
    moved = {task: name for task, name in decision.intended.items() if seen.places[task] != name}
    assert {move.task: move.to for move in decision.moves} == moved
    assert set(moved.values()) <= seen.cluster.slots.keys()
    if seen.cluster.usable and not decision.stood_down:
        assert decision.intended.keys() == seen.places.keys()
        assert set(moved.values()) <= seen.cluster.usable.keys()


@settings(deadline=None, max_examples=60)
@given(CONFIGS, HISTORIES)
def test_where_spark_obeys_nothing_moves_after_as_many_batches_as_the_budget_asks_for_all_tasks(
    config, history
):
    *before, seen = history
    state = after(config, before).resumed()
    seen = changed(seen, load=None, settings=SparkSettings(), ran=True)
    # One batch for tasks that are sent at once, which may make moves of the others worth it.
    for _ in range(1 + ceil(len(TASKS) / config.max_moves_per_batch)):
        decision, state = decide(config, state, seen)
        seen = changed(seen, places=decision.intended)
    assert decision.waiting == 0
    last, following = decide(config, state, seen)
    assert not last.moves
    assert following.target == state.target


@settings(deadline=None, max_examples=40)
@given(CONFIGS, HISTORIES)
def test_a_dry_run_is_a_decision_of_a_fresh_state_that_knows_the_weights(config, history):
    *before, seen = history
    state = after(config, before)
    fresh = SteeringState(weights=state.weights)
    decision, _ = decide(config, fresh, changed(seen, ran=False, load=None))
    assert dry_run(config, state, seen) == decision
