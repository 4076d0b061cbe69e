"""Tasks of different weights: what moves for them, and that it comes to rest. Without Spark."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.spark.steering.measurements import FEWEST, Costs
from tests.support.steering_simulation import changed, cluster, grid, slots, spread_with_a_hot_one
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


@pytest.mark.parametrize("weight", [1.0, 1.2, 1.45, 2.0])
def test_small_differences_move_nothing(weight):
    run = spread_with_a_hot_one(weight)
    run.settle()
    assert not any(run.moves)


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
