"""Tasks of different weights: what moves for them, and that it comes to rest. Without Spark."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taskplace.spark.steering.measurements import FEWEST, Costs
from tests.support.steering_simulation import Obedient, changed, cluster, grid, slots, spread_with_a_hot_one
from topology.tasks import TaskId


def test_a_task_as_costly_as_all_others_together_ends_up_alone():
    run = spread_with_a_hot_one(11.0, per_batch=2)
    run.settle()
    assert run.counts()["executor-0"] == 1
    assert sorted(run.counts().values()) == [1, 5, 6]
    assert run.seen.places[TaskId(0, 0)] == "executor-0", "what is hot stays, what is beside it goes"
    moves = [moves for moves in run.moves if moves]
    assert [len(m) for m in moves] == [2, 1], "the budget holds, and there are no moves but those"
    assert {move.why for m in moves for move in m} == {"load"}


def test_counts_give_way_only_if_that_is_worth_it():
    assert spread_with_a_hot_one(11.0, worth_batches=1).moves[-1]
    assert not spread_with_a_hot_one(11.0, worth_batches=5e-4).moves[-1]  # a reload takes 0.001 s


@pytest.mark.parametrize("weight", [1.0, 1.2, 1.45, 2.0])
def test_small_differences_move_nothing(weight):
    run = spread_with_a_hot_one(weight)
    run.settle()
    assert not any(run.moves)


def test_counts_hold_where_the_tolerance_says_so():
    run = spread_with_a_hot_one(11.0, load_tolerance=2.0)
    run.settle()
    assert set(run.counts().values()) == {4}


def test_a_hot_task_that_cools_down_gets_its_neighbours_back_and_the_reason_is_told():
    run = spread_with_a_hot_one(11.0)
    run.settle()
    for _ in range(5):
        decision = run.batch(load=dict.fromkeys(run.seen.places, 1.0))
        if decision.why:
            assert [str(why) for why in decision.why] == ["load: all tasks weigh the same again"]
    run.settle()
    assert set(run.counts().values()) == {4}


@settings(deadline=None, max_examples=50)
@given(
    costs=st.lists(st.sampled_from([0.2, 1.0, 1.0, 1.0, 3.0, 12.0]), min_size=2, max_size=14),
    count=st.integers(2, 4),
    seed=st.integers(0, 2**32),
)
def test_noise_about_what_tasks_cost_comes_to_rest(costs, count, seed):
    random, tasks = Random(seed), grid(1, len(costs))
    run = cluster(tasks, slots(count, cores=1), dict.fromkeys(tasks))
    moves = [
        len(run.batch(load={t: costs[t.partition] * random.uniform(0.91, 1.09) for t in tasks}).moves)
        for _ in range(60)
    ]
    weighed = sum(cost != 1.0 for cost in costs) + len(costs)  # each may be weighed twice, not more
    assert not any(moves[40:]), moves
    assert sum(moves) <= len(costs) * (1 + weighed)


@pytest.mark.parametrize("seed", range(8))
def test_where_places_make_tasks_slow_handing_over_dies_down(seed):
    """What is observed of a task is partly its place, so moving it changes what it weighs."""
    random = Random(seed)
    tasks, names = grid(1, random.randint(12, 16)), slots(3, cores=1)
    slow = dict(zip(sorted(names), [4.0, random.choice([1.0, 1.7]), 1.0], strict=True))
    run, changed = cluster(tasks, names, dict.fromkeys(tasks)), 0
    run.batch()
    for _ in range(250):
        load = {t: slow[str(run.seen.places[t])] * random.uniform(0.95, 1.05) for t in tasks}
        changed += any(why.kind == "load" for why in run.batch(load=load).why)
    assert changed <= 8, "2 + 4 + ... observations lie between them"
    assert run.counts()["executor-0"] < len(tasks) / 3, "and the slow one has less to do"


def test_a_hot_partition_counts_as_what_it_costs():
    tasks = grid(1, 8)
    run = cluster(tasks, slots(2, cores=1), {t: f"executor-{t.partition % 2}" for t in tasks})
    run.batch()
    hot = dict.fromkeys(tasks, 1.0) | {tasks[p]: 6.0 for p in (0, 2, 4)}
    for _ in range(FEWEST):
        decision = run.batch(load=hot)
    assert [why.kind for why in decision.why] == ["load"]
    run.settle()
    loads = Counter()
    for task, name in run.seen.places.items():
        loads[name] += hot[task]
    assert sorted(loads.values()) == [11.0, 12.0]
    assert sorted(run.counts().values()) == [2, 6]


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_partitions_with_all_the_rows_do_not_stay_together_however_many_have_none(least):
    tasks = grid(1, 12)
    run = cluster(tasks, slots(3, cores=1), {t: f"executor-{t.partition % 3}" for t in tasks}, load_by="rows")
    rows = (
        dict.fromkeys(tasks, least)
        | {tasks[0]: 1000.0}
        | dict.fromkeys((tasks[3], tasks[6], tasks[9]), 500.0)
    )
    run.batch()
    assert run.busiest(rows) >= 2500
    for _ in range(FEWEST):
        run.batch(load=rows)
    run.settle()
    assert run.busiest(rows) <= 1000 + 8 * least


def test_a_drained_instance_s_tasks_do_not_join_the_hot_one():
    run = spread_with_a_hot_one(11.0)
    run.settle()
    run.batch(draining=frozenset({"executor-1"}))
    run.settle()
    assert run.counts() == {"executor-0": 1, "executor-1": 0, "executor-2": 11}


@pytest.mark.parametrize(
    ("tasks", "hot", "before", "new"),
    [
        (grid(2, 6), {(0, 0), (0, 4)}, 2, 4),
        (grid(2, 6), {(0, 0), (0, 1)}, 2, 4),
        (grid(1, 15), {(0, 0), (0, 5)}, 2, 2),
    ],
)
def test_a_new_instance_of_other_size_takes_what_the_hot_tasks_had_beside_them(tasks, hot, before, new):
    costs = {t: 20.0 if (t.subtopology, t.partition) in hot else 1.0 for t in tasks}
    run = cluster(tasks, slots(before, cores=1), dict.fromkeys(tasks))
    run.seen = changed(run.seen, costs=Costs(task=1.0, reload=0.02))
    run.batch()
    for _ in range(FEWEST + 1):
        run.batch(load=costs)
    run.settle()
    old = run.busiest(costs)
    run.batch(slots={**slots(before, cores=1), "new": new})
    run.settle()
    assert run.counts()["new"]
    assert run.busiest(costs) < old
    assert run.seen.places == run.target


@settings(deadline=None, max_examples=80)
@given(
    costs=st.lists(
        st.lists(st.sampled_from([1.0, 1.0, 1.0, 1.0, 0.2, 3.0, 8.0, 20.0]), min_size=1, max_size=14),
        min_size=1,
        max_size=2,
    ),
    cores=st.lists(st.integers(1, 4), min_size=2, max_size=5),
)
def test_a_new_instance_is_not_left_empty_while_the_target_wants_tasks_there(costs, cores):
    names = {f"executor-{i}": count for i, count in enumerate(cores)}
    *_, new = names
    seconds = {TaskId(s, p): cost for s, own in enumerate(costs) for p, cost in enumerate(own)}
    run = cluster(list(seconds), {name: names[name] for name in names if name != new}, dict.fromkeys(seconds))
    run.seen = changed(run.seen, costs=Costs(task=1.0, reload=0.02))
    run.batch()
    for _ in range(FEWEST + 1):
        run.batch(load=seconds)
    run.settle()
    run.batch(slots=names)
    for _ in range(2):
        run.settle()
        run.batch(load=seconds)
    assert run.counts()[new] or new not in run.target.values(), run.state.verdict


def with_a_new_one_of_other_size(costs, before: int, new: int) -> Obedient:
    """Tasks of these costs, spread, settled and then settled again beside a new instance of `new` slots."""
    seconds = {TaskId(0, p): cost for p, cost in enumerate(costs)}
    run = cluster(
        list(seconds), slots(before, cores=1), {t: f"executor-{t.partition % before}" for t in seconds}
    )
    run.seen = changed(run.seen, costs=Costs(task=1.0, reload=0.02))
    run.batch()
    for _ in range(FEWEST + 1):
        run.batch(load=seconds)
    run.settle()
    run.batch(slots={**slots(before, cores=1), "new": new})
    for _ in range(3):
        run.batch(load=seconds)
        run.settle()
    return run


@settings(deadline=None)
@given(
    costs=st.lists(st.sampled_from([1.0, 1.0, 1.0, 3.0, 8.0]), min_size=3, max_size=12),
    before=st.integers(2, 3),
    new=st.integers(1, 8),
)
@example(costs=[8.0, 8.0, 8.0, 8.0, 1.0, 8.0, 1.0], before=2, new=8)
def test_a_wide_new_instance_takes_what_lowers_the_peak_however_little_of_it_each_of_its_slots_gets(
    costs, before, new
):
    run = with_a_new_one_of_other_size(costs, before, new)
    seconds = {TaskId(0, p): cost for p, cost in enumerate(costs)}
    reached = run.busiest(seconds)
    run.seen = changed(run.seen, places=run.target)
    assert reached <= run.busiest(seconds) + 1e-9, run.state.verdict


@pytest.mark.parametrize("weight", [11.0, 40.0])
def test_a_new_instance_takes_from_those_that_are_not_held_by_the_hot_task(weight):
    run = spread_with_a_hot_one(weight)
    run.settle()
    run.batch(slots=slots(4, cores=1))
    run.settle()
    assert run.counts()["executor-0"] == 1
    assert sorted(run.counts().values()) == [1, 3, 4, 4]
    assert sum(map(len, run.moves)) == 3 + 3, "and nothing is moved twice"
